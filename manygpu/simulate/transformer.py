"""A transformer's training step on a cluster, in closed form: its MFU and its memory.

One formula a mechanism, and as few constants as there are mechanisms. What was built
is known, for the model is held against runs of nanotron: its code says how layers are
dealt out to stages, what is kept, what is sent when, and in which precision. Constants
that data sheets don't give are fitted (`fitted`), each with a unit and a meaning.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from manygpu._files import data_file
from manygpu.costs import memory as costs
from manygpu.costs import seconds
from manygpu.costs.layout import Layout, Number
from manygpu.costs.seconds import Parts, Pieces
from manygpu.costs.shape import Shape
from manygpu.simulate import steps
from manygpu.simulate.works import Agenda

GIB = 2**30
WHOLE = 2.3  # see `held`
LEAST = data_file("simulate/data/ultrascale_least.csv")


class Run(NamedTuple):
    """How a model is spread out: `gpus = data * layerwise * stages`.

    Each number may be an array, for many runs of one shape at once.
    """

    shape: Shape
    data: int | np.ndarray
    layerwise: int | np.ndarray
    stages: int | np.ndarray
    accumulation: int | np.ndarray
    micro_batch: int | np.ndarray
    zero: int | np.ndarray  # 1: the optimizer's state is sharded over the data axis

    @property
    def gpus(self) -> int | np.ndarray:
        """GPUs at work."""
        return self.data * self.layerwise * self.stages

    @property
    def layout(self) -> Layout:
        """The same, as a layout."""
        t, p, m = self.layerwise, self.stages, self.accumulation
        return Layout(self.gpus, t, p, m, self.zero)

    @property
    def tokens(self) -> int | np.ndarray:
        """Tokens of a step."""
        sequences = self.data * self.accumulation * self.micro_batch
        return sequences * self.shape.sequence


@dataclass(frozen=True)
class Hardware:
    """A node and its GPUs. The first seven are given, the others are to be fitted.

    Attributes:
        peak: FLOP/s of a GPU, bfloat16 without sparsity.
        memory: bytes a second of its memory, times the share that kernels reach.
        attention: the share of the peak that attention's kernel reaches.
        gpus: in a node.
        hop_inside: seconds that a message needs to the next GPU of a node.
        handover: seconds until a stage has the next one's attention.
        beside: the share of the network's pace that sums reach beside passes.
        matrices: the share of the peak that matrix products reach.
        loss: bytes that move for each logit, both ways.
        inside: bytes a second of a GPU to the others of its node.
        begin: seconds until a layerwise sum begins, and its products are put together.
        across: bytes a second of a node to the others.
        apart: the same for a layer's GPUs that lie in several nodes.
        hop: seconds that a sum over nodes needs for each of them, going round once.
        piece: seconds of the host for each tensor that it cuts into a rank's piece.
        node: seconds that a step takes longer with each node, if there are 64.
    """

    peak: float = 989e12
    memory: float = 0.9 * 3.35e12
    attention: float = 0.35
    gpus: int = 8
    hop_inside: float = 3e-6
    handover: float = 0.15e-3
    beside: float = 0.5
    matrices: float = 0.65
    loss: float = 60.0
    inside: float = 300e9
    begin: float = 40e-6
    across: float = 250e9
    apart: float = 200e9
    hop: float = 6e-6
    piece: float = 10e-6
    node: float = 2e-3


# What is fitted: its unit, what a data sheet allows at best, if one says, and in words.
CONSTANTS = {
    "matrices": ("of the peak", 1.0, "speed of matrix products"),
    "loss": ("B a logit", None, "moved by the loss"),
    "inside": ("B/s a GPU", 450e9, "bandwidth in a node"),
    "begin": ("s a sum", None, "until a layerwise sum begins"),
    "across": ("B/s a node", 400e9, "bandwidth between nodes"),
    "apart": ("B/s a node", 400e9, "the same, for layers over nodes"),
    "hop": ("s a node", None, "latency of a ring's round"),
    "piece": ("s a piece", None, "host, to cut a tensor up"),
    "node": ("s a node", None, "what every node adds, at 64"),
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


class Dealt(NamedTuple):
    """Layers of the first stage, of the fullest between the ends, and of the last one.

    `held`: parameters of the stage that has the most.
    """

    first: Number
    between: Number
    end: Number
    held: Number

    @property
    def most(self) -> Number:
        """Layers of the stage that has the most."""
        return np.maximum(np.maximum(self.first, self.between), self.end)


def dealt(run: Run) -> Dealt:
    """How a run's layers are dealt out, or those of each of many runs."""
    if np.ndim(run.stages) == 0:
        return Dealt(*_dealt(run.shape, int(run.stages)))
    counts, where = np.unique(run.stages, return_inverse=True)
    found = np.array([_dealt(run.shape, count) for count in counts.tolist()])
    return Dealt(*found[where].T)


@functools.cache
def _dealt(shape: Shape, stages: int) -> tuple[float, float, float, float]:
    """See `dealt`."""
    counts = dealt_out(shape, stages)
    held = [n * shape.layer for n in counts]
    held[0] += shape.embedding
    if stages > 1 or not shape.tied:
        held[-1] += shape.embedding
    return counts[0], max(counts[1:-1], default=0), counts[-1], max(held)


@functools.cache
def _least() -> dict[tuple[int, bool], float]:
    """Seconds by the GPUs that share a layer, and whether there are several stages."""
    with LEAST.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        (int(row["layerwise"]), row["stages"] == "several"): 1e-3 * float(row["median"])
        for row in rows
    }


def least_seconds(run: Run) -> Number:
    """What a layer takes for a micro-batch however small, forward and backward.

    Medians of the playbook's runs whose GPUs need less than half of their seconds
    (`experiments/ultrascale.py`): nearly the same for models of 1.34 to 80 billion
    parameters and for small and large micro-batches. On one stage it doesn't depend on
    how many GPUs of a node share the layer, as if their hosts had to start the work;
    why it grows over nodes, and on stages of several nodes with each such GPU, isn't
    published. Of layers that aren't cut the runs don't tell: their GPUs need about as
    long, or longer.
    """
    found, several = np.zeros(()), (run.stages > 1) & (run.gpus > Hardware.gpus)
    for (ways, on_several), least in sorted(_least().items(), reverse=True):
        # On one stage, fewer than 8 take as long as 8; none tried more than 32.
        found = np.where(
            (run.layerwise <= ways) & (several == on_several), least, found
        )
    return np.where(run.layerwise > 1, found, 0.0)[()]


def layer_seconds(run: Run, hardware: Hardware) -> Number:
    """A layer's forward and backward pass of a micro-batch, with its sums."""
    return np.maximum(busy_seconds(run, hardware), least_seconds(run))


def busy_seconds(run: Run, hardware: Hardware) -> Number:
    """The same, of GPUs that never wait for their host."""
    shape, t = run.shape, run.layerwise
    tokens = run.micro_batch * shape.sequence
    products = 6 * shape.layer * tokens / (hardware.matrices * hardware.peak)
    # Causal: half of it; the backward pass of FlashAttention has 5 products, not 4.
    attention = 3.5 * 2 * tokens * shape.sequence * shape.hidden
    attention = attention / (hardware.attention * hardware.peak)
    # Bytes that kernels between the products read and write, both ways: norms,
    # rotations, copies, sums (84 a hidden number), SwiGLU (34 an inner one); and for
    # each parameter its gradient, copied and added in float32 (16).
    moved = tokens * (84 * shape.hidden + 34 * shape.inner) + 16 * shape.layer
    alone = (products + attention + moved / hardware.memory) / t
    # Four gathers and four scatters: tokens are cut between the products, and what is
    # gathered isn't kept for the backward pass.
    size = 2 * tokens * shape.hidden * (t - 1) / t
    link = np.where(t <= hardware.gpus, hardware.inside, hardware.apart)
    return alone + np.where(t > 1, 8 * (hardware.begin + size / link), 0.0)


def head_seconds(run: Run, hardware: Hardware) -> Number:
    """The logits and the loss of a micro-batch, forward and backward."""
    shape, t = run.shape, run.layerwise
    tokens = run.micro_batch * shape.sequence
    products = 6 * shape.embedding * tokens / (hardware.matrices * hardware.peak)
    return (products + hardware.loss * shape.vocabulary * tokens / hardware.memory) / t


def _own_link(run: Run, hardware: Hardware) -> Number:
    """Bytes a second of one GPU to another one, in another node if there are any."""
    across = hardware.across / hardware.gpus
    return np.where(run.gpus > hardware.gpus, across, hardware.inside)


def between_stages(run: Run, hardware: Hardware) -> Number:
    """Handing a micro-batch's activations to the next stage; both of them wait."""
    tokens = run.micro_batch * run.shape.sequence
    size = 2 * tokens * run.shape.hidden / run.layerwise
    taken = hardware.handover + size / _own_link(run, hardware)
    return np.where(run.stages > 1, taken, 0.0)


def sums_seconds(run: Run, hardware: Hardware, size: Number, times: Number) -> Number:
    """Going round a ring of the replicas once with so many bytes, in so many messages.

    Rings of a layer's GPUs share a node's cards. A message passes each GPU.
    """
    d, t = run.data, run.layerwise
    near = d * t <= hardware.gpus
    nodes = np.where(near, 0, d * t / hardware.gpus)
    link = hardware.across / np.minimum(t, hardware.gpus)
    link = np.where(near, hardware.inside, link)
    late = nodes * hardware.hop + (d - np.minimum(nodes, d)) * hardware.hop_inside
    return np.where(d > 1, (d - 1) / d * size / link + times * late, 0.0)


def pieces(run: Run, hardware: Hardware) -> Pieces:
    """What a step of nanotron is made of, for `manygpu.costs.seconds`.

    With ZeRO 0 PyTorch sums float32 gradients beside the last backward pass, tensor by
    tensor. With ZeRO 1 they are summed behind it, all in one message, the optimizer's
    state is sharded, and the new parameters are gathered, for which the host cuts each
    tensor into a piece a rank. Clipping waits for all gradients.
    """
    shape, zero = run.shape, np.minimum(run.zero, run.data - 1)
    own, layer = dealt(run), layer_seconds(run, hardware)
    head, hop = head_seconds(run, hardware), between_stages(run, hardware)
    cut = run.stages > 1
    stages = [
        own.first * layer + np.where(cut, 2 * hop, head),
        np.where(own.between > 0, own.between * layer + 4 * hop, 0.0),
        np.where(cut, own.end * layer + head + 2 * hop, 0.0),
    ]
    n, tensors = own.most, 6 * own.most + 2
    held, ends = (size / run.layerwise for size in (own.held, shape.embedding))
    around = functools.partial(sums_seconds, run, hardware)
    sums = 2 * around(4 * (held - ends), tensors)
    beside = np.minimum(sums, hardware.beside * 2 / 3 * n * layer)
    rest = sums - beside + 2 * around(4 * ends, 0)
    behind = np.where(zero, 2 * around(4 * held, 1), rest)
    gather = around(2 * held, 1) + tensors * run.data * hardware.piece
    # Adam reads and writes 30 bytes a parameter; clipping and zeroing touch 12.
    update = held * (30 / np.where(zero, run.data, 1) + 12) / hardware.memory
    if shape.tied:  # the gradients of the two copies are added
        update = update + cut * 4 * ends / _own_link(run, hardware)
    nodes = np.ceil(run.gpus / hardware.gpus)
    return Pieces(
        turns=shape.layers * layer + head + 4 * hop * (run.stages - 1),
        turn=np.maximum.reduce(np.broadcast_arrays(*stages)),
        layers=n,
        forward=layer / 3,
        backward=2 / 3 * layer,
        sums=np.where(zero, 0.0, beside / n),
        update=update / n,
        gather=np.where(zero, gather / n, 0.0),
        last=behind,
        once=hardware.node * nodes**2 / 64,
        at_once=False,
    )


def parts(run: Run, hardware: Hardware) -> Parts:
    """The seconds of a step by what they are for, or of each of many runs."""
    return seconds.parts(pieces(run, hardware), run.layout)


def works_of(
    run: Run, hardware: Hardware, plan: Iterable[Any], needs: Callable
) -> Agenda:
    """The step as works, for the loop to play: one replica stands for all.

    `plan`, `needs`: of a schedule with the run's stages and micro-batches, as
    `put_plan` takes them. A forward pass takes a third of a stage's time, a backward
    pass two; gradients are summed beside a stage's last backward pass and after it.

    Raises ValueError for a plan of other stages or micro-batches.
    """
    slots = list(plan)
    sizes = [1 + max(slot.op[i] for slot in slots) for i in (1, 2)]
    if sizes != [run.stages, run.accumulation]:
        raise ValueError(
            f"plan must have {run.stages} stages and {run.accumulation} micro-batches, "
            f"got {sizes[0]} and {sizes[1]}"
        )
    made = pieces(run, hardware)
    stages = stage_seconds(run, hardware)
    return steps.played(made, run.layout, slots, needs, stages)


def stage_seconds(run: Run, hardware: Hardware) -> list[float]:
    """What each stage takes for a micro-batch, forward and backward."""
    counts, last = dealt_out(run.shape, run.stages), run.stages - 1
    layer, head = layer_seconds(run, hardware), head_seconds(run, hardware)
    hop = float(between_stages(run, hardware))
    return [
        float(n * layer + (s == last) * head + 2 * hop * ((s > 0) + (s < last)))
        for s, n in enumerate(counts)
    ]


def utilization(run: Run, hardware: Hardware, seconds: Number) -> Number:
    """Model FLOPs utilization of a step of so many seconds, in percent."""
    most = run.gpus * hardware.peak * seconds
    return 100 * run.shape.flops(run.tokens) / most


def mfu(run: Run, hardware: Hardware) -> Number:
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
