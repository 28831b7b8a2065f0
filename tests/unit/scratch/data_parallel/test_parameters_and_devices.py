"""Copies of the parameters: equal, independent, on their device."""

from __future__ import annotations

import pytest
import tensorflow as tf

from manygpu.scratch import (
    get_params,
    init_params,
)
from tests.unit.helpers import DTYPES, EIGHT, runs_on, same, values


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("device", EIGHT[::3])
def test_get_params_gives_equal_copies_on_the_device(dtype, device):
    params = init_params(dtype=dtype)
    copies = get_params(params, device)
    assert same(values(copies), values(params))
    assert all(runs_on(c, device) for c in copies)
    assert all(isinstance(c, tf.Variable) and c.trainable for c in copies)
    assert {c.dtype for c in copies} == {dtype}


def test_copies_change_alone():
    params = init_params()
    one, other = get_params(params, EIGHT[0]), get_params(params, EIGHT[0])
    before = values(params)
    for p in one:
        p.assign_add(tf.ones_like(p))
    assert same(values(params), before)
    assert same(values(other), before)


@pytest.mark.parametrize(
    "params, device, kind, name",
    [
        ([], EIGHT[0], ValueError, "params"),
        ([tf.zeros(1)], "/device:CPU:99", ValueError, "device"),
    ],
)
def test_get_params_refuses_bad_input_by_name(params, device, kind, name):
    with pytest.raises(kind, match=f"^{name}"):
        get_params(params, device)
