"""Each device has a part of the model: some layers, a part of each, or of the state.

Each function puts a strategy to work on a task, `make(task, devices)`, and returns a
`contract.Training`; a row of `table` names it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tensorflow as tf

from manygpu.costs import layer_costs
from manygpu.scratch.data_parallel.hiding_communication import unflatten
from manygpu.scratch.splitting import pipeline, running_a_pipeline
from manygpu.scratch.splitting.hybrid_meshes import (
    MeshShards,
    joined_shards,
    mesh_gradients,
    mesh_step,
)
from manygpu.scratch.splitting.layerwise import (
    LENET_CUTS,
    LayerShards,
    gather_params,
    layerwise_step,
)
from manygpu.scratch.splitting.network import (
    even_cuts,
    make_stages,
    partitioned_step,
)
from manygpu.scratch.splitting.program_over_ranks import Mesh
from manygpu.scratch.splitting.sharded_state import (
    ZeroState,
    zero_gradients,
    zero_params,
    zero_step,
)
from manygpu.scratch.splitting.smaller_bubble import interleaved, zero_bubble
from manygpu.trainings.contract import Training
from manygpu.trainings.table import LENET, dealt_out
from manygpu.trainings.task import Task, rows_of

COPIES = ("data", "copies")  # axes that cut the samples

# Each device has some layers


def network(task: Task, devices: list[str]) -> Training:
    """Layers dealt out to devices, one at work at a time."""
    cuts = network_cuts(task, len(devices))
    return in_stages(task, devices, cuts, partitioned_step)


def in_two_runs(task: Task, devices: list[str]) -> Training:
    """A pipeline of two stages a device, or of one where there are too few layers."""
    k = len(devices)
    each = 2 if len(task.model.layers) >= 2 * k else 1
    return _scheduled(task, devices, partial(interleaved, devices=k), each * k)


def _scheduled(
    task: Task, devices: list[str], schedule: Callable, stages: int | None = None
) -> Training:
    """The step of a pipeline, a stage a device unless it is said how many."""
    cuts = pipeline_cuts(task, stages or len(devices))
    plan = schedule(len(cuts) + 1, task.pieces_of(task.samples))

    def step(X: Any, y: Any, stages: list, lr: float, loss: Callable) -> tf.Tensor:
        return running_a_pipeline.pipeline_step(plan, stages, X, y, lr, loss)

    return in_stages(task, devices, cuts, step)


# Pipelines by their plans: 1F1B, GPipe's, and backward passes that come in halves.
one_f_one_b = partial(_scheduled, schedule=pipeline.one_forward_one_backward)
by_gpipe = partial(_scheduled, schedule=pipeline.gpipe)
by_zero_bubble = partial(_scheduled, schedule=zero_bubble)


def in_stages(
    task: Task, devices: list[str], cuts: list[int], step: Callable
) -> Training:
    """`step(X, y, stages, lr, loss)`, which moves the variables of stages."""
    stages = make_stages(task.model.layers, cuts, devices)
    take = partial(step, stages=stages, lr=task.lr, loss=task.model.loss)
    states = [v for stage in stages for one in stage.layers for v in one.state]
    params = [p for stage in stages for p in stage.params]
    return Training(take, lambda: [params], stored=lambda: [*states, *params])


def network_cuts(task: Task, devices: int) -> list[int]:
    """Return where a network is cut: into as many layers each.

    Its devices take turns, so a step is no shorter where their seconds are even.
    """
    layers = len(task.model.layers)
    return even_cuts(layers, min(layers, devices))


def pipeline_cuts(task: Task, devices: int) -> list[int]:
    """Return where a pipeline is cut: the seconds of a stage most even, or the FLOPs.

    Seconds that all processes know. If each measured others, it would cut elsewhere.
    """
    layers = task.model.layers
    costs = list(task.seconds)
    if not costs:
        if layers[0].takes is None:
            return network_cuts(task, devices)
        costs = [cost.flops for cost in layer_costs(layers)]
    return pipeline.balanced_cuts(costs, min(len(layers), devices))


# Each device has a part of every layer


def cuts_of(task: Task) -> Sequence | None:
    """Return how the layers are cut: LeNet's as its chapter does, others in pairs."""
    return LENET_CUTS if task.name == LENET else None


def in_every_layer(task: Task, devices: list[str]) -> Training:
    """Pairs of layers in columns and rows."""
    shards = LayerShards(task.model.layers, devices, cuts_of(task))
    lr = task.lr

    def take(X: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return layerwise_step(X, y, shards, lr)

    stored = partial(sum, list(shards), [])
    return Training(take, lambda: [gather_params(shards)], stored=stored)


# The ranks of a mesh have parts along several axes


def on_mesh(
    task: Task,
    devices: list[str],
    axes: Sequence[str],
    sharded: str | None = None,
    ranks: int | None = None,
    pieces: int | None = None,
) -> Training:
    """SGD on a mesh with these axes, over which its ranks are dealt out.

    Args:
        task, devices: what is trained, and where.
        axes: see `MeshShards`.
        sharded: the axis along which parameters are cut, too.
        ranks: how many share the devices; None: one per device.
        pieces: micro-batches; None: those of the task for a pipeline, else 1.
    """
    sizes = dealt_out(ranks or len(devices), axes)
    mesh = Mesh(devices, shared=ranks is not None, **sizes)
    shards = MeshShards(
        task.model.layers, mesh, cuts_of(task), sharded=sharded, loss=task.model.loss
    )
    parts = math.prod(n for axis, n in sizes.items() if axis in COPIES)
    copies = parts // sizes.get(sharded, 1)
    most = pieces or (task.pieces if "pipeline" in axes else 1)
    micro = max(1, min(most, task.samples // parts)) if task.batch else most
    lr = task.lr

    def take(X: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return mesh_step(X, y, shards, mesh, lr, micro_batches=micro)

    def gradients(X: tf.Tensor, y: tf.Tensor) -> list[list[tf.Tensor]]:
        _, grads = mesh_gradients(X, y, shards, mesh, micro)
        return [joined_shards(shards, grads, part) for part in range(copies)]

    return Training(
        take,
        lambda: [joined_shards(shards, part=part) for part in range(copies)],
        stored=lambda: sum(list(shards), []),
        gradients=gradients,
    )


data_and_layerwise = partial(on_mesh, axes=("data", "layerwise"))
on_three_axes = partial(on_mesh, axes=("data", "pipeline", "layerwise"))
on_one_axis = partial(on_mesh, axes=("layerwise",))
shards_in_copies = partial(on_mesh, axes=("copies", "data"), sharded="data")


# Each device has a part of the state


def sharded_state(task: Task, devices: list[str], stage: int) -> Training:
    """A stage of ZeRO; Adam."""
    state, lr = ZeroState(task.model.layers, devices, stage), task.lr
    held = [v for own in state.held for one in own for v in one if v is not None]

    def take(X: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return zero_step(state, X, y, lr)

    def gradients(X: tf.Tensor, y: tf.Tensor) -> list[list[tf.Tensor]]:
        _, grads = zero_gradients(state, X, y)
        join = partial(tf.concat, axis=0) if stage >= 2 else tf.add_n
        flat = tf.concat([join(own) for own in grads], 0) * rows_of(X)
        return [unflatten(flat, task.model.params)]

    def copies() -> list[list[tf.Tensor]]:
        return [zero_params(state, i) for i in range(len(devices))]

    def kept() -> dict[str, list]:
        found = {"t": [state.t]}
        for name in "mv":
            of = [[getattr(one, name) for one in own] for own in state.held]
            found[name] = [tf.concat(own, 0) for own in of]
        return found

    return Training(
        take, copies, kept, stored=lambda: [state.t, *held], gradients=gradients
    )


zero_0, zero_1, zero_2, zero_3 = (
    partial(sharded_state, stage=stage) for stage in range(4)
)
