"""Strategies put together: whatever is combined, the step is that of one device.

In float64, where an error of weighting, of order or of place would leave far more than
the 1e-12 allowed here, and rounding far less.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np
import pytest
import tensorflow as tf

from manygpu.measure import nbytes
from manygpu.scratch.data_parallel.collectives import (
    MessageLog,
    allreduce_with,
    later,
    ring_allreduce,
)
from manygpu.scratch.data_parallel.gradient_accumulation import accumulate
from manygpu.scratch.data_parallel.hiding_communication import (
    allreduce_buckets,
    flatten,
    make_buckets,
)
from manygpu.scratch.data_parallel.many_devices import (
    allreduce_gradients,
    train_batch,
)
from manygpu.scratch.data_parallel.parameters_and_devices import get_params
from manygpu.scratch.data_parallel.trees_and_hierarchy import (
    halving_doubling_allreduce,
    hierarchical_allreduce,
    tree_allreduce,
)
from manygpu.scratch.engine.mixed_precision import allreduce_stored
from manygpu.scratch.splitting.hybrid_meshes import (
    Mesh,
    MeshShards,
    batch_parts,
    groups_along,
    joined_shards,
    plan_on_mesh,
    run_replica,
    traffic,
)
from manygpu.scratch.splitting.network import Layer, Model, even_cuts, make_stages
from manygpu.scratch.splitting.pipeline import (
    dense_layers,
    one_forward_one_backward,
)
from manygpu.scratch.splitting.recomputation import recomputed_layers
from manygpu.scratch.splitting.running_a_pipeline import pipeline_gradients
from manygpu.scratch.splitting.sharded_state import (
    ZeroState,
    adam_change,
    zero_params,
    zero_step,
    zero_update,
)
from manygpu.scratch.splitting.smaller_bubble import zero_bubble
from manygpu.scratch.start.one_device import (
    cross_entropy,
    gradients,
    init_params,
    lenet,
)
from tests.unit.helpers import EIGHT, batch, distance, in_graph, same, values

# Data parallel: how gradients are summed, and how a device finds its own.

COUNTS = [1, 2, 3, 8]
STEPS, LR = 3, 0.05
SAMPLES, TWICE = 13, 17  # no count but 1 divides them; 17: two a device


def in_pairs(data: list[tf.Tensor], send: Callable) -> list[tf.Tensor]:
    """The hierarchy, two a group; the last group may have one."""
    n = len(data)
    groups = [list(range(i, min(i + 2, n))) for i in range(0, n, 2)]
    return hierarchical_allreduce(data, groups, send)


def buckets(reduce: Callable = allreduce_gradients) -> Callable:
    """LeNet's gradients in messages of at most 100 kB."""
    made = make_buckets([nbytes(p) for p in init_params(dtype=tf.float64)], 100_000)
    return partial(allreduce_buckets, buckets=made, reduce=reduce)


ring = allreduce_with(ring_allreduce)
nearest = partial(halving_doubling_allreduce, farthest_first=False)
REDUCES = {
    "one after the other": allreduce_gradients,
    "ring": ring,
    "tree": allreduce_with(tree_allreduce),
    "halving, farthest first": allreduce_with(halving_doubling_allreduce),
    "halving, nearest first": allreduce_with(nearest),
    "hierarchy": allreduce_with(in_pairs),
    "buckets": buckets(),
    "buckets on a ring": buckets(ring),
}
twice = partial(accumulate, micro_batches=2)
# A graph for each device's own gradients, made once for all tests: they are about
# what is done with them. `test_a_compiled_step_takes_them_too` makes one of it all.
once_each, twice_each = in_graph(gradients), in_graph(twice)


@cache
def replicas_of(k: int) -> list[list[tf.Variable]]:
    """The same variables for all tests, so that those graphs serve for all."""
    return [get_params(init_params(dtype=tf.float64), device) for device in EIGHT[:k]]


def batches(samples: int) -> list[tuple[tf.Tensor, tf.Tensor]]:
    return [batch(samples, seed) for seed in range(STEPS)]


@cache
def on_one_device(samples: int) -> list[np.ndarray]:
    """Parameters after some steps of SGD along the mean loss of the whole batch."""
    params = init_params(dtype=tf.float64)
    for X, y in batches(samples):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(cross_entropy(lenet(X, params), y))
        for p, g in zip(params, tape.gradient(loss, params), strict=True):
            p.assign_sub(LR * g)
    return values(params)


def on_devices(
    k: int, samples: int, reduce: Callable, of: Callable, compiled: bool = False
) -> list[list[np.ndarray]]:
    """The same steps of `train_batch`; the parameters of each replica."""
    devices, replicas = EIGHT[:k], replicas_of(k)
    for own in replicas:
        for p, start in zip(own, init_params(dtype=tf.float64), strict=True):
            p.assign(start)

    def step(X: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return train_batch(X, y, replicas, devices, LR, reduce, of)

    step = in_graph(step) if compiled else step
    for X, y in batches(samples):
        step(X, y)
    return [values(own) for own in replicas]


def moved(params: list[np.ndarray]) -> list[np.ndarray]:
    """How far they are from where training began."""
    start = values(init_params(dtype=tf.float64))
    return [p - s for p, s in zip(params, start, strict=True)]


def are_one_device(found: list[list[np.ndarray]], right: list[np.ndarray]) -> None:
    """The first replica moved as one device did; the others are equal to it."""
    assert distance(moved(found[0]), moved(right)) <= 1e-12
    assert all(same(own, found[0]) for own in found)


@pytest.mark.parametrize("reduce", REDUCES.values(), ids=REDUCES)
@pytest.mark.parametrize("k", COUNTS)
def test_any_sum_takes_the_steps_of_one_device(k, reduce):
    are_one_device(on_devices(k, SAMPLES, reduce, once_each), on_one_device(SAMPLES))


@pytest.mark.parametrize("reduce", REDUCES.values(), ids=REDUCES)
@pytest.mark.parametrize("k", COUNTS)
def test_any_sum_of_accumulated_gradients_takes_them_too(k, reduce):
    found = on_devices(k, TWICE, reduce, twice_each)
    are_one_device(found, on_one_device(TWICE))


def test_a_compiled_step_takes_them_too():
    found = on_devices(2, SAMPLES, buckets(ring), gradients, compiled=True)
    are_one_device(found, on_one_device(SAMPLES))


# Sums in 16 bits are not those of one device, but near: their bound is derived.


# Each device's number is rounded to 16 bits, and so is the sum: by half an epsilon of
# itself, or half of the least number above zero. A whole one leaves room for float32.
EPS = {tf.float16: 2.0**-10, tf.bfloat16: 2.0**-7}
LEAST = {tf.float16: 2.0**-24, tf.bfloat16: 2.0**-133}


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("in_buckets", [False, True], ids=["a tensor", "buckets"])
@pytest.mark.parametrize("of", [gradients, twice], ids=["at once", "accumulated"])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_a_step_of_sums_in_16_bits_is_off_by_their_rounding(k, of, in_buckets, dtype):
    """One step along the sums that were sent, from the gradients that were found."""
    devices, (X, y) = EIGHT[:k], batch(TWICE)
    start = init_params(dtype=tf.float64)
    replicas = [get_params(start, device) for device in devices]
    sixteen, seen = partial(allreduce_stored, dtype=dtype), []
    chosen = buckets(sixteen) if in_buckets else sixteen

    def reduce(grads: list[list[tf.Tensor]]) -> list[list[tf.Tensor]]:
        seen.append(grads)
        return chosen(grads)

    train_batch(X, y, replicas, devices, LR, reduce, of)
    (grads,) = seen
    for i, (p, s) in enumerate(zip(replicas[0], start, strict=True)):
        found = (s - p).numpy() * len(y) / LR
        each = [own[i].numpy() for own in grads]
        sizes = np.sum(np.abs(each), axis=0)
        allowed = 2 * EPS[dtype] * sizes + (k + 1) * LEAST[dtype]
        apart = np.abs(found - np.sum(each, axis=0))
        cancelled = 2.0**-52 * np.abs(s.numpy()) * len(y) / LR  # of s - p
        assert np.all(apart <= allowed + cancelled)
    assert all(same(values(own), values(replicas[0])) for own in replicas)
    assert {p.dtype for p in replicas[0]} == {tf.float64}


# Recomputation inside a pipeline stage, and below sharded state.

WIDTH, MOMENTUM = 6, 0.9


def tanh_layers(n: int) -> list[Layer]:
    """n equal layers of two parameters, in float64."""
    rng, layers = np.random.default_rng(n), []
    for i in range(n):
        W, b = rng.normal(size=(WIDTH, WIDTH)), rng.normal(size=WIDTH)
        params = tf.Variable(W / WIDTH**0.5), tf.Variable(b)
        layers.append(Layer(f"tanh {i}", lambda h, W, b: tf.tanh(h @ W + b), params))
    return layers


def vectors(samples: int, seed: int) -> tuple[tf.Tensor, tf.Tensor]:
    rng = np.random.default_rng(seed)
    X = tf.constant(rng.normal(size=(samples, WIDTH)))
    return X, tf.constant(rng.integers(0, WIDTH, samples), tf.int32)


def params_of(layers: list[Layer]) -> list[tf.Variable]:
    return [p for one in layers for p in one.params]


def mean_gradients(X, y, params, model: Callable) -> list[tf.Tensor]:
    """The gradient of the mean loss, by one tape."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(cross_entropy(model(X), y))
    return tape.gradient(loss, params)


def in_chain(layers: list[Layer]) -> Callable:
    def model(h):
        for one in layers:
            h = one.apply(h, *one.params)
        return h

    return model


def with_momentum(params, speeds, grads) -> None:
    for p, v, g in zip(params, speeds, grads, strict=True):
        p.assign_sub(LR * v.assign(MOMENTUM * v + g))


def with_adam(params, averages, grads, t: int) -> None:
    for p, (m, v), g in zip(params, averages, grads, strict=True):
        p.assign_sub(adam_change(m, v, g, t, LR))


def zeros(params) -> list[tf.Variable]:
    return [tf.Variable(tf.zeros_like(p)) for p in params]


def change(params, start) -> list[np.ndarray]:
    return [np.subtract(p, s) for p, s in zip(params, start, strict=True)]


SCHEDULES = {
    "1F1B": one_forward_one_backward,
    "zero bubble": zero_bubble,
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("k", COUNTS)
def test_recomputed_stages_of_a_pipeline_take_the_steps_of_one_device(k, schedule):
    """An odd number of layers in segments of 2, uneven stages; with momentum."""
    layers = 2 * max(k, 2) + 1
    alone = tanh_layers(layers)
    segments = recomputed_layers(tanh_layers(layers), 2)
    stages = make_stages(segments, even_cuts(len(segments), k), EIGHT[:k])
    plan = SCHEDULES[schedule](k, 3)

    @in_graph
    def gradients(X, y):
        return sum(pipeline_gradients(plan, stages, X, y)[1], [])

    own, found = params_of(alone), [p for stage in stages for p in stage.params]
    start, speeds, others = values(own), zeros(own), zeros(own)
    for seed in range(STEPS):
        X, y = vectors(12, seed)
        with_momentum(own, speeds, mean_gradients(X, y, own, in_chain(alone)))
        with_momentum(found, others, [g / len(y) for g in gradients(X, y)])
    assert distance(change(found, start), change(own, start)) <= 1e-12


# Sharded state: over recomputed layers, and on a mesh's data axis.


@pytest.mark.parametrize("stage", [1, 3])
@pytest.mark.parametrize("k", COUNTS)
def test_sharded_recomputed_layers_take_adams_steps_of_one_device(k, stage):
    """13 samples: uneven shards. Chunks are uneven too."""
    alone = tanh_layers(3)
    state = ZeroState(recomputed_layers(tanh_layers(3), 2), EIGHT[:k], stage)
    step, own = in_graph(zero_step), params_of(alone)
    start, averages = values(own), list(zip(zeros(own), zeros(own), strict=True))
    for t in range(1, STEPS + 1):
        X, y = vectors(SAMPLES, t)
        with_adam(own, averages, mean_gradients(X, y, own, in_chain(alone)), t)
        step(state, X, y, LR)
    for i in range(k):
        found = change(zero_params(state, i), start)
        assert distance(found, change(own, start)) <= 1e-12


@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize(
    "axes",
    [
        {"data": 2},
        {"data": 3, "layerwise": 2},
        {"pipeline": 2, "data": 2, "layerwise": 2},
        {"layerwise": 2, "data": 4},
    ],
    ids=str,
)
def test_adams_state_is_sharded_along_a_meshs_data_axis(axes, stage):
    """The ranks of a data group hold the same shard, and share out its state.

    So each group is a `ZeroState` of its own, of one layer that is the shard, and its
    messages go by `later(send, 0, group)`. Parts of 7 and 6 samples, or 4, 3, ...
    """
    model = Model(dense_layers([5, 6, 7, 6, 4], dtype=tf.float64))
    params = model.params
    mesh, start, log = Mesh(EIGHT, **axes), values(params), MessageLog()
    averages = list(zip(zeros(params), zeros(params), strict=True))
    shards, states = MeshShards(model.layers, mesh), {}
    for group in groups_along(mesh, "data"):
        shard = Layer("shard", model.outputs, tuple(shards[group[0]]))
        devices = [mesh.device(rank) for rank in group]
        states[tuple(group)] = ZeroState([shard], devices, stage)
    plan = plan_on_mesh(one_forward_one_backward, mesh, 2)
    rng = np.random.default_rng(0)
    for t in range(1, STEPS + 1):
        X = tf.constant(rng.normal(size=(SAMPLES, 5)))
        y, found = tf.constant(rng.integers(0, 4, SAMPLES)), {}
        whole = partial(model.outputs, params=params)
        with_adam(params, averages, mean_gradients(X, y, params, whole), t)
        for part, micro in enumerate(batch_parts(X, y, shards, mesh, 2)):
            found |= run_replica(plan, part, micro, shards, MessageLog())[1]
        for group, state in states.items():
            grads = [flatten([g / SAMPLES for g in found[rank]]) for rank in group]
            zero_update(state, [grads], LR, later(log, 0, group))
            for i, rank in enumerate(group):
                for p, value in zip(shards[rank], zero_params(state, i), strict=True):
                    p.assign(value)
    for part in range(mesh.sizes["data"]):
        own = change(joined_shards(shards, part=part), start)
        assert distance(own, change(params, start)) <= 1e-12
    assert {axis for axis, sent in traffic(log, mesh).items() if sent} == {"data"}
