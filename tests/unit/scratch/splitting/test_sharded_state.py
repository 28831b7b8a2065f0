"""ZeRO: one device's step in each stage; exact bytes held and sent; bad input."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch.data_parallel.collectives import Hop, MessageLog, deliver
from manygpu.scratch.splitting.network import Layer
from manygpu.scratch.splitting.sharded_state import (
    ZeroState,
    adam_change,
    held_bytes,
    zero_bytes,
    zero_gradients,
    zero_params,
    zero_step,
    zero_update,
)
from manygpu.scratch.start.one_device import cross_entropy
from tests.unit.helpers import EIGHT, numbers

COUNTS, STAGES = st.integers(1, 8), st.integers(0, 3)
WIDTHS = st.lists(st.integers(1, 6), min_size=2, max_size=4)
quick = settings(deadline=None, max_examples=20)


def dense(h, W, b):
    return tf.tanh(h @ W + b)


def network(widths, dtype="float64", seed=0) -> list[Layer]:
    """Dense layers from widths[0] inputs to widths[-1] classes."""
    rng, layers = np.random.default_rng(seed), []
    for n, m in zip(widths, widths[1:], strict=False):
        W = tf.Variable(rng.normal(size=(n, m)), dtype=dtype)
        b = tf.Variable(rng.normal(size=m), dtype=dtype)
        layers.append(Layer(f"dense {n}x{m}", dense, (W, b)))
    return layers


def batch(widths, samples=11, dtype="float64"):
    rng = np.random.default_rng(1)
    X = tf.constant(rng.normal(size=(samples, widths[0])), dtype)
    return X, tf.constant(rng.integers(0, widths[-1], samples), tf.int32)


def counts(layers) -> list[int]:
    return [int(sum(tf.size(p) for p in one.params)) for one in layers]


def on_one_device(layers, X, y):
    """The gradient of the mean loss of the whole network, by one tape."""
    params = [p for one in layers for p in one.params]
    with tf.GradientTape() as tape:
        h = X
        for one in layers:
            h = one.apply(h, *one.params)
        loss = tf.reduce_mean(cross_entropy(h, y))
    return loss, params, tape.gradient(loss, params)


def joined(state, grads) -> np.ndarray:
    """The whole gradient: the sum of the devices' shares, or their chunks."""
    found = []
    for of_layer in grads:
        parts = [numbers([g]) for g in of_layer]
        found.append(np.sum(parts, 0) if state.stage < 2 else np.concatenate(parts))
    return np.concatenate(found)


# The same step.


@given(k=COUNTS, stage=STAGES, widths=WIDTHS, dtype=st.sampled_from(["f4", "f8"]))
@quick
def test_gradients_are_one_devices(k, stage, widths, dtype):
    dtype = {"f4": "float32", "f8": "float64"}[dtype]
    layers, (X, y) = network(widths, dtype), batch(widths, dtype=dtype)
    loss, _, grads = on_one_device(layers, X, y)
    state = ZeroState(layers, EIGHT[:k], stage)
    found_loss, found = zero_gradients(state, X, y)
    exact, tolerance = numbers(grads), {"float32": 1e-5, "float64": 1e-12}[dtype]
    # A network of one class has no gradient at all, so nothing to divide by.
    assert np.linalg.norm(joined(state, found) - exact) <= tolerance * max(
        np.linalg.norm(exact), 1e-3
    )
    np.testing.assert_allclose(found_loss, loss, rtol=tolerance)
    for of_layer in found:
        for g, device in zip(of_layer, state.devices, strict=True):
            assert g.device.endswith(device)


@given(k=COUNTS, stage=STAGES, widths=WIDTHS)
@quick
def test_a_step_is_adams_on_every_device(k, stage, widths):
    """Given the same gradients, chunks must move as the whole does."""
    layers, (X, y) = network(widths), batch(widths)
    flat = numbers([p for one in layers for p in one.params])
    m, v = (tf.Variable(np.zeros_like(flat)) for _ in "mv")
    state = ZeroState(layers, EIGHT[:k], stage)
    np.testing.assert_array_equal(numbers(zero_params(state)), flat)
    for t in (1, 2):
        _, grads = zero_gradients(state, X, y)
        whole = tf.constant(joined(state, grads))
        zero_update(state, grads, lr=0.01)
        flat = flat - adam_change(m, v, whole, t, lr=0.01).numpy()
        for i in range(k):
            np.testing.assert_allclose(
                numbers(zero_params(state, i)), flat, rtol=0, atol=1e-9
            )
    assert int(state.t) == 2


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("store", [None, tf.bfloat16])
def test_compiled_is_eager_and_short_parameters_round_the_master(stage, store):
    widths = [5, 7, 3]
    X, y = batch(widths, dtype="float32")
    states = [
        ZeroState(network(widths, "float32"), EIGHT[:3], stage, store) for _ in "ab"
    ]
    compiled = tf.function(zero_step)
    for _ in range(3):
        zero_step(states[0], X, y, 0.01)
        compiled(states[1], X, y, 0.01)
    eager, graph = (numbers(zero_params(s)) for s in states)
    np.testing.assert_allclose(graph, eager, atol=1e-4 if store is None else 2e-2)
    if store is not None:
        for j in range(2):
            chunks = [own[j] for own in states[0].held]
            masters = chunks[:1] if stage == 0 else chunks
            params = chunks if stage == 3 else chunks[:1]
            np.testing.assert_array_equal(
                numbers([own.param for own in params]),
                numbers([tf.cast(own.master, store) for own in masters]),
            )


def test_the_layers_given_are_left_alone_and_not_shared():
    layers, (X, y) = network([4, 3]), batch([4, 3])
    before = numbers(layers[0].params)
    state = ZeroState(layers, EIGHT[:2], 1)
    layers[0].params[0].assign_add(tf.ones((4, 3), tf.float64))
    np.testing.assert_array_equal(numbers(zero_params(state)), before)
    zero_step(state, X, y)
    assert np.all(numbers(zero_params(state)) != before)


# Bytes.


@given(k=COUNTS, stage=STAGES, widths=WIDTHS, mixed=st.booleans())
@quick
def test_bytes_held_are_the_formulas_and_none_is_held_twice(k, stage, widths, mixed):
    layers, (X, y) = network(widths, "float32"), batch(widths, dtype="float32")
    state = ZeroState(layers, EIGHT[:k], stage, tf.bfloat16 if mixed else None)
    _, grads = zero_gradients(state, X, y)
    each = (2, 2, 12) if mixed else (4, 4, 8)
    sizes = counts(layers)
    held = [held_bytes(state, i, grads) for i in range(k)]
    assert held == zero_bytes(sizes, k, stage, *each)
    copies = np.where(stage <= np.array([2, 1, 0]), k, 1)  # the stages' definition
    assert sum(held) == sum(sizes) * copies @ np.array(each)
    # A chunk is at most one number longer than any other, in each layer.
    assert max(held) - min(held) <= len(sizes) * sum(each)


@given(k=COUNTS, stage=STAGES, widths=WIDTHS, mixed=st.booleans())
@quick
def test_bytes_sent_are_two_or_three_rounds(k, stage, widths, mixed):
    layers, (X, y) = network(widths, "float32"), batch(widths, dtype="float32")
    state = ZeroState(layers, EIGHT[:k], stage, tf.bfloat16 if mixed else None)
    log = MessageLog()
    zero_step(state, X, y, send=log)
    rounds = 3 if stage == 3 else 2
    number = 2 if mixed else 4
    total = number * sum(counts(layers))
    assert sum(log.sent(i) for i in range(k)) == rounds * (k - 1) * total
    # In each layer and round, a device sends all chunks but one.
    shortest = sum(number * (n // k) for n in counts(layers))
    for i in range(k):
        assert log.sent(i) <= rounds * (total - shortest)


def test_the_papers_figures():
    gb = [zero_bytes([7_500_000_000], 64, s)[0] / 1e9 for s in range(4)]
    np.testing.assert_allclose(gb, [120, 31.40625, 16.640625, 1.875])


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_all_that_travels_travels_by_send(stage):
    """If messages arrive as zeros, two devices can't end with one device's step."""
    layers, (X, y) = network([4, 3]), batch([4, 3])
    _, _, grads = on_one_device(layers, X, y)

    def lose(tensor: tf.Tensor, hop: Hop) -> tf.Tensor:
        return tf.zeros_like(deliver(tensor, hop))

    whole, cut_off = (ZeroState(layers, EIGHT[:2], stage) for _ in "ab")
    zero_step(whole, X, y)
    zero_step(cut_off, X, y, send=lose)
    assert not np.allclose(numbers(zero_params(whole)), numbers(zero_params(cut_off)))


# Adam.


def test_adams_first_step_is_the_sign_for_all_but_tiny_gradients():
    g = tf.constant([-3.0, -1e-2, 0.0, 1e-2, 3.0], tf.float64)
    m, v = (tf.Variable(tf.zeros_like(g)) for _ in "mv")
    change = adam_change(m, v, g, 1, lr=0.5).numpy()
    np.testing.assert_allclose(change, [-0.5, -0.5, 0, 0.5, 0.5], rtol=1e-3)


def test_adam_refuses_other_shapes_and_rates():
    m, v = (tf.Variable(tf.zeros(3)) for _ in "mv")
    with pytest.raises(ValueError, match="one shape"):
        adam_change(m, v, tf.zeros(4), 1)
    with pytest.raises(ValueError, match="lr must be positive"):
        adam_change(m, v, tf.zeros(3), 1, lr=0.0)
    np.testing.assert_array_equal(m, np.zeros(3))


# Bad input.


@pytest.mark.parametrize(
    ("stage", "kind"), [(4, ValueError), (-1, ValueError), (1.0, TypeError)]
)
def test_a_stage_that_zero_lacks_is_refused(stage, kind):
    with pytest.raises(kind, match="stage must be"):
        ZeroState(network([2, 2]), EIGHT[:2], stage)
    with pytest.raises(kind, match="stage must be"):
        zero_bytes([10], 2, stage)


def test_counts_below_one_are_refused():
    with pytest.raises(ValueError, match="k must be at least 1"):
        zero_bytes([10], 0, 1)
    with pytest.raises(ValueError, match="sizes must be at least 1"):
        zero_bytes([10, 0], 2, 1)


def test_layers_and_devices_that_cannot_be_served_are_refused():
    good = network([2, 3, 2])
    moving = good[0]._replace(state=(tf.Variable(0.0),))
    with pytest.raises(ValueError, match=r"layers\[0\].*keeps state"):
        ZeroState([moving, good[1]], EIGHT[:2], 1)
    with pytest.raises(ValueError, match=r"layers\[1\].*no parameters"):
        ZeroState([good[0], Layer("relu", tf.nn.relu)], EIGHT[:2], 1)
    with pytest.raises(TypeError, match=r"layers\[0\] must be a Layer"):
        ZeroState([tf.zeros(3)], EIGHT[:2], 1)
    with pytest.raises(ValueError, match="layers is empty"):
        ZeroState([], EIGHT[:2], 1)
    with pytest.raises(TypeError, match="one dtype"):
        ZeroState([good[0], *network([3, 2], "float32")], EIGHT[:2], 1)
    with pytest.raises(TypeError, match="devices must be a list"):
        ZeroState(good, EIGHT[0], 1)
    with pytest.raises(ValueError, match="does not exist"):
        ZeroState(good, ["/device:CPU:99"], 1)


def test_a_batch_smaller_than_the_devices_is_refused():
    state = ZeroState(network([4, 3]), EIGHT[:4], 2)
    with pytest.raises(ValueError, match="each device needs at least one"):
        zero_step(state, *batch([4, 3], samples=3))
    assert int(state.t) == 0


@pytest.mark.parametrize("stage", [0, 2, 3])
@pytest.mark.parametrize("samples, labels", [(3, 3), (5, 4)])
def test_a_graph_for_any_batch_size_refuses_and_changes_nothing(stage, samples, labels):
    """Not even the number of steps, which doesn't need the gradients."""
    state = ZeroState(network([4, 3]), EIGHT[:4], stage)
    kinds = [tf.TensorSpec((None, 4), tf.float64), tf.TensorSpec((None,), tf.int32)]
    step = tf.function(lambda X, y: zero_step(state, X, y), input_signature=kinds)
    before = numbers(zero_params(state))
    X, y = batch([4, 3], samples)
    said = "devices has 4 entries for|X and y must have the same length"
    with pytest.raises(tf.errors.InvalidArgumentError, match=said):
        step(X, y[:labels])
    assert int(state.t) == 0
    np.testing.assert_array_equal(numbers(zero_params(state)), before)
    step(*batch([4, 3], 5))
    assert int(state.t) == 1
