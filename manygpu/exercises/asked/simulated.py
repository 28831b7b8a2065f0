"""Exercises of "A simulator for plans", and its bugs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from manygpu.exercises.checking import exercise
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import off, other


def _layers(draw: random.Random) -> Iterator[tuple]:
    yield from (([1.0], [2.0], [4.0]), ([1.0, 1.0], [2.0, 2.0], [2.0, 2.0]))
    yield from (
        ([1.0, 1.0], [2.0, 2.0], [5.0, 1.0]),
        ([1.0] * 2, [1.0] * 2, [1.0, 4.0]),
        ([0.1], [0.2], [0.3]),  # the network is free from the beginning
    )
    for _ in range(4):
        count = draw.randint(2, 6)
        yield tuple([draw.uniform(0, 3) for _ in range(count)] for _ in range(3))


def _summed(now: float, backward: list[float], sums: list[float], queue=True) -> float:
    """When the last sum is over, if layers come in this order."""
    end = 0.0
    for passing, adding in zip(backward, sums):
        now += passing
        end = max(end, now) + adding if queue else max(end, now + adding)
    return end


@exercise(
    "whole-cluster/overlap",
    '''
def my_step(forward, backward, sums):
    """Return the seconds of a step with data parallelism.

    The backward pass goes from the last layer to the first. The all-reduce of
    a layer's gradients starts when the layer's backward pass has ended and the
    network is free. The network does one all-reduce at a time. The step ends
    with the last all-reduce.

    forward, backward, sums: for each layer, beginning with the first, the
        seconds of its forward pass, of its backward pass, and of its
        all-reduce.
    """
    raise NotImplementedError(
        "Keep two clocks, one of the GPU and one of the network.",
    )
''',
    _layers,
)
def judge_overlap(found, forward, backward, sums):
    last_first, start = (backward[::-1], sums[::-1]), sum(forward)
    wrong = off(found, _summed(start, *last_first))
    computing, all_sums = start + sum(backward), sum(sums)
    early = wrong and not off(found, max(computing, all_sums)) and wrong
    yield "a sum waits for its gradients", early
    after = wrong and not off(found, computing + all_sums) and wrong
    yield "sums travel during backward passes", after
    turned = wrong and not off(found, _summed(start, backward, sums)) and wrong
    yield "the last layer's gradients come first", turned
    crowd = wrong and not off(found, _summed(start, *last_first, queue=False)) and wrong
    yield "the network does one sum at a time", crowd
    beside = start + max(sum(backward), all_sums)
    yield "a sum waits for its gradients", wrong and not off(found, beside) and wrong
    first = wrong and not off(found, _summed(0.0, *last_first)) and wrong
    yield "forward passes come first", first
    yield "the step ends with the last sum", wrong


def _shared(draw: random.Random) -> Iterator[tuple]:
    yield from (([2.0],), ([1.0, 1.0],), ([1.0, 3.0],), ([3.0, 1.0],))
    for _ in range(4):
        yield ([draw.uniform(0.5, 5) for _ in range(draw.randint(3, 6))],)


def _shares(sizes: list[float]) -> list[float]:
    """When each is through that gets an equal part of what all share."""
    ends, now, done, count = [0.0] * len(sizes), 0.0, 0.0, len(sizes)
    for i in sorted(range(count), key=sizes.__getitem__):
        now += (sizes[i] - done) * count
        done, ends[i] = sizes[i], now
        count -= 1
    return ends


@exercise(
    "whole-cluster/shared",
    '''
def my_ends(sizes):
    """Return when each of several messages on one network card ends.

    All messages start at 0. At any time, the messages that aren't complete yet
    get equal parts of the card's bandwidth.

    sizes: for each message, the seconds that it would take alone.

    The result is a list in the order of `sizes`.
    """
    raise NotImplementedError(
        "Which message ends first? How much of the others is left then?"
    )
''',
    _shared,
)
def judge_shared(found, sizes):
    right = _shares(sizes)
    yield "one end per message", other(len(found), len(sizes))
    wrong = off(found, right)
    alone = wrong and not off(found, sizes) and wrong
    yield "two at once take longer than one", alone
    turns = [
        list(itertools.accumulate(sizes)),
        list(itertools.accumulate(sorted(sizes))),
    ]
    yield (
        "all messages progress at the same time",
        wrong and not all(off(found, t) for t in turns) and wrong,
    )
    whole = [len(sizes) * size for size in sizes]
    yield (
        "a complete message leaves its part to the others",
        wrong and not off(found, whole) and wrong,
    )
    mixed = wrong and not off(found, sorted(right)) and wrong
    yield "the ends are in the order of the messages", mixed
    yield "the card is never idle, and never unfair", wrong


def _rings(draw: random.Random) -> Iterator[tuple]:
    yield from (([0, 1], 1, 8.0), ([0, 1, 2, 3], 2, 8.0), ([0, 2, 3, 1, 4, 5], 2, 6.0))
    yield [0, 1, 2], 3, 8.0
    for nodes, gpus in ((2, 4), (4, 2), (3, 3), (4, 4)):
        order = draw.sample(range(nodes * gpus), nodes * gpus)
        yield order, gpus, draw.uniform(1, 100)


def _leaving(order: list[int], gpus: int, each: float, closed=True) -> list[float]:
    """What leaves each node, if each rank sends so much to the next one in order."""
    nexts = order[1:] + (order[:1] if closed else [])
    out = [0.0] * (len(order) // gpus)
    for rank, target in zip(order, nexts):
        if rank // gpus != target // gpus:
            out[rank // gpus] += each
    return out


@exercise(
    "whole-cluster/leaving",
    '''
def my_leaving(order, gpus, size):
    """Return how many bytes leave each node in a ring all-reduce.

    A node has `gpus` GPUs. The first node has ranks 0 to gpus - 1, the second
    node the next `gpus` ranks, and so on.

    order: all ranks, in the order of the ring. Each rank sends to the next
        one, and the last one sends to the first.
    size: the bytes of the tensor.

    The result is a list with one number per node.
    """
    raise NotImplementedError(
        "How much does a rank send in total, and to which rank?",
    )
''',
    _rings,
)
def judge_leaving(found, order, gpus, size):
    n = len(order)
    each = 2 * (n - 1) / n * size
    yield "one number per node", other(len(found), n // gpus)
    wrong = off(found, _leaving(order, gpus, each))
    shares = (size, 2 * size, (n - 1) / n * size, 2 * (n - 1) * size)
    others = [_leaving(order, gpus, share) for share in shares]
    sent = wrong and not all(off(found, one) for one in others) and wrong
    yield "a rank sends 2 (n - 1) / n of the tensor", sent
    opened = wrong and not off(found, _leaving(order, gpus, each, False)) and wrong
    yield "the last rank sends to the first", opened
    stays = wrong and not off(found, [gpus * each] * (n // gpus)) and wrong
    yield "messages inside a node aren't counted", stays
    by_rank = wrong and not off(found, _leaving(sorted(order), gpus, each)) and wrong
    yield "the order decides which rank sends to which", by_rank
    yield "messages that leave a node are counted there", wrong


def _works(draw: random.Random) -> Iterator[tuple]:
    yield ([("GPU", 1.0, 0.0, [])],)
    yield ([("GPU", 1.0, 0.0, []), ("GPU", 2.0, 0.0, [])],)
    yield ([("out", 1.0, 0.5, []), ("out", 1.0, 0.5, [])],)
    yield ([("a", 1.0, 0.5, []), ("b", 1.0, 0.0, [0])],)
    yield ([("a", 3.0, 0.0, []), ("b", 1.0, 0.0, []), ("c", 1.0, 0.0, [0, 1])],)
    yield ([("a", 1.0, 0.0, []), ("b", 3.0, 0.0, []), ("c", 1.0, 0.0, [0, 1])],)
    for _ in range(4):
        works = []
        for i in range(8):
            after = sorted(draw.sample(range(i), min(i, draw.randint(0, 2))))
            seconds, latency = draw.uniform(0.5, 3), draw.choice((0.0, 0.7))
            works.append((draw.choice("abc"), seconds, latency, after))
        yield (works,)


def _played(works: list[tuple], lanes=True, holds=False, sent=False, of=max) -> list:
    """When each arrives; the rest is what may be wrong with that."""
    free: dict[str, float] = {}
    ends: list[tuple[float, float]] = []  # sent, arrived
    for lane, seconds, latency, after in works:
        waits = [ends[i][0 if sent else 1] for i in after]
        begin = max(free.get(lane, 0.0) if lanes else 0.0, of(waits, default=0.0))
        ends.append((begin + seconds, begin + seconds + latency))
        free[lane] = ends[-1][1 if holds else 0]
    return [arrived for _, arrived in ends]


@exercise(
    "whole-cluster/play",
    '''
def my_played(works):
    """Return when each work arrives, if all begin as early as they can.

    A lane does its works in the order of the list, one at a time. It is busy
    for `seconds`. After that it is free again, while the work travels for
    another `latency` seconds until it arrives.

    works: a list of (lane, seconds, latency, after). `after` lists the
        positions of earlier works that must have arrived before this one can
        begin.

    The result is a list with one time per work.
    """
    raise NotImplementedError("Start from the code of the bug, and fix it.")
''',
    _works,
    hunted=True,
)
def judge_play(found, works):
    yield "one time per work", other(len(found), len(works))
    wrong = off(found, _played(works))

    def like(**mistake) -> str | bool:
        return wrong and not off(found, _played(works, **mistake)) and wrong

    yield "a lane does one work at a time", like(lanes=False)
    yield "a lane is free while a message travels", like(holds=True)
    yield "a work waits until earlier works have arrived", like(sent=True)
    at_once = like(of=lambda waits, default: default)
    yield "a work waits until earlier works have arrived", at_once
    yield "a work waits for all of them, not for one", like(of=min)
    yield "all begin as early as they can", wrong


def _code(begin: str, free: str, end: str = "begin + seconds + latency") -> str:
    """Code of a loop that plays works."""
    return f"""
def my_played(works):
    free, ends = {{}}, []
    for lane, seconds, latency, after in works:
        waits = [ends[i] for i in after]
        begin = {begin}
        end = {end}
        free[lane] = {free}
        ends.append(end)
    return ends
"""


LANE, ALL = "free.get(lane, 0.0)", "max(waits, default=0.0)"
flaw(
    "whole-cluster/play",
    _code(f"max({LANE}, {ALL})", "end"),
    lambda f: (
        "two messages of 1 s through one lane, each 0.5 s on its way: they arrive at "
        "{:g} and {:g} s".format(*f([("out", 1.0, 0.5, [])] * 2))
    ),
    "a lane is free while a message travels",
)
flaw(
    "whole-cluster/play",
    _code(ALL, "begin + seconds"),
    lambda f: "eight passes of 1 s on one GPU: the last one ends at {:g} s".format(
        f([("GPU", 1.0, 0.0, [])] * 8)[-1]
    ),
    "a lane does one work at a time",
)
flaw(
    "whole-cluster/play",
    _code(f"max({LANE}, min(waits, default=0.0))", "begin + seconds"),
    lambda f: (
        "two replicas are done at 1 and at 3 s. The sum of both takes 1 s, and is done "
        "at {:g} s".format(
            f([("a", 1.0, 0.0, []), ("b", 3.0, 0.0, []), ("net", 1.0, 0.0, [0, 1])])[2]
        )
    ),
    "a work waits for all of them, not for one",
)
flaw(
    "whole-cluster/play",
    """
def my_played(works):
    free, ends = {}, []
    for lane, seconds, latency, after in works:
        begin = free.get(lane, 0.0)
        for i in after:
            ready = ends[i] - works[i][2]
            begin = max(begin, ready)
        free[lane] = begin + seconds
        ends.append(begin + seconds + latency)
    return ends
""",
    lambda f: (
        "a message is sent at 1 s and arrives at {:g} s. A pass of 1 s that needs it "
        "ends at {:g} s".format(*f([("out", 1.0, 5.0, []), ("GPU", 1.0, 0.0, [0])]))
    ),
    "a work waits until earlier works have arrived",
)
