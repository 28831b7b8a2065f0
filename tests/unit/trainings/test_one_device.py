"""Every row of the table takes the step of one device, twice, so that state counts too.

In float64, where an error of weighting, of order or of place would leave far more than
the 1e-12 allowed here, and rounding far less. The model has 12 classes, which LeNet
lacks, and no number of devices divides the first batch. A refused step moves nothing.
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
from manygpu.scratch import Model, allreduce_with
from manygpu.trainings import copies, parts
from manygpu.trainings.at_work import maker
from manygpu.trainings.contract import Training
from manygpu.trainings.table import ADAM, STRATEGIES, dealt_out
from manygpu.trainings.task import Task
from tests.unit.helpers import EIGHT, distance, in_graph, same, values
from tests.unit.scratch.data_parallel.participants import hierarchy, nearest_first
from tests.unit.scratch.splitting.helpers import norm_layer

SAMPLES, CLASSES, LR = 17, 12, 0.375  # which has few bits
Params = list[tf.Variable]


class Net(NamedTuple):
    """A model, a batch for it, and what one device makes of that batch."""

    model: Model
    X: tf.Tensor
    outputs: Callable[[tf.Tensor], tf.Tensor]
    params: Params  # of `outputs`

    def task(self, lr=LR, pieces: int = 3) -> Task:
        seconds = [1.0] * len(self.model.layers)
        return Task("a net", self.model, None, lr, pieces, seconds=seconds)


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


def on_one_device(net: Net, rule: Callable, batches: list) -> list[tuple]:
    """The mean loss before each step, its gradients, and all parameters after it."""
    first, seen, found = values(net.params), [], []
    for X, y in batches:
        with tf.GradientTape() as tape:
            logits = net.outputs(X)
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
            mean = tf.reduce_mean(each)
        seen.append(values(tape.gradient(mean, net.params)))
        for p, *grads in zip(net.params, *seen, strict=True):
            p.assign(rule(p.numpy(), grads))
        found.append((float(mean), seen[-1], values(net.params)))
    for p, value in zip(net.params, first, strict=True):
        p.assign(value)
    return found


class Started(NamedTuple):
    """A row, or a variant of one, at work on a net."""

    training: Training
    rule: Callable = by_sgd
    off: float = 1e-12


def of_row(name: str, net: Net, lr=LR) -> Started:
    """A row of the table as a judge takes it, on as many devices as it takes to 3."""
    row = STRATEGIES[name]
    judged = row.judged
    pieces = judged.pieces if judged.pieces > 1 else 3
    devices = EIGHT[: min(3, judged.most_devices)]
    make = partial(maker(row.make), **judged.options)
    rule = by_adam if judged.rule == ADAM else by_sgd
    off = 1e-5 if judged.dtype == "float32" else 1e-12
    return Started(make(net.task(lr, pieces), devices), rule, off)


def rows() -> list[str]:
    """All rows whose step is that of one device on a model that is given."""
    named = {name: row.judged for name, row in STRATEGIES.items() if row.judged}
    own = [n for n, one in named.items() if one.subject or "rising" in one.rule]
    return [name for name in named if name not in own]


def recomputed(net: Net, length: int = 2) -> Net:
    layers = scratch.recomputed_layers(net.model.layers, length)
    return net._replace(model=Model(layers))


def untold(net: Net) -> Net:
    """One whose last layer doesn't say how many classes there are."""
    *layers, last = net.model.layers
    return net._replace(model=Model([*layers, last._replace(gives=None)]))


def in_stages(schedule: Callable, net: Net, lr=LR) -> Started:
    """Two, of which the first has one layer."""
    plan = schedule(2, 4)

    def step(X, y, stages, lr, loss):
        return scratch.pipeline_step(plan, stages, X, y, lr, loss)

    return Started(parts.in_stages(net.task(lr), EIGHT[:2], [1], step))


def sharded(k: int, stage: int, net: Net, lr=LR) -> Started:
    return Started(parts.sharded_state(net.task(lr), EIGHT[:k], stage), by_adam)


def on_mesh(k: int, *axes: str, **options) -> Callable:
    def start(net: Net, lr=LR) -> Started:
        return Started(parts.on_mesh(net.task(lr), EIGHT[:k], axes, **options))

    return start


def of(start: Callable, change: Callable) -> Callable:
    """The same, on a net that was changed."""
    return lambda net, lr=LR: start(change(net), lr)


one_f_one_b = partial(in_stages, scratch.one_forward_one_backward)
halves = partial(in_stages, scratch.zero_bubble)
VARIANTS = {
    "one replica": lambda net, lr=LR: Started(copies.data(net.task(lr), EIGHT[:1])),
    "1F1B, recomputed": of(one_f_one_b, recomputed),
    "zero bubble, recomputed": of(halves, recomputed),
    "sharded state 1, recomputed": of(partial(sharded, 3, 1), recomputed),
    "sharded state 3, recomputed": of(partial(sharded, 3, 3), recomputed),
    "sharded state, classes untold": of(partial(sharded, 2, 3), untold),
    "layerwise on five": lambda net, lr=LR: Started(
        parts.in_every_layer(net.task(lr), EIGHT[:5])
    ),
    "a mesh": on_mesh(8, "data", "pipeline", "layerwise", pieces=2),
    "slices of a mesh": on_mesh(6, "layerwise", "data"),
    "copies of shards": on_mesh(8, "copies", "layerwise", "data", sharded="data"),
}


def start(name: str, net: Net, lr=LR) -> Started:
    return VARIANTS[name](net, lr) if name in VARIANTS else of_row(name, net, lr)


def of_numpy(X: tf.Tensor, y: tf.Tensor) -> tuple:
    """The same numbers, in as few bits as hold them."""
    return X.numpy().astype(np.int8), y.numpy().astype(np.uint8)


def is_one_device(
    net: Net,
    started: Started,
    step: Callable,
    given: Callable = lambda *numbers: numbers,
    second: slice = slice(1, None),
) -> None:
    """given: makes X and y what the step gets. second: of the first batch."""
    training, off = started.training, started.off
    batches = [(net.X, Y), (net.X[second], Y[second])]
    alone = on_one_device(net, started.rule, batches)
    for (X, y), (mean, grads, moved) in zip(batches, alone, strict=True):
        if training.gradients:
            sums = [g * len(y) for g in grads]
            for own in training.gradients(X, y):
                assert distance(own, sums) <= 1e-13
        loss = step(*given(X, y))
        assert loss is None or float(loss) == pytest.approx(mean, rel=off)
        first, *others = training.copies()
        assert distance(first, moved) <= off
        assert all(same(values(other), values(first)) for other in others)


# Which steps can't be one graph, or take a graph for one number of samples only.
EAGER = [n for n in rows() if n in ("members", "server", "engine")]
KNOWN = [n for n in [*rows(), *VARIANTS] if "mesh" in n or "layerwise" in n]
KNOWN += ["hsdp", "copies of shards", "local", "loss-scale"]
KINDS = [tf.TensorSpec((None, 5), tf.float64), tf.TensorSpec((None,), tf.int32)]
for_any_batch = partial(in_graph, input_signature=KINDS)
late = tf.errors.InvalidArgumentError


@pytest.mark.parametrize("name", [*rows(), *VARIANTS])
def test_every_step_is_that_of_one_device(name):
    started = start(name, DENSE)
    as_it_is = name in EAGER or started.off > 1e-12
    given = {} if as_it_is else {"given": of_numpy}
    is_one_device(DENSE, started, started.training.take, **given)


@pytest.mark.parametrize("name", [n for n in [*rows(), *VARIANTS] if n not in EAGER])
def test_every_step_is_that_of_one_device_in_a_graph(name):
    """For batches of any size, but where they must be known."""
    started, second = start(name, DENSE), slice(1, None)
    step = for_any_batch(started.training.take)
    if name in KNOWN:
        step, second = in_graph(started.training.take), slice(None, None, -1)
    is_one_device(DENSE, started, step, second=second)


# TensorFlow's own sum of a convolution's gradients leaves copies that aren't equal in
# every bit, so the engine isn't asked here.
@pytest.mark.parametrize("name", [n for n in [*rows(), *VARIANTS] if n != "engine"])
def test_a_readers_keras_model_takes_every_step_too(name):
    started = start(name, KERAS)
    is_one_device(KERAS, started, started.training.take)


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
}
# What a graph learns only when it runs.
LATE = {
    "y": [tf.where(Y == 3, wrong, Y) for wrong in (CLASSES, -1, 2**30)],
}
OTHER_LENGTHS = {  # any kernel may take them
    "X and y must have the same length": (DENSE.X[:5], Y[:4]),
    "parts is . for.*use fewer parts": (DENSE.X[:0], Y[:0]),
}


RATES = [None, 0, 1e40, tf.constant(1), -LR, math.nan]
REFUSING = ["data", "pieces", "recomputation", "network", "pipeline", "zero-bubble"]
REFUSING += ["layerwise", "zero-0", "zero-2", "zero-3", "hsdp", "mesh", "mesh-3d"]


def refuses(training: Training, step: Callable, bad: dict, *kinds: type) -> None:
    """By name, and nothing has moved."""
    before = values(training.stored())
    for name, wrong in bad.items():
        for one in wrong:
            with pytest.raises(kinds, match=rf"\b{name}\b"):
                step(**({"X": DENSE.X, "y": Y} | {name: one}))
            assert same(values(training.stored()), before)


@pytest.mark.parametrize("name", [*REFUSING, "local"])
def test_what_a_step_refuses_moves_nothing(name):
    training = start(name, DENSE).training
    refuses(training, training.take, BAD, TypeError, ValueError)
    refuses(training, training.take, LATE, ValueError)
    one_each = {what: wrong[-1:] for what, wrong in BAD.items()}
    refuses(training, in_graph(training.take), one_each, TypeError, ValueError, late)


@pytest.mark.parametrize("name", REFUSING)
@pytest.mark.parametrize("lr", RATES, ids=str)
def test_a_rate_that_is_none_is_refused(name, lr):
    training = start(name, DENSE, lr).training
    before = values(training.stored())
    with pytest.raises((TypeError, ValueError), match=r"\blr\b"):
        training.take(DENSE.X, Y)
    assert same(values(training.stored()), before)


@pytest.mark.parametrize("name", REFUSING)
def test_what_only_a_running_graph_can_see_moves_nothing_either(name):
    training = start(name, DENSE).training
    graph = in_graph if name in KNOWN else for_any_batch
    step = graph(training.take)
    refuses(training, step, LATE, late)
    before = values(training.stored())
    for said, given in OTHER_LENGTHS.items() if name not in KNOWN else ():
        with pytest.raises(late, match=said):
            step(*given)
        assert same(values(training.stored()), before)


@pytest.mark.parametrize("name", [n for n in REFUSING if "mesh" in n])
def test_a_mesh_wants_to_know_how_many_samples_come(name):
    training = start(name, DENSE).training
    with pytest.raises(ValueError, match="X must have a known number of samples"):
        for_any_batch(training.take).get_concrete_function()


def test_what_is_refused_moves_no_average():
    layers = [norm_layer(5)._replace(takes=(5,)), *DENSE.model.layers]
    training = start("network", DENSE._replace(model=Model(layers))).training
    refuses(training, training.take, BAD, TypeError, ValueError)
    refuses(training, for_any_batch(training.take), LATE, late)


# Sums of gradients that are no rows


def buckets_on_a_ring(made) -> Callable:
    """The gradients in messages of at most 400 bytes: four, of one or two."""
    sizes = [nbytes(p) for p in DENSE.params]
    return partial(
        scratch.allreduce_buckets,
        buckets=scratch.make_buckets(sizes, 400),
        reduce=allreduce_with(scratch.ring_allreduce),
    )


REDUCES = {
    "halving, nearest first": lambda _: allreduce_with(nearest_first),
    "hierarchy": lambda _: allreduce_with(hierarchy(2)),
    "buckets on a ring": buckets_on_a_ring,
}


@pytest.mark.parametrize("k, pieces", [(3, 2), (8, 1)])
@pytest.mark.parametrize("reduce", REDUCES.values(), ids=REDUCES)
def test_any_sum_takes_the_step_of_one_device(k, reduce, pieces):
    def in_pieces(of, X, y, params):
        return scratch.accumulate(X, y, params, pieces, of)

    training = copies.data(DENSE.task(), EIGHT[:k], in_pieces, reduce=reduce)
    is_one_device(DENSE, Started(training), training.take)


@pytest.mark.parametrize(
    ("count", "axes", "sizes"),
    [(8, "abc", [2, 2, 2]), (4, "ab", [2, 2]), (3, "ab", [3, 1]), (6, "ab", [2, 3])],
)
def test_ranks_are_dealt_out_to_the_axes(count, axes, sizes):
    assert list(dealt_out(count, axes).values()) == sizes
