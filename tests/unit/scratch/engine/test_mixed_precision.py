"""Mixed precision by hand: what loss scaling, 16-bit sums and skipped steps promise.

The reference is float32, or a few lines of plain Python that say what dynamic loss
scaling does. Broken variants show that the comparisons fail where they should.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch import get_params, gradients, init_params, lenet, sgd
from manygpu.scratch.engine.mixed_precision import (
    SCALES,
    LossScale,
    all_finite,
    allreduce_stored,
    lenet_stored,
    mixed_gradients,
    step_if_finite,
    unscale,
)
from manygpu.scratch.splitting.network import transfers
from tests.unit.helpers import EIGHT, batch, distance, numbers

HALF = [tf.float16, tf.bfloat16]
ROUNDING = {tf.float16: 2.0**-11, tf.bfloat16: 2.0**-8}  # largest relative error
ROUNDINGS = 16  # four layers there and back, and a few ReLUs that flip
NORMAL = 2.0**-14  # float16's smallest normal number


# Gradients: stored in 16 bits, scaled, unscaled.


@pytest.mark.parametrize("dtype", HALF)
def test_lenet_stored_is_lenet_up_to_rounding(dtype):
    X, _ = batch(16)
    params = init_params()
    logits = lenet_stored(X, [tf.cast(p, dtype) for p in params])
    assert logits.dtype == dtype
    assert distance([logits], [lenet(X, params)]) <= ROUNDINGS * ROUNDING[dtype]


def test_lenet_stored_in_float32_is_lenet():
    X, _ = batch(16)
    params = init_params()
    assert np.array_equal(lenet_stored(X, params), lenet(X, params))


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


def test_without_a_scale_a_tiny_mean_is_lost_and_a_scale_saves_it():
    X, y = batch(16)
    params = init_params()
    reference = gradients(X, y, params)[1]

    def error(factor: float) -> float:
        grads = mixed_gradients(X, y, params, tf.float16, factor, lenet_stored)[1]
        return distance(unscale(grads, factor), reference)

    assert error(2.0**-24) > 0.2
    assert error(2.0**-24 * 2.0**20) <= ROUNDINGS * ROUNDING[tf.float16]


@given(
    value=st.floats(NORMAL, 60_000, width=32), sign=st.sampled_from([-1, 1]),
    power=st.integers(-20, 20),
)  # fmt: skip
def test_a_power_of_two_costs_no_digit(value, sign, power):
    """As long as the scaled number is normal too."""
    g, scale = np.float32(sign * value), 2.0**power
    plain = unscale([tf.cast(tf.constant(g), tf.float16)], 1.0)[0].numpy()
    if not NORMAL <= abs(g) * scale <= 60_000:
        return
    scaled = tf.cast(tf.constant(g * np.float32(scale)), tf.float16)
    assert unscale([scaled], scale)[0].numpy() == plain


def test_no_finite_float16_is_lost_when_it_is_unscaled():
    """What SCALES promises: from the smallest to the largest, at both ends."""
    for g in (2.0**-24, 65504.0):
        for scale in (SCALES[0], SCALES[-1]):
            back = float(unscale([tf.constant(g, tf.float16)], scale)[0])
            assert back == g / scale


# The scale that finds itself.


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
)
def test_the_scale_follows_its_rules_and_a_skip_changes_nothing(
    finite, power, patience
):
    state = LossScale(2.0**power, patience)
    p = tf.Variable([1.0, -2.0])
    scales = []
    for ok in finite:
        before = p.numpy().tobytes()
        step_if_finite(state, tf.constant(ok), lambda: p.assign_sub([0.25, 0.5]))
        assert (p.numpy().tobytes() != before) == ok
        scales.append(float(state.scale))
    assert scales == said(finite, 2.0**power, patience)
    assert all(s in SCALES for s in scales)
    assert np.array_equal(p, np.array([1, -2]) - sum(finite) * np.array([0.25, 0.5]))


def test_the_same_in_a_graph():
    state, p = LossScale(8.0, patience=2), tf.Variable(0.0)

    @tf.function
    def step(finite):
        step_if_finite(state, finite, lambda: p.assign_add(1.0))

    finite = [True, False, True, True, True, False, True, True]
    scales = []
    for ok in finite:
        step(tf.constant(ok))
        scales.append(float(state.scale))
    assert scales == said(finite, 8.0, 2)
    assert float(p) == sum(finite)


def test_it_begins_and_waits_as_keras_optimizer_does():
    engine = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD())
    own = LossScale()
    found = float(own.scale), own.patience
    assert found == (engine.initial_scale, engine.dynamic_growth_steps)


def test_it_is_keras_loss_scale_optimizer():
    rng = np.random.default_rng(1)
    theirs, mine = tf.Variable([1.0, 2.0]), tf.Variable([1.0, 2.0])
    inner = tf.keras.optimizers.SGD(0.125)
    engine = tf.keras.mixed_precision.LossScaleOptimizer(
        inner, 2.0**15, dynamic_growth_steps=2
    )
    engine.build([theirs])
    state = LossScale(2.0**15, patience=2)
    for spoil in [1.0, math.inf, 1.0, 1.0, 1.0, 1.0, math.nan, -math.inf, 1.0, 1.0]:
        g = tf.constant(rng.integers(1, 64, 2), tf.float32) * state.scale * spoil
        engine.apply([g], [theirs])
        own = unscale([g], state.scale)
        step_if_finite(state, all_finite(own), lambda own=own: sgd([mine], own, 0.125))
        assert float(state.scale) == float(engine.dynamic_scale)
        assert np.array_equal(theirs, mine)


@pytest.mark.parametrize("dtype", [*HALF, tf.float32])
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_all_finite_finds_one_bad_entry_in_many(dtype, bad):
    good = [tf.ones((3, 4), dtype), tf.zeros((), dtype)]
    assert bool(all_finite(good))
    spoilt = tf.tensor_scatter_nd_update(good[0], [[2, 3]], tf.constant([bad], dtype))
    assert not bool(all_finite([spoilt, good[1]]))
    assert not bool(all_finite([good[1], spoilt]))


@pytest.mark.parametrize("scale", [np.float32(8), np.float16(8), np.int64(8), 8])
def test_a_scale_may_be_a_number_of_numpy(scale):
    assert float(LossScale(scale).scale) == 8.0


# On the wire.


def on_devices(rows: list, dtype: tf.DType = tf.float32) -> list[list[tf.Tensor]]:
    """grads[k] = one tensor on device k."""
    grads = []
    for device, row in zip(EIGHT, rows, strict=False):
        with tf.device(device):
            grads.append([tf.identity(tf.constant(row, dtype))])
    return grads


@settings(max_examples=30, deadline=None)
@given(
    k=st.integers(1, 8), size=st.integers(1, 40), seed=st.integers(0, 2**31),
    dtype=st.sampled_from([*HALF, tf.float32]),
)  # fmt: skip
def test_the_sum_is_rounded_twice_at_most_and_alike_everywhere(k, size, seed, dtype):
    rows = np.random.default_rng(seed).normal(size=(k, size)).astype(np.float32)
    grads = on_devices(list(rows))
    found = allreduce_stored(grads, dtype)
    eps = {**ROUNDING, tf.float32: k * 2.0**-23}[dtype]
    bound = 2.02 * eps * np.sum(np.abs(rows.astype(np.float64)), axis=0) + 1e-6
    exact = np.sum(rows, axis=0, dtype=np.float64)
    for own, given_, device in zip(found, grads, EIGHT, strict=False):
        assert own[0].dtype == dtype and own[0].device.endswith(device)
        assert np.all(np.abs(numbers(own) - exact) <= bound)
        assert np.array_equal(numbers(own), numbers(found[0]))
        assert given_[0].dtype == tf.float32  # what came in is as it was
    assert np.array_equal([numbers(g) for g in grads], rows)


def test_it_adds_in_float32():
    """2,048 + 7 ones: float16 would stop at 2,048, since its spacing is 2 there."""
    found = allreduce_stored(on_devices([[2048.0], *[[1.0]] * 7]), tf.float16)
    assert float(found[0][0][0]) == 2056.0  # 2,055, rounded once to the even one
    in_16 = np.float16(2048)
    for _ in range(7):
        in_16 = in_16 + np.float16(1)
    assert float(in_16) == 2048


@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_what_overflows_on_one_device_overflows_on_all(k):
    rows = [[1.0, 2.0]] * (k - 1) + [[1.0, math.inf]]
    found = allreduce_stored(on_devices(rows, tf.float16))
    assert not any(bool(all_finite(own)) for own in found)


def test_a_sum_that_overflows_is_noticed_though_its_parts_are_finite():
    grads = on_devices([[60_000.0]] * 2, tf.float16)
    assert all(bool(all_finite(own)) for own in grads)
    assert not any(bool(all_finite(own)) for own in allreduce_stored(grads))
    wide = allreduce_stored(grads, tf.bfloat16)
    assert all(bool(all_finite(own)) for own in wide)


@pytest.mark.parametrize("dtype", [*HALF, tf.float32])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_what_travels_is_stored_in_the_dtype(dtype, k):
    """Cast on its own device, before it leaves."""

    def reduce():
        return allreduce_stored(on_devices([[1.0] * 6] * k), dtype)

    moves = transfers(
        tf.function(reduce, autograph=False).get_concrete_function().graph
    )
    assert [move.bytes for move in moves] == [6 * dtype.size] * 2 * (k - 1)
    assert all(EIGHT[0] in (move.source, move.target) for move in moves)


@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_a_data_parallel_step_is_float32s_up_to_rounding(k):
    X, y = batch(24)
    devices = EIGHT[:k]
    replicas = [get_params(init_params(), d) for d in devices]
    state, grads = LossScale(2.0**8), []
    shards = zip(tf.split(X, k), tf.split(y, k), replicas, devices, strict=True)
    for X_shard, y_shard, own, device in shards:
        with tf.device(device):
            scale = state.scale / 24
            grads.append(
                mixed_gradients(X_shard, y_shard, own, tf.float16, scale, lenet_stored)
            )
    sums = allreduce_stored([g for _, g in grads])
    for own, total, device in zip(replicas, sums, devices, strict=True):
        with tf.device(device):
            sgd(own, unscale(total, state.scale), 0.1)
    start = init_params()
    reference = [-0.1 / 24 * g for g in gradients(X, y, start)[1]]
    moved = [p - s for p, s in zip(replicas[0], start, strict=True)]
    assert distance(moved, reference) <= ROUNDINGS * ROUNDING[tf.float16]
    for own in replicas[1:]:
        assert np.array_equal(numbers(own), numbers(replicas[0]))
