"""The sum that every device gets, in place, for any tensors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch import (
    allreduce,
)
from tests.unit.helpers import DTYPES, EIGHT, runs_on, same, values

SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)
KINDS = st.sampled_from(["float32", "float64", "int32"])


def entries(n: int, shape: tuple, dtype: str, seed: int) -> list[np.ndarray]:
    drawn = np.random.default_rng(seed).integers(-1000, 1000, (n, *shape))
    return list((drawn / (1 if dtype == "int32" else 7)).astype(dtype))


def a_device_each(make: Callable, arrays: list[np.ndarray]) -> list:
    """What `make` makes of each array, on a device of its own."""
    data = []
    for value, device in zip(arrays, EIGHT, strict=False):
        with tf.device(device):
            data.append(make(value))
    return data


@given(n=st.integers(1, 8), shape=SHAPES, dtype=KINDS, seed=st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_allreduce_makes_every_variable_the_sum_in_place(n, shape, dtype, seed):
    given_values = entries(n, shape, dtype, seed)
    data = a_device_each(tf.Variable, given_values)
    before = list(data)
    assert allreduce(data) is None
    total = tf.add_n([tf.constant(v) for v in given_values]).numpy()
    for now, then, device in zip(data, before, EIGHT, strict=False):
        assert now is then
        assert runs_on(now, device)
        assert now.dtype.name == dtype
        assert now.shape == shape
        np.testing.assert_array_equal(now.numpy(), total)


@given(n=st.integers(1, 8), shape=SHAPES, dtype=KINDS, seed=st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_allreduce_replaces_every_tensor_in_the_list(n, shape, dtype, seed):
    given_values = entries(n, shape, dtype, seed)
    data = a_device_each(lambda value: tf.identity(tf.constant(value)), given_values)
    originals, the_list = list(data), data
    allreduce(data)
    assert data is the_list
    total = tf.add_n([tf.constant(v) for v in given_values]).numpy()
    for now, device in zip(data, EIGHT, strict=False):
        assert runs_on(now, device)
        assert now.dtype.name == dtype
        np.testing.assert_array_equal(now.numpy(), total)
    for original, value in zip(originals, given_values, strict=True):
        np.testing.assert_array_equal(original.numpy(), value)


def test_allreduce_adds_up_and_does_not_average():
    data = [tf.Variable(1.0), tf.Variable(2.0), tf.Variable(6.0)]
    allreduce(data)
    assert values(data) == [9.0] * 3


def test_allreduced_variables_stay_independent():
    data = [tf.Variable([1.0]), tf.Variable([2.0])]
    allreduce(data)
    data[0].assign([0.0])
    assert data[1].numpy() == [3.0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_allreduce_works_in_a_graph(dtype):
    replicas = [tf.Variable([k + 1.0], dtype=dtype) for k in range(3)]

    @tf.function
    def reduced():
        allreduce(replicas)
        plain = [tf.identity(r) for r in replicas]
        allreduce(plain)
        return plain

    assert values(reduced()) == [18.0] * 3
    assert values(replicas) == [6.0] * 3


@pytest.mark.parametrize(
    "make, kind",
    [
        (list, ValueError),
        (lambda: (tf.Variable(1.0), tf.Variable(2.0)), TypeError),
        (lambda: [tf.Variable([1.0]), tf.Variable([1.0, 2.0])], ValueError),
        (lambda: [tf.Variable([1.0]), tf.Variable([[1.0]])], ValueError),
        (lambda: [tf.Variable(1.0), tf.Variable(1.0, dtype=tf.float64)], TypeError),
        (lambda: [tf.Variable(1.0), tf.constant(1.0)], TypeError),
        (lambda: [tf.Variable(1.0), None], TypeError),
        (lambda: [tf.Variable(1.0)] * 2, ValueError),
        (lambda: [tf.Variable(True), tf.Variable(False)], TypeError),
        (lambda: [tf.constant("a"), tf.constant("b")], TypeError),
    ],
)
def test_allreduce_refuses_bad_input_and_leaves_it_as_it_was(make, kind):
    data = make()
    entries_before = list(data)
    values_before = [d.numpy() for d in data if d is not None]
    with pytest.raises(kind, match="data"):
        allreduce(data)
    assert all(a is b for a, b in zip(data, entries_before, strict=True))
    assert same([d.numpy() for d in data if d is not None], values_before)


def test_the_sum_is_made_where_the_first_one_lies():
    @tf.function
    def reduced():
        data = []
        for device in EIGHT[1:4]:
            with tf.device(device):
                data.append(tf.ones(2))
        allreduce(data)
        return data

    ops = reduced.get_concrete_function().graph.get_operations()
    assert [op.device[-5:] for op in ops if op.type == "AddN"] == [EIGHT[1][-5:]]
