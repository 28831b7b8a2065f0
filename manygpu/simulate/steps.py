"""A training step on any number of GPUs, with as few works as symmetry allows.

Where all GPUs of a group do the same at the same time, one of them stands for all, and
a collective is one work that takes its closed formula's time. `tests` play small
clusters in full, every GPU and every message, and find the same.

A model is given by its layers: `Layers` says what one takes and sends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from manygpu.costs.layout import Layout, Number
from manygpu.costs.seconds import Pieces
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


def sharded(
    layers: Layers,
    cluster: Cluster,
    made: Pieces | None = None,
    micro_batches: int = 1,
) -> Agenda:
    """The step with parameters, gradients and state sharded over all GPUs (ZeRO 3).

    A layer's parameters are gathered while the layer before computes, twice, and its
    gradients are reduced and scattered; where the two meet, they share the network. A
    micro-batch begins when the one before has been scattered.

    Args:
        layers: of the model, with the times of a micro-batch.
        cluster: all its GPUs take part.
        made: what gathers, scatters and passes take, if they aren't those of `layers`.
        micro_batches: one after the other; only behind the last one is updated.
    """
    busy, takes = cluster.computing(COMPUTE), cluster.sending(COMPUTE)
    takes = [*takes, (WIRE, 1.0)]
    if made is None:
        half = allreduce_seconds(cluster, layers.gradients) / 2
        each = layers.update / cluster.count
        one = layers.forward, layers.backward, half, each, half
        made = Pieces(0.0, 0.0, layers.count, *one)
    passes = [("forward", i, made.forward) for i in range(layers.count)]
    passes += [("backward", i, made.backward) for i in reversed(range(layers.count))]
    agenda, before, scattered = Agenda(), [], []
    for _ in range(micro_batches):
        done, scattered = [], []
        for name, i, seconds in passes:
            # One layer ahead, no more: else the memory that was saved is needed again.
            waits = done[-2:-1] or before
            there = agenda.put(
                "all-gather", [WIRE], float(made.gather), 0, takes, waits, i
            )
            done.append(
                agenda.put(name, [COMPUTE], float(seconds), 0, busy, [there], i)
            )
            if name == "backward":
                lanes, last = [("scatter", WIRE)], [done[-1]]
                taken = float(made.sums)
                work = agenda.put("reduce-scatter", lanes, taken, 0, takes, last, i)
                scattered.append(work)
        before = scattered[-1:]
    for arrived in scattered:
        agenda.put("update", [COMPUTE], float(made.update), 0, (), [arrived])
    return agenda


def layerwise(layers: Layers, cluster: Cluster, ways: int) -> Agenda:
    """The step with each layer split over `ways` GPUs of a node, data over the rest.

    Two all-reduces of the activations a layer, forward and backward; nothing can be
    computed meanwhile (Shoeybi et al., arXiv:1909.08053). Gradients leave when made, as
    those of data parallel training do.
    """
    agenda, groups = Agenda(), cluster.count // ways
    two = 2 * ring_seconds(ways, layers.activations, cluster.inside)
    sums = across_seconds(cluster, ways, groups, layers.gradients / ways)
    made = []
    for name, seconds in (("forward", layers.forward), ("backward", layers.backward)):
        for i in range(layers.count):
            done = agenda.put(name, [COMPUTE], seconds / ways, what=i)
            if ways > 1:
                done = agenda.put("all-reduce", [COMPUTE], two, what=i)
            made += [done] * (name == "backward")
    for done in made:
        if groups > 1:
            done = agenda.put("all-reduce", [WIRE], float(sums), after=[done])
        agenda.put("update", [COMPUTE], layers.update / ways, after=[done])
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


def pieces(
    cluster: Cluster,
    layout: Layout,
    count: int,
    forward: Number,
    backward: Number,
    gradients: float,
    activations: Number,
    update: float,
    whole: Number | None = None,
    gathered: float = 1.0,
) -> Pieces:
    """What a step is made of, for equal layers; see `Layers`, and for many layouts.

    Stages that can't have equally many layers have one more or less.

    Args:
        cluster: a stage is a run of its GPUs; stages lie behind each other.
        layout: how the work is shared out.
        count, gradients, update: as in `Layers`.
        forward, backward: of one micro-batch, on each of the GPUs that share a layer.
        activations: bytes of a micro-batch that a layer hands on.
        whole: seconds of an all-reduce of one layer's gradients over all GPUs, where
            nothing is cut; None: as `across_seconds` says.
        gathered: bytes of what is gathered, for each byte of gradients.
    """
    t, p = layout.layerwise, layout.stages
    inside = np.where(t > 1, 2 * ring_seconds(t, activations, cluster.inside), 0.0)
    forward, backward = forward + inside, backward + inside
    far, (near, wide) = layout.devices > cluster.gpus, (cluster.inside, cluster.across)
    late = np.where(far, wide.latency, near.latency)
    sent = activations / t / np.where(far, wide.bandwidth, near.bandwidth)
    sharded, own, data = layout.zero > 0, gradients / t, layout.data
    shards, copies = layout.shards, layout.copies
    sums = across_seconds(cluster, t, np.where(copies > 1, shards, data), own)
    if whole is not None:
        sums = np.where((t == 1) & (p == 1) & (copies == 1), whole, sums)
    sums = np.where(shards > 1, sums, 0.0)
    link = np.where(shards * t > cluster.gpus, wide.latency, near.latency)
    waits = np.minimum(2 * (shards - 1) * link, sums)  # of a ring; the rest is bytes
    gathers = waits + gathered * (sums - waits)
    among = across_seconds(cluster, t * shards, copies, own / shards)
    among = np.where(copies > 1, among, 0.0)
    return Pieces(
        turns=count * (forward + backward),
        turn=np.ceil(count / p) * (forward + backward),
        layers=np.ceil(count / p),
        forward=forward,
        backward=backward,
        sums=np.where(sharded, sums / 2 + among, sums + among),
        update=update / t / np.where(sharded, shards, 1),
        gather=np.where(sharded, gathers / 2, 0.0),
        hop=np.where(p > 1, sent, 0.0),
        late=np.where(p > 1, late, 0.0),
        count=count,
    )


def played(
    made: Pieces,
    layout: Layout,
    plan: Iterable[Any],
    needs: Callable[[Any, int], Any],
    stages: Sequence[float] | None = None,
) -> Agenda:
    """A step as works for the loop, from what it is made of; up to ZeRO 2.

    The last pass that makes a stage's gradients is cut into its layers: each one's sum
    leaves when the layer is done, if it may. One replica stands for all.

    Args:
        made: in numbers; what `manygpu.costs.seconds` adds up in closed form.
        layout: in numbers.
        plan: of a schedule, with operations 'F', 'B' and perhaps 'W'.
        needs: which operations' results an operation uses.
        stages: seconds of a micro-batch on each stage, forward and backward, if they
            are not all `made.turn`.
    """
    slots, agenda = sorted(plan, key=lambda slot: slot.tick), Agenda()
    stages = stages or [made.turn] * (1 + max(slot.op.stage for slot in slots))
    makes = "W" if any(slot.op.kind == "W" for slot in slots) else "B"
    making = [slot.op for slot in slots if slot.op.kind == makes]
    if layout.zero < 2:  # the last one of each stage has the sums of all
        making = list({op.stage: op for op in making}.values())
    n, summed = round(float(made.layers)), set(making)
    backward = made.backward / (made.forward + made.backward)
    half = backward / (2 if makes == "W" else 1)
    shares = {"F": 1 - backward, "B": half, "W": half}

    def seconds(op: Any) -> float:
        return float(shares[op.kind] * stages[op.stage])

    def send(source: int, target: int, op: Any) -> tuple[float, float, list]:
        return float(made.late), float(made.hop), []

    done = put_plan(
        agenda, slots, needs, seconds, send, cut=lambda op: n if op in summed else 1
    )
    layers = {op: range(done[op] - n + 1, done[op] + 1) for op in making}
    ends = _summed(agenda, made, {slot.op: slot.device for slot in slots}, layers)
    if made.once:
        agenda.put("once", [slots[0].device], float(made.once), after=ends)
    return agenda


def _summed(
    agenda: Agenda, made: Pieces, where: dict[Any, int], layers: dict[Any, range]
) -> list[int]:
    """Add the sums of gradients, updates and gathers; return the numbers of the last.

    `layers`: the works that make gradients, by operation, a work a layer.
    """
    name = "reduce-scatter" if made.gather else "all-reduce"
    sums: dict[int, dict[int, list[int]]] = {}  # by device and stage, the last ones
    for op, works in layers.items():
        device = where[op]
        lane = (WIRE, device) if made.beside else device
        own = [
            agenda.put(name, [lane], float(made.sums), after=[i]) if made.sums else i
            for i in works
        ]
        stages = sums.setdefault(device, {})
        stages[op.stage] = own
    ends = []
    for device, stages in sums.items():
        if made.last:
            after = [i for own in stages.values() for i in own]
            alone = agenda.put(name, [device], float(made.last), after=after)
            stages = {stage: [alone] * len(own) for stage, own in stages.items()}
        ahead = made.at_once and made.beside
        every = [i for own in stages.values() for i in own]
        updates = [
            agenda.put(
                "update", [device], float(made.update), after=[i] if ahead else every
            )
            for i in every
        ]
        ends += updates[-1:]
        if made.gather:
            gathers = [
                agenda.put(
                    "all-gather",
                    [(WIRE, device)],
                    float(made.gather),
                    after=[i] if ahead else updates,
                )
                for i in updates
            ]
            ends += gathers[-1:]
    return ends


def pipelined(
    layers: Layers,
    cluster: Cluster,
    plan: Iterable[Any],
    needs: Callable[[Any, int], Any],
    ways: int = 1,
    zero: int = 0,
) -> Agenda:
    """The step of a pipeline, layerwise inside each stage, data parallel over the rest.

    Gradients leave when made, as those of data parallel training do.

    Args:
        layers: of the whole model, with the times of one micro-batch.
        cluster: a stage is a run of its GPUs; stages lie behind each other.
        plan: of a schedule, with operations 'F', 'B' and perhaps 'W'.
        needs: which operations' results an operation uses.
        ways: how many GPUs of a node share a stage's layers.
        zero: what replicas share out, as in `Layout`, up to 2.

    Raises:
        ValueError: the plan's stages and `ways` don't divide the GPUs, or `zero` is 3,
            for which stages would gather parameters for each pass.
    """
    if zero not in (0, 1, 2):
        raise ValueError(f"zero must be 0, 1 or 2, got {zero}: for 3, play sharded")
    slots = list(plan)
    stages = 1 + max(slot.op.stage for slot in slots)
    if cluster.count % (stages * ways):
        raise ValueError(
            f"plan has {stages} stages of {ways} GPUs, which don't divide the "
            f"cluster's {cluster.count}"
        )
    devices = len({slot.device for slot in slots})
    layout = Layout(cluster.count, ways, devices, zero=zero)
    each = layers.count / stages
    n = math.ceil(each)
    passes = layers.forward / ways, layers.backward / ways
    sizes = layers.gradients * each / n, layers.activations, layers.update * each / n
    made = pieces(cluster, layout, layers.count, *passes, *sizes)
    turn = each * (made.forward + made.backward)
    made = made._replace(turn=turn, layers=n)
    return played(made, layout, slots, needs)
