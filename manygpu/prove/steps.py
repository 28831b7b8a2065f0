"""The book's own steps, as the judge takes them: each is right, until it is broken."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import tensorflow as tf

from manygpu.measure import nbytes
from manygpu.prove import more_steps
from manygpu.prove.small import Started, subject, together
from manygpu.prove.subject import ADAM, TELLING, Case, Subject
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

MICRO_BATCHES = 2  # of a mesh
PIECES = 3  # of a pipeline: micro-batches of the whole batch, whatever its stages


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


def as_pipeline(layers, devices, schedule, pieces=PIECES) -> Started:
    """A stage a device, and so many micro-batches."""
    return in_stages(layers, devices, plan=schedule(len(devices), pieces))


def layerwise(layers, devices) -> Started:
    """Pairs of layers in columns and rows."""
    shards = LayerShards(layers, devices)

    def take(X, y, lr):
        return layerwise_step(X, y, shards, lr)

    return Started(take, lambda: [gather_params(shards)], sum(shards, []))


def on_mesh(layers, devices, **axes: int) -> Started:
    """A mesh with these axes, in micro-batches."""
    mesh = Mesh(devices, **axes)
    shards = MeshShards(layers, mesh)

    def take(X, y, lr):
        return mesh_step(X, y, shards, mesh, lr, micro_batches=MICRO_BATCHES)

    def copies():
        return [joined_shards(shards, part=i) for i in range(axes["data"])]

    return Started(take, copies, sum(shards, []))


def axes_of(devices: int) -> dict[str, int]:
    """Both axes, two replicas, if an even number of devices lets both be cut.

    So 4 devices are 2 x 2, and 8 are 2 x 4; 2 devices, or 3 or 5, are replicas.
    """
    layerwise = devices // 2 if devices > 2 and devices % 2 == 0 else 1
    return {"data": devices // layerwise, "layerwise": layerwise}


def on_both_axes(layers, devices) -> Started:
    """A mesh of all devices, cut along both axes where their number allows it."""
    return on_mesh(layers, devices, **axes_of(len(devices)))


def two_parts(layers, devices) -> Started:
    """A mesh of one replica, of two layerwise parts if there are two devices."""
    return on_mesh(layers, devices, data=1, layerwise=len(devices))


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
    "data, micro-batches": partial(
        subject, partial(together, pieces=2), parts=lambda k: 2 * k
    ),
    "data, buckets": partial(subject, in_buckets),
    "network": partial(subject, in_stages, most_devices=3),
    "layerwise": partial(subject, layerwise, most_devices=5),
    "mesh, one replica": partial(
        subject, two_parts, most_devices=2, parts=lambda k: MICRO_BATCHES
    ),
    "mesh": partial(
        subject,
        on_both_axes,
        parts=lambda k: MICRO_BATCHES * axes_of(k)["data"],
        cases=(Case(4, 9, 2), *TELLING),  # 4 devices are 2 x 2: both axes are cut
    ),
}
for _name, _reduce in REDUCES.items():
    _step = partial(together, reduce=allreduce_with(_reduce))
    BY_NAME[f"data, {_name}"] = partial(subject, _step)
for _name, _schedule in PLANS.items():
    _step = partial(as_pipeline, schedule=_schedule)
    BY_NAME[_name] = partial(subject, _step, most_devices=3, parts=lambda k: PIECES)
for _stage in range(4):
    _step = partial(sharded, stage=_stage)
    _apart = dict.fromkeys("mv" if _stage else "", "each device has a part of it")
    _about = {"rule": ADAM, "apart": _apart}
    BY_NAME[f"sharded state {_stage}"] = partial(subject, _step, **_about)
BY_NAME |= more_steps.BY_NAME
