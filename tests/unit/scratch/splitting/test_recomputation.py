"""Recomputation: exact gradients, what is kept, how often layers run, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch.splitting.batch_normalization import guide_cnn_layers
from manygpu.scratch.splitting.network import (
    Layer,
    gradients_of,
    kept_pass,
    make_stages,
    partitioned_gradients,
)
from manygpu.scratch.splitting.recomputation import (
    as_segment,
    best_length,
    kept_activations,
    peak_bytes,
    recomputed,
    recomputed_layers,
)
from tests.unit.helpers import EIGHT, distance

quick = settings(deadline=None, max_examples=15)
counted: list[str] = []


def dense(h, W, b):
    counted.append(tf.nn.tanh.__name__)
    return tf.nn.tanh(h @ W + b)


def chain(n: int, dtype: str, width: int = 5) -> list[Layer]:
    """n layers with two parameters each, and after each other one with none."""
    rng = np.random.default_rng(n)
    layers = []
    for i in range(n):
        if i % 3 == 2:
            layers.append(Layer(f"relu {i}", tf.nn.relu))
            continue
        W, b = rng.normal(size=(width, width)), rng.normal(size=width)
        params = tf.Variable(W, dtype=dtype), tf.Variable(b, dtype=dtype)
        layers.append(Layer(f"dense {i}", dense, params))
    return layers


def dense_only(n: int) -> list[Layer]:
    return [one for one in chain(3 * n, "float32") if one.params][:n]


def loss_gradients(layers, h):
    """The gradients of half the sum of squares, for h and all parameters."""
    whole = as_segment(layers)
    kept = kept_pass(whole.apply, h, whole.params)
    return gradients_of(kept, kept.output)


def twice(layers):
    """Segments of segments, of two each where there are two."""
    inner = recomputed_layers(layers, min(2, len(layers)))
    return recomputed_layers(inner, min(2, len(inner)))


# The same gradients.


@given(
    n=st.integers(1, 12),
    data=st.data(),
    dtype=st.sampled_from(["float32", "float64"]),
    device=st.sampled_from(EIGHT),
)
@quick
def test_eager_gradients_are_equal_to_the_bit(n, data, dtype, device):
    length = data.draw(st.integers(1, n))
    with tf.device(device):
        layers = chain(n, dtype)
        h = tf.constant(np.random.default_rng(0).normal(size=(3, 5)), dtype)
        right = loss_gradients(layers, h)
        for again in (recomputed_layers(layers, length), twice(layers)):
            for a, b in zip(loss_gradients(again, h), right, strict=True):
                assert a.dtype == b.dtype
                np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize(
    "dtype, allowed", [("float32", 1e-5), ("float64", 1e-12), ("float16", 1e-2)]
)
@pytest.mark.parametrize("length", [1, 4, 7])
def test_compiled_gradients_are_equal(dtype, allowed, length):
    layers = chain(7, dtype)
    h = tf.constant(np.random.default_rng(0).normal(size=(4, 5)), dtype)
    right = loss_gradients(layers, h)
    again = recomputed_layers(layers, length)
    found = tf.function(lambda h: loss_gradients(again, h), autograph=False)(h)
    for a, b in zip(found, right, strict=True):
        assert not np.any(b) or distance([a], [b]) <= allowed


def test_every_device_recomputes_where_it_computed():
    """In a graph the second run's products are on the device of the first."""

    @tf.function(autograph=False)
    def step(h):
        for device, layers in replicas:
            with tf.device(device):
                loss_gradients(recomputed_layers(layers, 3), tf.identity(h))
        return h

    replicas = []
    for device in EIGHT:
        with tf.device(device):
            replicas.append((device, chain(6, "float32")))
    graph = step.get_concrete_function(tf.ones((2, 5))).graph
    places = [op.device for op in graph.get_operations() if op.type == "MatMul"]
    once = len(places) // len(EIGHT)
    for device in EIGHT:
        assert (
            sum(place.endswith(device[len("/device:") :]) for place in places) == once
        )


def test_an_upstream_gradient_that_is_not_one_is_used():
    h = tf.constant([[1.0, 2.0]])
    with tf.GradientTape() as tape:
        tape.watch(h)
        out = 3.0 * recomputed(lambda h: h * h)(h)
    np.testing.assert_allclose(tape.gradient(out, h), 6.0 * h)


def test_without_a_tape_it_is_the_segment_itself():
    counted.clear()
    layers = chain(2, "float64")
    h = tf.ones((1, 5), tf.float64)
    (again,), plain = recomputed_layers(layers, 2), as_segment(layers)
    np.testing.assert_array_equal(
        again.apply(h, *again.params), plain.apply(h, *plain.params)
    )
    assert len(counted) == 4


def test_a_parameter_without_influence_has_no_gradient():
    unused, h = tf.Variable(1.0), tf.ones(2)
    with tf.GradientTape() as tape:
        out = recomputed(lambda h, unused: 2.0 * h)(h, unused)
    assert tape.gradient(out, unused) is None


def test_a_segment_is_a_layer_with_all_that_its_layers_have():
    layers = guide_cnn_layers(dtype=tf.float64)
    one = as_segment(layers)
    assert one.name == "conv 1 to dense 2"
    assert one.params == tuple(p for each in layers for p in each.params)
    assert one.state == tuple(v for each in layers for v in each.state)
    assert (one.takes, one.gives) == ((28, 28, 1), (10,))
    assert as_segment(layers[:1]).name == "conv 1"


@pytest.mark.parametrize("length", [1, 3, 7])
def test_segments_are_cut_copied_and_trained_like_layers(length):
    """The averages too, where nothing is recomputed."""
    X = tf.constant(np.random.default_rng(0).normal(size=(6, 5)))
    y, layers = tf.constant([0, 1, 2, 3, 4, 0]), chain(7, "float64")
    right = partitioned_gradients(X, y, make_stages(layers, [3], EIGHT[:2]))[1]
    again = recomputed_layers(layers, length)
    cuts = [1] if len(again) > 1 else []
    found = partitioned_gradients(X, y, make_stages(again, cuts, EIGHT[:2]))[1]
    assert distance(sum(found, []), sum(right, [])) <= 1e-12
    norms = guide_cnn_layers(dtype=tf.float64)
    joined = make_stages([as_segment(norms[:3]), *norms[3:]], [1], EIGHT[:2])
    apart = make_stages(norms, [3], EIGHT[:2])
    images = tf.ones((3, 28, 28, 1)) * tf.reshape([0.1, 0.5, 0.9], (3, 1, 1, 1))
    for stages in joined, apart:
        partitioned_gradients(images, y[:3], stages)
    states = [
        [v for s in stages for one in s.layers for v in one.state]
        for stages in (joined, apart)
    ]
    assert distance(*states) <= 1e-14


# How often layers run, and what is kept.


@pytest.mark.parametrize("n, length", [(1, 1), (5, 2), (6, 6), (9, 3)])
def test_each_layer_runs_twice_with_segments(n, length):
    layers = dense_only(n)
    counted.clear()
    loss_gradients(recomputed_layers(layers, length), tf.ones((2, 5)))
    assert len(counted) == 2 * n


@pytest.mark.parametrize("n", [1, 2, 4, 7])
def test_segments_of_segments_run_each_layer_once_more(n):
    layers = dense_only(n)
    counted.clear()
    loss_gradients(twice(layers), tf.ones((2, 5)))
    assert len(counted) == 3 * n


# These run where TensorFlow starts with an allocator that counts: see below.


def the_peak_follows_the_formula() -> None:
    """2 KiB rows: half a megabyte an activation, large against what is rounded up.

    Eager: a graph has several products under way at once; the next looks at one.
    """
    n, one = 16, 2**19
    h, layers = tf.ones((2048, 64)), squares(16)

    def peak(model):
        return peak_bytes(lambda: weights_gradients(model, h), EIGHT[0])[0] / one

    whole = peak(layers)
    assert n <= whole <= n + 7, whole
    for length in (1, 2, 4, 8, 16):
        formula = kept_activations(n, length)
        found = peak(recomputed_layers(layers, length))
        assert formula <= found <= formula + 7, (length, formula, found)


def squares(n: int) -> list[Layer]:
    """n layers that share one square matrix."""
    W = tf.Variable(tf.eye(64))
    return [Layer("square", lambda h, W: tf.nn.relu(h @ W), (W,))] * n


def weights_gradients(layers, h):
    """Without that of h; the tape goes with the function."""
    whole = as_segment(layers)
    with tf.GradientTape() as tape:
        loss = tf.nn.l2_loss(whole.apply(h, *whole.params))
    return tape.gradient(loss, whole.params)


def the_optimizer_of_a_graph_does_not_undo_it() -> None:
    """Without the control dependency both runs are merged: 36 activations, not 12."""
    h, layers = tf.ones((2048, 64)), recomputed_layers(squares(36), 6)
    work = tf.function(lambda: weights_gradients(layers, h), autograph=False)
    work()
    found = peak_bytes(work, EIGHT[0])[0]
    assert found < 0.85 * 36 * 2**19, found
    operations = work.get_concrete_function().graph.get_operations()
    waits = [op for op in operations if op.type == "Identity" and op.control_inputs]
    assert len(waits) >= 6 * (1 + 6)  # inputs and parameters, and the result


def peak_bytes_counts_what_is_held_at_once_and_hands_on_the_result() -> None:
    """Small tensors too, which oneDNN's own allocator would overlook."""
    for big in (2**20, 2**14):

        def work(big=big):
            first = tf.ones(big // 4)
            second = first + 1.0
            del first
            return second + 1.0

        peak, result = peak_bytes(work, EIGHT[3])
        assert 2 * big <= peak <= 4 * big, (big, peak)
        assert float(result[0]) == 3.0


@pytest.mark.parametrize(
    "call",
    [
        "the_peak_follows_the_formula()",
        "the_optimizer_of_a_graph_does_not_undo_it()",
        "peak_bytes_counts_what_is_held_at_once_and_hands_on_the_result()",
    ],
)
def test_with_the_counting_allocator(run_python, call):
    """Whatever kernels: only with oneDNN's, and by accident, does another count."""
    code = f"import {__name__} as here\nhere.{call}"
    ran = run_python(code, TF_CPU_ALLOCATOR_USE_BFC="true")
    assert ran.returncode == 0, ran.stderr


@given(n=st.integers(1, 200), data=st.data())
@settings(deadline=None)
def test_the_formula_is_what_a_walk_through_the_segments_counts(n, data):
    length = data.draw(st.integers(1, n))
    sizes = [min(length, n - i) for i in range(0, n, length)]
    # While segment j goes back: the inputs of segments 0..j, and its own outputs.
    assert kept_activations(n, length) == max(j + 1 + s for j, s in enumerate(sizes))


@given(n=st.integers(1, 400))
@settings(deadline=None, max_examples=40)
def test_the_best_length_is_near_the_root_and_keeps_twice_the_root(n):
    best = best_length(n)
    assert kept_activations(n, best) == min(
        kept_activations(n, s) for s in range(1, n + 1)
    )
    assert kept_activations(n, best) <= 2 * math.sqrt(n) + 1
    if math.isqrt(n) ** 2 == n:
        assert best == math.isqrt(n)


def test_where_nobody_counts_it_is_said_with_the_cure(monkeypatch):
    """As without oneDNN, and as an allocator that counts no tensor of that size."""

    def no_statistics(device):
        raise ValueError("Cannot reset memory stats for device 'CPU:0'")

    said = "device CPU:1 has an allocator.*TF_CPU_ALLOCATOR_USE_BFC=true before"
    memory = tf.config.experimental
    monkeypatch.setattr(memory, "reset_memory_stats", no_statistics)
    with pytest.raises(ValueError, match=said):
        peak_bytes(lambda: 0, EIGHT[1])
    monkeypatch.setattr(memory, "reset_memory_stats", lambda device: None)
    nothing = {"current": 0, "peak": 0}
    monkeypatch.setattr(memory, "get_memory_info", lambda device: nothing)
    with pytest.raises(ValueError, match=said):
        peak_bytes(lambda: 0, EIGHT[1])


def test_any_allocator_counts_or_says_that_it_does_not():
    """Whichever this process has: no error of TensorFlow's own comes through."""
    try:
        peak, _ = peak_bytes(lambda: tf.ones(2**20), EIGHT[0])
    except ValueError as refused:
        assert "has an allocator that doesn't count" in str(refused)
    else:
        assert peak >= 2**22


# Bad input.


@pytest.mark.parametrize(
    "call, kind, name",
    [
        (lambda: recomputed(3), TypeError, "segment"),
        (lambda: recomputed(tf.identity)([1.0]), TypeError, "h "),
        (lambda: recomputed(tf.identity)(tf.ones(2, tf.int32)), TypeError, "h "),
        (lambda: recomputed(tf.add)(tf.ones(2), 1.0), TypeError, r"params\[0\]"),
        (lambda: recomputed(lambda h: [h])(tf.ones(2)), TypeError, "segment"),
        (lambda: as_segment([]), ValueError, "layers"),
        (lambda: as_segment([(dense, [])]), TypeError, r"layers\[0\] must be a Layer"),
        (lambda: recomputed_layers([], 1), ValueError, "layers"),
        (lambda: recomputed_layers(dense, 1), TypeError, "layers"),
        (lambda: recomputed_layers(dense_only(1), 0), ValueError, "length"),
        (lambda: recomputed_layers(dense_only(1), 2), ValueError, "length"),
        (lambda: recomputed_layers(dense_only(1), 1.0), TypeError, "length"),
        (lambda: recomputed_layers(guide_cnn_layers(), 2), ValueError, r"\[1\].*state"),
        (lambda: kept_activations(4, 5), ValueError, "length"),
        (lambda: kept_activations(0, 1), ValueError, "n must"),
        (lambda: best_length(2.5), TypeError, "n must"),
        (lambda: peak_bytes(lambda: 0, "/device:GPU:99"), ValueError, "device"),
    ],
)
def test_bad_input_is_refused_by_name(call, kind, name):
    with pytest.raises(kind, match=name):
        call()


def test_a_variable_from_outside_is_refused_not_forgotten():
    outside, h = tf.Variable(2.0), tf.ones(2)
    with pytest.raises(TypeError, match="variables"), tf.GradientTape():
        recomputed(lambda h: h * outside)(h)
