"""Exercises of part 3: the engine, its input, its numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.saying import off, other
from manygpu.exercises.start import arrays


def _losses(draw: random.Random) -> Iterator[tuple]:
    for sizes in ([2], [2, 2], [3, 1], [2, 0]):
        yield [np.abs(arrays(draw, n)) + 1 for n in sizes], sum(sizes)


@exercise(
    "mirrored-strategy/loss",
    '''
def my_losses(losses, batch):
    """Return what each replica's loss must be, so that their sum is the batch's mean.

    losses: for each replica an array of its own samples' losses; one may have none.
    batch: samples of all replicas. A replica sees neither the others' losses nor how
    many samples they have.
    """
    raise NotImplementedError("MirroredStrategy adds up. Who divides, and by what?")
''',
    _losses,
)
def _(found, losses, batch):
    yield "one loss a replica", other(len(found), len(losses))
    right = [float(np.sum(own)) / batch for own in losses]
    nan = not np.all(np.isfinite(np.asarray(found, float))) and f"they are {found}"
    yield "a replica without samples adds nothing", nan
    total, means = sum(found), [np.mean(own) for own in losses if len(own)]
    k = len(losses) > 1
    wrong = off(total, sum(right))
    yield (
        "it doesn't grow with the replicas",
        k and not off(total, sum(means)) and wrong,
    )
    average = float(np.mean(means))
    yield "each sample weighs the same", wrong and not off(total, average) and wrong
    yield "the sum is the batch's mean", wrong or off(found, right)


def _steps(draw: random.Random) -> Iterator[tuple]:
    yield from (([1.0], [0.0]), ([1.0, 1.0], [2.0, 2.0]), ([3.0] * 4, [1.0] * 4))
    for _ in range(3):
        n = draw.randint(3, 9)
        both = [[draw.uniform(0, 4) for _ in range(n)] for _ in range(2)]
        yield both[0], both[1]


@exercise(
    "feeding-the-devices/prefetch",
    '''
def my_seconds(loading, training):
    """Return when the last step ends, if batch i + 1 is loaded while step i runs.

    loading, training: seconds of each batch. At 0 the first batch begins to load. One
    batch may wait at most: the next begins to load when a step takes the waiting one.
    """
    raise NotImplementedError("When is a batch ready? When may its step begin?")
''',
    _steps,
)
def _(found, loading, training):
    ready, free, taken = 0.0, 0.0, 0.0
    for load, step in zip(loading, training):
        ready = max(ready, taken) + load
        taken = max(ready, free)
        free = taken + step
    many = len(loading) > 1
    turns = many and off(found, free) and not off(found, sum(loading) + sum(training))
    yield "loading runs beside training", turns and f"it is {found:.6g}"
    least = max(sum(loading), sum(training))
    early = found < max(least, loading[0] + sum(training)) * (1 - 1e-9)
    yield "a step waits for its batch", early and f"it is {found:.6g}"
    yield "one batch waits at most", off(found, free)


def _files(draw: random.Random) -> Iterator[tuple]:
    yield from ((1, 1), (4, 2), (5, 2), (2, 3))
    for _ in range(3):
        yield draw.randint(1, 30), draw.randint(2, 8)


@exercise(
    "files-for-many-workers/shards",
    '''
def my_files(files, workers):
    """Return, for each worker, the numbers of the files it reads, of 0 to files - 1.

    All together read each file once. A worker that reads more than the others makes
    them wait, so numbers of files differ by one at most.
    """
    raise NotImplementedError("range has a third argument.")
''',
    _files,
)
def _(found, files, workers):
    yield "one list a worker", other(len(found), workers)
    flat = sorted(i for own in found for i in own)
    missed = sorted(set(range(files)) - set(flat))
    yield "no file is left out", missed and f"file {missed[0]} is"
    yield "no file is read twice", flat != list(range(files)) and f"{flat} are read"
    counts = [len(own) for own in found]
    yield "no worker reads much more", max(counts) - min(counts) > 1 and f"{counts}"


def _overflows(draw: random.Random) -> Iterator[tuple]:
    yield from (([True], 8.0, 2), ([False], 8.0, 2), ([True] * 4, 8.0, 2))
    for _ in range(4):
        yield [draw.random() < 0.8 for _ in range(12)], 1024.0, draw.randint(1, 4)


@exercise(
    "mixed-precision/scale",
    '''
def my_scales(finite, start, every):
    """Return the loss scale of each step: a list as long as `finite`.

    finite: whether a step's gradients were finite. After one that wasn't, the scale is
    halved, and counting begins anew; after `every` finite ones in a row it is doubled,
    and counting begins anew.
    """
    raise NotImplementedError("A step's own outcome changes the next one's scale.")
''',
    _overflows,
)
def _(found, finite, start, every):
    right, scale, good = [], start, 0
    for fine in finite:
        right.append(scale)
        good = good + 1 if fine else 0
        if not fine:
            scale /= 2
        elif good == every:
            scale, good = 2 * scale, 0
    yield "one scale a step", other(len(found), len(finite))
    yield "the first step has the start", off(found[0], start)
    wrong = [i for i, (a, b) in enumerate(zip(found, right)) if a != b]
    step = wrong[0] if wrong else 0
    halved = wrong and not finite[step - 1] and f"in step {step} it is {found[step]}"
    yield "it is halved after an overflow", halved
    yield (
        "it is doubled after enough finite steps",
        wrong and (f"in step {step} it is {found[step]}"),
    )


def _spans(draw: random.Random) -> Iterator[tuple]:
    yield from (
        ([(0, 2)], [(1, 3)]),
        ([(0, 2)], [(2, 3)]),
        ([(0, 1), (0, 2)], [(1, 3)]),
    )
    for _ in range(4):
        both = []
        for _ in range(2):
            ends = [sorted((draw.randint(0, 20), draw.randint(0, 20))) for _ in "abc"]
            both.append([(a, b + 1) for a, b in ends])
        yield both[0], both[1]


@exercise(
    "looking-inside/hidden",
    '''
def my_hidden(computing, sending):
    """Return how long something is sent while something is computed.

    Both are lists of (start, end), whole numbers, in any order; spans of one list may
    overlap, and time that two of them cover counts once.
    """
    raise NotImplementedError("In which seconds is each of the two under way?")
''',
    _spans,
)
def _(found, computing, sending):
    def ticks(spans: list[tuple[int, int]]) -> set[int]:
        return {t for a, b in spans for t in range(a, b)}

    right = len(ticks(computing) & ticks(sending))
    pairs = [max(0, min(b, d) - max(a, c)) for a, b in computing for c, d in sending]
    twice = found != right and found == sum(pairs) and f"it is {found}"
    yield "time that two spans cover counts once", twice
    alone = found != right and found == len(ticks(sending)) and f"it is {found}"
    yield "sending alone hides nothing", alone
    yield "it is the time of both", other(found, right)
