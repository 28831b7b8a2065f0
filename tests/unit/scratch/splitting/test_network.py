"""Network partitioning: gradients, places and bytes."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.checks import short_device_name
from manygpu.scratch import MessageLog, gradients, init_params
from manygpu.scratch.splitting.batch_normalization import guide_cnn_layers
from manygpu.scratch.splitting.network import (
    Layer,
    even_cuts,
    gradients_of,
    held_for_backward,
    kept_pass,
    lenet_layers,
    loss_gradient,
    make_stages,
    partitioned_gradients,
    partitioned_step,
    transfers,
)
from tests.unit.helpers import EIGHT, batch, distance, same, values
from tests.unit.scratch.splitting.helpers import BOUND, norm_layer, whole_gradients

quick = settings(deadline=None, max_examples=15)


def dense_layers(widths, dtype="float64", seed=0) -> list[Layer]:
    """A chain of tanh layers, some without parameters."""
    rng = np.random.default_rng(seed)
    layers = []
    for a, b in zip(widths, widths[1:], strict=False):
        W = tf.Variable(rng.normal(size=(a, b)) / np.sqrt(a), dtype=dtype)
        layers.append(Layer("dense", lambda h, W: tf.tanh(h @ W), (W,)))
        layers.append(Layer("scale", lambda h: 2 * h))
    return layers


@st.composite
def chains(draw):
    """Layer widths, and any cuts of the chain of twice as many layers."""
    widths = draw(st.lists(st.integers(1, 6), min_size=2, max_size=5))
    count = 2 * (len(widths) - 1)
    cuts = sorted(draw(st.sets(st.integers(1, count - 1))))
    return widths, cuts, draw(st.integers(1, 8))


# The kept pass.


@pytest.mark.parametrize("compiled", [False, True])
def test_a_pass_tells_all_gradients_or_those_wanted_one_after_the_other(compiled):
    """Variables and tensors as parameters, several inputs, and half by half."""
    rng = np.random.default_rng(0)
    h, W, b, up = (tf.constant(rng.normal(size=s)) for s in ((3, 4), (4, 2), 2, (3, 2)))

    def found(W, b):
        kept = kept_pass(lambda h, W, b, by: by * tf.tanh(h @ W + b), h, (W, b), (2.0,))
        both = gradients_of(kept, up, [kept.input]), gradients_of(kept, up, kept.params)
        return gradients_of(kept, up), sum(both, []), gradients_of(kept, up, [])

    with tf.GradientTape() as tape:
        tape.watch([h, W, b])
        out = 2.0 * tf.tanh(h @ W + b)
    right = tape.gradient(out, [h, W, b], up)
    for params in (W, b), (tf.Variable(W), b), (tf.Variable(W), tf.Variable(b)):
        run = tf.function(found, autograph=False) if compiled else found
        at_once, halves, none = run(*params)
        assert distance(at_once, right) <= 1e-15 and same(at_once, halves)
        assert none == []


def test_a_pass_has_what_it_was_given_and_listens_to_nothing_else():
    outside, W = tf.Variable(2.0), tf.Variable(3.0)
    kept = kept_pass(lambda h, W: h * W * outside, tf.constant(5.0), (W,))
    assert (float(kept.input), kept.params, float(kept.output)) == (5.0, (W,), 30.0)
    found = gradients_of(kept, tf.constant(1.0), [outside, *kept.params])
    assert [float(g) for g in found] == [0.0, 10.0]


# Gradients and places.


@given(chain=chains(), samples=st.integers(1, 7), dtype=st.sampled_from(list(BOUND)))
@quick
def test_any_cut_of_any_chain_gives_the_unsplit_gradients(chain, samples, dtype):
    widths, cuts, count = chain
    widths[-1] = 10
    rng = np.random.default_rng(1)
    X = tf.constant(rng.normal(size=(samples, widths[0])), dtype)
    y = tf.constant(rng.integers(0, 10, samples), tf.int32)
    layers = dense_layers(widths, dtype)
    stages = make_stages(layers, cuts, EIGHT[:count])
    loss, grads = partitioned_gradients(X, y, stages)
    whole, reference = whole_gradients(X, y, layers)
    assert [len(own) for own in grads] == [len(stage.params) for stage in stages]
    assert distance(sum(grads, []), reference) <= BOUND[dtype]
    np.testing.assert_allclose(loss, whole, rtol=BOUND[dtype])
    assert [s.device for s in stages] == [
        EIGHT[i % count] for i in range(len(cuts) + 1)
    ]


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_lenet_in_so_many_stages_is_lenet(count, dtype):
    X, y = batch(7)
    params = init_params(dtype=tf.as_dtype(dtype))
    stages = make_stages(lenet_layers(params), even_cuts(4, count), EIGHT)
    _, grads = partitioned_gradients(X, y, stages)
    assert distance(sum(grads, []), gradients(X, y, params)[1]) <= BOUND[dtype]
    for stage, own in zip(stages, grads, strict=True):
        assert {short_device_name(g.device) for g in own} == {stage.device}
        assert {short_device_name(p.device) for p in stage.params} == {stage.device}


def test_a_compiled_step_moves_each_parameter_by_the_mean_gradient():
    X, y = batch(5)
    params = init_params(dtype=tf.float64)
    stages = make_stages(lenet_layers(params), [1, 3], EIGHT)
    step = tf.function(lambda X, y: partitioned_step(X, y, stages, 0.1))
    loss = step(X, y)
    summed, grads = gradients(X, y, params)
    moved = [p for stage in stages for p in stage.params]
    right = [p - 0.1 / 5 * g for p, g in zip(params, grads, strict=True)]
    assert distance(moved, right) <= 1e-14
    np.testing.assert_allclose(loss, summed / 5, rtol=1e-13)
    start = init_params(dtype=tf.float64)  # stages have copies of their own
    assert all(np.array_equal(p, s) for p, s in zip(params, start, strict=True))


def test_the_backward_pass_is_on_its_stages_devices():
    X, y = batch(4)
    stages = make_stages(lenet_layers(init_params()), [1, 2, 3], EIGHT)
    step = tf.function(lambda X, y: partitioned_gradients(X, y, stages))
    operations = step.get_concrete_function(X, y).graph.get_operations()
    made = {o.device for o in operations if o.name.startswith("gradient_tape/")}
    assert {short_device_name(d) for d in made} == set(EIGHT[:4])


@given(layers=st.integers(1, 40), data=st.data())
@quick
def test_even_cuts_are_even(layers, data):
    stages = data.draw(st.integers(1, layers))
    edges = [0, *even_cuts(layers, stages), layers]
    lengths = np.diff(edges)
    assert len(lengths) == stages
    assert lengths.max() - lengths.min() <= 1


# Bad input.


@pytest.mark.parametrize(
    "layers, stages, kind",
    [(4, 5, ValueError), (4, 0, ValueError), (4, 1.5, TypeError), (0, 1, ValueError)],
)
def test_bad_counts_are_refused(layers, stages, kind):
    with pytest.raises(kind, match="stages|layers"):
        even_cuts(layers, stages)


@pytest.mark.parametrize(
    "change, kind, match",
    [
        ({"layers": []}, ValueError, "layers is empty"),
        ({"layers": [tf.ones(2)]}, TypeError, r"layers\[0\] must be a Layer"),
        ({"cuts": 2}, TypeError, "cuts must be a list, got 2"),
        ({"cuts": [1.5]}, TypeError, "cuts"),
        ({"cuts": [0]}, ValueError, "cuts"),
        ({"cuts": [4]}, ValueError, "cuts must rise from 1 to at most 3"),
        ({"cuts": [2, 2]}, ValueError, "cuts must rise"),
        ({"cuts": [3, 1]}, ValueError, "cuts must rise"),
        ({"devices": []}, ValueError, "devices is empty"),
        ({"devices": "/device:CPU:0"}, TypeError, "devices must be a list"),
        ({"devices": ["/device:CPU:99"]}, ValueError, "devices.*does not exist"),
    ],
)
def test_bad_stages_are_refused_by_name(change, kind, match):
    good = {"layers": lenet_layers(init_params()), "cuts": [2], "devices": EIGHT}
    with pytest.raises(kind, match=match):
        make_stages(**(good | change))


def test_a_variable_in_two_layers_is_refused():
    one, two = dense_layers([3, 3])[0], dense_layers([3, 3])[1]
    with pytest.raises(ValueError, match="layers share a variable"):
        make_stages([one, two, one], [1], EIGHT)


def test_a_moving_average_in_two_layers_is_refused():
    """The weights are each layer's own here."""
    one, two = norm_layer(2), norm_layer(2, seed=1)
    with pytest.raises(ValueError, match="layers share a variable"):
        make_stages([one, two._replace(state=one.state)], [1], EIGHT)


@pytest.mark.parametrize(
    "make", [lambda: lenet_layers(init_params()), guide_cnn_layers]
)
@pytest.mark.parametrize("compiled", [False, True])
def test_a_batch_that_is_refused_moves_nothing_not_even_an_average(make, compiled):
    stages = make_stages(make(), [2], EIGHT[:2])
    kept = [v for stage in stages for one in stage.layers for v in one[2] + one[3]]

    def step(X, y):
        return partitioned_step(X, y, stages, 0.1)

    run = tf.function(step, autograph=False) if compiled else step
    (X, y), before = batch(4), values(kept)
    late = tf.errors.InvalidArgumentError if compiled else ValueError
    cases = [
        (X, tf.constant([1, 2, 10, 3]), late, "y must hold labels from 0 to 9"),
        (X, tf.constant([1, -1, 0, 3]), late, "y must hold labels from 0 to 9"),
        (X[..., 0], y, ValueError, r"X must have shape .* X\[..., tf.newaxis\]"),
        (X[:, :, :27], y, ValueError, r"X must have shape \(samples, 28, 28, 1\)"),
        (tf.tile(X, (1, 1, 1, 3)), y, ValueError, "X must have shape"),
    ]
    for *bad, kind, said in cases:
        with pytest.raises(kind, match=said):
            run(*bad)
        assert same(values(kept), before)
    run(X, y)
    assert not same(values(kept), before)


@pytest.mark.parametrize("lr", [-0.1, 0.0, np.nan])
def test_a_rate_that_comes_late_moves_no_average(lr):
    stages = make_stages(guide_cnn_layers(), [3], EIGHT[:2])
    kept = [v for stage in stages for one in stage.layers for v in one[2] + one[3]]
    step = tf.function(lambda X, y, lr: partitioned_step(X, y, stages, lr))
    before = values(kept)
    with pytest.raises(tf.errors.InvalidArgumentError, match="lr must be positive"):
        step(*batch(4), tf.constant(lr, tf.float32))
    assert same(values(kept), before)


def test_a_rate_of_any_kind_of_number_is_that_rate():
    """In float64, where a detour by way of float32 would show."""
    (X, y), moved = batch(4), []
    for lr in (0.25, np.float32(0.25), np.float64(0.25), tf.constant(0.25)):
        stages = make_stages(lenet_layers(init_params(dtype=tf.float64)), [2], EIGHT)
        partitioned_step(X, y, stages, lr)
        moved.append(values(stages[1].params))
    assert all(same(moved[0], other) for other in moved)
    exact, by_tenths = (lenet_layers(init_params(dtype=tf.float64)) for _ in "ab")
    stages = make_stages(by_tenths, [], EIGHT)
    partitioned_step(X, y, stages, 0.1)
    params = [p for one in exact for p in one.params]
    grads = gradients(X, y, params)[1]
    right = [p - 0.1 / 4 * g for p, g in zip(params, grads, strict=True)]
    assert distance(stages[0].params, right) <= 1e-14


def test_the_loss_itself_refuses_a_label_of_no_class():
    """Where the last layer doesn't tell what it gives."""
    with pytest.raises(ValueError, match="y must hold labels from 0 to 3, got 0 to 4"):
        loss_gradient(tf.ones((2, 4), tf.float64), tf.constant([0, 4]))


def test_bad_batches_and_rates_are_refused():
    X, y = batch(4)
    stages = make_stages(lenet_layers(init_params()), [2], EIGHT)
    with pytest.raises(ValueError, match="X and y must have the same length"):
        partitioned_gradients(X, y[:3], stages)
    with pytest.raises(ValueError, match="stages is empty"):
        partitioned_gradients(X, y, [])
    with pytest.raises(ValueError, match="lr must be positive"):
        partitioned_step(X, y, stages, -0.1)


@pytest.mark.parametrize("samples, labels", [(0, 0), (3, 2)])
def test_a_graph_for_any_batch_size_refuses_and_changes_nothing(samples, labels):
    """An empty batch fails in some convolutions, and makes NaNs behind others."""
    stages = make_stages(guide_cnn_layers(), [3], EIGHT[:2])
    kept = [v for stage in stages for one in stage.layers for v in one[2] + one[3]]
    kinds = [tf.TensorSpec((None, 28, 28, 1)), tf.TensorSpec((None,), tf.int32)]
    step = tf.function(
        lambda X, y: partitioned_step(X, y, stages, 0.1), input_signature=kinds
    )
    before, (X, y) = [v.numpy() for v in kept], batch(3)
    said = "parts is 1 for|X and y must have the same length"
    with pytest.raises(tf.errors.InvalidArgumentError, match=said):
        step(X[:samples], y[:labels])
    for v, was in zip(kept, before, strict=True):
        np.testing.assert_array_equal(v, was)


# Bytes.


@pytest.mark.parametrize("cuts", [[], [1], [2], [3], [1, 2, 3]])
def test_each_cut_moves_its_activation_and_its_gradient(cuts):
    X, y = batch(6)
    stages = make_stages(lenet_layers(init_params()), cuts, EIGHT)
    log = MessageLog()
    step = tf.function(lambda X, y: partitioned_step(X, y, stages, 0.1, send=log))
    moves = transfers(step.get_concrete_function(X, y).graph)
    numbers = {1: 13 * 13 * 20, 2: 4 * 4 * 50, 3: 128}
    sizes = [4 * 6 * numbers[c] for c in cuts]
    there = [(m.source, m.target, m.bytes) for m in moves if not m.backward]
    back = [(m.source, m.target, m.bytes) for m in moves if m.backward]
    pairs = list(zip(EIGHT, EIGHT[1:], sizes, strict=False))
    assert there == pairs
    assert back == [(b, a, size) for a, b, size in reversed(pairs)]
    messages = [(EIGHT[h.source], EIGHT[h.target], size) for h, size in log.messages]
    assert messages == there + back  # and nothing crosses that is no message


def test_what_lenet_keeps_is_what_its_backward_pass_reads():
    X, y = batch(6)
    conv, rest = 28 * 28 + 26 * 26 * 20 + 13 * 13 * 20 + 9 * 9 * 50, 800 + 128 + 10
    for cuts, kept in ([], [conv + rest]), ([2], [conv, rest]):
        stages = make_stages(lenet_layers(init_params()), cuts, EIGHT)
        step = tf.function(lambda X, y, s=stages: partitioned_step(X, y, s, 0.1))
        held = held_for_backward(step.get_concrete_function(X, y).graph)
        sizes = [4 * 6 * n for n in kept]
        assert held == dict(zip(EIGHT, sizes, strict=False))


def test_a_cut_within_a_device_keeps_nothing_twice_between_devices_it_does():
    X, y = batch(6)
    held = []
    for cuts, devices in ([], EIGHT[:1]), ([3], EIGHT[:1]), ([3], EIGHT[:2]):
        stages = make_stages(lenet_layers(init_params()), cuts, devices)
        step = tf.function(lambda X, y, s=stages: partitioned_gradients(X, y, s))
        graph = step.get_concrete_function(X, y).graph
        held.append(sum(held_for_backward(graph).values()))
    whole, within, between = held
    assert within == whole
    assert between == whole + 4 * 6 * 128  # both sides need what the ReLU gave


def test_unknown_sizes_are_refused():
    stages = make_stages(lenet_layers(init_params()), [2], EIGHT)
    step = tf.function(lambda X, y: partitioned_gradients(X, y, stages))
    shapes = tf.TensorSpec([None, 28, 28, 1]), tf.TensorSpec([None], tf.int32)
    graph = step.get_concrete_function(*shapes).graph
    for count in transfers, held_for_backward:
        with pytest.raises(ValueError, match="trace with a batch of known size"):
            count(graph)
