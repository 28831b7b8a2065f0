"""The book's own steps, as the judge takes them: each is right, until it is broken."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from manygpu.measure import nbytes
from manygpu.prove.adapters import Parts, Variables, of_variables
from manygpu.prove.subject import ADAM, Subject
from manygpu.scratch.data_parallel.collectives import allreduce_with, ring_allreduce
from manygpu.scratch.data_parallel.gradient_accumulation import accumulate
from manygpu.scratch.data_parallel.hiding_communication import (
    allreduce_buckets,
    make_buckets,
)
from manygpu.scratch.data_parallel.many_devices import train_batch
from manygpu.scratch.data_parallel.parameters_and_devices import get_params
from manygpu.scratch.data_parallel.trees_and_hierarchy import (
    halving_doubling_allreduce,
    tree_allreduce,
)
from manygpu.scratch.splitting.hybrid_meshes import (
    Mesh,
    MeshShards,
    joined_shards,
    mesh_step,
)
from manygpu.scratch.splitting.layerwise import (
    LayerShards,
    gather_params,
    layerwise_step,
)
from manygpu.scratch.splitting.network import (
    Layer,
    Model,
    even_cuts,
    make_stages,
    partitioned_step,
)
from manygpu.scratch.splitting.pipeline import one_forward_one_backward
from manygpu.scratch.splitting.running_a_pipeline import pipeline_step
from manygpu.scratch.splitting.sharded_state import ZeroState, zero_params, zero_step
from manygpu.scratch.splitting.smaller_bubble import zero_bubble
from manygpu.scratch.start.three_ways_to_split import Linear

WIDTHS, LR = (6, 8, 7, 5), 0.3
dense = Linear(tf.matmul, lambda h, b: tf.tanh(h + b))


def layers_of(params: Variables) -> list[Layer]:
    """Return dense layers with these parameters, a weight and a bias each."""
    pairs = zip(params[::2], params[1::2], strict=True)
    layers = [Layer(f"dense {i}", dense, own) for i, own in enumerate(pairs)]
    layers[0] = layers[0]._replace(takes=(WIDTHS[0],))
    layers[-1] = layers[-1]._replace(gives=(WIDTHS[-1],))
    return layers


def drawn_weights(seed: int = 0) -> list[np.ndarray]:
    """Return weights, and biases that are not 0."""
    rng = np.random.default_rng(seed)
    pairs = [(shape, shape[1:]) for shape in zip(WIDTHS, WIDTHS[1:], strict=False)]
    shapes = [shape for pair in pairs for shape in pair]
    return [rng.normal(size=shape) / 2 for shape in shapes]


def draw(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return samples and labels."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(samples, WIDTHS[0])), rng.integers(0, WIDTHS[-1], samples)


def reference(X: tf.Tensor, y: tf.Tensor, params: Variables) -> tuple:
    """Return the summed loss and its gradients, by TensorFlow's own functions only."""
    with tf.GradientTape() as tape:
        h = X
        for W, b in zip(params[::2], params[1::2], strict=True):
            h = tf.tanh(h @ W + b)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=h)
        loss = tf.reduce_sum(each)
    return loss, tape.gradient(loss, params)


class Started(NamedTuple):
    """A training that begins: a step on the layers it was given, on some devices.

    Attributes:
        take: `take(X, y, lr)` takes a step; returns the batch's mean loss.
        copies: returns each copy of all parameters, whole.
        held: the variables that a step may change.
        state: returns what is kept beside the parameters; None if that is nothing.
    """

    take: Callable[..., tf.Tensor]
    copies: Callable[[], list[Variables]]
    held: Variables
    state: Callable[[], dict[str, list]] | None = None


def together(layers, devices, reduce=None, pieces=1, of=None) -> Started:
    """`train_batch`, with any sum of the gradients, in micro-batches or not."""
    model = Model(layers)
    of = of or model.gradients
    replicas = [get_params(model.params, device) for device in devices]
    options = {"reduce": reduce} if reduce else {}
    if pieces > 1:
        of = partial(accumulate, micro_batches=pieces, of=of)

    def take(X, y, lr):
        return train_batch(X, y, replicas, devices, lr, of=of, **options)

    return Started(take, lambda: replicas, sum(replicas, []))


def in_buckets(layers, devices) -> Started:
    """Gradients in messages of a few hundred bytes."""
    buckets = make_buckets([nbytes(p) for p in Model(layers).params], 400)
    return together(layers, devices, partial(allreduce_buckets, buckets=buckets))


def in_stages(layers, devices, cuts=None, plan=None) -> Started:
    """The layers on the devices, as a network or, by a plan, as a pipeline."""
    cuts = even_cuts(len(layers), len(devices)) if cuts is None else cuts
    stages = make_stages(layers, cuts, devices)
    params = [p for stage in stages for p in stage.params]
    state = [v for stage in stages for one in stage.layers for v in one.state]

    def take(X, y, lr):
        if plan is None:
            return partitioned_step(X, y, stages, lr)
        return pipeline_step(plan, stages, X, y, lr)

    return Started(take, lambda: [params], params + state)


def as_pipeline(layers, devices, schedule, pieces=3) -> Started:
    """A stage a device, and so many micro-batches."""
    return in_stages(layers, devices, plan=schedule(len(devices), pieces))


def layerwise(layers, devices) -> Started:
    """Pairs of layers in columns and rows."""
    shards = LayerShards(layers, devices)

    def take(X, y, lr):
        return layerwise_step(X, y, shards, lr)

    return Started(take, lambda: [gather_params(shards)], sum(shards, []))


def on_mesh(layers, devices, **axes: int) -> Started:
    """A mesh with these axes, in two micro-batches."""
    mesh = Mesh(devices, **axes)
    shards = MeshShards(layers, mesh)

    def take(X, y, lr):
        return mesh_step(X, y, shards, mesh, lr, micro_batches=2)

    def copies():
        return [joined_shards(shards, part=i) for i in range(axes["data"])]

    return Started(take, copies, sum(shards, []))


def two_replicas(layers, devices) -> Started:
    """A mesh of at most two replicas, of at most two layerwise parts each."""
    data = min(2, len(devices))
    return on_mesh(layers, devices, data=data, layerwise=min(2, len(devices) // data))


def sharded(layers, devices, stage) -> Started:
    """A stage of ZeRO; Adam."""
    state = ZeroState(layers, devices, stage)
    held = [v for own in state.held for one in own for v in one if v is not None]

    def take(X, y, lr):
        return zero_step(state, X, y, lr)

    def copies():
        return [zero_params(state, i) for i in range(len(devices))]

    def kept():
        of_adam = {
            name: [
                tf.concat([getattr(one, name) for one in own], 0) for own in state.held
            ]
            for name in ("m", "v")
        }
        return of_adam | {"t": [state.t]}

    return Started(take, copies, [*held, state.t], kept)


def subject(begin: Callable[..., Started], name: str, **about) -> Subject:
    """Return a subject of the dense model, whose training `begin` starts."""

    def start(params: Variables, devices: list[str]) -> Parts:
        started = begin(layers_of(params), devices)
        return Parts(partial(started.take, lr=LR), started.copies, started.state)

    names = [f"{kind}{i + 1}" for i in range(len(WIDTHS) - 1) for kind in "Wb"]
    about = {"name": name, "names": names} | about
    return of_variables(start, reference, drawn_weights(), draw, LR, **about)


REDUCES = {
    "ring": ring_allreduce,
    "tree": tree_allreduce,
    "halving": halving_doubling_allreduce,
}
PLANS = {"pipeline": one_forward_one_backward, "pipeline, zero bubble": zero_bubble}
# By name: makes the subject, which gets that name.
BY_NAME: dict[str, Callable[[str], Subject]] = {
    "data": partial(subject, together),
    "data, micro-batches": partial(subject, partial(together, pieces=2)),
    "data, buckets": partial(subject, in_buckets),
    "network": partial(subject, in_stages, most_devices=3),
    "layerwise": partial(subject, layerwise, most_devices=5),
    "mesh": partial(
        subject, two_replicas, excused={"place": "a mesh of two has no third device"}
    ),
}
for _name, _reduce in REDUCES.items():
    _step = partial(together, reduce=allreduce_with(_reduce))
    BY_NAME[f"data, {_name}"] = partial(subject, _step)
for _name, _schedule in PLANS.items():
    _step = partial(as_pipeline, schedule=_schedule)
    BY_NAME[_name] = partial(subject, _step, most_devices=3)
for _stage in range(4):
    _step = partial(sharded, stage=_stage)
    _apart = dict.fromkeys("mv" if _stage else "", "each device has a part of it")
    _about = {"rule": ADAM, "apart": _apart}
    BY_NAME[f"sharded state {_stage}"] = partial(subject, _step, **_about)
