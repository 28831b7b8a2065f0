"""Exercises of part 3: who reads which file, and which sample when."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import other, whole_numbers


def _files(draw: random.Random) -> Iterator[tuple]:
    yield from ((1, 1), (4, 2), (5, 2), (2, 3))
    for _ in range(3):
        yield draw.randint(1, 30), draw.randint(2, 8)


@exercise(
    "files-for-many-workers/shards",
    '''
def my_files(files, workers):
    """Return, for each worker, a list of the numbers of the files it reads.

    Files are numbered from 0 to files - 1. Together, the workers read each
    file once. A worker with more files would make the others wait, so the
    workers' numbers of files differ by at most one.
    """
    raise NotImplementedError(
        "Does range have an argument that skips numbers?",
    )
''',
    _files,
)
def judge_shards(found, files, workers):
    yield "one list per worker", other(len(found), workers)
    flat = sorted(i for own in found for i in own)
    missed = sorted(set(range(files)) - set(flat))
    yield "no file is left out", missed and f"file {missed[0]} is"
    yield "no file is read twice", flat != list(range(files)) and f"{flat} are read"
    counts = [len(own) for own in found]
    yield (
        "the numbers of files differ by at most one",
        max(counts) - min(counts) > 1 and f"{counts}",
    )


def _parts(draw: random.Random) -> Iterator[tuple]:
    yield from (([4], 1, 2), ([4, 2], 2, 2), ([4, 3], 2, 2), ([96, 40, 72, 48], 3, 32))
    yield from (([3, 2, 3, 2], 2, 4), ([4, 2], 3, 2))  # small files, and too few
    for _ in range(5):
        workers = draw.randint(2, 5)
        files = [draw.randint(1, 99) for _ in range(draw.randint(workers, 12))]
        yield files, workers, draw.randint(2, 32)


@exercise(
    "files-for-many-workers/steps",
    '''
def my_steps(sizes, workers, batch):
    """Return (steps, unseen) of an epoch in which the workers' files differ.

    `steps` is the number of steps that all workers can take. `unseen` is the
    number of records that no worker has used by then. Worker w reads the files
    w, w + workers, w + 2 * workers, and so on. The last batch of a worker may
    be smaller. All workers stop as soon as one of them has no batch left.

    sizes: the number of records in each file.
    batch: the number of records in a worker's batch.
    """
    raise NotImplementedError(
        "How many records does each worker have? Which one ends first?"
    )
''',
    _parts,
)
def judge_steps(found, sizes, workers, batch):
    records = [sum(sizes[w::workers]) for w in range(workers)]
    steps, unseen = found
    said = f"it is {tuple(found)}"
    own = [-(-n // batch) for n in records]
    waits = steps > min(own) and f"{said}; the workers have {own} steps"
    yield "no step waits for a worker without data", waits
    full = min(n // batch for n in records)
    yield "a smaller last batch is a step", steps == full < min(own) and said
    yield "they go on while all workers have data", steps != min(own) and said
    left = sum(max(0, n - steps * batch) for n in records)
    full = unseen == sum(records) - steps * batch * workers != left and said
    yield "a batch that isn't full uses fewer records", full
    yield "the records that remain are counted", other(unseen, left)


def _sizes(draw: random.Random) -> Iterator[tuple]:
    yield from (([4], 1), ([4, 4], 2), ([9, 1, 9, 1], 2), ([2, 1, 1, 1, 5], 2))
    for _ in range(4):
        workers = draw.randint(2, 3)
        yield [draw.randint(1, 99) for _ in range(draw.randint(4, 7))], workers


def _least(sizes: list[int], workers: int) -> int:
    """The longest part of the best of all ways to deal out files."""
    ways = itertools.product(range(workers), repeat=len(sizes))
    parts = ([sum(s for s, v in zip(sizes, way) if v == w) for w in range(workers)]
             for way in ways)  # fmt: skip
    return min(max(part) for part in parts)


@exercise(
    "files-for-many-workers/by-size",
    '''
def my_parts(sizes, workers):
    """Return, for each worker, a list of its files, so that loads are even.

    The worker with the most records makes the others wait. It may have up to a
    third more records than it would have in the best possible split. So you
    don't need to try all splits.

    sizes: the number of records in each file. Files are numbered from 0.
    """
    raise NotImplementedError(
        "Which file do you assign first? To which worker?",
    )
''',
    _sizes,
)
def judge_by_size(found, sizes, workers):
    yield "one list per worker", other(len(found), workers)
    flat = sorted(i for own in found for i in own)
    missed = sorted(set(range(len(sizes))) - set(flat))
    yield "no file is left out", missed and f"file {missed[0]} is"
    yield "no file is read twice", len(flat) > len(sizes) and f"{flat} are read"
    records = [sum(sizes[i] for i in own) for own in found]
    best = _least(sizes, workers)
    many = (
        3 * max(records) > 4 * best and f"they read {records}, but {best} is possible"
    )
    turns = [[*range(w, len(sizes), workers)] for w in range(workers)]
    rows = [own.tolist() for own in np.array_split(range(len(sizes)), workers)]
    blind = [sorted(own) for own in found] in (turns, rows)
    yield "records are balanced, not files", blind and many
    yield "the numbers of files differ by at most one", many


def _epochs(draw: random.Random) -> Iterator[tuple]:
    yield from ((8, 2, 2, 0), (9, 2, 2, 0), (12, 3, 3, 1))
    for _ in range(3):
        yield draw.randint(20, 40), draw.randint(2, 5), 3, draw.randint(1, 999)


@exercise(
    "files-for-many-workers/epochs",
    '''
def my_epochs(samples, workers, epochs, seed):
    """Return the numbers of the samples that workers read: [epoch][worker].

    In each epoch, each of the samples 0 to samples - 1 is read once. The
    workers' parts differ by at most one sample. The order comes from
    np.random.default_rng, and it is different in each epoch. The workers can't
    communicate, so each of them computes all of this from the same seed.
    """
    raise NotImplementedError(
        "On what may the order depend, and on what must it not depend?"
    )
''',
    _epochs,
    hunted=True,
)
def judge_epochs(found, samples, workers, epochs, seed):
    yield (
        "one list per epoch and worker",
        other([len(epoch) for epoch in found], [workers] * epochs),
    )
    for epoch in found:
        seen = [i for part in epoch for i in whole_numbers(part)]
        missed = sorted(set(range(samples)) - set(seen))
        twice = len(set(seen)) < len(seen)
        overlap = missed and twice and f"parts overlap, {missed[0]} is left out"
        yield "the workers' parts fit together", overlap
        yield "no sample is left out", missed and f"{missed[0]} is"
        yield "no sample is read twice", twice and f"{len(seen) - samples} are"
    orders = [[whole_numbers(part) for part in epoch] for epoch in found]
    alike = any(order in orders[:i] for i, order in enumerate(orders))
    yield "each epoch has a different order", alike and "two epochs are the same"
    plain = all(part == sorted(part) for epoch in orders for part in epoch)
    yield "samples are shuffled", plain and "all parts are in rising order"


def _two_epochs(epochs: Callable) -> str:
    first, second = epochs(9, 2, 2, 1)
    said = [[[int(i) for i in part] for part in epoch] for epoch in (first, second)]
    return f"nine samples, two workers: epoch 0 is {said[0]}, and epoch 1 is {said[1]}"


flaw(
    "files-for-many-workers/epochs",
    """
def my_epochs(samples, workers, epochs, seed):
    import numpy as np

    found = []
    for epoch in range(epochs):
        order = np.random.default_rng(seed).permutation(samples)
        found.append([order[w::workers].tolist() for w in range(workers)])
    return found
""",
    _two_epochs,
    "each epoch has a different order",
)
flaw(
    "files-for-many-workers/epochs",
    """
def my_epochs(samples, workers, epochs, seed):
    import numpy as np

    found = []
    for epoch in range(epochs):
        parts = []
        for w in range(workers):
            order = np.random.default_rng([seed, epoch, w]).permutation(samples)
            parts.append(order[w::workers].tolist())
        found.append(parts)
    return found
""",
    _two_epochs,
    "the workers' parts fit together",
)
flaw(
    "files-for-many-workers/epochs",
    """
def my_epochs(samples, workers, epochs, seed):
    import numpy as np

    each = -(-samples // workers)
    found = []
    for epoch in range(epochs):
        order = np.random.default_rng([seed, epoch]).permutation(samples)
        order = np.resize(order, each * workers)  # so that all have as many
        found.append([order[w::workers].tolist() for w in range(workers)])
    return found
""",
    _two_epochs,
    "no sample is read twice",
)
