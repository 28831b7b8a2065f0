"""A transformer's training step on a cluster, in closed form: its MFU and its memory.

One formula a mechanism, and as few constants as there are mechanisms. What was built
is known, for the model is held against runs of nanotron: its code says how layers are
dealt out to stages, what is kept, what is sent when, and in which precision. Constants
that data sheets don't give are fitted (`fitted`), each with a unit and a meaning.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from manygpu.costs import memory as costs
from manygpu.costs.layout import Layout
from manygpu.costs.shape import Shape
from manygpu.simulate.works import Agenda, put_plan

GIB = 2**30
WHOLE = 2.3  # see `held`
BUCKET = 25e6  # bytes of bfloat16 gradients that PyTorch reduces at once
LARGE, STAY = 0.05, 0.03  # see `fitted`


class Run(NamedTuple):
    """How a model is spread out: `gpus = data * layerwise * stages`."""

    shape: Shape
    data: int
    layerwise: int
    stages: int
    accumulation: int
    micro_batch: int
    zero: int  # 1: the optimizer's state is sharded over the data axis

    @property
    def gpus(self) -> int:
        """GPUs at work."""
        return self.data * self.layerwise * self.stages

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        sequences = self.data * self.accumulation * self.micro_batch
        return sequences * self.shape.sequence


@dataclass(frozen=True)
class Hardware:
    """A node and its GPUs. The first five are given, the others are to be fitted.

    Attributes:
        peak: FLOP/s of a GPU, bfloat16 without sparsity.
        memory: bytes a second of its memory, times the share that kernels reach.
        attention: the share of the peak that attention's kernel reaches.
        gpus: in a node.
        hop_inside: seconds that a message needs to the next GPU of a node.
        matrices: the share of the peak that matrix products reach.
        inside: bytes a second of a GPU to the others of its node.
        across: bytes a second of a node to the others.
        level: seconds for each level of a tree that an all-reduce goes up or down.
        handover: seconds until a stage has the next one's attention.
        piece: seconds of the host for each tensor that it cuts into a rank's piece.
        hidden: the share of communication that overlaps with backward passes, where
            there is as much of them.
        node: seconds that a step takes longer with each node.
    """

    peak: float = 989e12
    memory: float = 0.9 * 3.35e12
    attention: float = 0.35
    gpus: int = 8
    hop_inside: float = 3e-6
    matrices: float = 0.65
    inside: float = 300e9
    across: float = 250e9
    level: float = 30e-6
    handover: float = 0.2e-3
    piece: float = 10e-6
    hidden: float = 0.8
    node: float = 1e-3


# What is fitted: its unit, what a data sheet allows at best, if one says, and in words.
CONSTANTS = {
    "matrices": ("of the peak", 1.0, "speed of matrix products"),
    "inside": ("B/s a GPU", 450e9, "bandwidth in a node"),
    "across": ("B/s a node", 400e9, "bandwidth between nodes"),
    "level": ("s a level", None, "latency of a tree's level"),
    "handover": ("s a message", None, "from stage to stage"),
    "piece": ("s a piece", None, "host, to cut a tensor up"),
    "hidden": ("of it", 1.0, "part of the last backward pass that hides sums"),
    "node": ("s a node", None, "what every node adds"),
}


@functools.cache
def dealt_out(shape: Shape, stages: int) -> tuple[int, ...]:
    """Layers of each stage, as nanotron deals them out; the last has the head too.

    A stage takes layers until their parameters, and those of the head, pass its equal
    share of all; the one that passes it is still its own.
    """
    share = (shape.layers * shape.layer + shape.embedding) / stages
    counts, so_far = [0] * stages, 0
    stage = 0
    for _ in range(shape.layers):
        counts[stage] += 1
        so_far += shape.layer
        if so_far > share * (stage + 1) and stage < stages - 1:
            stage += 1
    return tuple(counts)


@functools.cache
def held_parameters(run: Run) -> tuple[float, ...]:
    """Parameters that a GPU holds, by stage."""
    shape, last = run.shape, run.stages - 1
    held = [n * shape.layer for n in dealt_out(shape, run.stages)]
    held[0] += shape.embedding
    if last or not shape.tied:
        held[last] += shape.embedding
    return tuple(count / run.layerwise for count in held)


class Parts(NamedTuple):
    """Seconds of a step, by what they are for."""

    pipeline: float  # computing, layerwise sums, messages between stages, waiting
    gradients: float  # their all-reduce, less what overlaps
    gather: float  # ZeRO 1: everybody gets the new parameters
    update: float
    nodes: float

    @property
    def seconds(self) -> float:
        """All of them."""
        return sum(self)


def layer_seconds(run: Run, hardware: Hardware) -> float:
    """A layer's forward and backward pass of a micro-batch, with its sums."""
    shape, t = run.shape, run.layerwise
    tokens = run.micro_batch * shape.sequence
    products = 6 * shape.layer * tokens / (hardware.matrices * hardware.peak)
    # Causal: half of it; the backward pass of FlashAttention has 5 products, not 4.
    attention = 3.5 * 2 * tokens * shape.sequence * shape.hidden
    attention /= hardware.attention * hardware.peak
    # Bytes that kernels between the products read and write, both ways: norms,
    # rotations, copies, sums (84 a hidden number), SwiGLU (34 an inner one); and for
    # each parameter its gradient, copied and added in float32 (16).
    moved = tokens * (84 * shape.hidden + 34 * shape.inner) + 16 * shape.layer
    alone = (products + attention + moved / hardware.memory) / t
    return alone + 8 * _gathered(run, hardware, tokens)


def _gathered(run: Run, hardware: Hardware, tokens: int) -> float:
    """A half of an all-reduce of the activations over the GPUs that share a layer."""
    t = run.layerwise
    size = 2 * tokens * run.shape.hidden * (t - 1) / t
    if t <= hardware.gpus:
        return size / hardware.inside + (t - 1) * hardware.hop_inside
    return size / hardware.across + (t - 1) * hardware.level


def head_seconds(run: Run, hardware: Hardware) -> float:
    """The logits and the loss of a micro-batch, forward and backward.

    52 bytes a logit: cast to float32, largest, differences, exponentials, sums.
    """
    shape, t = run.shape, run.layerwise
    tokens = run.micro_batch * shape.sequence
    products = 6 * shape.embedding * tokens / (hardware.matrices * hardware.peak)
    return (products + 52 * shape.vocabulary * tokens / hardware.memory) / t


def between_stages(run: Run, hardware: Hardware) -> float:
    """Handing a micro-batch's activations to the next stage."""
    tokens = run.micro_batch * run.shape.sequence
    size = 2 * tokens * run.shape.hidden / run.layerwise
    across = run.gpus > hardware.gpus
    a_gpu = hardware.across / hardware.gpus if across else hardware.inside
    return hardware.handover + size / a_gpu


def stage_seconds(run: Run, hardware: Hardware) -> list[float]:
    """What each stage takes for a micro-batch, forward and backward."""
    counts, last = dealt_out(run.shape, run.stages), run.stages - 1
    layer, head = layer_seconds(run, hardware), head_seconds(run, hardware)
    hop = between_stages(run, hardware) if last else 0.0
    return [
        n * layer + (s == last) * head + 2 * hop * ((s > 0) + (s < last))
        for s, n in enumerate(counts)
    ]


def _data_link(run: Run, hardware: Hardware) -> tuple[float, float]:
    """Bytes a second, and seconds a level, between GPUs with the same parameters."""
    if run.data * run.layerwise <= hardware.gpus:
        return hardware.inside, hardware.hop_inside
    return hardware.across / min(run.layerwise, hardware.gpus), hardware.level


def gradient_seconds(
    run: Run, hardware: Hardware, backward: float
) -> tuple[float, float]:
    """The all-reduce of float32 gradients: beside the last backward pass, and after it.

    The embeddings' gradients come last, so nothing hides theirs. `backward`: seconds of
    that pass.
    """
    if run.data == 1:
        return 0.0, 0.0
    held = max(held_parameters(run))
    bandwidth, level = _data_link(run, hardware)
    ring = 2 * (run.data - 1) / run.data * 4
    buckets = math.ceil(2 * held / BUCKET)
    whole = ring * held / bandwidth + buckets * 2 * math.log2(run.data) * level
    tail = ring * run.shape.embedding / run.layerwise / bandwidth
    beside = hardware.hidden * min(max(whole - tail, 0.0), backward)
    return beside, whole - beside


def gather_seconds(run: Run, hardware: Hardware) -> float:
    """ZeRO 1: the all-gather of bfloat16 parameters, and the host that cuts them up."""
    if run.data == 1 or not run.zero:
        return 0.0
    held = max(held_parameters(run))
    bandwidth, level = _data_link(run, hardware)
    sent = (run.data - 1) / run.data * 2 * held / bandwidth
    tensors = 6 * max(dealt_out(run.shape, run.stages)) + 2
    return sent + (run.data - 1) * level + tensors * run.data * hardware.piece


def update_seconds(run: Run, hardware: Hardware) -> float:
    """Adam on what a GPU owns, clipping, and the sum of two copies of the embedding."""
    held = max(held_parameters(run))
    owned = held / (run.data if run.zero else 1)
    # Adam reads and writes 30 bytes a parameter; clipping and zeroing touch 12.
    update = (30 * owned + 12 * held) / hardware.memory
    if run.shape.tied and run.stages > 1:  # the two copies' gradients are added
        across = run.gpus > hardware.gpus
        a_gpu = hardware.across / hardware.gpus if across else hardware.inside
        update += 4 * run.shape.embedding / run.layerwise / a_gpu
    return update


def parts(run: Run, hardware: Hardware) -> Parts:
    """The seconds of a step, 1F1B over the stages, by what they are for."""
    stages = stage_seconds(run, hardware)
    return Parts(
        sum(stages) + (run.accumulation - 1) * max(stages),
        gradient_seconds(run, hardware, max(stages) * 2 / 3)[1],
        gather_seconds(run, hardware),
        update_seconds(run, hardware),
        node_seconds(run, hardware),
    )


def node_seconds(run: Run, hardware: Hardware) -> float:
    """What a step takes longer because it has so many nodes."""
    return hardware.node * math.ceil(run.gpus / hardware.gpus)


def works_of(
    run: Run, hardware: Hardware, plan: Iterable[Any], needs: Callable
) -> Agenda:
    """The step as works, for the loop to play: one replica stands for all.

    `plan`, `needs`: of a schedule with the run's stages and micro-batches, as
    `put_plan` takes them. A forward pass takes a third of a stage's time, a backward
    pass two; gradients are summed beside a stage's last backward pass and after it.

    Raises ValueError for a plan of other stages or micro-batches.
    """
    slots = sorted(plan, key=lambda slot: slot.tick)
    sizes = [1 + max(slot.op[i] for slot in slots) for i in (1, 2)]
    if sizes != [run.stages, run.accumulation]:
        raise ValueError(
            f"plan must have {run.stages} stages and {run.accumulation} micro-batches, "
            f"got {sizes[0]} and {sizes[1]}"
        )
    stages, thirds = stage_seconds(run, hardware), {"F": 1 / 3, "B": 2 / 3}
    agenda = Agenda()
    done = put_plan(agenda, slots, needs, lambda op: stages[op.stage] * thirds[op.kind])
    ends = []
    for device in sorted({slot.device for slot in slots}):
        *_, before, last = [done[slot.op] for slot in slots if slot.device == device]
        ends.append(_finish(agenda, run, hardware, device, before, last))
    agenda.put("nodes", [slots[0].device], node_seconds(run, hardware), after=ends)
    return agenda


def _finish(
    agenda: Agenda, run: Run, hardware: Hardware, device: int, before: int, last: int
) -> int:
    """Add a stage's sums, gather and update; return the number of the last work.

    `last`: its last backward pass; `before`: what the stage does before that.
    """
    passed = agenda[last]
    beside, after = gradient_seconds(run, hardware, passed.seconds)
    begun = [before, *passed.after]
    sums = agenda.put("all-reduce", [("network", device)], beside, after=begun)
    agenda.put("all-reduce", [device], after, after=[last, sums])
    agenda.put("all-gather", [device], gather_seconds(run, hardware))
    return agenda.put("update", [device], update_seconds(run, hardware))


def utilization(run: Run, hardware: Hardware, seconds: float) -> float:
    """Model FLOPs utilization of a step of so many seconds, in percent."""
    most = run.gpus * hardware.peak * seconds
    return 100 * run.shape.flops(run.tokens) / most


def mfu(run: Run, hardware: Hardware) -> float:
    """Model FLOPs utilization by the closed formula, in percent."""
    return utilization(run, hardware, parts(run, hardware).seconds)


def held(run: Run, whole: float = WHOLE, first: bool = False) -> costs.Memory:
    """Bytes that the fullest GPU of nanotron's code has allocated at most.

    Gradients are added up in float32, and replicas sum them in buckets of 16 bits. As
    the code has it, keys and values are kept twice, and tokens are cut between the
    pairs of products. `whole`: bytes a hidden number and layer that layerwise GPUs keep
    of all tokens all the same, such as what they gather before a pair; fitted.
    `first`: of the first GPU, which isn't the fullest where the last has the logits.
    """
    shape, t = run.shape, run.layerwise
    layout = Layout(run.gpus, t, run.stages, run.accumulation, run.zero)
    stored, tokens = costs.of_shape(shape), shape.sequence * shape.hidden
    shared = stored.whole + stored.shared + 4 * shape.grouped * tokens
    of_all = whole * tokens * (t > 1)
    stored = stored._replace(whole=of_all, shared=shared, cut_tokens=False)
    dealt = dealt_out(shape, run.stages)
    asked = layout, run.micro_batch, costs.MAIN_GRADIENTS._replace(bucket=2.0)
    if first:
        return costs.of_stage(stored._replace(layers=dealt[0]), *asked, 0)
    return costs.held(stored, *asked, (dealt[0], dealt[-1]))


def memory(run: Run, whole: float = WHOLE) -> float:
    """GiB that the first GPU has allocated at most: it is what the runs report."""
    return held(run, whole, first=True).total / GIB


def fitted(
    runs: Sequence[Run],
    measured: Sequence[float],
    start: Hardware | None = None,
    names: Sequence[str] = tuple(CONSTANTS),
) -> Hardware:
    """The hardware whose constants predict the measured MFUs best.

    Errors below `LARGE` count as squares, larger ones as they are, so that no single
    run rules. Where the runs don't say otherwise, constants stay near `start`: the
    mean square of how far they moved, in powers of e, costs `STAY` as much.
    """
    start = start or Hardware()
    origin = np.log([getattr(start, name) for name in names])

    def at(x: np.ndarray) -> Hardware:
        found = {name: float(np.exp(v)) for name, v in zip(names, x, strict=True)}
        if "hidden" in found:
            found["hidden"] = min(found["hidden"], 1.0)
        return replace(start, **found)

    def errors(x: np.ndarray) -> np.ndarray:
        hardware = at(x)
        said = [mfu(run, hardware) for run in runs]
        return np.log(np.array(said) / np.asarray(measured))

    return at(_least_errors(errors, np.array(origin)))


def _least_errors(errors: Callable, origin: np.ndarray, rounds: int = 40) -> np.ndarray:
    """Where robust errors, and the way from `origin`, are least: Gauss and Newton."""
    n, k, x = len(errors(origin)), len(origin), origin
    for _ in range(rounds):
        e = errors(x)
        slope = [(errors(x + 1e-5 * unit) - e) / 1e-5 for unit in np.eye(k)]
        weights = 1 / np.sqrt(1 + (e / LARGE) ** 2) / (n * LARGE)
        pull = 2 * STAY / k
        downhill = -np.array(slope) @ (weights * e) - pull * (x - origin)
        bend = (np.array(slope) * weights) @ np.array(slope).T + pull * np.eye(k)
        way = np.clip(np.linalg.solve(bend, downhill), -0.5, 0.5)
        if np.max(np.abs(way)) < 1e-4:
            break
        here = _cost(e, x - origin)
        while _cost(errors(x + way), x + way - origin) > here:
            way = way / 2
            if np.max(np.abs(way)) < 1e-6:
                return x
        x = x + way
    return x


def _cost(errors: np.ndarray, moved: np.ndarray) -> float:
    """Small errors count as squares, large ones as they are; see `fitted`."""
    robust = LARGE * np.mean(np.sqrt(1 + (errors / LARGE) ** 2) - 1)
    return float(robust + STAY * np.mean(moved**2))
