"""LeNet cut over devices: gradients of one device, bytes to the formula, places."""

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch.data_parallel.collectives import MessageLog
from manygpu.scratch.splitting import layerwise
from manygpu.scratch.splitting.layerwise_lenet import LENET_CUTS
from manygpu.scratch.splitting.network import lenet_layers
from manygpu.scratch.start import one_device
from manygpu.scratch.start.one_device import SHAPES, init_params
from tests.unit.helpers import EIGHT, batch, distance, in_graph, places, runs_on
from tests.unit.scratch.splitting.helpers import BOUND

KINDS = st.sampled_from(list(BOUND))
quick = settings(deadline=None, max_examples=10)


def in_turn(k: int) -> list[str]:
    return [EIGHT[i % 8] for i in range(k)]


def lenet_shards(params: list, devices: list[str]) -> layerwise.LayerShards:
    return layerwise.LayerShards(lenet_layers(params), devices, LENET_CUTS)


@given(k=st.integers(1, 10), dtype=KINDS)
@quick
def test_shards_joined_are_the_parameters_and_lie_apart(k, dtype):
    params = init_params(dtype=tf.as_dtype(dtype))
    shards = lenet_shards(params, in_turn(k))
    for p, joined in zip(params, layerwise.gather_params(shards), strict=True):
        np.testing.assert_array_equal(joined, p)
    for device, own in zip(in_turn(k), shards, strict=True):
        assert all(runs_on(v, device) for v in own)
    numbers = sum(v.shape.num_elements() for own in shards for v in own)
    whole = sum(int(np.prod(SHAPES[i])) for i in (0, 1, 5))
    assert numbers == sum(p.shape.num_elements() for p in params) + (k - 1) * whole
    shards[0][0].assign_add(tf.ones_like(shards[0][0]))
    if k > 1:
        np.testing.assert_array_equal(shards[1][0], params[0])
    np.testing.assert_array_equal(params[0], init_params(dtype=params[0].dtype)[0])


@given(k=st.integers(1, 10), samples=st.integers(1, 5), dtype=KINDS)
@quick
def test_gradients_are_those_of_one_device_and_the_bytes_those_of_the_formula(
    k, samples, dtype
):
    (X, y), params = batch(samples), init_params(dtype=tf.as_dtype(dtype))
    shards, log = lenet_shards(params, in_turn(k)), MessageLog()
    loss, grads = layerwise.layerwise_gradients(X, y, shards, log)
    expected, reference = one_device.gradients(X, y, params)
    found = [loss, *layerwise.gather_params(shards, grads)]
    assert distance(found, [expected, *reference]) <= BOUND[dtype]
    for device, own, own_grads in zip(in_turn(k), shards, grads, strict=True):
        assert [g.shape for g in own_grads] == [v.shape for v in own]
        assert all(runs_on(g, device) for g in own_grads)
        for j in (0, 1, 5):  # what is whole stays equal everywhere, to the bit
            np.testing.assert_array_equal(own_grads[j], grads[0][j])
    numbers = (128 + 128 + 3) * samples + 200
    sent = sum(map(log.sent, range(k)))
    assert sent == 2 * (k - 1) * numbers * np.dtype(dtype).itemsize
    assert len(log.messages) == 5 * 2 * (k - 1) * k


def test_each_device_computes_its_pieces_backward_too_and_no_other_device_does():
    shards = lenet_shards(init_params(), EIGHT[5:2:-1])
    graph = (
        in_graph(layerwise.layerwise_step)
        .get_concrete_function(*batch(6), shards, 0.1)
        .graph
    )
    found = places(graph, "Conv2DBackpropFilter")
    assert set(found) == set(EIGHT[3:6]) and len(set(found.values())) == 1
