"""Layerwise partitioning: equal to one device, bytes to the formula, work in place."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu import checks
from manygpu.measure import shares
from manygpu.scratch.data_parallel.collectives import MessageLog
from manygpu.scratch.splitting.layerwise import (
    COLUMNS,
    LENET_CUTS,
    ROWS,
    WHOLE,
    LayerShards,
    allreduce_max,
    gather_params,
    in_pairs,
    layerwise_gradients,
    layerwise_step,
    pass_back,
    pass_on,
    split_cross_entropy,
)
from manygpu.scratch.splitting.network import Layer, Model, lenet_layers
from manygpu.scratch.splitting.pipeline import dense_layers
from manygpu.scratch.start.one_device import (
    SHAPES,
    cross_entropy,
    gradients,
    init_params,
    sgd,
)
from tests.unit.helpers import EIGHT, batch, distance

BOUND = {"float32": 1e-5, "float64": 1e-12}
KINDS = st.sampled_from(list(BOUND))
quick = settings(deadline=None, max_examples=15)


def places(k: int) -> list[str]:
    return [EIGHT[i % 8] for i in range(k)]


def lenet_shards(params: list, devices: list[str]) -> LayerShards:
    return LayerShards(lenet_layers(params), devices, LENET_CUTS)


def on_places(values: list) -> list[tf.Tensor]:
    tensors = []
    for device, value in zip(places(len(values)), values, strict=True):
        with tf.device(device):
            tensors.append(tf.identity(value))
    return tensors


# A piece of work and its way back.


def test_the_way_back_is_on_the_device_and_gives_all_inputs_their_gradients():
    a, W = tf.constant([[2.0, 3.0]]), tf.Variable([[4.0], [5.0]])
    for run in (lambda f: f(), lambda f: tf.function(f)()):
        where = []

        def both():
            kept = pass_on(EIGHT[5], tf.matmul, a, W)
            out = kept.output
            da, dW = pass_back(kept, tf.ones_like(out))
            where.extend([out.device, da.device, dW.device])  # noqa: B023
            return out, da, dW

        out, da, dW = run(both)
        assert {checks.short_device_name(d) for d in where} == {EIGHT[5]}
        assert out.numpy() == [[23]]
        np.testing.assert_array_equal(da, [[4, 5]])
        np.testing.assert_array_equal(dW, [[2], [3]])


def test_a_device_that_is_not_there_is_refused_and_not_replaced():
    with pytest.raises(ValueError, match=r"device .* does not exist"):
        pass_on("/device:GPU:99", tf.identity, tf.ones(1))


# The largest of all.


@given(n=st.integers(1, 9), shape=st.lists(st.integers(0, 4), max_size=2), dtype=KINDS)
@quick
def test_the_largest_of_all_is_everybodys_for_the_rings_bytes(n, shape, dtype):
    rng = np.random.default_rng(n)
    values = (rng.normal(size=(n, *shape)) - 10).astype(dtype)  # none above 0
    data, log = on_places(list(values)), MessageLog()
    for result, entry in zip(allreduce_max(data, log), data, strict=True):
        np.testing.assert_array_equal(result, values.max(0))
        assert (result.device, result.dtype) == (entry.device, entry.dtype)
    assert sum(map(log.sent, range(n))) == 2 * (n - 1) * values[0].nbytes
    assert log.steps == 2 * (n - 1)
    for end in ("source", "target"):
        busy = Counter((hop.step, getattr(hop, end)) for hop, _ in log.messages)
        assert not busy or max(busy.values()) == 1


# The loss of the last layer.


@given(
    k=st.integers(1, 8), extra=st.integers(0, 9), samples=st.integers(1, 6), dtype=KINDS
)
@quick
def test_a_loss_over_cut_classes_is_the_loss_for_three_numbers_a_sample(
    k, extra, samples, dtype
):
    classes = k + extra
    rng = np.random.default_rng(extra)
    logits = tf.constant(800 + 5 * rng.normal(size=(samples, classes)), dtype)
    y = tf.constant(rng.integers(0, classes, samples))
    with tf.GradientTape() as tape:
        tape.watch(logits)
        expected = cross_entropy(logits, y)
    log = MessageLog()
    pieces = on_places(tf.split(logits, shares(classes, k), 1))
    losses, grads = split_cross_entropy(pieces, y, log)
    # Logits of 800 are known to 800 epsilons; the loss is their difference.
    allowed = 4000 * np.finfo(dtype).eps
    for loss, grad, piece in zip(losses, grads, pieces, strict=True):
        np.testing.assert_allclose(loss, expected, atol=allowed, rtol=allowed)
        assert loss.device == grad.device == piece.device
    wanted = tape.gradient(expected, logits)
    np.testing.assert_allclose(tf.concat(grads, 1), wanted, atol=allowed)
    size = np.dtype(dtype).itemsize
    assert sum(map(log.sent, range(k))) == 2 * (k - 1) * 3 * samples * size
    assert log.steps == 4 * (k - 1)


def test_a_label_that_is_no_class_is_not_a_loss():
    pieces = on_places([tf.zeros((4, 3)), tf.zeros((4, 2))])
    losses, _ = split_cross_entropy(pieces, tf.constant([-1, 0, 4, 5]))
    np.testing.assert_array_equal(np.isnan(losses[1]), [True, False, False, True])


@pytest.mark.parametrize(
    "pieces, y, kind, named",
    [
        ([], [0], ValueError, "pieces"),
        (tf.ones((1, 2)), [0], TypeError, "pieces"),
        ([tf.ones((1, 2)), tf.ones((1, 2), tf.float64)], [0], TypeError, "pieces"),
        ([tf.ones((1, 2)), tf.ones((2, 2))], [0], ValueError, r"pieces\[1\]"),
        ([tf.ones(2)], [0], ValueError, r"pieces\[0\]"),
        ([tf.ones((1, 2))], [[0]], ValueError, "y"),
    ],
)
def test_the_loss_refuses_bad_input_by_name(pieces, y, kind, named):
    log = MessageLog()
    with pytest.raises(kind, match=named):
        split_cross_entropy(pieces, tf.constant(y), log)
    assert log.messages == []


# LeNet, cut.


@given(k=st.integers(1, 10), dtype=KINDS)
@quick
def test_shards_joined_are_the_parameters_and_lie_apart(k, dtype):
    params = init_params(dtype=tf.as_dtype(dtype))
    shards = lenet_shards(params, places(k))
    for p, joined in zip(params, gather_params(shards), strict=True):
        np.testing.assert_array_equal(joined, p)
    for device, own in zip(places(k), shards, strict=True):
        assert {checks.short_device_name(v.device) for v in own} == {device}
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
    shards, log = lenet_shards(params, places(k)), MessageLog()
    loss, grads = layerwise_gradients(X, y, shards, log)
    expected, reference = gradients(X, y, params)
    assert (
        distance([loss, *gather_params(shards, grads)], [expected, *reference])
        <= BOUND[dtype]
    )
    for device, own, own_grads in zip(places(k), shards, grads, strict=True):
        assert [g.shape for g in own_grads] == [v.shape for v in own]
        assert {checks.short_device_name(g.device) for g in own_grads} == {device}
        for j in (0, 1, 5):  # what is whole stays equal everywhere, to the bit
            np.testing.assert_array_equal(own_grads[j], grads[0][j])
    numbers = (128 + 128 + 3) * samples + 200
    sent = sum(map(log.sent, range(k)))
    assert sent == 2 * (k - 1) * numbers * np.dtype(dtype).itemsize
    assert log.steps == 10 * (k - 1)
    busy = Counter((hop.step, hop.source) for hop, _ in log.messages)
    assert not busy or max(busy.values()) == 1


@pytest.mark.parametrize("devices", [EIGHT[:1], EIGHT[5:3:-1], EIGHT[2:5]])
def test_a_compiled_step_is_the_step_of_one_device(devices):
    (X, y), params = batch(6), init_params(dtype=tf.float64)
    shards = lenet_shards(params, devices)
    step = tf.function(layerwise_step)
    mean = step(X, y, shards, 0.05)
    summed, grads = gradients(X, y, params)
    sgd(params, grads, 0.05 / 6)
    assert distance([mean, *gather_params(shards)], [summed / 6, *params]) <= 1e-12
    # Each device computes its pieces, backward too, and no other device does.
    graph = step.get_concrete_function(X, y, shards, 0.05).graph
    found = Counter(
        checks.short_device_name(op.device)
        for op in graph.get_operations()
        if op.type == "Conv2DBackpropFilter"
    )
    assert set(found) == set(devices) and len(set(found.values())) == 1


GOOD = {
    "X": tf.zeros((4, 28, 28, 1)),
    "y": tf.zeros(4, tf.int32),
    "lr": 0.1,
}


@pytest.mark.parametrize(
    "bad, kind, named",
    [
        ({"X": tf.zeros((4, 28, 28))}, ValueError, "X"),
        ({"X": None}, TypeError, "X"),
        ({"y": tf.zeros(3, tf.int32)}, ValueError, "same length"),
        ({"lr": 0}, ValueError, "lr"),
        ({"lr": "0.1"}, TypeError, "lr"),
        ({"shards": [init_params()] * 2}, TypeError, "shards must be LayerShards"),
    ],
)
def test_a_step_refuses_bad_input_before_anything_changes(bad, kind, named):
    params = init_params()
    shards = lenet_shards(params, EIGHT[:2])
    arguments = {**GOOD, "shards": shards, **bad}
    with pytest.raises(kind, match=named):
        layerwise_step(**arguments)
    for p, joined in zip(params, gather_params(shards), strict=True):
        np.testing.assert_array_equal(joined, p)


@pytest.mark.parametrize("label", [-1, 10])
def test_a_label_that_is_no_class_moves_nothing(label):
    shards = lenet_shards(init_params(), EIGHT[:2])
    (X, _), before = batch(2), [p.numpy() for own in shards for p in own]
    y = tf.constant([3, label])
    compiled = tf.function(lambda y: layerwise_step(X, y, shards, 0.1))
    with pytest.raises(ValueError, match="y must hold labels from 0 to 9"):
        layerwise_step(X, y, shards, 0.1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="y must hold labels"):
        compiled(y)
    for p, old in zip([p for own in shards for p in own], before, strict=True):
        np.testing.assert_array_equal(p, old)


def test_complex_numbers_have_no_largest():
    with pytest.raises(TypeError, match="complex ones have no largest"):
        allreduce_max([tf.ones(2, tf.complex64)] * 2)


def test_a_graph_for_any_batch_size_is_refused_by_name():
    shards = lenet_shards(init_params(), EIGHT[:2])
    step = tf.function(lambda X, y: layerwise_step(X, y, shards, 0.1))
    with pytest.raises(ValueError, match="X must have a known number"):
        step.get_concrete_function(
            tf.TensorSpec([None, 28, 28, 1]), tf.TensorSpec([None], tf.int32)
        )


# Any list of layers.


def test_layers_are_paired_from_the_first():
    a, b, c = dense_layers([5, 4, 4, 4])
    opaque = Layer("twice", lambda h: 2 * h)
    assert in_pairs([a, b, c]) == [COLUMNS, ROWS, COLUMNS]
    assert in_pairs([a, b, c, c]) == [COLUMNS, ROWS] * 2
    assert in_pairs([opaque, a, b]) == [WHOLE, COLUMNS, ROWS]
    assert in_pairs([a, opaque, b]) == [WHOLE, WHOLE, COLUMNS]


@given(
    k=st.integers(1, 8),
    widths=st.lists(st.integers(8, 17), min_size=1, max_size=6),
    whole=st.integers(0, 3),
    samples=st.integers(1, 5),
)
@quick
def test_any_widths_and_whole_layers_below_are_the_step_of_one_device(
    k, widths, whole, samples
):
    layers = dense_layers([6, *widths], dtype=tf.float64)
    cuts = ([WHOLE] * whole + in_pairs(layers[whole:] or layers))[: len(layers)]
    rng = np.random.default_rng(k)
    X = tf.constant(rng.normal(size=(samples, 6)))
    y = tf.constant(rng.integers(0, widths[-1], samples))
    model = Model(layers)
    expected, reference = model.gradients(X, y, model.params)
    shards = LayerShards(layers, places(k), cuts)
    loss, grads = layerwise_gradients(X, y, shards)
    found = [loss, *gather_params(shards, grads)]
    assert distance(found, [expected, *reference]) <= 1e-12


STATE = Layer("mean", lambda h, v: h - v, (), (tf.Variable(0.0),))
ONE, TWO = dense_layers([6, 5, 4])


@pytest.mark.parametrize(
    "layers, devices, cuts, kind, named",
    [
        ([ONE, TWO], places(6), None, ValueError, "only 5 outputs for 6 devices"),
        (lenet_layers(init_params()), places(11), LENET_CUTS, ValueError, "at most 10"),
        ([ONE, TWO], EIGHT[0], None, TypeError, "devices"),
        ([ONE, TWO], ["/device:GPU:99"], None, ValueError, "devices"),
        ([1], EIGHT[:2], None, TypeError, r"layers\[0\] must be a Layer"),
        ([ONE, STATE], EIGHT[:2], None, ValueError, r"layers\[1\] .* keeps state"),
        ([ONE, TWO], EIGHT[:2], [WHOLE], ValueError, "cuts has 1 entries for 2 layers"),
        ([ONE, TWO], EIGHT[:2], [ROWS, WHOLE], ValueError, "rows stand behind columns"),
        ([ONE, TWO], EIGHT[:2], [COLUMNS] * 2, ValueError, "rows stand behind columns"),
        ([ONE, TWO], EIGHT[:2], [WHOLE, 1], ValueError, r"cuts\[1\] must be COLUMNS"),
        ([TWO, ONE], EIGHT[:2], [COLUMNS, ROWS], ValueError, "no multiple of 4"),
    ],
)
def test_what_cannot_be_cut_is_refused_by_name(layers, devices, cuts, kind, named):
    with pytest.raises(kind, match=named):
        LayerShards(layers, devices, cuts)


def test_what_is_no_product_is_refused_by_name():
    opaque = Layer("tanh", lambda h, W: tf.tanh(h @ W), ONE.params[:1])
    with pytest.raises(ValueError, match=r"layers\[0\] \(tanh\) can't be cut"):
        LayerShards([opaque], EIGHT[:2], [COLUMNS])
