"""The book's own steps, as the judge takes them: each is right, until it is broken."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import tensorflow as tf

from manygpu.measure import nbytes
from manygpu.prove import more_steps
from manygpu.prove.small import Started, subject, together
from manygpu.prove.subject import ADAM, Subject
from manygpu.scratch.data_parallel.collectives import allreduce_with, ring_allreduce
from manygpu.scratch.data_parallel.hiding_communication import (
    allreduce_buckets,
    make_buckets,
)
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
    Model,
    even_cuts,
    make_stages,
    partitioned_step,
)
from manygpu.scratch.splitting.pipeline import one_forward_one_backward
from manygpu.scratch.splitting.running_a_pipeline import pipeline_step
from manygpu.scratch.splitting.sharded_state import ZeroState, zero_params, zero_step
from manygpu.scratch.splitting.smaller_bubble import zero_bubble


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


def two_parts(layers, devices) -> Started:
    """A mesh of one replica, of at most two layerwise parts."""
    return on_mesh(layers, devices, data=1, layerwise=min(2, len(devices)))


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
    "mesh, one replica": partial(subject, two_parts, most_devices=2),
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
BY_NAME |= more_steps.BY_NAME
