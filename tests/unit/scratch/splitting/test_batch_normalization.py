"""Batch normalization over shards, and its parameters; the page has the cut network."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch.data_parallel.collectives import MessageLog
from manygpu.scratch.splitting.batch_normalization import (
    guide_cnn_layers,
    synced_batch_norm,
)
from manygpu.scratch.splitting.network import Layer, copied_layer
from manygpu.scratch.splitting.program_over_ranks import (
    Backward,
    Mesh,
    Spread,
    spread_out,
)
from manygpu.scratch.splitting.what_a_tensor_means import S
from tests.unit.helpers import EIGHT, distance, in_graph
from tests.unit.scratch.splitting.helpers import norm_layer


def test_the_guides_layers_are_those_of_its_picture_with_he_weights():
    layers = guide_cnn_layers(dtype=tf.float64)
    rng = np.random.default_rng(0)
    conv, dense = layers[3], layers[6]
    for fan_in, W in (9 * 32, conv.params[0]), (256, dense.params[0]):
        spread = np.sqrt(2 / fan_in)
        assert abs(np.std(W) / spread - 1) < 5 / np.sqrt(2 * tf.size(W).numpy())
    # A bias is added, before the ReLU.
    for layer, shape in (conv, (2, 4, 4, 32)), (dense, (2, 256)):
        h, (W, b) = rng.normal(size=shape), layer.params
        assert not np.any(b)  # they begin at zero
        np.testing.assert_array_less(9e5, layer.apply(h, W, b + 1e6))


def on_each(one: Layer, mesh: Mesh, send) -> list[Spread]:
    """A copy of a layer on each rank: gamma, beta, mean and variance."""
    copies = [copied_layer(one, mesh.device(rank)) for rank in range(mesh.count)]
    own = zip(*((*copy.params, *copy.state) for copy in copies), strict=True)
    return [Spread(mesh, variables, send) for variables in own]


def run(h, g, own: list[Spread], log: MessageLog) -> tuple[Spread, list[Spread], int]:
    """The output, the gradients of h, gamma and beta, and the messages forward."""
    mesh, cut = own[0].mesh, {"data": S(-h.shape.rank)}
    h = spread_out(h, cut, mesh, log)
    output = synced_batch_norm("data", h, *own)
    forward = len(log.messages)
    ups = spread_out(g, cut, mesh).parts
    return output, Backward(output, ups).to([h, *own[:2]]), forward


@given(
    samples=st.integers(2, 12),
    count=st.integers(1, 8),
    sides=st.lists(st.integers(1, 3), max_size=2),
    channels=st.integers(1, 5),
    compiled=st.booleans(),
)
@settings(deadline=None, max_examples=8)
def test_synced_normalization_is_that_of_the_whole_batch(
    samples, count, sides, channels, compiled
):
    count = min(samples, count)
    shape = (samples, *sides, channels)
    rng = np.random.default_rng(2)
    h = tf.constant(rng.normal(2, 3, shape))
    g = tf.constant(rng.normal(size=shape))
    one, mesh, log = norm_layer(channels), Mesh(EIGHT[:count], data=count), MessageLog()
    own = on_each(one, mesh, log)
    with tf.GradientTape() as tape:
        tape.watch(h)
        out = one.apply(h, *one.params, *one.state)
    reference = tape.gradient(out, [h, *one.params], g)

    def synced():
        output, (of_h, *of_params), forward = run(h, g, own, log)
        of_ranks = list(zip(*(p.parts for p in of_params), strict=True))
        whole = tf.concat(output.parts, 0), tf.concat(of_h.parts, 0)
        return *whole, of_ranks, forward

    output, inputs, of_ranks, forward = (in_graph(synced) if compiled else synced)()
    # Conditioning: with few values a channel the variance may be small.
    np.testing.assert_allclose(output, out, rtol=0, atol=1e-10)
    for params in of_ranks:
        for a, b in zip([inputs, *params], reference, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)
    for average, right in zip(own[2:], one.state, strict=True):
        for v in average.parts:
            np.testing.assert_allclose(v, right, rtol=1e-12)
    if count > 1:
        bytes_of = [size for _, size in log.messages]
        assert sum(bytes_of[:forward]) == 2 * (count - 1) * 8 * (2 * channels + 1)
        assert sum(bytes_of[forward:]) == 2 * (count - 1) * 8 * 2 * channels


@pytest.mark.parametrize(
    "dtype, count, shape, centre, within",
    [
        # The mean is known to a few roundings of its own size, and the spread is 1.
        # From E[x^2] - E[x]^2 it would be NaN at 3,000.
        *(
            (tf.float32, count, (64, 5, 2), centre, 8 * (centre + 8) * 2.0**-24)
            for count in (1, 3)
            for centre in (0.0, 100.0, 300.0, 1000.0, 3000.0)
        ),
        # 128 of 28 x 28 are 100,352 values a channel; float16 ends at 65,504.
        *(
            (dtype, 2, (samples, 28, 28, 2), 3.0, within)
            for dtype, within in ((tf.float16, 2.0**-8), (tf.bfloat16, 2.0**-5))
            for samples in (16, 128)
        ),
    ],
)
def test_synced_normalization_keeps_its_digits(dtype, count, shape, centre, within):
    """Against the same numbers, normalized in float64."""
    rng, wide, mesh = (
        np.random.default_rng(3),
        norm_layer(2),
        Mesh(EIGHT[:count], data=count),
    )
    h = tf.constant(rng.normal(centre, 1, shape), dtype)
    g = tf.constant(rng.normal(0.1, 1, shape), dtype)
    with tf.GradientTape() as tape:
        exact = tf.cast(h, tf.float64)
        tape.watch(exact)
        right = wide.apply(exact, *wide.params, *wide.state)
    inputs, *reference = tape.gradient(
        right, [exact, *wide.params], tf.cast(g, tf.float64)
    )
    own = on_each(norm_layer(2, dtype=dtype), mesh, MessageLog())
    output, (of_h, *sums), _ = run(h, g, own, MessageLog())
    assert {t.dtype for one in (output, of_h, *sums) for t in one.parts} == {dtype}
    for one, exactly in (output, right), (of_h, inputs):
        assert distance([tf.concat(one.parts, 0)], [exactly]) <= within
    averages = 2.0**-21 if dtype == tf.float32 else within
    for rank in range(count):
        assert distance([one.parts[rank] for one in sums], reference) <= within
        state = [one.parts[rank] for one in own[2:]]
        assert distance(state, wide.state) <= averages


def test_large_float16_gradients_are_multiplied_beyond_its_range():
    """Their products are above 65,504 on the way; what comes out is not."""
    h = tf.constant([[-3.0], [1.0], [1.0], [1.0]], tf.float16)
    g = tf.constant([[4e4], [4e4], [4e4], [0.0]], tf.float16)
    found, mesh, log = {}, Mesh(EIGHT[:1], data=1), MessageLog()
    for dtype in (tf.float16, tf.float64):
        own = on_each(norm_layer(1, dtype=dtype), mesh, log)
        _, grads, _ = run(tf.cast(h, dtype), tf.cast(g, dtype), own, log)
        found[dtype] = [one.parts[0] for one in grads[:2]]
    assert distance(found[tf.float16], found[tf.float64]) <= 4 * 2.0**-10
