"""Each device has a part of the model: some layers, a part of each, or of the state.

Each function puts a strategy to work on a task, `make(task, devices)`, and returns a
`contract.Training`; a row of `table` names it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from manygpu.costs import layer_costs
from manygpu.scratch.splitting import pipeline, running_a_pipeline
from manygpu.scratch.splitting.hybrid_meshes import (
    MeshShards,
    StageProgram,
    by_rank,
    joined_shards,
    mesh_gradients,
    mesh_step,
    micro_batches_of,
    plan_on_mesh,
)
from manygpu.scratch.splitting.layerwise import (
    LayerShards,
    gather_params,
    layerwise_step,
)
from manygpu.scratch.splitting.layerwise_lenet import LENET_CUTS
from manygpu.scratch.splitting.network import (
    even_cuts,
    make_stages,
    partitioned_step,
)
from manygpu.scratch.splitting.program_over_ranks import Mesh, part_of, place_of
from manygpu.scratch.splitting.sharded_state import (
    ZeroState,
    zero_gradients,
    zero_params,
    zero_step,
)
from manygpu.scratch.splitting.smaller_bubble import interleaved, zero_bubble
from manygpu.trainings.contract import Ranks, Training
from manygpu.trainings.table import LENET, dealt_out
from manygpu.trainings.task import Task, rows_of

COPIES = ("data", "copies")  # axes that cut the samples
BETA_1 = 0.9  # Adam's: in a step, its average m moves to the gradient by the rest

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

    def ranks(X: tf.Tensor, y: tf.Tensor) -> Ranks:
        before = [[tf.identity(v) for v in own] for own in shards]
        own = found_by_ranks(shards, micro_batches_of(X, y, shards, mesh, micro))
        take(X, y)
        rate, moved = lr / rows_of(X), []
        for held, old, new in zip(shards.held, before, shards, strict=True):
            pairs = zip(held, old, new, strict=True)
            moved.append({(n,): (a - b).numpy() / rate for n, a, b in pairs})
        specs = dict(enumerate(shards.specs))
        return Ranks(
            sizes,
            samples_of(rows_of(X), micro, mesh),
            {
                (n,): {a: spec.letter(a).letter for a in sizes}
                for n, spec in specs.items()
            },
            lambda key, whole, rank: specs[key[0]].shard_of(whole[key[0]], mesh, rank),
            moved,
            own,
        )

    return Training(
        take,
        lambda: [joined_shards(shards, part=part) for part in range(copies)],
        stored=lambda: sum(list(shards), []),
        gradients=gradients,
        ranks=ranks,
    )


def found_by_ranks(shards: MeshShards, batches: Sequence) -> list[dict]:
    """Return what each rank finds in some micro-batches, before any sum."""
    plan = plan_on_mesh(pipeline.one_forward_one_backward, shards.stages, len(batches))
    stages = [StageProgram(shards, s) for s in range(shards.stages)]
    step, _ = running_a_pipeline.run_micro_batches(plan, stages, batches)
    found = by_rank(shards, stages, step.grads)
    return [{(n,): g.numpy() for n, g in own.items()} for own in found]


def samples_of(samples: int, pieces: int, mesh: Mesh) -> list[list[int]]:
    """Return which samples each rank computes with: of each micro-batch its share.

    By NumPy alone, because a judge compares them with what the mesh does.
    """
    seen: list[list[int]] = [[] for _ in range(mesh.count)]
    for piece in np.array_split(np.arange(samples), pieces):
        for rank, own in enumerate(seen):
            share = piece
            for axis, i in place_of(mesh, rank).items():
                if axis not in ("pipeline", "layerwise"):
                    share = np.array_split(share, mesh.sizes[axis])[i]
            own.extend(map(int, share))
    return seen


data_and_layerwise = partial(on_mesh, axes=("data", "layerwise"))
on_three_axes = partial(on_mesh, axes=("data", "pipeline", "layerwise"))
on_one_axis = partial(on_mesh, axes=("layerwise",))
shards_in_copies = partial(on_mesh, axes=("copies", "data"), sharded="data")


# Each device has a part of the state


def sharded_state(task: Task, devices: list[str], stage: int) -> Training:
    """A stage of ZeRO; Adam."""
    state, lr = ZeroState(task.model.layers, devices, stage), task.lr
    held = [v for own in state.held for one in own if one for v in one.parts]
    keys = [tuple(shapes) for shapes in state.vectors.shapes]

    def take(X: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return zero_step(state, X, y, lr)

    def gradients(X: tf.Tensor, y: tf.Tensor) -> list[list[tf.Tensor]]:
        _, grads = zero_gradients(state, X, y)
        join = partial(tf.concat, axis=0) if stage >= 2 else tf.add_n
        return [state.vectors.params([join(own) * rows_of(X) for own in grads])]

    def copies() -> list[list[tf.Tensor]]:
        return [zero_params(state, i) for i in range(len(devices))]

    def kept() -> dict[str, list]:
        found = {"t": [state.t]}
        for name in "mv":
            of = [getattr(one, name).parts for one in state.held]
            found[name] = [tf.concat(own, 0) for own in zip(*of, strict=True)]
        return found

    def ranks(X: tf.Tensor, y: tf.Tensor) -> Ranks:
        before = [[v.numpy() for v in one.m.parts] for one in state.held]
        take(X, y)
        moved, letter, axis = [], state.letters.state, state.axis
        for i in range(len(devices)):
            now = [one.m.parts[i].numpy() for one in state.held]
            grads = [
                (m - BETA_1 * old[i]) / (1 - BETA_1) * rows_of(X)
                for m, old in zip(now, before, strict=True)
            ]
            moved.append(dict(zip(keys, grads, strict=True)))

        def part(key: tuple[int, ...], whole: Sequence, rank: int) -> tf.Tensor:
            flat = tf.concat([tf.reshape(whole[n], [-1]) for n in key], 0)
            return part_of(flat, {axis: letter}, state.mesh, rank)

        letters = {key: {axis: letter.letter} for key in keys}
        samples, nothing = samples_of(rows_of(X), 1, state.mesh), [{} for _ in moved]
        return Ranks(state.mesh.sizes, samples, letters, part, moved, nothing)

    return Training(
        take,
        copies,
        kept,
        stored=lambda: [state.t, *held],
        gradients=gradients,
        ranks=ranks,
    )


zero_0, zero_1, zero_2, zero_3 = (
    partial(sharded_state, stage=stage) for stage in range(4)
)
