"""Mixed precision by hand: what loss scaling, 16-bit sums and skipped steps promise.

The reference is float32, or a few lines of plain Python that say what dynamic loss
scaling does. Broken variants show that the comparisons fail where they should.
"""

import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from manygpu.scratch import gradients, init_params
from manygpu.scratch.engine.mixed_precision import (
    SCALES,
    LossScale,
    all_finite,
    allreduce_stored,
    lenet_stored,
    mixed_gradients,
    step_if_finite,
    stored,
    unscale,
)
from tests.unit.helpers import EIGHT, batch, distance, in_graph, numbers

HALF = [tf.float16, tf.bfloat16]
ROUNDING = {tf.float16: 2.0**-11, tf.bfloat16: 2.0**-8}  # largest relative error
ROUNDINGS = 16  # four layers there and back, and a few ReLUs that flip
NORMAL = 2.0**-14  # float16's smallest normal number


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("scale", [2.0**-3, 1.0, 2.0**6])
def test_scaled_then_unscaled_gradients_are_float32s(dtype, scale):
    X, y = batch(16)
    params = init_params()
    loss, grads = mixed_gradients(X, y, params, dtype, scale, lenet_stored)
    reference_loss, reference = gradients(X, y, params)
    assert loss.dtype == tf.float32
    assert {g.dtype for g in grads} == {dtype}
    assert [g.shape for g in grads] == [p.shape for p in params]
    assert float(loss) == pytest.approx(float(reference_loss), rel=0.05)
    unscaled = unscale(grads, scale)
    assert {g.dtype for g in unscaled} == {tf.float32}
    assert distance(unscaled, reference) <= ROUNDINGS * ROUNDING[dtype]


@pytest.mark.parametrize("dtype", HALF)
def test_any_layer_computes_in_float32_and_stores_what_it_takes_and_gives(dtype):
    """Against NumPy: rounded in, rounded out, and nothing in between."""
    rng, seen = np.random.default_rng(0), []

    def product(h: tf.Tensor, W: tf.Tensor) -> tf.Tensor:
        seen.append((h.dtype, W.dtype))
        return h @ W

    h, W = (tf.constant(rng.normal(size=(64, 64)), tf.float32) for _ in "hW")
    with tf.GradientTape() as tape:
        tape.watch([h, W])
        found = stored(product, dtype)(h, W)
    assert seen == [(tf.float32, tf.float32)] and found.dtype == dtype
    short = [tf.cast(tf.cast(t, dtype), tf.float64).numpy() for t in (h, W)]
    exact = short[0] @ short[1]
    off = np.abs(tf.cast(found, tf.float64) - exact)
    assert np.all(off <= 1.01 * ROUNDING[dtype] * np.abs(exact) + 1e-4)
    up = rng.normal(size=(64, 64))
    (of_h, _) = tape.gradient(found, [h, W], tf.constant(up, dtype))
    rounded = tf.cast(tf.cast(of_h, dtype), tf.float32)
    assert np.array_equal(of_h, rounded)  # on the way back, too


def test_a_stored_layer_takes_tokens_as_they_are():
    table = tf.constant(np.random.default_rng(0).normal(size=(300, 4)), tf.float32)
    tokens = tf.constant([3, 299, 257])  # bfloat16 has no 257
    found = stored(lambda X, E: tf.gather(E, X), tf.bfloat16)(tokens, table)
    assert np.array_equal(found, tf.cast(tf.gather(table, tokens), tf.bfloat16))


@settings(deadline=None)  # how long a busy machine takes is no property
@given(
    value=st.floats(NORMAL, 60_000, width=32),
    sign=st.sampled_from([-1, 1]),
    power=st.integers(-20, 20),
)
def test_a_power_of_two_costs_no_digit(value, sign, power):
    """As long as the scaled number is normal too."""
    g, scale = np.float32(sign * value), 2.0**power
    assume(NORMAL <= abs(g) * scale <= 60_000)
    plain = unscale([tf.cast(tf.constant(g), tf.float16)], 1.0)[0].numpy()
    scaled = tf.cast(tf.constant(g * np.float32(scale)), tf.float16)
    assert unscale([scaled], scale)[0].numpy() == plain


@pytest.mark.parametrize("g", [2.0**-24, 65504.0])
@pytest.mark.parametrize("scale", [SCALES[0], SCALES[-1]])
def test_no_finite_float16_is_lost_when_it_is_unscaled(g, scale):
    assert float(unscale([tf.constant(g, tf.float16)], scale)[0]) == g / scale


def said(finite: list[bool], scale: float, patience: int) -> list[float]:
    """The scales that dynamic loss scaling has after each step, in plain Python."""
    good, scales = 0, []
    for ok in finite:
        good = good + 1 if ok else 0
        if not ok:
            scale = max(scale / 2, 2.0**-100)
        elif good == patience:
            scale, good = min(2 * scale, 2.0**100), 0
        scales.append(scale)
    return scales


@settings(max_examples=40, deadline=None)
@given(
    finite=st.lists(st.booleans(), min_size=1, max_size=30),
    power=st.sampled_from([-100, -99, -1, 0, 15, 98, 100]),
    patience=st.integers(1, 5),
    wrap=st.sampled_from([None, in_graph]),
)
def test_the_scale_follows_its_rules_and_a_skip_changes_nothing(
    finite, power, patience, wrap
):
    state, p, scales = LossScale(2.0**power, patience), tf.Variable([1.0, -2.0]), []

    def step(ok):
        step_if_finite(state, ok, lambda: p.assign_sub([0.25, 0.5]))

    taken = wrap(step) if wrap else step
    for ok in finite:
        before = p.numpy().tobytes()
        taken(tf.constant(ok))
        assert (p.numpy().tobytes() != before) == ok
        scales.append(float(state.scale))
    assert scales == said(finite, 2.0**power, patience)
    assert all(s in SCALES for s in scales)
    assert np.array_equal(p, np.array([1, -2]) - sum(finite) * np.array([0.25, 0.5]))


def test_it_begins_and_waits_as_keras_optimizer_does():
    engine = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD())
    own = LossScale()
    found = float(own.scale), own.patience
    assert found == (engine.initial_scale, engine.dynamic_growth_steps)


@pytest.mark.parametrize("dtype", [*HALF, tf.float32])
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_all_finite_finds_one_bad_entry_in_many(dtype, bad):
    good = [tf.ones((3, 4), dtype), tf.zeros((), dtype)]
    assert bool(all_finite(good))
    spoilt = tf.tensor_scatter_nd_update(good[0], [[2, 3]], tf.constant([bad], dtype))
    assert not any(map(all_finite, ([spoilt, good[1]], [good[1], spoilt])))


@pytest.mark.parametrize("scale", [np.float32(8), np.float16(8), np.int64(8), 8])
def test_a_scale_may_be_a_number_of_numpy(scale):
    assert float(LossScale(scale).scale) == 8.0


def on_devices(rows: list, dtype: tf.DType = tf.float32) -> list[list[tf.Tensor]]:
    """grads[k] = one tensor on device k."""
    grads = []
    for device, row in zip(EIGHT, rows, strict=False):
        with tf.device(device):
            grads.append([tf.identity(tf.constant(row, dtype))])
    return grads


@settings(max_examples=30, deadline=None)
@given(
    k=st.integers(1, 8),
    size=st.integers(1, 40),
    seed=st.integers(0, 2**31),
    dtype=st.sampled_from([*HALF, tf.float32]),
)
def test_the_sum_is_rounded_twice_at_most_and_alike_everywhere(k, size, seed, dtype):
    rows = np.random.default_rng(seed).normal(size=(k, size)).astype(np.float32)
    grads = on_devices(list(rows))
    found = allreduce_stored(grads, dtype)
    eps = {**ROUNDING, tf.float32: k * 2.0**-23}[dtype]
    bound = 2.02 * eps * np.sum(np.abs(rows.astype(np.float64)), axis=0) + 1e-6
    exact = np.sum(rows, axis=0, dtype=np.float64)
    for (own,), device in zip(found, EIGHT, strict=False):
        assert own.dtype == dtype and own.device.endswith(device)
        assert np.all(np.abs(numbers([own]) - exact) <= bound)
        assert np.array_equal(own, found[0][0])
    assert np.array_equal(
        [numbers(g) for g in grads], rows
    )  # what came in is as it was


@pytest.mark.parametrize(
    "rows",
    [[[math.inf]], [[1.0]] * 7 + [[math.inf]], [[60_000.0]] * 2],
    ids=["alone", "on one of eight", "only their sum"],
)
def test_what_overflows_on_one_device_or_in_the_sum_overflows_on_all(rows):
    grads = on_devices(rows, tf.float16)
    assert not any(bool(all_finite(own)) for own in allreduce_stored(grads))
    wide = allreduce_stored(grads, tf.bfloat16)
    assert all(bool(all_finite(own)) == (math.inf not in rows[-1]) for own in wide)
