"""Batch normalization: in a cut network, over shards, and its trained parameters."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.measure import shares
from manygpu.scratch.data_parallel.collectives import MessageLog
from manygpu.scratch.splitting.batch_normalization import (
    GUIDE_CUT,
    batch_norm,
    guide_cnn_layers,
    synced_batch_norm,
    synced_batch_norm_gradients,
)
from manygpu.scratch.splitting.network import Layer, make_stages, partitioned_gradients
from tests.unit.helpers import EIGHT, batch, distance, in_graph, same, values
from tests.unit.scratch.splitting.helpers import BOUND, norm_layer, whole_gradients


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("cuts", [GUIDE_CUT, [1, 2, 5]])
def test_a_cut_leaves_batch_normalization_as_it_is(cuts, dtype):
    X, y = batch(4)
    layers = guide_cnn_layers(dtype=tf.as_dtype(dtype))
    stages = make_stages(layers, cuts, EIGHT)
    _, grads = partitioned_gradients(X, y, stages)
    _, reference = whole_gradients(X, y, layers)
    assert distance(sum(grads, []), reference) <= BOUND[dtype]
    moved = [v for s in stages for one in s.layers for v in one.state]
    assert distance(moved, [v for one in layers for v in one.state]) <= BOUND[dtype]
    assert sum(int(tf.size(p)) for s in stages for p in s.params) == 2_004_298


def test_one_seed_is_one_model_in_both_dtypes_and_another_is_another():
    narrow, wide, other = (
        [p.numpy() for one in guide_cnn_layers(s, d) for p in one.params]
        for s, d in ((0, tf.float32), (0, tf.float64), (1, tf.float32))
    )
    for a, b, c in zip(narrow, wide, other, strict=True):
        np.testing.assert_array_equal(a, b.astype(np.float32))
        assert a.std() == 0 or not np.array_equal(a, c)


def test_the_guides_layers_are_those_of_its_picture_with_he_weights():
    layers = guide_cnn_layers(dtype=tf.float64)
    rng = np.random.default_rng(0)
    conv, dense = layers[3], layers[6]
    for fan_in, W in (9 * 32, conv.params[0]), (256, dense.params[0]):
        spread = np.sqrt(2 / fan_in)
        assert abs(np.std(W) / spread - 1) < 5 / np.sqrt(2 * tf.size(W).numpy())
    # A bias is added, before the ReLU.
    for layer, h in (
        (conv, rng.normal(size=(2, 4, 4, 32))),
        (
            dense,
            rng.normal(size=(2, 256)),
        ),
    ):
        W, b = layer.params
        without = layer.apply(h, W, tf.zeros_like(b))
        assert not np.any(b)  # they begin at zero
        b.assign(tf.fill(b.shape, tf.cast(1e6, b.dtype)))
        np.testing.assert_array_less(9e5, layer.apply(h, W, b))
        b.assign(tf.zeros_like(b))
        np.testing.assert_array_equal(layer.apply(h, W, b), without)


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
    own = [make_stages([one], [], [place])[0].layers[0] for place in places]
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


@pytest.mark.parametrize("centre", [0.0, 100.0, 300.0, 1000.0, 3000.0])
@pytest.mark.parametrize("count", [1, 3])
def test_synced_normalization_keeps_its_digits_far_from_zero(centre, count):
    """Against the same float32 numbers, normalized in float64.

    The mean is known to a few roundings of its own size, and the spread is 1: so much
    each output may be off. From E[x^2] - E[x]^2 it would be NaN at 3,000.
    """
    rng = np.random.default_rng(3)
    h = tf.constant(centre + rng.normal(size=(64, 5, 2)), tf.float32)
    wide, places = norm_layer(2), EIGHT[:count]
    right = wide.apply(tf.cast(h, tf.float64), *wide.params, *wide.state)
    narrow = [Layer("norm", batch_norm, *map(in_dtype, norm_layer(2)[2:4]))]
    own = [make_stages(narrow, [], [place])[0].layers[0] for place in places]
    results = synced_batch_norm(tf.split(h, shares(64, count)), own, places)
    found = tf.concat([r.output for r in results], 0)
    rounding = 2.0**-24
    np.testing.assert_allclose(found, right, rtol=0, atol=8 * (centre + 8) * rounding)
    for layer in own:
        assert distance(layer.state, wide.state) <= 8 * rounding


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
@pytest.mark.parametrize("samples", [16, 128])
def test_half_precision_counts_and_sums_beyond_its_range(samples, dtype):
    """128 samples of 28 x 28 are 100,352 values a channel; float16 ends at 65,504."""
    rng, wide, places = np.random.default_rng(3), norm_layer(2), EIGHT[:2]
    h = tf.constant(rng.normal(3, 1, size=(samples, 28, 28, 2)), dtype)
    g = tf.constant(rng.normal(0.1, 1, size=h.shape), dtype)
    with tf.GradientTape() as tape:
        exact = tf.cast(h, tf.float64)
        tape.watch(exact)
        right = wide.apply(exact, *wide.params, *wide.state)
    inputs, *reference = tape.gradient(
        right, [exact, *wide.params], tf.cast(g, tf.float64)
    )
    narrow = partial(in_dtype, dtype=dtype)
    one = [Layer("norm", batch_norm, *map(narrow, norm_layer(2)[2:4]))]
    own = [make_stages(one, [], [place])[0].layers[0] for place in places]
    results = synced_batch_norm(tf.split(h, 2), own, places)
    found, sums = synced_batch_norm_gradients(results, tf.split(g, 2), own, places)
    of_shards = [tf.concat([r.output for r in results], 0), tf.concat(found, 0)]
    rounding = 4 * 2.0 ** (-10 if dtype == tf.float16 else -7)
    assert {t.dtype for t in [*of_shards, *sums[0], *sums[1]]} == {dtype}
    assert distance(of_shards[0], right) <= rounding
    assert distance(of_shards[1], inputs) <= rounding
    for layer, of_params in zip(own, sums, strict=True):
        assert distance(of_params, reference) <= rounding
        assert distance(layer.state, wide.state) <= rounding


def in_dtype(variables, dtype=tf.float32):
    return tuple(tf.Variable(tf.cast(v, dtype)) for v in variables)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("momentum", 5, ValueError),
        ("momentum", float("nan"), ValueError),
        ("momentum", -0.1, ValueError),
        ("momentum", "a", TypeError),
        ("momentum", True, TypeError),
        ("epsilon", -1, ValueError),
        ("epsilon", float("nan"), ValueError),
        ("epsilon", "a", TypeError),
    ],
)
def test_a_number_out_of_its_range_is_refused_and_moves_nothing(name, value, kind):
    one, h = norm_layer(2), tf.ones((4, 2), tf.float64)
    before = values(one.state)
    with pytest.raises(kind, match=f"{name} must be"):
        one.apply(h, *one.params, *one.state, **{name: value})
    with pytest.raises(kind, match=f"{name} must be"):
        synced_batch_norm([h], [one], EIGHT[:1], **{name: value})
    assert same(values(one.state), before)


@pytest.mark.parametrize(
    "change, match",
    [
        ({"layers": [norm_layer(2)] * 2}, "layers share a variable"),
        (
            {"layers": [norm_layer(2), norm_layer(3)]},
            r"shards\[1\] has 2 channels, layers\[1\] 3",
        ),
        ({"shards": []}, "shards is empty"),
        ({"layers": [norm_layer(2)]}, "layers has 1 entries for 2 shards"),
        ({"devices": EIGHT[:3]}, "devices has 3 entries for 2 shards"),
        ({"devices": ["/device:CPU:0", "/device:CPU:99"]}, "does not exist"),
    ],
)
def test_shards_that_do_not_match_are_refused(change, match):
    good = {
        "shards": [tf.ones((2, 2), tf.float64)] * 2,
        "layers": [norm_layer(2), norm_layer(2)],
        "devices": EIGHT[:2],
    }
    with pytest.raises(ValueError, match=match):
        synced_batch_norm(**(good | change))


def test_large_float16_gradients_are_multiplied_beyond_its_range():
    """Their products are above 65,504 on the way; what comes out is not."""
    h = tf.constant([[-3.0], [1.0], [1.0], [1.0]], tf.float16)
    g = tf.constant([[4e4], [4e4], [4e4], [0.0]], tf.float16)
    found = {}
    for dtype in (tf.float16, tf.float64):
        own = [
            Layer("norm", batch_norm, *(in_dtype(v, dtype) for v in norm_layer(1)[2:4]))
        ]
        results = synced_batch_norm([tf.cast(h, dtype)], own, EIGHT[:1])
        (inputs,), ((gamma, _),) = synced_batch_norm_gradients(
            results, [tf.cast(g, dtype)], own, EIGHT[:1]
        )
        found[dtype] = [inputs, gamma]
    assert distance(found[tf.float16], found[tf.float64]) <= 4 * 2.0**-10
