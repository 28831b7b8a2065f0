"""Copies of the parameters: equal, independent, on their device."""

import pytest
import tensorflow as tf

from manygpu.scratch import get_params, init_params
from tests.unit.helpers import DTYPES, EIGHT, runs_on, same, values


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("device", EIGHT[::3])
def test_copies_are_equal_variables_on_the_device_that_change_alone(dtype, device):
    params = init_params(dtype=dtype)
    before = values(params)
    one, other = get_params(params, device), get_params(params, device)
    assert same(values(one), before)
    assert all(runs_on(c, device) for c in one)
    assert all(isinstance(c, tf.Variable) and c.trainable for c in one)
    assert {c.dtype for c in one} == {dtype}
    for p in one:
        p.assign_add(tf.ones_like(p))
    assert same(values(params), before)
    assert same(values(other), before)
