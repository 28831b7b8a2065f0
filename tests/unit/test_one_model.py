"""Every step of the book, alone and put together, is the step of one device.

Twice, so that what it keeps counts too. What it refuses moves nothing. In float64,
where an error of weighting, of order or of place would leave far more than the 1e-12
allowed here, and rounding far less. The model has 12 classes, which LeNet lacks, and no
number of devices divides the first batch.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from manygpu import scratch
from manygpu.measure import nbytes
from manygpu.prove import steps
from manygpu.scratch import Model, allreduce_with
from manygpu.scratch.beyond.many_workers import member_step
from tests.unit.helpers import EIGHT, batch, distance, in_graph, same, values
from tests.unit.scratch.beyond.helpers import at_once, rings
from tests.unit.scratch.data_parallel.participants import hierarchy, nearest_first
from tests.unit.scratch.splitting.helpers import norm_layer

SAMPLES, CLASSES, LR = 17, 12, 0.375  # which has few bits
RATE = tf.constant(LR, tf.float64)
Params = list[tf.Variable]


class Net(NamedTuple):
    """A model, a batch for it, and what one device makes of that batch."""

    model: Model
    X: tf.Tensor
    outputs: Callable[[tf.Tensor], tf.Tensor]
    params: Params  # of `outputs`

    @property
    def layers(self) -> list[scratch.Layer]:
        return self.model.layers


dense = scratch.Linear(tf.matmul, lambda h, b: tf.tanh(h + b))


def of_dense_layers() -> Net:
    """Five, of 5 to 12 numbers."""
    layers, widths = [], [5, 7, 6, 8, 5, CLASSES]
    for i, shape in enumerate(zip(widths, widths[1:], strict=False)):
        W = tf.Variable(scratch.he_normal(shape, (3, i), tf.float64))
        b = tf.Variable(tf.zeros(shape[1:], tf.float64))
        layers.append(scratch.Layer(f"dense {i}", dense, (W, b)))
    layers[0] = layers[0]._replace(takes=(5,))
    layers[-1] = layers[-1]._replace(gives=(CLASSES,))

    def outputs(h: tf.Tensor) -> tf.Tensor:
        for one in layers:
            h = dense(h, *one.params)
        return h

    X = tf.constant(np.random.default_rng(0).integers(-2, 3, (SAMPLES, 5)), tf.float64)
    return Net(Model(layers), X, outputs, Model(layers).params)


def of_keras() -> Net:
    """A reader's, of two convolutions and two dense layers of uneven widths."""
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
    rng = np.random.default_rng(1)
    for v in model.trainable_variables:  # no bias is 0
        v.assign(rng.normal(size=v.shape) / 3)
    X = tf.constant(rng.normal(size=(SAMPLES, 9, 9, 3)))
    params = [v.value for v in model.trainable_variables]
    return Net(Model(scratch.keras_layers(model)), X, model, params)


DENSE, KERAS = of_dense_layers(), of_keras()
Y = tf.constant([11, 10, 0, 3, 11, 7, 9, 1, 10, 2, 5, 4, 6, 8, 0, 3, 11])


def by_sgd(p: np.ndarray, grads: list[np.ndarray]) -> np.ndarray:
    return p - LR * grads[-1]


def by_adam(p: np.ndarray, grads: list[np.ndarray]) -> np.ndarray:
    """With all gradients so far; epsilon as in Keras."""
    m = v = 0
    for g in grads:
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
    rate = LR * math.sqrt(1 - 0.999 ** len(grads)) / (1 - 0.9 ** len(grads))
    return p - rate * m / (np.sqrt(v) + 1e-7)


class Taken(NamedTuple):
    """A step, what it may change, and the parameters in each copy that it holds.

    checks: what it refuses by itself.
    """

    step: Callable[..., tf.Tensor]
    state: Params
    copies: Callable[[], list[list[tf.Tensor]]]
    rule: Callable = by_sgd
    checks: tuple[str, ...] = ("X", "y", "lr")


def on_one_device(net: Net, rule: Callable, batches: list) -> list[tuple]:
    """The mean loss before each step, and all parameters after it."""
    first, seen, found = values(net.params), [], []
    for X, y in batches:
        with tf.GradientTape() as tape:
            logits = net.outputs(X)
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
            mean = tf.reduce_mean(each)
        seen.append(values(tape.gradient(mean, net.params)))
        for p, *grads in zip(net.params, *seen, strict=True):
            p.assign(rule(p.numpy(), grads))
        found.append((float(mean), values(net.params)))
    for p, value in zip(net.params, first, strict=True):
        p.assign(value)
    return found


def of_numpy(X: tf.Tensor, y: tf.Tensor, lr: tf.Tensor) -> tuple:
    """The same numbers, in as few bits as hold them."""
    return X.numpy().astype(np.int8), y.numpy().astype(np.uint8), np.float32(lr)


def is_one_device(
    net: Net,
    taken: Taken,
    step: Callable,
    given: Callable = lambda *numbers: numbers,
    second: slice = slice(1, None),
) -> None:
    """given: makes X, y and the rate what the step gets. second: of the first batch."""
    batches = [(net.X, Y), (net.X[second], Y[second])]
    alone = on_one_device(net, taken.rule, batches)
    for batch_, (mean, moved) in zip(batches, alone, strict=True):
        assert float(step(*given(*batch_, RATE))) == pytest.approx(mean, rel=1e-12)
        first, *others = taken.copies()
        assert distance(first, moved) <= 1e-12
        assert all(same(values(other), values(first)) for other in others)


def taken_of(started: steps.Started, rule: Callable = by_sgd) -> Taken:
    return Taken(started.take, started.held, started.copies, rule)


def together(k: int, net: Net, **options) -> Taken:
    return taken_of(steps.together(net.layers, EIGHT[:k], **options))


def alone(net: Net) -> Taken:
    """On one device, whose own step is that of all."""
    replicas, of = [scratch.get_params(net.model.params, EIGHT[0])], net.model.gradients

    def step(X, y, lr):
        updates = [partial(scratch.sgd, replicas[0], lr=lr)]
        return scratch.local_step(X, y, replicas, EIGHT[:1], updates, of)

    return Taken(step, replicas[0], lambda: replicas, checks=("X", "y"))


def ring_of_members(net: Net) -> Taken:
    replicas = [scratch.get_params(net.model.params, d) for d in EIGHT[:3]]

    def step(X, y, lr):
        with rings(3) as joined:
            losses = at_once(
                [
                    partial(member_step, ring, X, y, own, lr, net.model.gradients)
                    for ring, own in zip(joined, replicas, strict=True)
                ]
            )
        return losses[0]

    return Taken(step, sum(replicas, []), lambda: replicas)


def in_segments(net: Net, length: int) -> list[scratch.Layer]:
    """Of so many layers, which are recomputed; 0 for none."""
    return scratch.recomputed_layers(net.layers, length) if length else net.layers


def of_stages(net: Net, length: int = 0, schedule=None) -> Taken:
    plan = schedule(2, 4) if schedule else None
    layers = in_segments(net, length)
    return taken_of(steps.in_stages(layers, EIGHT[:2], [1], plan))


def sharded(k: int, stage: int, net: Net, length: int = 0) -> Taken:
    layers = in_segments(net, length)
    return taken_of(steps.sharded(layers, EIGHT[:k], stage), by_adam)


def untold(net: Net) -> Net:
    """One whose last layer doesn't say how many classes there are."""
    *layers, last = net.layers
    return net._replace(model=Model([*layers, last._replace(gives=None)]))


def layerwise(k: int, net: Net) -> Taken:
    return taken_of(steps.layerwise(net.layers, EIGHT[:k]))


def on_mesh(net: Net, **axes: int) -> Taken:
    return taken_of(steps.on_mesh(net.layers, EIGHT, **axes))


one_f_one_b = partial(of_stages, schedule=scratch.one_forward_one_backward)
zero_bubble = partial(of_stages, schedule=scratch.zero_bubble)
STEPS = {
    "one replica": partial(together, 1),
    "three replicas": partial(together, 3),
    "micro-batches on two": partial(together, 2, pieces=3),
    "a step alone": alone,
    "a ring of three": ring_of_members,
    "stages": of_stages,
    "1F1B": one_f_one_b,
    "zero bubble": zero_bubble,
    "1F1B, recomputed": partial(one_f_one_b, length=2),
    "zero bubble, recomputed": partial(zero_bubble, length=2),
    "sharded state 0": partial(sharded, 3, 0),
    "sharded state 2": partial(sharded, 3, 2),
    "sharded state 1, recomputed": partial(sharded, 3, 1, length=2),
    "sharded state 3, recomputed": partial(sharded, 3, 3, length=2),
    "sharded state, classes untold": lambda net: sharded(2, 3, untold(net)),
    "layerwise on two": partial(layerwise, 2),
    "layerwise on five": partial(layerwise, 5),
    "a mesh": partial(on_mesh, pipeline=2, data=2, layerwise=2),
    "slices of a mesh": partial(on_mesh, data=2, layerwise=3),
}
RING = "a ring of three"
# In a graph, these are parts of the others.
IN_A_LARGER = {RING, "one replica", "stages", "1F1B", "zero bubble", "layerwise on two"}
KNOWN = [name for name in STEPS if name.startswith("layerwise") or "mesh" in name]
KINDS = [tf.TensorSpec((None, 5), tf.float64), tf.TensorSpec((None,), tf.int32)]
for_any_batch = partial(
    in_graph, input_signature=[*KINDS, tf.TensorSpec((), RATE.dtype)]
)
late = tf.errors.InvalidArgumentError


# What they refuse. Which kinds of values a check tells apart: bad_input/test_checks.py.
BAD = {
    "X": [
        *(None, tf.fill(DENSE.X.shape, "a"), DENSE.X > 0, tf.constant(1.0)),
        *(DENSE.X[:n] for n in (0, 1, SAMPLES - 1)),
        *(DENSE.X[:, 0], DENSE.X[..., None], DENSE.X[:, :4], DENSE.X[:, :0]),
    ],
    "y": [
        tf.constant([*Y[1:].numpy(), 255], tf.uint8),  # below 0 in 8 bits with a sign
        *(None, tf.cast(Y, tf.float64), tf.constant(3), Y[:, None], Y[1:], Y[:0]),
        *(tf.one_hot(Y, CLASSES, dtype=tf.int32), tf.concat([Y, Y[:1]], 0)),
    ],
    "lr": [None, 0, 1e40, tf.constant(1)],
}
# What a graph learns only when it runs.
LATE = {
    "y": [tf.where(Y == 3, wrong, Y) for wrong in (CLASSES, -1, 2**30)],
    "lr": [-RATE, math.nan * RATE],
}
OTHER_LENGTHS = {  # any kernel may take them
    "X and y must have the same length": (DENSE.X[:5], Y[:4], RATE),
    "parts is . for.*use fewer parts": (DENSE.X[:0], Y[:0], RATE),
}


def refuses(taken: Taken, step: Callable, bad: dict[str, list], *kinds: type) -> None:
    """By name, and nothing has moved."""
    before = values(taken.state)
    for name in taken.checks:
        for one in bad.get(name, ()):
            given = {"X": DENSE.X, "y": Y, "lr": RATE} | {name: one}
            with pytest.raises(kinds, match=rf"\b{name}\b"):
                step(**given)
            assert same(values(taken.state), before)


def refuses_all(taken: Taken) -> None:
    refuses(taken, taken.step, BAD, TypeError, ValueError)
    refuses(taken, taken.step, LATE, ValueError)
    one_each = {name: wrong[-1:] for name, wrong in BAD.items()}
    refuses(taken, in_graph(taken.step), one_each, TypeError, ValueError, late)


def refuses_late(taken: Taken, step: Callable, any_batch: bool) -> None:
    refuses(taken, step, LATE, late)
    before = values(taken.state)
    for said, given in OTHER_LENGTHS.items() if any_batch else ():
        with pytest.raises(late, match=said):
            step(*given)
        assert same(values(taken.state), before)


@pytest.mark.parametrize("name", STEPS)
def test_every_step_is_that_of_one_device(name):
    taken = STEPS[name](DENSE)
    if name != RING:  # the others would wait for the one that is refused
        refuses_all(taken)
    is_one_device(DENSE, taken, taken.step, of_numpy)


@pytest.mark.parametrize("name", [name for name in STEPS if name not in IN_A_LARGER])
def test_every_step_is_that_of_one_device_in_a_graph(name):
    """For batches of any size, but where they must be known."""
    taken = STEPS[name](DENSE)
    step, second = for_any_batch(taken.step), slice(1, None)
    if name in KNOWN:
        with pytest.raises(ValueError, match="X must have a known number of samples"):
            step.get_concrete_function()
        step, second = in_graph(taken.step), slice(None, None, -1)
    refuses_late(taken, step, any_batch=name not in KNOWN)
    is_one_device(DENSE, taken, step, second=second)


def test_what_is_refused_moves_no_average():
    net = DENSE._replace(
        model=Model([norm_layer(5)._replace(takes=(5,)), *DENSE.layers])
    )
    taken = of_stages(net)
    refuses_all(taken)
    refuses_late(taken, for_any_batch(taken.step), any_batch=True)


@pytest.mark.parametrize("name", STEPS)
def test_a_readers_keras_model_takes_every_step_too(name):
    taken = STEPS[name](KERAS)
    is_one_device(KERAS, taken, taken.step)


def buckets(reduce: Callable) -> Callable:
    """The gradients in messages of at most 400 bytes: four, of one or two."""
    sizes = [nbytes(p) for p in DENSE.params]
    return partial(
        scratch.allreduce_buckets,
        buckets=scratch.make_buckets(sizes, 400),
        reduce=reduce,
    )


REDUCES = {
    "one after the other": scratch.allreduce_gradients,
    "ring": allreduce_with(scratch.ring_allreduce),
    "tree": allreduce_with(scratch.tree_allreduce),
    "halving, farthest first": allreduce_with(scratch.halving_doubling_allreduce),
    "halving, nearest first": allreduce_with(nearest_first),
    "hierarchy": allreduce_with(hierarchy(2)),
    "buckets": buckets(scratch.allreduce_gradients),
    "buckets on a ring": buckets(allreduce_with(scratch.ring_allreduce)),
}


@pytest.mark.parametrize("k, micro_batches", [(3, 2), (8, 1)])
@pytest.mark.parametrize("reduce", REDUCES.values(), ids=REDUCES)
def test_any_sum_takes_the_step_of_one_device(k, reduce, micro_batches):
    taken = together(k, DENSE, pieces=micro_batches, reduce=reduce)
    is_one_device(DENSE, taken, taken.step)


def test_lenet_is_a_model_and_parameters_given_stand_in_place_of_its_own():
    (images, labels), params = batch(5), scratch.init_params(dtype=tf.float64)
    model = Model(scratch.lenet_layers(params))
    others = [tf.Variable(1.5 * p) for p in params]
    loss, grads = scratch.gradients(images, labels, others)
    found, found_grads = model.gradients(images, labels, others)
    assert float(found) == pytest.approx(float(loss), rel=1e-12)
    assert distance(found_grads, grads) <= 1e-12
    assert (model.classes, model.state) == (10, [])
    assert all(a is b for a, b in zip(model.params, params, strict=True))


def test_a_model_has_the_loss_that_it_is_given():
    """A mean of squares, a row of numbers a sample; a parameter that nothing uses."""
    idle, W = tf.Variable(1.0), tf.Variable([[2.0], [1.0]])
    layer = scratch.Layer("line", lambda h, W, idle: h @ W, (W, idle))
    model = Model([layer], lambda found, y: tf.reduce_sum((found - y) ** 2, -1))
    two = tf.constant([[1.0, 0.0], [0.0, 3.0]])
    loss, grads = model.gradients(two, tf.constant([[1.0], [1.0]]), model.params)
    assert float(loss) == 1 + 4
    assert grads[0].numpy().tolist() == [[2.0], [12.0]]
    assert float(grads[1]) == 0
    assert model.classes is None


def test_what_an_embedding_looks_up_stays_whole_and_its_gradient_is_a_tensor():
    table = tf.Variable(tf.reshape(tf.range(10.0), (5, 2)))
    layer = scratch.Layer(
        "look up", lambda h, E: tf.gather(E, h), (table,), casts=False
    )
    tokens = tf.constant([4, 1, 4])
    assert scratch.ready_batch(tokens, tokens, [layer])[0].dtype == tf.int32
    _, (grad,) = Model([layer]).gradients(tokens, tf.constant([0, 1, 1]), [table])
    assert isinstance(grad, tf.Tensor)
    assert grad.shape == (5, 2)
    assert np.all(grad.numpy()[[0, 2, 3]] == 0) and np.all(grad.numpy()[[1, 4]] != 0)


def test_each_variable_moves_where_it_lies_and_an_empty_replica_is_left_alone():
    moving = []
    for device in EIGHT[:2]:
        with tf.device(device):
            moving.append(tf.Variable([1.0, 2.0]))
    sums = [[tf.constant([3.0, 3.0])], [], [tf.constant([6.0, 0.0])]]
    step = in_graph(
        lambda: scratch.take_step([[moving[0]], [], [moving[1]]], sums, 0.5, 3)
    )
    step()
    assert same(values(moving), [[0.5, 1.5], [0.0, 2.0]])
    ops = step.get_concrete_function().graph.get_operations()
    places = [op.device[-5:] for op in ops if op.type == "AssignSubVariableOp"]
    assert places == ["CPU:0", "CPU:1"]


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
@pytest.mark.parametrize("samples", [70_000, tf.constant(70_000)])
def test_a_batch_of_more_samples_than_float16_can_count_is_divided_by(dtype, samples):
    p = tf.Variable([1.0], dtype=dtype)
    scratch.take_step([[p]], [[tf.constant([35_000.0])]], 1.0, samples)
    np.testing.assert_allclose(tf.cast(p, tf.float64), [0.5], rtol=2e-2)
