"""Tensor parallelism: the largest of all, labels, plans, and layers that stay whole.

That its steps are those of one device is in trainings/test_one_device.py, that a cut
loss is the whole one is on the page, and LeNet is in test_layerwise_lenet.py.
"""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch.data_parallel.collectives import MessageLog
from manygpu.scratch.splitting import layerwise
from manygpu.scratch.splitting.layerwise import COLUMNS, ROWS, WHOLE, in_pairs
from manygpu.scratch.splitting.network import Layer, Model
from manygpu.scratch.splitting.pipeline import dense_layers
from tests.unit.helpers import EIGHT, distance
from tests.unit.scratch.data_parallel.participants import dealt, one_message_a_step
from tests.unit.scratch.splitting.helpers import BOUND

KINDS = st.sampled_from(list(BOUND))
quick = settings(deadline=None, max_examples=10)


@given(n=st.integers(1, 9), shape=st.lists(st.integers(0, 4), max_size=2), dtype=KINDS)
@quick
def test_the_largest_of_all_is_everybodys_for_the_rings_bytes(n, shape, dtype):
    rng = np.random.default_rng(n)
    values = (rng.normal(size=(n, *shape)) - 10).astype(dtype)  # none above 0
    data, log = dealt(list(values)), MessageLog()
    for result, entry in zip(layerwise.allreduce_max(data, log), data, strict=True):
        np.testing.assert_array_equal(result, values.max(0))
        assert (result.device, result.dtype) == (entry.device, entry.dtype)
    assert sum(map(log.sent, range(n))) == 2 * (n - 1) * values[0].nbytes
    assert log.steps == 2 * (n - 1)
    assert one_message_a_step(log)


def test_a_label_that_is_no_class_is_not_a_loss():
    pieces = dealt([tf.zeros((4, 3)), tf.zeros((4, 2))])
    losses, _ = layerwise.split_cross_entropy(pieces, tf.constant([-1, 0, 4, 5]))
    np.testing.assert_array_equal(np.isnan(losses[1]), [True, False, False, True])


def test_layers_are_paired_from_the_first():
    a, b, c = dense_layers([5, 4, 4, 4])
    opaque = Layer("twice", lambda h: 2 * h)
    assert in_pairs([a, b, c]) == [COLUMNS, ROWS, COLUMNS]
    assert in_pairs([a, b, c, c]) == [COLUMNS, ROWS] * 2
    assert in_pairs([opaque, a, b]) == [WHOLE, COLUMNS, ROWS]
    assert in_pairs([a, opaque, b]) == [WHOLE, WHOLE, COLUMNS]


PLANS = {  # how often one step's collectives send a tensor round
    "first layer free": ([COLUMNS, ROWS, COLUMNS, ROWS, COLUMNS], 6),
    "first layer whole": ([WHOLE, COLUMNS, ROWS, COLUMNS, ROWS], 4),
    "pair between whole layers": ([WHOLE, WHOLE, COLUMNS, ROWS, WHOLE], 2),
    "all whole": ([WHOLE] * 5, 0),
}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_each_plan_gives_one_devices_gradients_with_as_many_collectives(name, k):
    cuts, collectives = PLANS[name]
    model = Model(dense_layers([7, 5, 11, 6, 5, 13], dtype=tf.float64))
    rng, log = np.random.default_rng(k), MessageLog()
    X, y = tf.constant(rng.normal(size=(4, 7))), tf.constant(rng.integers(0, 13, 4))
    shards = layerwise.LayerShards(model.layers, EIGHT[:k], cuts)
    loss, grads = layerwise.layerwise_gradients(X, y, shards, log)
    right, expected = model.gradients(X, y, model.params)
    found = [loss, *layerwise.gather_params(shards, grads)]
    assert distance(found, [right, *expected]) <= BOUND["float64"]
    assert len(log.messages) == collectives * 2 * (k - 1) * k
    whole = [n for n, how in enumerate(sum(shards.how, [])) if how.kind.letter == "I"]
    for own in grads:  # what is whole stays equal everywhere, to the bit
        for n in whole:
            np.testing.assert_array_equal(own[n], grads[0][n])


def test_rows_are_those_of_a_ranks_channels_at_every_place():
    _, own = layerwise.param_cuts(
        [Layer("a", None, [tf.zeros((3, 4))]), Layer("b", None, [tf.zeros((8, 1))])],
        [COLUMNS, ROWS],
    )
    mesh = layerwise.Mesh(EIGHT, layerwise=2)
    rows = tf.reshape(tf.range(8), (8, 1))
    slices = [own[0].slice_of(rows, mesh, rank) for rank in range(2)]
    assert slices[0].numpy().ravel().tolist() == [0, 1, 4, 5]
    assert own[0].whole(slices).numpy().ravel().tolist() == list(range(8))
