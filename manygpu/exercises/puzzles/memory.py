"""Puzzles of memory and of messages that hide: recomputation, shards, buckets."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import Any

from manygpu.exercises.puzzles.drawing import Bar, Line, lanes
from manygpu.exercises.puzzles.plans import FITS, index, listed, parts
from manygpu.exercises.puzzles.scoring import Refused, add

MEMORY, BUCKETS = "Memory", "Bucket plans"
FIRST = "The model's own input is kept"
ONCE = "A layer is named once"
EACH_GRADIENT = "Each gradient is in one bucket"

LAYERS = 28
FEWEST_INPUTS = math.ceil((math.sqrt(8 * LAYERS + 1) - 1) / 2)


@add(
    "recompute",
    "Which inputs to keep",
    MEMORY,
    f"""
    A network has {LAYERS} layers, 0 to {LAYERS - 1}, with inputs of the same size.
    `answer` is a list of the layers whose inputs are kept. Layer 0 must be among them.
    A kept layer and the layers after it, up to the next kept one, form a segment. In
    the backward pass, the segments run from the last one to the first. Each segment
    first runs forward again, so that it has the inputs of all its layers. At its end,
    it frees all of them, the kept one too.

    The score is the largest number of inputs that are in memory at the same time. Make
    it small.
    """,
    f"""
    answer = range(0, {LAYERS}, 2)
    """,
    "inputs of layers",
    FEWEST_INPUTS,
)
def recompute(plan: Any) -> tuple[float, str]:
    """While the j-th segment runs backward, j inputs are kept, and the others of its
    layers are there: with a peak of P it has P + 1 - j layers, at most. All segments
    together then have P + (P - 1) + ... + 1 = P (P + 1) / 2, at most, and 28 layers
    need P = 7. Segments of equal length come to 2 sqrt(n), nearly. (T. Chen et al.,
    "Training deep nets with sublinear memory cost", 2016.)
    """
    kept = sorted(index(i, LAYERS, "a kept layer") for i in listed(plan, "answer"))
    if len({*kept}) < len(kept):
        raise Refused(ONCE, "a layer is in the list twice")
    if not kept or kept[0] != 0:
        raise Refused(FIRST, "layer 0 isn't in the list")
    lengths = [end - start for start, end in pairwise([*kept, LAYERS])]
    held = [j + length for j, length in enumerate(lengths)]
    bars = []
    for j, length in enumerate(lengths):
        lane = len(lengths) - 1 - j  # time goes down: the last segment comes first
        bars.append(Bar(lane, 0, j + 1, "activations", "", f"{j + 1} kept"))
        again = f"{length - 1} found again"
        bars.append(Bar(lane, j + 1, j + length, "copy", "", again))
    names = [f"segment {j}" for j in reversed(range(len(lengths)))]
    label = f"{len(lengths)} segments of {lengths} layers hold {held} inputs"
    unit = "inputs: kept, then found again"
    line = Line(FEWEST_INPUTS, "the bound")
    return max(held), lanes(bars, names, unit, label, line)


SIZES = (40, 40, 24, 16, 16, 24, 24, 24, 16)  # MB of parameters
DEVICES, ROOM = 8, 152
OF_A_RING = (DEVICES - 1) / DEVICES
MOST_WHOLE = 8 * math.floor((ROOM - sum(SIZES) / DEVICES - min(SIZES)) / OF_A_RING / 8)


@add(
    "sharded",
    "Which layers to shard",
    MEMORY,
    f"""
    A network has {len(SIZES)} layers, with parameters of
    {", ".join(map(str, SIZES))} MB. Each of {DEVICES} GPUs has {ROOM} MB for
    parameters. If a layer stays whole, every GPU keeps all of it. If a layer is
    sharded, each GPU keeps 1/{DEVICES} of it. While a sharded layer computes, each GPU
    also holds a complete copy of it, but of one layer at a time only. `answer` is a
    list of the layers that stay whole.

    In each step, a whole layer is sent twice: its gradients are reduced and scattered,
    and its parameters are gathered. A sharded layer is sent three times, because its
    parameters are gathered for the forward pass and again for the backward pass. Each
    time, a GPU sends {DEVICES - 1}/{DEVICES} of the layer. The score is the number of
    MB that one GPU sends. Make it small.
    """,
    """
    answer = []
    """,
    "MB that a GPU sends",
    OF_A_RING * (3 * sum(SIZES) - MOST_WHOLE),
)
def sharded(plan: Any) -> tuple[float, str]:
    """If layers of K MB are whole, a GPU holds K + (224 - K) / 8 and, as not all fit,
    one gathered layer, of 16 MB or more: K is 123 at most, and 120, for all layers are
    multiples of 8. So 7/8 (3 x 224 - 120) = 483. A test tries all 512 plans: the best
    has 490. (S. Rajbhandari et al., "ZeRO", 2020, section 7.)
    """
    named = [index(i, len(SIZES), "a whole layer") for i in listed(plan, "answer")]
    if len({*named}) < len(named):
        raise Refused(ONCE, "a layer is in the list twice")
    cut = [size for i, size in enumerate(SIZES) if i not in named]
    whole, shards = sum(SIZES[i] for i in named), sum(cut) / DEVICES
    gathered = max(cut, default=0)
    held = whole + shards + gathered
    if held > ROOM:
        raise Refused(FITS, f"a GPU would hold {held:g} MB, but has {ROOM}")
    sent = OF_A_RING * (2 * whole + 3 * sum(cut))
    bars = [
        Bar(0, 0, whole, "parameters", "whole", f"whole: {whole:g}"),
        Bar(0, whole, whole + shards, "parameters", "", f"shards: {shards:g}"),
        Bar(0, whole + shards, held, "copy", "", f"gathered: {gathered:g}"),
        Bar(1, 0, sent, "communication", f"{sent:g}", f"sent: {sent:g}"),
    ]
    label = f"a GPU holds {held:g} of {ROOM} MB and sends {sent:g} MB"
    line = Line(ROOM, "room")
    return sent, lanes(
        bars, ["held", "sent"], "MB: whole, shards, gathered", label, line
    )


GRADIENTS = (12, 8, 8, 6, 6, 4, 4, 3, 3, 2, 2, 2)  # MB, in the order they are made
MADE = (2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3)  # ms
START_UP, PER_MS, BUFFER = 4, 2, 20
FEWEST_BUCKETS = math.ceil(sum(GRADIENTS) / BUFFER)
SOONEST = MADE[0] + FEWEST_BUCKETS * START_UP + sum(GRADIENTS) / PER_MS


@add(
    "buckets",
    "How to fill the buckets",
    BUCKETS,
    f"""
    The backward pass computes {len(GRADIENTS)} gradients, one after the other. They
    take {", ".join(map(str, MADE))} ms and have {", ".join(map(str, GRADIENTS))} MB.
    They are sent in buckets, in the same order, while the backward pass goes on. Each
    bucket has some neighbouring gradients and at most {BUFFER} MB. It leaves as soon as
    its last gradient is computed and the bucket before it has arrived. It takes
    {START_UP} ms to start, and 1 ms for each {PER_MS} MB. `answer` is a list with the
    number of gradients of each bucket.

    The score is the time at which the last bucket has arrived. Make it early.
    """,
    f"""
    answer = [1] * {len(GRADIENTS)}
    """,
    "ms",
    SOONEST,
)
def buckets(plan: Any) -> tuple[float, str]:
    """60 MB need three buckets of 20, or more; the wire is idle for the first 2 ms,
    then takes 3 x 4 to start and 30 to send: 44. A test tries all 2^11 plans: the best
    ends at 48. (S. Li et al., "PyTorch distributed: experiences on accelerating data
    parallel training", 2020, section 3.2.)
    """
    found = parts(plan, len(GRADIENTS), "gradients", EACH_GRADIENT)
    made, free = [*accumulate(MADE)], 0.0
    bars = [
        Bar(0, end - took, end, "backward", str(i), f"gradient {i}: made at {end}")
        for i, (end, took) in enumerate(zip(made, MADE, strict=True))
    ]
    for number, own in enumerate(found):
        size = sum(GRADIENTS[i] for i in own)
        if size > BUFFER:
            said = f"bucket {number} has {size} MB, but only {BUFFER} fit into it"
            raise Refused(FITS, said)
        start = max(free, made[own[-1]])
        free = start + START_UP + size / PER_MS
        text = f"bucket {number}, {size} MB: {start:g} to {free:g}"
        bars.append(Bar(1, start, free, "communication", str(number), text))
    label = f"{len(found)} buckets, of which the last arrives at {free:g} ms"
    line = Line(SOONEST, "the bound")
    return free, lanes(bars, ["backward", "wire"], "ms", label, line)
