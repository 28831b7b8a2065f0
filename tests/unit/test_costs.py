"""The hand-written costs, against what TensorFlow computes, counts and keeps."""

from __future__ import annotations

import dataclasses
from math import prod

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu import costs
from manygpu.scratch import SHAPES, gradients, init_params, lenet

OPS = costs.lenet_ops(SHAPES)


def graph_of(samples: int, backward: bool) -> tf.Graph:
    params = init_params()
    X = tf.TensorSpec((samples, 28, 28, 1))
    y = tf.TensorSpec((samples,), tf.int32)
    if backward:
        traced = tf.function(lambda X, y: gradients(X, y, params)[1])
        return traced.get_concrete_function(X, y).graph
    return tf.function(lambda X: lenet(X, params)).get_concrete_function(X).graph


def counted(graph: tf.Graph, part: str = "") -> dict[str, list[int]]:
    """TensorFlow's count of FLOPs, by kind of operation, in the graph's order."""
    profiler = tf.compat.v1.profiler
    options = profiler.ProfileOptionBuilder.float_operation()
    options["output"] = "none"
    tree, found = profiler.profile(graph, cmd="scope", options=options), {}

    def walk(node):
        found[node.name] = node.float_ops
        for child in node.children:
            walk(child)

    walk(tree)
    by_kind: dict[str, list[int]] = {}
    for op in graph.get_operations():
        if op.name.startswith(part) and found.get(op.name):
            by_kind.setdefault(op.type, []).append(found[op.name])
    return by_kind


def by_hand(kind: str, way: str, samples: int) -> list[int]:
    return [getattr(op, way)(samples) for op in OPS if op.kind == kind]


def test_the_shapes_are_those_that_run():
    graph = graph_of(3, backward=False)
    kinds = ("Conv2D", "AddV2", "Relu", "AvgPool", "MatMul")
    ran = [op for op in graph.get_operations() if op.type in kinds]
    assert [tuple(op.outputs[0].shape) for op in ran] == [(3, *o.target) for o in OPS]


@pytest.mark.parametrize("samples", [1, 7, 256])
def test_forward_flops_are_those_that_tensorflow_counts(samples):
    found = counted(graph_of(samples, backward=False))
    assert found == {
        "Conv2D": by_hand("conv", "forward_flops", samples),
        "AddV2": by_hand("bias", "forward_flops", samples),
        "AvgPool": by_hand("pool", "forward_flops", samples),
        "MatMul": by_hand("dense", "forward_flops", samples),
    }


def test_backward_flops_of_dense_layers_biases_and_poolings_are_tensorflows():
    found = counted(graph_of(7, backward=True), "gradient_tape/")
    dense = found["MatMul"]  # two a layer, the last layer first
    pairs = [dense[i] + dense[i + 1] for i in range(0, len(dense), 2)]
    assert pairs[::-1] == by_hand("dense", "backward_flops", 7)
    assert found["Sum"][::-1] == by_hand("bias", "backward_flops", 7)
    assert found["AvgPoolGrad"][::-1] == by_hand("pool", "backward_flops", 7)


@pytest.mark.parametrize("op", [op for op in OPS if op.kind == "conv"], ids=str)
def test_a_convolution_of_ones_counts_its_own_products(op):
    """Every product is 1, so the sum of the results is the number of products."""
    X, W = tf.ones((1, *op.source)), tf.ones(op.weights)
    with tf.GradientTape() as tape:
        tape.watch([X, W])
        out = tf.nn.conv2d(X, W, 1, "VALID")
    for result in (out, *tape.gradient(out, [X, W])):
        assert np.sum(result, dtype=np.float64) == op.products
    gradients_needed = 1 if op.layer == 0 else 2
    assert op.backward_flops(5) == gradients_needed * op.forward_flops(5)


@pytest.mark.parametrize("samples", [1, 5])
def test_kept_is_what_the_backward_graph_reads_of_the_forward_graph(samples):
    graph, read = graph_of(samples, backward=True), {}
    for op in graph.get_operations():
        if op.name.startswith("gradient_tape/") and op.outputs:
            forward = [t for t in op.inputs if not t.op.name.startswith("gradient_")]
            read |= {t.name: tuple(t.shape) for t in forward}
    weights = {s for s in SHAPES if len(s) > 1}
    activations = sorted(prod(s) for s in read.values() if s and s not in weights)
    assert activations == sorted(samples * prod(s) for s in costs.kept(OPS).values())


def test_training_bytes_are_those_of_real_tensors_and_optimizers():
    params = init_params()
    X, y = tf.zeros((6, 28, 28, 1)), tf.zeros(6, tf.int32)
    _, grads = gradients(X, y, params)
    optimizers = {
        "sgd": tf.keras.optimizers.SGD(),
        "momentum": tf.keras.optimizers.SGD(momentum=0.9),
        "adam": tf.keras.optimizers.Adam(),
    }
    assert set(optimizers) == set(costs.OPTIMIZER_COPIES)
    model = [tf.keras.Variable(p.numpy()) for p in params]
    for name, optimizer in optimizers.items():
        optimizer.build(model)
        state = [v for v in optimizer.variables if tuple(v.shape)]  # not the step count
        found = costs.training_bytes(OPS, 6, name)
        assert found["parameters"] == sum(p.numpy().nbytes for p in params)
        assert found["gradients"] == sum(g.numpy().nbytes for g in grads)
        assert found["optimizer state"] == sum(v.numpy().nbytes for v in state)


@settings(max_examples=25, deadline=None)
@given(samples=st.integers(1, 10_000), itemsize=st.sampled_from([2, 4, 8]))
def test_costs_grow_as_they_should(samples, itemsize):
    one = costs.training_bytes(OPS, 1, "adam", 1)
    many = costs.training_bytes(OPS, samples, "adam", itemsize)
    assert many.pop("activations") == samples * itemsize * one.pop("activations")
    assert many == {what: itemsize * size for what, size in one.items()}
    for op in OPS:
        assert op.forward_flops(samples) == samples * op.forward_flops()
        weights = prod(op.weights) if op.weights else 0
        each = op.moved_bytes(1, itemsize) - weights * itemsize
        assert op.moved_bytes(samples, itemsize) == (
            samples * each + weights * itemsize
        )


def test_what_is_moved_is_input_weights_and_output():
    conv, bias, relu, pool = OPS[:4]
    assert conv.moved_bytes(2) == 4 * (2 * 784 + 2 * 26 * 26 * 20 + 180)
    assert bias.moved_bytes(2) == 4 * (4 * 26 * 26 * 20 + 20)
    assert relu.moved_bytes(2) == 4 * (4 * 26 * 26 * 20)
    assert pool.moved_bytes(2, 2) == 2 * 2 * (26 * 26 * 20 + 13 * 13 * 20)


def test_a_tensor_that_two_operations_need_is_kept_once():
    """A ReLU keeps its output, which the dense layer after it would keep too."""
    names = list(costs.kept(OPS))
    assert names.count("dense 1 relu") == 1
    assert names == list(dict.fromkeys(names))
    assert "conv 1 bias" not in names and "dense 2 bias" not in names


def test_ops_are_values():
    assert costs.lenet_ops(tuple(SHAPES)) == OPS
    with pytest.raises(dataclasses.FrozenInstanceError):
        OPS[0].name = "other"


@pytest.mark.parametrize(
    ("shapes", "error", "message"),
    [
        ([], ValueError, "shapes is empty"),
        ("conv", TypeError, "shapes must be a list"),
        (SHAPES[:3], ValueError, "weights and bias in turn, got 3"),
        ([(3, 3, 1), (1,)], ValueError, r"shapes\[0\] must have rank 4 or 2"),
        ([(3, 3, 2, 20), (20,)], ValueError, r"shapes\[0\] .* does not fit"),
        ([(29, 3, 1, 2), (2,)], ValueError, r"shapes\[0\] .* does not fit"),
        ([(3, 29, 1, 2), (2,)], ValueError, r"shapes\[0\] .* does not fit"),
        ([*SHAPES[:2], (801, 9), (9,)], ValueError, r"shapes\[2\] .* does not fit"),
        ([(3, 3, 1, 20), (21,)], ValueError, r"shapes\[1\] must be \(20,\)"),
        (
            [(784, 9), (9,), (3, 3, 9, 2), (2,)],
            ValueError,
            r"shapes\[2\] is a convolution after a dense layer",
        ),
    ],
)
def test_shapes_that_make_no_lenet_are_refused(shapes, error, message):
    with pytest.raises(error, match=message):
        costs.lenet_ops(shapes)


@pytest.mark.parametrize("samples", [0, -1, 2.0, True, "2"])
def test_counts_are_whole_and_at_least_one(samples):
    for ask in (
        OPS[0].forward_flops,
        OPS[0].backward_flops,
        OPS[0].moved_bytes,
        lambda n: OPS[0].moved_bytes(1, n),
        lambda n: costs.training_bytes(OPS, n),
        lambda n: costs.training_bytes(OPS, 1, itemsize=n),
    ):
        with pytest.raises((TypeError, ValueError), match="samples|itemsize"):
            ask(samples)


def test_an_unknown_optimizer_and_no_operations_are_refused():
    with pytest.raises(ValueError, match="optimizer must be one of .*'adam'.*'lion'"):
        costs.training_bytes(OPS, 1, "lion")
    with pytest.raises(ValueError, match="ops is empty"):
        costs.kept([])
