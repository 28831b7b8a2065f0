"""A model of 12 classes, which LeNet lacks, through every step: that of one device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from manygpu.scratch import (
    Layer,
    LayerShards,
    Mesh,
    MeshShards,
    Model,
    ZeroState,
    accumulate,
    gather_params,
    get_params,
    gradients,
    he_normal,
    init_params,
    joined_shards,
    keras_layers,
    layerwise_gradients,
    layerwise_step,
    lenet_layers,
    local_step,
    make_stages,
    mesh_gradients,
    mesh_step,
    one_forward_one_backward,
    partitioned_gradients,
    partitioned_step,
    pipeline_gradients,
    pipeline_step,
    ready_batch,
    sgd,
    take_step,
    train_batch,
    zero_gradients,
)
from manygpu.scratch.beyond.many_workers import member_step
from manygpu.scratch.data_parallel.hiding_communication import unflatten
from manygpu.scratch.splitting.layerwise import LENET_CUTS
from manygpu.scratch.start.three_ways_to_split import Linear
from tests.unit.helpers import EIGHT, batch, distance, in_graph, same, values
from tests.unit.scratch.beyond.test_many_workers import at_once, rings

SAMPLES, CLASSES, LR = 11, 12, 0.5
Params = list[tf.Variable]


dense = Linear(tf.matmul, lambda h, b: tf.tanh(h + b))


def made() -> Model:
    """Three dense layers, 5 to 12 numbers, in float64."""
    layers, widths = [], [5, 7, 6, CLASSES]
    for i, shape in enumerate(zip(widths, widths[1:], strict=False)):
        W = tf.Variable(he_normal(shape, (3, i), tf.float64))
        b = tf.Variable(tf.zeros(shape[1:], tf.float64))
        layers.append(Layer(f"dense {i}", dense, (W, b)))
    layers[0] = layers[0]._replace(takes=(5,))
    layers[-1] = layers[-1]._replace(gives=(CLASSES,))
    return Model(layers)


MODEL = made()
X = tf.constant(np.random.default_rng(0).normal(size=(SAMPLES, 5)))
Y = tf.constant([11, 10, 0, 3, 11, 7, 9, 1, 10, 2, 5])


def right() -> tuple[float, list[tf.Tensor]]:
    """The mean loss before one device's step, and the parameters after it."""
    with tf.GradientTape() as tape:
        h = X
        for one in MODEL.layers:
            h = dense(h, *one.params)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=Y, logits=h)
        loss = tf.reduce_mean(each)
    grads = tape.gradient(loss, MODEL.params)
    moved = [p - LR * g for p, g in zip(MODEL.params, grads, strict=True)]
    return float(loss), moved


def copies(k: int) -> list[Params]:
    return [get_params(MODEL.params, device) for device in EIGHT[:k]]


def by_train_batch(X, y, k: int, of: Callable = MODEL.gradients):
    replicas = copies(k)
    loss = in_graph(partial(train_batch, devices=EIGHT[:k], lr=LR, of=of))
    return loss(X, y, replicas), replicas[-1]


def in_micro_batches(X, y):
    return by_train_batch(
        X, y, 2, partial(accumulate, micro_batches=3, of=MODEL.gradients)
    )


def by_local_step(X, y):
    """On one device, whose own step is that of all."""
    replicas = copies(1)
    updates = [partial(sgd, replicas[0], lr=LR)]
    loss = local_step(X, y, replicas, EIGHT[:1], updates, MODEL.gradients)
    return loss, replicas[0]


def by_members(X, y):
    replicas = copies(3)
    with rings(3) as joined:
        losses = at_once(
            [
                partial(member_step, ring, X, y, own, LR, MODEL.gradients)
                for ring, own in zip(joined, replicas, strict=True)
            ]
        )
    assert all(same(values(own), values(replicas[0])) for own in replicas)
    return losses[0], replicas[0]


def of_stages(take: Callable, X, y):
    stages = make_stages(MODEL.layers, [1, 2], EIGHT[:2])
    return take(X, y, stages), [p for stage in stages for p in stage.params]


def by_pipeline(X, y, stages):
    return pipeline_step(one_forward_one_backward(3, 4), stages, X, y, LR)


def sharded(X, y):
    """With what Adam would be given, and plain SGD in its place."""
    state = ZeroState(MODEL.layers, EIGHT[:3], stage=0)
    loss, grads = zero_gradients(state, X, y)
    params = copies(1)[0]
    sums = [tf.add_n([tf.identity(g) for g in of_layer]) for of_layer in grads]
    flat = tf.concat(sums, 0)
    sizes = [p.shape.num_elements() for p in params]
    pieces = zip(tf.split(flat, sizes), params, strict=True)
    take_step([params], [[tf.reshape(g, p.shape) for g, p in pieces]], LR, 1)
    return loss, params


def layerwise(X, y, k: int):
    shards = LayerShards(MODEL.layers, EIGHT[:k])
    loss = in_graph(partial(layerwise_step, lr=LR))(X, y, shards)
    return loss, gather_params(shards)


def on_mesh(X, y, **axes: int):
    mesh = Mesh(EIGHT, **axes)
    shards = MeshShards(MODEL.layers, mesh)
    loss = mesh_step(X, y, shards, mesh, LR, micro_batches=2)
    return loss, joined_shards(shards, part=axes["data"] - 1)


STEPS = {
    "one replica": partial(by_train_batch, k=1),
    "three replicas": partial(by_train_batch, k=3),
    "micro-batches on two": in_micro_batches,
    "a step alone": by_local_step,
    "a ring of three": by_members,
    "stages": partial(of_stages, partial(partitioned_step, lr=LR)),
    "a pipeline": partial(of_stages, by_pipeline),
    "sharded state": sharded,
    "layerwise on two": partial(layerwise, k=2),
    "layerwise on five": partial(layerwise, k=5),
    "a mesh": partial(on_mesh, pipeline=2, data=2, layerwise=2),
    "slices of a mesh": partial(on_mesh, data=2, layerwise=3),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_model_of_12_classes_takes_the_step_of_one_device(name):
    loss, params = STEPS[name](X, Y)
    mean, moved = right()
    assert float(loss) == pytest.approx(mean, rel=1e-12)
    assert distance(params, moved) <= 1e-12


# In a ring, the others would wait for the one that is refused until their deadline.
@pytest.mark.parametrize("name", [name for name in STEPS if "ring" not in name])
def test_its_13th_class_is_none(name):
    wrong = tf.where(Y == 3, CLASSES, Y)
    kinds = (ValueError, tf.errors.InvalidArgumentError)
    with pytest.raises(kinds, match="y must hold labels from 0 to 11"):
        STEPS[name](X, wrong)


# A reader's Keras model, with widths that no number of devices divides.


def reader() -> tuple[tf.keras.Sequential, tf.Tensor, tf.Tensor]:
    """A model of two convolutions and two dense layers, and a batch."""
    L, options = tf.keras.layers, {"dtype": "float64"}
    model = tf.keras.Sequential(
        [
            tf.keras.Input((9, 9, 3), dtype="float64"),
            L.Conv2D(6, 2, activation="relu", padding="same", **options),
            L.MaxPool2D(**options),
            L.Conv2D(7, 3, **options),
            L.ReLU(**options),
            L.AvgPool2D(2, 1, **options),
            L.Flatten(**options),
            L.Dense(11, activation="tanh", **options),
            L.Dense(CLASSES, use_bias=False, **options),
        ]
    )
    images = np.random.default_rng(1).normal(size=(SAMPLES, 9, 9, 3))
    for v in model.trainable_variables:  # no bias is 0
        v.assign(np.random.default_rng(2).normal(size=v.shape) / 3)
    return model, tf.constant(images), Y


def by_keras() -> tuple[tf.Tensor, list[tf.Tensor]]:
    model, images, y = reader()
    with tf.GradientTape() as tape:
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(images))
        loss = tf.reduce_sum(each)
    return loss, tape.gradient(loss, [v.value for v in model.trainable_variables])


def whole(layers, X, y):
    model = Model(layers)
    return model.gradients(X, y, model.params)


def in_stages(layers, X, y):
    loss, grads = partitioned_gradients(X, y, make_stages(layers, [1, 2], EIGHT[:2]))
    return loss, sum(grads, [])


def piped(layers, X, y):
    plan, stages = one_forward_one_backward(4, 3), make_stages(layers, [1, 2, 3], EIGHT)
    loss, grads = pipeline_gradients(plan, stages, X, y)
    return loss, sum(grads, [])


def cut(layers, X, y, cuts):
    shards = LayerShards(layers, EIGHT[:3], cuts)
    loss, grads = layerwise_gradients(X, y, shards)
    return loss, gather_params(shards, grads)


def meshed(layers, X, y):
    mesh = Mesh(EIGHT, shared=True, pipeline=2, data=2, layerwise=3)
    shards = MeshShards(layers, mesh)
    loss, grads = mesh_gradients(X, y, shards, mesh, micro_batches=2)
    return loss, joined_shards(shards, grads)


def shared_out(layers, X, y):
    """With the mean's gradients, flat, of which each device has a part."""
    state = ZeroState(layers, EIGHT[:3], stage=3)
    loss, grads = zero_gradients(state, X, y)
    found = []
    for one, chunks in zip(layers, grads, strict=True):
        like = list(one.params)
        found += unflatten(tf.concat(chunks, 0) * SAMPLES, like)
    return loss * SAMPLES, found


@pytest.mark.parametrize(
    "take",
    [
        whole,
        in_stages,
        piped,
        partial(cut, cuts=None),
        partial(cut, cuts=LENET_CUTS),
        meshed,
        shared_out,
    ],
    ids=["whole", "stages", "pipeline", "pairs", "LeNet's cuts", "mesh", "sharded"],
)
def test_a_readers_keras_model_has_the_gradients_of_one_device(take):
    model, images, y = reader()
    loss, grads = take(keras_layers(model), images, y)
    expected, right_grads = by_keras()
    assert distance([loss, *grads], [expected, *right_grads]) <= 1e-12


@pytest.mark.parametrize(
    "last, said",
    [
        ({"activation": "softmax"}, "a softmax in .*: let it give logits"),
        (None, "a LayerNormalization: remove it"),
    ],
)
def test_a_keras_model_whose_outputs_do_not_stand_alone_is_refused(last, said):
    L = tf.keras.layers
    end = L.LayerNormalization() if last is None else L.Dense(3, **last)
    with pytest.raises(ValueError, match=said):
        keras_layers(tf.keras.Sequential([tf.keras.Input((4,)), L.Dense(3), end]))


def test_what_is_no_sequence_of_keras_layers_is_refused():
    entry = tf.keras.Input((4,))
    with pytest.raises(TypeError, match="model must be Sequential, got Functional"):
        keras_layers(tf.keras.Model(entry, tf.keras.layers.Dense(3)(entry)))
    with pytest.raises(ValueError, match="must have a Dense or a Conv2D layer"):
        keras_layers(tf.keras.Sequential([entry, tf.keras.layers.Flatten()]))


# Model


def test_lenet_is_a_model():
    images, labels = batch(5)
    params = init_params(dtype=tf.float64)
    model, (loss, grads) = (
        Model(lenet_layers(params)),
        gradients(images, labels, params),
    )
    found, same_grads = model.gradients(images, labels, params)
    assert float(found) == pytest.approx(float(loss), rel=1e-12)
    assert distance(same_grads, grads) <= 1e-12
    assert (model.classes, model.state) == (10, [])
    assert all(a is b for a, b in zip(model.params, params, strict=True))


def test_parameters_given_stand_in_place_of_the_models_own():
    others = [tf.Variable(2 * p) for p in MODEL.params]
    loss, grads = MODEL.gradients(X, Y, others)
    alone = Model(
        [
            one._replace(params=tuple(others[2 * i : 2 * i + 2]))
            for i, one in enumerate(MODEL.layers)
        ]
    )
    expected, right_grads = alone.gradients(X, Y, alone.params)
    assert (
        float(loss) == float(expected) != float(MODEL.gradients(X, Y, MODEL.params)[0])
    )
    assert same(grads, right_grads)
    with pytest.raises(ValueError, match="params must hold 6 tensors, got 5"):
        MODEL.gradients(X, Y, others[:5])


def test_a_model_has_the_loss_that_it_is_given():
    """A mean of squares, a row of numbers a sample; a parameter that nothing uses."""
    idle, W = tf.Variable(1.0), tf.Variable([[2.0], [1.0]])
    layer = Layer("line", lambda h, W, idle: h @ W, (W, idle))
    model = Model([layer], lambda found, y: tf.reduce_sum((found - y) ** 2, -1))
    two = tf.constant([[1.0, 0.0], [0.0, 3.0]])
    loss, grads = model.gradients(two, tf.constant([[1.0], [1.0]]), model.params)
    assert float(loss) == 1 + 4
    assert grads[0].numpy().tolist() == [[2.0], [12.0]]
    assert float(grads[1]) == 0
    assert model.classes is None


def test_what_an_embedding_looks_up_stays_whole_and_its_gradient_is_a_tensor():
    table = tf.Variable(tf.reshape(tf.range(10.0), (5, 2)))
    layer = Layer("look up", lambda h, E: tf.gather(E, h), (table,), casts=False)
    tokens = tf.constant([4, 1, 4])
    assert ready_batch(tokens, tokens, [layer])[0].dtype == tf.int32
    _, (grad,) = Model([layer]).gradients(tokens, tf.constant([0, 1, 1]), [table])
    assert isinstance(grad, tf.Tensor)
    assert grad.shape == (5, 2)
    assert np.all(grad.numpy()[[0, 2, 3]] == 0) and np.all(grad.numpy()[[1, 4]] != 0)


# take_step


def test_each_variable_moves_where_it_lies_and_an_empty_replica_is_left_alone():
    moving = []
    for device in EIGHT[:2]:
        with tf.device(device):
            moving.append(tf.Variable([1.0, 2.0]))
    sums = [[tf.constant([3.0, 3.0])], [], [tf.constant([6.0, 0.0])]]
    step = in_graph(lambda: take_step([[moving[0]], [], [moving[1]]], sums, 0.5, 3))
    step()
    assert same(values(moving), [[0.5, 1.5], [0.0, 2.0]])
    ops = step.get_concrete_function().graph.get_operations()
    places = [op.device[-5:] for op in ops if op.type == "AssignSubVariableOp"]
    assert places == ["CPU:0", "CPU:1"]


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
@pytest.mark.parametrize("samples", [70_000, tf.constant(70_000)])
def test_a_batch_of_more_samples_than_float16_can_count_is_divided_by(dtype, samples):
    p = tf.Variable([1.0], dtype=dtype)
    take_step([[p]], [[tf.constant([35_000.0])]], 1.0, samples)
    np.testing.assert_allclose(tf.cast(p, tf.float64), [0.5], rtol=2e-2)


@pytest.mark.parametrize(
    "sums, lr, kind, said",
    [
        ([[tf.ones(2)]], 0.1, ValueError, "sums has 1 lists for 2 replicas"),
        ([[tf.ones(2)], [tf.ones(3)]], 0.1, ValueError, r"sums\[1\]\[0\] must have"),
        ([[tf.ones(2)], [None]], 0.1, TypeError, r"sums\[1\]\[0\] must be a tensor"),
        ([[tf.ones(2)], []], 0.1, ValueError, r"sums\[1\] is empty"),
        ([[tf.ones(2)]] * 2, 0.0, ValueError, "lr must be positive"),
    ],
)
def test_a_step_that_does_not_fit_moves_nothing(sums, lr, kind, said):
    held = [[tf.Variable([1.0, 1.0])], [tf.Variable([1.0, 1.0])]]
    with pytest.raises(kind, match=said):
        take_step(held, sums, lr, 2)
    assert same(values(sum(held, [])), [[1, 1], [1, 1]])
