"""The sum that every device gets, in place, for any tensors."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch import allreduce
from manygpu.scratch.data_parallel.collectives import dealt
from tests.unit.helpers import EIGHT, in_graph, places, runs_on

SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)
KINDS = st.sampled_from(["float32", "float64", "int32"])


@pytest.mark.parametrize("make", [tf.Variable, tf.identity])
@given(n=st.integers(1, 8), shape=SHAPES, dtype=KINDS, seed=st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_every_entry_becomes_the_sum_where_it_lies(make, n, shape, dtype, seed):
    """Variables are assigned, tensors replaced in the list."""
    drawn = np.random.default_rng(seed).integers(-1000, 1000, (n, *shape))
    given_values = list((drawn / (1 if dtype == "int32" else 7)).astype(dtype))
    data = []
    for value, device in zip(given_values, EIGHT, strict=False):
        with tf.device(device):
            data.append(make(tf.constant(value)))
    before = list(data)
    assert allreduce(data) is None
    total = tf.add_n([tf.constant(v) for v in given_values]).numpy()
    for now, then, value, device in zip(
        data, before, given_values, EIGHT, strict=False
    ):
        assert runs_on(now, device)
        assert (now.dtype.name, now.shape) == (dtype, shape)
        np.testing.assert_array_equal(now.numpy(), total)
        if make is tf.Variable:
            assert now is then
        else:
            np.testing.assert_array_equal(then.numpy(), value)


def test_the_sum_is_made_where_the_first_one_lies():
    @in_graph
    def reduced():
        data = dealt(EIGHT[1:4], [tf.ones(2)] * 3)
        allreduce(data)
        return data

    graph = reduced.get_concrete_function().graph
    assert places(graph, "AddN") == {EIGHT[1]: 1}
