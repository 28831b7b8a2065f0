"""Batch normalization over shards, and its parameters; the page has the cut network."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.measure import shares
from manygpu.scratch.data_parallel.collectives import MessageLog
from manygpu.scratch.splitting.batch_normalization import (
    guide_cnn_layers,
    synced_batch_norm,
    synced_batch_norm_gradients,
)
from manygpu.scratch.splitting.network import Layer, make_stages
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


def on_each(one: Layer, places: list[str]) -> list[Layer]:
    """A copy of a layer on each device."""
    return [make_stages([one], [], [place])[0].layers[0] for place in places]


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
    one, places = norm_layer(channels), EIGHT[:count]
    own = on_each(one, places)
    with tf.GradientTape() as tape:
        tape.watch(h)
        out = one.apply(h, *one.params, *one.state)
    reference = tape.gradient(out, [h, *one.params], g)
    sizes, log, back_log = shares(samples, count), MessageLog(), MessageLog()

    def synced():
        hs, gs = tf.split(h, sizes), tf.split(g, sizes)
        results = synced_batch_norm(hs, own, places, log)
        found, of_params = synced_batch_norm_gradients(
            results, gs, own, places, back_log
        )
        return tf.concat([r.output for r in results], 0), tf.concat(found, 0), of_params

    output, inputs, of_params = (in_graph(synced) if compiled else synced)()
    # Conditioning: with few values a channel the variance may be small.
    np.testing.assert_allclose(output, out, rtol=0, atol=1e-10)
    for params in of_params:
        found = [inputs, *params]
        for a, b in zip(found, reference, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)
    for layer in own:
        for a, b in zip(layer.state, one.state, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
    if count > 1:
        sent = sum(map(log.sent, range(count)))
        back = sum(map(back_log.sent, range(count)))
        assert sent == 2 * (count - 1) * 8 * (2 * channels + 1)
        steps = {hop.step for hop, _ in log.messages}  # of one ring after the other
        assert steps == set(range(4 * (count - 1)))
        assert back == 2 * (count - 1) * 8 * 2 * channels


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
    rng, wide, places = np.random.default_rng(3), norm_layer(2), EIGHT[:count]
    h = tf.constant(rng.normal(centre, 1, shape), dtype)
    g = tf.constant(rng.normal(0.1, 1, shape), dtype)
    with tf.GradientTape() as tape:
        exact = tf.cast(h, tf.float64)
        tape.watch(exact)
        right = wide.apply(exact, *wide.params, *wide.state)
    inputs, *reference = tape.gradient(
        right, [exact, *wide.params], tf.cast(g, tf.float64)
    )
    own, sizes = on_each(norm_layer(2, dtype=dtype), places), shares(shape[0], count)
    results = synced_batch_norm(tf.split(h, sizes), own, places)
    found, sums = synced_batch_norm_gradients(results, tf.split(g, sizes), own, places)
    of_shards = [tf.concat([r.output for r in results], 0), tf.concat(found, 0)]
    assert {t.dtype for t in [*of_shards, *sum(sums, [])]} == {dtype}
    for one, exactly in zip(of_shards, (right, inputs), strict=True):
        assert distance([one], [exactly]) <= within
    for layer, of_params in zip(own, sums, strict=True):
        assert distance(of_params, reference) <= within
        averages = 2.0**-21 if dtype == tf.float32 else within
        assert distance(layer.state, wide.state) <= averages


def test_large_float16_gradients_are_multiplied_beyond_its_range():
    """Their products are above 65,504 on the way; what comes out is not."""
    h = tf.constant([[-3.0], [1.0], [1.0], [1.0]], tf.float16)
    g = tf.constant([[4e4], [4e4], [4e4], [0.0]], tf.float16)
    found = {}
    for dtype in (tf.float16, tf.float64):
        own = [norm_layer(1, dtype=dtype)]
        results = synced_batch_norm([tf.cast(h, dtype)], own, EIGHT[:1])
        (inputs,), ((gamma, _),) = synced_batch_norm_gradients(
            results, [tf.cast(g, dtype)], own, EIGHT[:1]
        )
        found[dtype] = [inputs, gamma]
    assert distance(found[tf.float16], found[tf.float64]) <= 4 * 2.0**-10
