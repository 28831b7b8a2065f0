"""ZeRO: one device's step in each stage; exact bytes held and sent; bad input."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch.data_parallel.collectives import Hop, MessageLog, deliver
from manygpu.scratch.splitting.network import Layer, lenet_layers
from manygpu.scratch.splitting.recomputation import recomputed_layers
from manygpu.scratch.splitting.sharded_state import (
    ZeroState,
    adam_change,
    forward_layer,
    held_bytes,
    zero_bytes,
    zero_gradients,
    zero_params,
    zero_step,
    zero_update,
)
from manygpu.scratch.start.one_device import cross_entropy, init_params
from tests.unit.helpers import EIGHT, distance, in_graph, numbers, same, values

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


@pytest.mark.parametrize("stage", [0, 3])
@pytest.mark.parametrize("compiled", [False, True])
def test_recomputed_layers_are_sharded_like_any_other(stage, compiled):
    """A segment's flat vector holds the parameters of all its layers."""
    widths = [4, 5, 5, 3]
    layers, (X, y) = network(widths), batch(widths)
    _, _, exact = on_one_device(layers, X, y)
    state = ZeroState(recomputed_layers(layers, 2), EIGHT[:3], stage)
    assert state.sizes == [sum(counts(layers)[:2]), counts(layers)[2]]
    take = in_graph(zero_gradients) if compiled else zero_gradients
    _, grads = take(state, X, y)
    assert distance([joined(state, grads)], [numbers(exact)]) <= 1e-12


def test_a_master_is_what_was_given_not_what_it_was_rounded_to():
    layers = network([3, 4], "float32")
    for stage in range(4):
        state = ZeroState(layers, EIGHT[:2], stage, tf.bfloat16)
        own = [state.held[i][0].master for i in range(1 if stage == 0 else 2)]
        assert same([numbers(own)], [numbers(layers[0].params)])


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("store", [None, tf.bfloat16])
def test_compiled_is_eager_and_short_parameters_round_the_master(stage, store):
    widths = [5, 7, 3]
    X, y = batch(widths, dtype="float32")
    states = [
        ZeroState(network(widths, "float32"), EIGHT[:3], stage, store) for _ in "ab"
    ]
    compiled = in_graph(zero_step)
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


def behind(op: tf.Operation, seen: set) -> set:
    """All operations that must be done before `op`, added to `seen`."""
    for earlier in [*(t.op for t in op.inputs), *op.control_inputs]:
        if earlier not in seen:
            seen.add(earlier)
            behind(earlier, seen)
    return seen


@pytest.mark.parametrize("in_order", [True, False])
def test_in_a_graph_a_layer_is_gathered_when_the_one_before_is_done(in_order):
    """A chunk is always there: without `after`, all layers would come at once."""
    state, arrived = ZeroState(network([4, 5, 6, 3]), EIGHT[:3], 3), []

    def note(tensor: tf.Tensor, hop: Hop) -> tf.Tensor:
        arrived.append(deliver(tensor, hop))
        return arrived[-1]

    def forward(hs: list[tf.Tensor]) -> None:
        for j in range(3):
            send = note if j else deliver  # the first layer has nothing to wait for
            passes = forward_layer(state, j, hs, send, hs if in_order else ())
            hs = [own.output for own in passes]

    spec = tf.TensorSpec([2, 4], tf.float64)
    in_graph(forward).get_concrete_function([spec] * 3)
    waits = [any(op.type == "MatMul" for op in behind(t.op, set())) for t in arrived]
    assert len(waits) == 2 * 2 * 3  # layers, steps and devices
    assert set(waits) == {in_order}


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


def test_epsilon_makes_the_step_of_a_tiny_gradient_smaller():
    """Keras' formula: epsilon is added to sqrt(v) before any correction."""
    g = tf.constant([1e-6, 1e-8], tf.float64)
    m, v = (tf.Variable(tf.zeros_like(g)) for _ in "mv")
    change = adam_change(m, v, g, 1, lr=0.5).numpy()
    root = np.sqrt(1e-3) * g.numpy()
    np.testing.assert_allclose(change, 0.5 * root / (root + 1e-7), rtol=1e-9)


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ({"g": tf.ones(4)}, ValueError, "one shape"),
        ({"g": tf.ones(3, tf.float64)}, TypeError, "m, v, g must have one dtype"),
        ({"g": tf.ones(3, tf.int32)}, TypeError, "m, v, g must have one dtype"),
        ({"t": 0}, ValueError, "t must be at least 1"),
        ({"t": -1}, ValueError, "t must be at least 1"),
        ({"t": 1.5}, TypeError, "t must be a whole number"),
        ({"t": tf.constant(0)}, ValueError, "t must be at least 1.*got 0"),
        ({"lr": 0.0}, ValueError, "lr must be positive"),
        ({"lr": float("nan")}, ValueError, "lr must be positive"),
        ({"lr": None}, TypeError, "lr must be a number"),
    ],
)
def test_adam_refuses_what_it_cannot_take_and_moves_nothing(change, kind, said):
    m, v = (tf.Variable(tf.zeros(3)) for _ in "mv")
    good = {"g": tf.ones(3), "t": 1, "lr": 0.1}
    with pytest.raises(kind, match=said):
        adam_change(m, v, **(good | change))
    np.testing.assert_array_equal([m, v], np.zeros((2, 3)))


def test_adams_rate_is_the_same_number_of_any_kind():
    g, found = tf.constant([1.0, -2.0], tf.float64), []
    for lr in 0.25, np.float32(0.25), tf.constant(0.25):
        m, v = (tf.Variable(tf.zeros_like(g)) for _ in "mv")
        found.append(adam_change(m, v, g, 1, lr))
    assert all(same([found[0]], [other]) for other in found)
    m, v = (tf.Variable(tf.zeros_like(g)) for _ in "mv")
    tenth = adam_change(m, v, g, 1, 0.1, epsilon=0.0)  # beyond what float32 tells
    np.testing.assert_allclose(tenth, [0.1, -0.1], rtol=1e-14)


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
    with pytest.raises(TypeError, match="sizes must be a list"):
        zero_bytes(5, 2, 1)


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
    for store in (tf.int32, tf.bool, "short"):
        with pytest.raises(TypeError, match="store must be floating point"):
            ZeroState(good, EIGHT[:2], 1, store)
    whole = Layer("whole", dense, (tf.Variable([[1]]), tf.Variable([1])))
    with pytest.raises(TypeError, match="layers must be floating point"):
        ZeroState([whole], EIGHT[:2], 1)


# What is refused has changed nothing.


def all_held(state) -> list[tf.Variable]:
    held = [v for own in state.held for one in own for v in one if v is not None]
    return [*held, state.t]


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("lr", [-1, 0, float("nan"), "a", None, tf.constant(-1.0)])
def test_a_bad_rate_changes_nothing(stage, lr):
    state = ZeroState(network([4, 3]), EIGHT[:2], stage)
    X, y = batch([4, 3])
    _, grads = zero_gradients(state, X, y)
    before = values(all_held(state))
    for take in (
        lambda: zero_step(state, X, y, lr),
        lambda: zero_update(state, grads, lr),
    ):
        with pytest.raises((TypeError, ValueError), match="lr must be"):
            take()
        assert same(values(all_held(state)), before)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_gradients_of_another_form_change_nothing(stage):
    state = ZeroState(network([4, 5, 3]), EIGHT[:2], stage)
    _, grads = zero_gradients(state, *batch([4, 5, 3]))
    before, (first, second) = values(all_held(state)), grads
    bad = {
        "grads must hold 2 layers, got 1": [first],
        r"grads\[1\] must hold 2 tensors": [first, second[:1]],
        r"grads\[0\] must be vectors": [second, first],
        r"grads\[0\] must be vectors of ": [[first[0][:-1], first[1]], second],
        r"grads\[1\] is float32, but must be float64": [
            first,
            [tf.cast(g, tf.float32) for g in second],
        ],
        "grads must be a list": None,
    }
    for said, wrong in bad.items():
        with pytest.raises((TypeError, ValueError), match=said):
            zero_update(state, wrong)
        assert same(values(all_held(state)), before)
    zero_update(state, grads)
    assert not same(values(all_held(state)), before)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("known", [True, False])
def test_a_compiled_step_refuses_late_and_changes_nothing(stage, known):
    """Labels and rates, whether the last layer tells its classes or not."""
    layers = network([4, 3])
    layers[-1] = layers[-1]._replace(gives=(3,) if known else None)
    state, (X, y) = ZeroState(layers, EIGHT[:2], stage), batch([4, 3])
    step, before = in_graph(zero_step), values(all_held(state))
    lr, late = tf.constant(0.01), tf.errors.InvalidArgumentError
    for wrong in (3, -1):
        label = tf.tensor_scatter_nd_update(y, [[7]], [wrong])
        with pytest.raises(late, match="y must hold labels from 0 to 2"):
            step(state, X, label, lr)
        assert same(values(all_held(state)), before)
    with pytest.raises(late, match="lr must be positive"):
        step(state, X, y, -lr)
    assert same(values(all_held(state)), before)
    step(state, X, y, lr)
    assert int(state.t) == 1


@pytest.mark.parametrize("compiled", [False, True])
def test_images_without_their_channel_are_refused_not_fatal(compiled):
    state = ZeroState(lenet_layers(init_params()), EIGHT[:2], 2)
    step = in_graph(zero_step) if compiled else zero_step
    before = values(all_held(state))
    with pytest.raises(ValueError, match=r"X must have shape.*X\[..., tf.newaxis\]"):
        step(state, tf.ones((6, 28, 28)), tf.range(6))
    assert same(values(all_held(state)), before)


def test_a_batch_smaller_than_the_devices_is_refused():
    state = ZeroState(network([4, 3]), EIGHT[:4], 2)
    with pytest.raises(ValueError, match="parts is 4 for 3 samples"):
        zero_step(state, *batch([4, 3], samples=3))
    assert int(state.t) == 0


def test_a_layer_is_gathered_when_its_turn_comes():
    """In a graph, stage 3 gathers a layer only when the one before is done."""
    state, arrived = ZeroState(network([4, 5, 3]), EIGHT[:3], 3), []

    def note(tensor: tf.Tensor, hop: Hop) -> tf.Tensor:
        arrived.append(deliver(tensor, hop))
        return arrived[-1]

    step = tf.function(lambda X, y: zero_gradients(state, X, y, note))
    step.get_concrete_function(*batch([4, 5, 3]))
    gathered = arrived[6:12]  # the second layer's: 2 steps of 3 messages, as the first

    def behind(op, seen):
        for earlier in [*(t.op for t in op.inputs), *op.control_inputs]:
            if earlier not in seen:
                seen.add(earlier)
                behind(earlier, seen)
        return seen

    assert all("Tanh" in {op.type for op in behind(t.op, set())} for t in gathered)
    assert not any("Tanh" in {o.type for o in behind(t.op, set())} for t in arrived[:6])


@pytest.mark.parametrize("stage", [0, 2, 3])
@pytest.mark.parametrize("samples, labels", [(3, 3), (5, 4)])
def test_a_graph_for_any_batch_size_refuses_and_changes_nothing(stage, samples, labels):
    """Not even the number of steps, which doesn't need the gradients."""
    state = ZeroState(network([4, 3]), EIGHT[:4], stage)
    kinds = [tf.TensorSpec((None, 4), tf.float64), tf.TensorSpec((None,), tf.int32)]
    step = tf.function(lambda X, y: zero_step(state, X, y), input_signature=kinds)
    before = numbers(zero_params(state))
    X, y = batch([4, 3], samples)
    said = "parts is 4 for|X and y must have the same length"
    with pytest.raises(tf.errors.InvalidArgumentError, match=said):
        step(X, y[:labels])
    assert int(state.t) == 0
    np.testing.assert_array_equal(numbers(zero_params(state)), before)
    step(*batch([4, 3], 5))
    assert int(state.t) == 1


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_adam_works_where_its_state_lies(stage):
    state = ZeroState(lenet_layers(init_params()), EIGHT[:2], stage)
    X, y = tf.ones((4, 28, 28, 1)), tf.range(4)

    def work():
        return zero_step(state, X, y)

    graph = tf.function(work, autograph=False).get_concrete_function().graph
    found = Counter(op.device for op in graph.get_operations() if op.type == "Sqrt")
    assert len(found) == 2 and len(set(found.values())) == 1
