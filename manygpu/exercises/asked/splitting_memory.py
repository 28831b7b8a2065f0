"""Exercises of part 4: what is made again, and state that is shared out."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.drawn import arrays
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import all_off, off, other, whole_numbers


def _segments(draw: random.Random) -> Iterator[tuple]:
    yield from ((1, 1), (2, 1), (2, 2), (4, 2), (5, 2), (6, 3))
    for _ in range(3):
        layers = draw.randint(2, 20)
        yield layers, draw.randint(1, layers)


def passes(layers: int, length: int, last: bool = False) -> list[tuple[str, int]]:
    """Of a step in segments; last: whether the last one is run again, too."""
    done = [("F", i) for i in range(layers)]
    for first in reversed(range(0, layers, length)):
        own = range(first, min(first + length, layers))
        done += [("F", i) for i in own if last or own[-1] < layers - 1]
        done += [("B", i) for i in reversed(own)]
    return done


@exercise(
    "recomputation/passes",
    '''
def my_passes(layers, length):
    """Return the passes of a training step with recomputation, in order.

    The layers are in segments of `length` layers, and the last segment may be
    shorter. In the backward pass, each segment is run forward again
    immediately before its own backward pass. The last segment is an exception:
    it has just run and has kept its activations, so it isn't run again.

    The result is a list of ("F", i) and ("B", i), where i is the layer.
    """
    raise NotImplementedError(
        "What is done for one segment in the backward pass?",
    )
''',
    _segments,
)
def judge_passes(found, layers, length):
    found, right = [tuple(one) for one in found], passes(layers, length)
    back = [i for kind, i in found if kind == "B"]
    down = (
        back != list(range(layers))[::-1]
        and f"the backward passes are in the order {back}"
    )
    yield "each layer has one backward pass, the last layer first", down
    again = found != right and found == passes(layers, length, last=True)
    yield "a segment that has just run isn't run again", again and "the last segment is"
    runs = [sum(one == ("F", i) for one in found) for i in range(layers)]
    often = [i for i in range(layers) if runs[i] > 2]
    many = often and f"layer {often[0]} runs {runs[often[0]]} times"
    yield "a layer runs forward twice at most", many
    kept = layers - 1 - (layers - 1) // length * length + 1
    once = [i for i in range(layers - kept) if runs[i] < 2]
    yield "dropped activations are computed again", once and f"layer {once[0]} isn't"
    yield (
        "a segment runs forward immediately before its backward pass",
        other(found, right),
    )


def _results(draw: random.Random) -> Iterator[tuple]:
    yield from (([4], [1], 4), ([4], [1], 0), ([6, 5, 5], [6, 5.5, 5.5], 6))
    yield from (([4, 4], [1, 2], 4), ([9, 1], [9, 8], 9))
    yield from (([8, 2, 2], [5, 2, 2], 8), ([8, 1, 1, 1], [5, 2, 2, 2], 4))
    yield [3, 1, 4, 1, 5, 9, 2], [2, 7, 1, 8, 2, 8, 1], 0
    yield [3, 1, 4, 1, 5, 9, 2], [2, 7, 1, 8, 2, 8, 1], 12
    for _ in range(4):
        sizes = [draw.randint(1, 9) for _ in range(draw.randint(2, 7))]
        seconds = [draw.randint(1, 9) for _ in sizes]
        yield sizes, seconds, draw.randint(0, sum(sizes))


def _least(sizes: list, seconds: list, room: float) -> float:
    """The least time in which so much is made again that the rest fits."""
    each, most = range(len(sizes)), sum(sizes)
    ways = itertools.chain(*(itertools.combinations(each, n) for n in range(9)))
    return min(
        sum(seconds[i] for i in again)
        for again in ways
        if most - sum(sizes[i] for i in again) <= room
    )


@exercise(
    "recomputation/again",
    '''
def my_again(sizes, seconds, room):
    """Return which results to compute again, as a list of positions.

    All other results are kept, and may take at most `room` bytes. Choose the
    positions that take the least time. There are at most 7 results, so you may
    try all choices.

    sizes: for each result of the forward pass, its bytes.
    seconds: for each result, the time that it takes to compute it again.
    """
    raise NotImplementedError(
        "Which choices keep few enough bytes? Which of these is fastest?"
    )
''',
    _results,
)
def judge_again(found, sizes, seconds, room):
    found = whole_numbers(found)
    each = range(len(sizes))
    twice = sorted(set(found) & set(each)) != sorted(found) and f"they are {found}"
    yield "each position comes at most once", twice
    kept = sum(sizes[i] for i in each if i not in found)
    yield "the kept results fit", kept > room and f"{kept} bytes are kept"
    took, least = sum(seconds[i] for i in found), _least(sizes, seconds, room)
    slow = took > least + 1e-9 and f"it takes {took:g} s, and {least:g} s is possible"
    yield "no choice takes less time", slow


def _uneven(draw: random.Random) -> Iterator[tuple]:
    yield from (([3, 1], [0]), ([2, 1, 1], [0]), ([1, 1, 1, 1, 1], [0, 2]))
    yield from (([1, 2, 9, 1, 1, 1], [0, 3]), ([1, 1, 8, 1, 1], [0, 1, 3]))
    yield from (([9, 1, 1, 1, 1], [0, 2]), ([1, 2, 3, 4, 5, 6], [0, 2, 4]))
    for _ in range(4):
        layers = draw.randint(3, 12)
        starts = sorted({0, *(draw.randrange(layers) for _ in range(3))})
        yield [draw.randint(1, 20) for _ in range(layers + 1)], starts


def moments(sizes: list, starts: list[int]) -> list[float]:
    """What is kept while each segment goes back: inputs as far as it, its outputs."""
    ends = [*starts[1:], len(sizes) - 1]
    inputs = list(itertools.accumulate(sizes[a] for a in starts))
    own = [sum(sizes[a + 1 : b + 1]) for a, b in zip(starts, ends)]
    return [both + outputs for both, outputs in zip(inputs, own)]


@exercise(
    "recomputation/peak",
    '''
def my_peak(sizes, starts):
    """Return the most bytes of activations that are kept at the same time.

    The model uses recomputation. During the backward pass of a segment, three
    things are kept: the segment's input, the inputs of the segments before it,
    and the outputs of the segment's own layers.

    sizes: the bytes of the model's input, and then of each layer's output.
    starts: the first layer of each segment. Layers are counted from 0.
    """
    raise NotImplementedError(
        "What is kept during the backward pass of one segment?",
    )
''',
    _uneven,
    hunted=True,
)
def judge_peak(found, sizes, starts):
    kept = moments(sizes, starts)
    right, inputs = max(kept), sum(sizes[a] for a in starts)
    wrong = off(found, right)
    yield "the fullest moment counts", not off(found, kept[-1]) and wrong
    ends = [*starts[1:], len(sizes) - 1]
    own = [sum(sizes[a + 1 : b + 1]) for a, b in zip(starts, ends)]
    all_inputs = not off(found, inputs + max(own)) and wrong
    yield "inputs are dropped after their segment's backward pass", all_inputs
    yield "inputs of the segments before are kept", not off(found, max(own)) and wrong
    yield "it is the amount that is kept at the same time", wrong


def _trainings(draw: random.Random) -> Iterator[tuple]:
    yield from itertools.product(range(4), (1,), (1, 2), (8e9,))
    yield from itertools.product(range(4), (4,), (8,), (8e9,))
    yield draw.randint(0, 3), draw.randint(2, 16), draw.randint(2, 64), 1e9


@exercise(
    "sharded-state/traffic",
    '''
def my_traffic(stage, micro_batches, devices, size):
    """Return the bytes that a device sends in a step of micro-batches.

    The devices use stage 0, 1, 2 or 3 of ZeRO. In stages 0 and 1, each device
    adds up the gradients of its micro-batches, and sends them once per step.
    In stages 2 and 3, a device keeps only its own part of the gradients. In
    stage 3, the parameters are gathered for each forward pass and for each
    backward pass.

    size: the bytes of all parameters, which are also the bytes of all
        gradients.
    """
    raise NotImplementedError(
        "Which halves of an all-reduce are sent, and how often is each sent?"
    )
''',
    _trainings,
)
def judge_traffic(found, stage, micro_batches, devices, size):
    half = (devices - 1) / devices * size
    right = (2, 2, micro_batches + 1, 3 * micro_batches)[stage] * half
    wrong, several = off(found, right), micro_batches > 1
    alone = devices == 1 and wrong
    yield "one device sends nothing", alone
    once = stage >= 2 and several and not off(found, (2, 2, 2, 3)[stage] * half)
    yield "parameters that aren't kept are sent for each micro-batch", once and wrong
    often = stage < 2 and several and not off(found, 2 * micro_batches * half)
    yield "stages 0 and 1 send once a step", often and wrong
    spread = stage == 2 and several and not off(found, 2 * micro_batches * half)
    yield "new parameters are gathered once per step", spread and wrong
    passes_ = stage == 3 and not off(found, 2 * micro_batches * half)
    yield "stage 3 gathers for the backward pass, too", passes_ and wrong
    yield "it is the amount that a device sends", wrong


def _chunked(draw: random.Random) -> Iterator[tuple]:
    yield [np.array([3.0, 4.0])], 10.0
    yield [np.array([3.0, 4.0])], 1.0
    yield [np.array([3.0]), np.array([4.0])], 1.0
    yield [np.zeros(2), np.zeros(1)], 1.0
    for _ in range(3):
        chunks = [arrays(draw, draw.randint(1, 4)) for _ in range(draw.randint(2, 5))]
        yield chunks, draw.choice((0.5, 1.0, 99.0))


@exercise(
    "sharded-state/clip",
    '''
def my_clip(chunks, limit):
    """Return each device's chunk of the clipped gradient, as a list.

    The gradient is clipped as one device would clip it. A gradient that is
    longer than `limit` is shortened to this length, and keeps its direction.

    chunks: for each device, its part of the summed gradient, an array.
    """
    raise NotImplementedError(
        "Which single number do the devices need from each other?"
    )
''',
    _chunked,
)
def judge_clip(found, chunks, limit):
    length = math.sqrt(sum(float((c**2).sum()) for c in chunks))
    norms = [float(np.linalg.norm(c)) for c in chunks]

    def by(*lengths: float) -> list[np.ndarray]:
        each = lengths * len(chunks) if len(lengths) == 1 else lengths
        return [c * min(1.0, limit / max(n, 1e-12)) for c, n in zip(chunks, each)]

    wrong = all_off(found, by(length))
    squares = not all_off(found, by(length**2)) and wrong
    yield "a length is the root of the sum of the squares", squares
    short = length <= limit and wrong
    yield "a gradient that is short enough stays", short
    yield "a chunk isn't clipped alone", not all_off(found, by(*norms)) and wrong
    summed = not all_off(found, by(sum(norms))) and wrong
    yield "lengths of chunks don't add up, their squares do", summed
    yield "it is the clipped gradient", wrong


WIDE_FIRST = [1, 40, 1, 1, 1, 1, 1, 1, 1], [0, 2, 4, 6]

flaw(
    "recomputation/peak",
    """
def my_peak(sizes, starts):
    inputs = 0
    for first, end in zip(starts, [*starts[1:], len(sizes) - 1]):
        inputs += sizes[first]
        kept = inputs + sum(sizes[first + 1 : end + 1])
    return kept
""",
    lambda f: (
        f"a layer in the middle of six makes 90 bytes, all others 1. The most that is "
        f"kept is, it says, {f([1, 1, 90, 1, 1, 1, 1], [0, 3])} bytes"
    ),
    "the fullest moment counts",
)
flaw(
    "recomputation/peak",
    """
def my_peak(sizes, starts):
    inputs = sum(sizes[first] for first in starts)
    most = 0
    for first, end in zip(starts, [*starts[1:], len(sizes) - 1]):
        most = max(most, sum(sizes[first + 1 : end + 1]))
    return inputs + most
""",
    lambda f: (
        f"a wide layer is in the first of four segments, whose backward pass is last. "
        f"At most {max(moments(*WIDE_FIRST))} bytes are kept; it says {f(*WIDE_FIRST)}"
    ),
    "inputs are dropped after their segment's backward pass",
)
