"""A training step on any number of GPUs, with as few works as symmetry allows.

Where all GPUs of a group do the same at the same time, one of them stands for all, and
a collective is one work that takes its closed formula's time. `tests` play small
clusters in full, every GPU and every message, and find the same.

A model is given by its layers: `Layers` says what one takes and sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from manygpu.simulate.cluster import Cluster
from manygpu.simulate.collectives import hierarchical_seconds, ring_seconds
from manygpu.simulate.works import Agenda, positive, put_plan, whole

COMPUTE, WIRE = "GPU", "network"


@dataclass(frozen=True)
class Layers:
    """Equal layers, for what one GPU has of the batch.

    Attributes:
        count: how many layers.
        forward, backward: seconds of one, on one GPU that holds it whole.
        gradients: bytes of one layer's gradients, and of its parameters as sent.
        activations: bytes that one layer hands on.
        update: seconds of the optimizer for one layer.

    Raises:
        TypeError: what is no number, or a count that is not whole.
        ValueError: no layers, or a time or size that is negative or not finite.
    """

    count: int
    forward: float
    backward: float
    gradients: float
    activations: float
    update: float = 0.0

    def __post_init__(self) -> None:
        whole("count", self.count)
        for name in ("forward", "backward", "gradients", "activations", "update"):
            positive(name, getattr(self, name), or_zero=True)


def allreduce_seconds(cluster: Cluster, size: float) -> float:
    """The faster of a ring over all GPUs and one in two levels, bytes a GPU."""
    if cluster.nodes == 1:
        return ring_seconds(cluster.gpus, size, cluster.inside)
    flat = ring_seconds(cluster.count, size, cluster.across)
    return min(flat, hierarchical_seconds(cluster, size))


def data_parallel(
    layers: Layers,
    cluster: Cluster,
    allreduce: Callable[[Cluster, float], float] = allreduce_seconds,
    slowest: float = 1.0,
    input_seconds: float = 0.0,
) -> Agenda:
    """The step of data parallel training; each layer's gradients leave when made.

    Args:
        layers: of the model, with the times for one GPU's part of the batch.
        cluster: all its GPUs take part.
        allreduce: seconds of an all-reduce of so many bytes.
        slowest: how many times longer the slowest GPU computes; all wait for it.
        input_seconds: what reading the next batch takes, beside everything else.
    """
    agenda = Agenda()
    busy, takes = cluster.computing(COMPUTE), cluster.sending(COMPUTE)
    agenda.put("input", ["input"], input_seconds)
    for i in range(layers.count):
        agenda.put("forward", [COMPUTE], slowest * layers.forward, 0, busy, (), i)
    sums = []
    for i in reversed(range(layers.count)):
        made = agenda.put("backward", [COMPUTE], slowest * layers.backward, 0, busy)
        seconds = allreduce(cluster, layers.gradients)
        sums.append(agenda.put("all-reduce", [WIRE], seconds, 0, takes, [made], i))
    for arrived in sums:
        agenda.put("update", [COMPUTE], layers.update, 0, (), [arrived])
    return agenda


def sharded(layers: Layers, cluster: Cluster) -> Agenda:
    """The step with parameters, gradients and state sharded over all GPUs (ZeRO 3).

    A layer's parameters are gathered while the layer before computes, twice, and its
    gradients are reduced and scattered; where the two meet, they share the network.
    """
    agenda = Agenda()
    busy, takes = cluster.computing(COMPUTE), cluster.sending(COMPUTE)
    takes = [*takes, (WIRE, 1.0)]
    half = allreduce_seconds(cluster, layers.gradients) / 2
    passes = [("forward", i, layers.forward) for i in range(layers.count)]
    passes += [("backward", i, layers.backward) for i in reversed(range(layers.count))]
    done, scattered = [], []
    for name, i, seconds in passes:
        # One layer ahead, no more: else the memory that was saved is needed again.
        waits = done[-2:-1]
        there = agenda.put("all-gather", [WIRE], half, 0, takes, waits, i)
        done.append(agenda.put(name, [COMPUTE], seconds, 0, busy, [there], i))
        if name == "backward":
            lanes, last = [("scatter", WIRE)], [done[-1]]
            work = agenda.put("reduce-scatter", lanes, half, 0, takes, last, i)
            scattered.append(work)
    each = layers.update / cluster.count
    for arrived in scattered:
        agenda.put("update", [COMPUTE], each, 0, (), [arrived])
    return agenda


def layerwise(layers: Layers, cluster: Cluster, ways: int) -> Agenda:
    """The step with each layer split over `ways` GPUs of a node, data over the rest.

    Two all-reduces of the activations a layer, forward and backward; nothing can be
    computed meanwhile (Shoeybi et al., arXiv:1909.08053).
    """
    agenda = Agenda()
    two = 2 * ring_seconds(ways, layers.activations, cluster.inside)
    for name, seconds in (("forward", layers.forward), ("backward", layers.backward)):
        for i in range(layers.count):
            agenda.put(name, [COMPUTE], seconds / ways, what=i)
            if ways > 1:
                agenda.put("all-reduce", [COMPUTE], two, what=i)
    groups = cluster.count // ways
    if groups > 1:
        size = layers.gradients * layers.count / ways
        seconds = across_seconds(cluster, ways, groups, size)
        agenda.put("all-reduce", [COMPUTE], seconds)
    agenda.put("update", [COMPUTE], layers.update * layers.count / ways)
    return agenda


def across_seconds(cluster: Cluster, apart: int, groups: int, size: float) -> float:
    """An all-reduce among GPUs that lie `apart`, of which a node holds `apart` groups.

    All these groups do it at once and share the node's cards. Each of the three may be
    an array: then so is what is returned.
    """
    inside = ring_seconds(groups, size, cluster.inside)
    share = cluster.across.bandwidth * cluster.cards / np.minimum(apart, cluster.gpus)
    bandwidth = np.minimum(share, cluster.inside.bandwidth)
    message = cluster.across.latency + size / groups / bandwidth
    across = 2 * (groups - 1) * message
    return np.where(groups * apart <= cluster.gpus, inside, across)[()]


def pipelined(
    layers: Layers,
    cluster: Cluster,
    plan: Iterable[Any],
    needs: Callable[[Any, int], Any],
    ways: int = 1,
) -> Agenda:
    """The step of a pipeline, layerwise inside each stage, data parallel over the rest.

    Args:
        layers: of the whole model, with the times of one micro-batch.
        cluster: a stage is a run of its GPUs; stages lie behind each other.
        plan: of a schedule, with operations 'F', 'B' and perhaps 'W'.
        needs: which operations' results an operation uses.
        ways: how many GPUs of a node share a stage's layers.

    Raises:
        ValueError: the plan's stages and `ways` don't divide the GPUs.
    """
    slots = list(plan)
    stages = 1 + max(slot.op.stage for slot in slots)
    if cluster.count % (stages * ways):
        raise ValueError(
            f"plan has {stages} stages of {ways} GPUs, which don't divide the "
            f"cluster's {cluster.count}"
        )
    split = any(slot.op.kind == "W" for slot in slots)
    inside = 2 * ring_seconds(ways, layers.activations, cluster.inside)
    each = layers.count / stages
    backward = layers.backward / (2 if split else 1)
    taken = {"F": layers.forward, "B": backward, "W": backward}

    def seconds(op: Any) -> float:
        sums = inside if op.kind in "FB" else 0.0
        return each * (taken[op.kind] / ways + sums)

    def send(source: int, target: int, op: Any) -> tuple[float, float, list]:
        link = cluster.across if cluster.nodes > 1 else cluster.inside
        return link.latency, layers.activations / ways / link.bandwidth, []

    agenda, last = Agenda(), {}
    done = put_plan(agenda, slots, needs, seconds, send)
    where = {slot.op: slot.device for slot in slots}
    for op, work in done.items():
        last[where[op]] = max(work, last.get(where[op], 0))
    _reduce(agenda, layers, cluster, len(last), ways, last)
    return agenda


def _reduce(
    agenda: Agenda,
    layers: Layers,
    cluster: Cluster,
    devices: int,
    ways: int,
    last: dict[int, int],
) -> None:
    """Add each device's all-reduce over the replicas, and its update."""
    groups = cluster.count // (devices * ways)
    own = layers.count / devices / ways
    for device, work in last.items():
        if groups > 1:
            taken = across_seconds(cluster, ways, groups, own * layers.gradients)
            work = agenda.put("all-reduce", [device], taken, after=[work])
        agenda.put("update", [device], own * layers.update, after=[work])
