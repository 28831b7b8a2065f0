"""Exercises of part 3: the engine and its input."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.drawn import arrays
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import in_digits, off, other, rounding, whole_numbers


def _losses(draw: random.Random) -> Iterator[tuple]:
    for sizes in ([2], [2, 2], [3, 1], [2, 0]):
        yield [np.abs(arrays(draw, n)) + 1 for n in sizes], sum(sizes)


@exercise(
    "mirrored-strategy/loss",
    '''
def my_losses(losses, batch):
    """Return each replica's loss, so that their sum is the batch's mean loss.

    A replica sees only the losses of its own samples. It doesn't know the
    other replicas' losses, or how many samples they have.

    losses: for each replica, an array with its samples' losses. It may be
        empty.
    batch: the number of samples on all replicas together.
    """
    raise NotImplementedError(
        "MirroredStrategy adds up. Which part divides, and by what?"
    )
''',
    _losses,
)
def judge_loss(found, losses, batch):
    yield "one loss per replica", other(len(found), len(losses))
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
    yield "the sum is the batch's mean", wrong
    yield "a replica sees its own losses only", off(found, right)


def _deals(draw: random.Random) -> Iterator[tuple]:
    yield from ((1, 1), (2, 2), (1, 2), (9, 8), (23, 4), (5, 4))
    for _ in range(6):
        yield draw.randint(1, 64), draw.randint(2, 16)


@exercise(
    "mirrored-strategy/idle",
    '''
def my_idle(rows, devices):
    """Return how many devices get no row of a batch.

    Suppose that the engine can't infer the batch size. Then each device in
    turn gets an equal share of the batch, rounded up to whole rows, until no
    rows are left.

    rows: the number of rows in the batch, at least one.
    """
    raise NotImplementedError(
        "How many rows does a device get? How many devices get some?"
    )
''',
    _deals,
)
def judge_idle(found, rows, devices):
    busy = -(-rows // -(-rows // devices))
    right, said = devices - busy, f"it is {found}"
    few = rows < devices and found != right and said
    yield "a device's share is a whole number of rows", few
    yield "devices that get a row aren't idle", found > right and said
    yield (
        "with more rows than devices, some may still get none",
        found != right and said,
    )


def _uneven(draw: random.Random) -> Iterator[tuple]:
    yield from (([2],), ([2, 2],), ([3, 1],), ([4, 4, 1],))
    for _ in range(4):
        yield ([draw.randint(1, 9) for _ in range(draw.randint(2, 6))],)


@exercise(
    "mirrored-strategy/weights",
    '''
def my_weights(sizes):
    """Return sample weights with which `fit` takes the step of one device.

    On each replica, `fit` computes the mean over the replica's rows of weight
    times loss. Then it averages these means over the replicas. Choose the
    weights so that the result is the mean loss of the whole batch.

    sizes: for each replica, how many rows its shard has, at least one.

    The result is one list of weights per replica, with one weight per row.
    """
    raise NotImplementedError(
        "What is a row's loss divided by, and what should it be divided by?"
    )
''',
    _uneven,
)
def judge_weights(found, sizes):
    counts = [len(own) for own in found]
    yield "one weight per row", other(counts, sizes)
    share = np.concatenate([np.divide(own, n) for own, n in zip(found, sizes)])
    share = share / len(sizes)  # of the batch's loss that each row makes
    even = len(set(sizes)) == 1 and off(np.concatenate(found), np.ones(sum(sizes)))
    yield "even shards need no weights", even
    unlike = np.ptp(share) > rounding(found) * np.max(np.abs(share))
    yield "each row counts the same", unlike and f"rows count {share.round(4).tolist()}"
    yield "the loss isn't scaled", off(share.sum(), 1, rounding(found))


def _epoch_losses(draw: random.Random) -> Iterator[tuple]:
    for sizes in (
        [[2, 2]],
        [[3, 1]],
        [[2, 2], [2, 2]],
        [[2, 2], [2, 0]],
        [[3, 3, 2], [3, 2, 0]],
        [[draw.randint(2, 5) for _ in range(4)], [4, 1, 0, 0]],
    ):
        yield ([[np.abs(arrays(draw, n)) + 1 for n in batch] for batch in sizes],)


@exercise(
    "mirrored-strategy/epoch",
    '''
def my_epoch_loss(losses):
    """Return the mean loss over all rows of an epoch.

    The last batch may be smaller than the others.

    losses: losses[b][r] is an array with the losses of the rows of batch b
        that replica r has. It may be empty.
    """
    raise NotImplementedError("What do you add up, and what do you count?")
''',
    _epoch_losses,
    hunted=True,
)
def judge_epoch(found, losses):
    flat = [own for batch in losses for own in batch]
    rows = sum(map(len, flat))
    wrong = off(found, sum(map(np.sum, flat)) / rows)
    nan = not np.isfinite(found) and wrong
    yield "a replica without rows adds nothing", nan
    batches = [np.concatenate(batch).mean() for batch in losses]
    alike = wrong and not off(found, np.mean(batches)) and wrong
    yield "a smaller batch counts less", alike
    full = sum(map(len, losses[0])) * len(losses)
    fixed = wrong and not off(found, sum(map(np.sum, flat)) / full) and wrong
    yield "it is divided by the number of rows in the batch", fixed
    yield "each row counts the same", wrong


def _two_batches(epoch_loss: Callable) -> str:
    first = [np.array([1.0, 1.0]), np.array([1.0, 1.0])]
    found = epoch_loss([first, [np.array([4.0]), np.array([])]])
    return f"a batch of four rows of loss 1, then one row of loss 4: mean {found:.3f}"


flaw(
    "mirrored-strategy/epoch",
    """
def my_epoch_loss(losses):
    import numpy as np

    means = [np.mean(np.concatenate(batch)) for batch in losses]
    return sum(means) / len(means)
""",
    _two_batches,
    "a smaller batch counts less",
)
flaw(
    "mirrored-strategy/epoch",
    """
def my_epoch_loss(losses):
    total = sum(own.sum() for batch in losses for own in batch)
    global_batch = sum(len(own) for own in losses[0])
    return total / (global_batch * len(losses))
""",
    _two_batches,
    "it is divided by the number of rows in the batch",
)
flaw(
    "mirrored-strategy/epoch",
    """
def my_epoch_loss(losses):
    import numpy as np

    means = [own.mean() for batch in losses for own in batch]
    rows = [len(own) for batch in losses for own in batch]
    return np.average(means, weights=rows)
""",
    _two_batches,
    "a replica without rows adds nothing",
)


def _steps(draw: random.Random) -> Iterator[tuple]:
    yield from (([1.0], [0.0]), ([1.0, 1.0], [2.0, 2.0]), ([3.0] * 4, [1.0] * 4))
    yield [1.0, 1.0, 5.0], [5.0, 1.0, 1.0]
    for _ in range(3):
        n = draw.randint(3, 9)
        both = [[draw.uniform(0, 4) for _ in range(n)] for _ in range(2)]
        yield both[0], both[1]


@exercise(
    "feeding-the-devices/prefetch",
    '''
def my_seconds(loading, training):
    """Return when the last step ends, if one batch is loaded in advance.

    At time 0 the first batch begins to load. While a step runs, the next batch
    is loaded. At most one loaded batch may wait: the next batch begins to load
    when a step takes the one that is waiting.

    loading: the seconds that each batch takes to load.
    training: the seconds of the step on each batch.
    """
    raise NotImplementedError(
        "When is a batch ready? When can its step begin?",
    )
''',
    _steps,
)
def judge_prefetch(found, loading, training):
    ready, free, taken = 0.0, 0.0, 0.0
    for load, step in zip(loading, training):
        ready = max(ready, taken) + load
        taken = max(ready, free)
        free = taken + step
    many = len(loading) > 1
    turns = many and off(found, free) and not off(found, sum(loading) + sum(training))
    yield (
        "a batch is loaded during the step before",
        turns and f"it is {in_digits(found, 6)}",
    )
    least = max(sum(loading), sum(training))
    early = found < max(least, loading[0] + sum(training)) * (1 - rounding(found))
    yield "a step waits for its batch", early and f"it is {in_digits(found, 6)}"
    yield "at most one batch waits", off(found, free)


def _stages(draw: random.Random) -> Iterator[tuple]:
    yield from ((["decode"], 3, 2, 2), (["decode", "cache"], 3, 2, 2))
    yield ["decode", "cache", "warp"], 3, 2, 2
    yield ["decode", "batch", "warp"], 3, 2, 1
    yield ["decode", "batch", "cache", "warp"], 3, 2, 2
    yield ["decode", "cache", "cast", "batch", "warp", "prefetch"], 5, 2, 3
    for _ in range(4):
        stages = ["decode", "cast", "warp", *draw.choice((["cache"], [], ["cache"]))]
        draw.shuffle(stages)
        stages.insert(draw.randint(0, len(stages)), "batch")
        yield stages, draw.randint(2, 99), draw.randint(2, 9), draw.randint(1, 5)


@exercise(
    "feeding-the-devices/calls",
    '''
def my_calls(stages, elements, size, epochs):
    """Return how often each function of an input pipeline is called.

    stages: the stages in order. "cache" stores in the first epoch all that it
        gets, and later epochs read it from there. "batch" makes batches of
        `size` elements, and the last batch may be smaller. "prefetch" works
        ahead. Any other text is the name of a function that is mapped over the
        output of the stage before it. Each stage appears at most once.
    elements: how many elements enter the pipeline in each epoch.

    The result is a dict with the number of calls for each function's name.
    """
    raise NotImplementedError(
        "What do cache and batch change for the functions after them?"
    )
''',
    _stages,
)
def judge_calls(found, stages, elements, size, epochs):
    def calls(cached: bool = True, batched: bool = True, up: bool = True) -> dict:
        counts, now = {}, elements
        seen = 1 if "cache" in stages and cached else epochs
        for stage in stages:
            if stage == "cache":
                seen = epochs
            elif stage == "batch" and batched:
                now = -(-now // size) if up else now // size
            elif stage not in ("batch", "prefetch"):
                counts[stage] = now * seen
        return counts

    names = sorted(set(stages) - {"cache", "batch", "prefetch"})
    yield "one count per function", other(sorted(found), names)
    right = calls()
    wrong = found != right and f"it is {found}"
    yield (
        "cached results aren't computed again",
        wrong and found == calls(False) and wrong,
    )
    single = wrong and found == calls(batched=False) and wrong
    yield "after batch, a function gets a whole batch", single
    short = found == calls(up=False)
    yield "a smaller last batch counts as a batch", wrong and short and wrong
    once = {name: right[name] // epochs for name in right}
    behind = epochs > 1 and any(found[n] == once[n] < right[n] for n in names)
    yield "work that isn't cached is done in each epoch", wrong and behind and wrong
    yield "it is how often each is called", wrong


def _feeds(draw: random.Random) -> Iterator[tuple]:
    yield from ((3, 24, 0, 1), (3, 25, 0, 1), (3, 24, 16, 2), (9, 4, 0, 1))
    yield 1, 24, 30, 8
    for _ in range(5):
        data, step = draw.randint(1, 9), draw.randint(1, 200)
        yield data, step, draw.randint(1, 90), draw.choice((1, 2, 4, 8))


@exercise(
    "feeding-the-devices/devices",
    '''
def my_devices(data, step, work, cores):
    """Return the smallest number of GPUs with which batches come fastest.

    A step takes as long as the slowest of three parts: the input pipeline, the
    GPUs, and the host's cores. With k GPUs, the GPUs need a k-th of `step`.
    Use at least one GPU.

    data: the ms in which the pipeline makes a batch.
    step: the ms of a step on one GPU.
    work: the ms of work that the host's cores have per batch. The work is
        split evenly over `cores` cores.
    """
    raise NotImplementedError(
        "From which k on is the GPUs' part no longer the slowest?"
    )
''',
    _feeds,
)
def judge_devices(found, data, step, work, cores):
    def seconds(k: int) -> float:
        return max(data, step / k, work / cores)

    whole = found != int(found) or found < 1
    yield "it is a number of GPUs", whole and f"it is {found}"
    floor = max(data, work / cores)
    spare = found > 1 and seconds(found - 1) == floor and f"{found - 1} would be enough"
    blind = found == max(1, -(-step // data)) and spare
    yield "the host's cores are a bound, too", blind
    slow = f"{found} take {seconds(found):g} ms, not {floor:g}"
    yield "with more GPUs, batches come no faster", seconds(found) > floor and slow
    yield "with fewer GPUs, batches come more slowly", spare


def _files_of(draw: random.Random) -> Iterator[tuple]:
    yield from (([[1]],), ([[1, 2], [3, 4]],), ([[1, 2, 3], [4]],), ([[0], [1]],))
    yield ([[1, 2], [3], [4], [5, 6]],)
    for _ in range(4):
        files, at = [], 0
        for _ in range(draw.randint(3, 6)):
            files.append(list(range(at, at := at + draw.randint(1, 6))))
        yield (files,)


@exercise(
    "feeding-the-devices/interleave",
    '''
def my_order(files):
    """Return the records of all files in one list, one from each file in turn.

    A file that has no records left drops out. The others go on in their order.

    files: for each file, a list of its records.
    """
    raise NotImplementedError("Which files still have a record in round r?")
''',
    _files_of,
    hunted=True,
)
def judge_interleave(found, files):
    rounds = range(max(map(len, files)))
    right = [own[r] for r in rounds for own in files if r < len(own)]
    found = whole_numbers(found)
    wrong = found != right and f"it is {found}"
    zero = wrong and found == [i for i in right if i] and wrong
    yield "a record that is 0 is a record", zero
    missed = sorted(set(right) - set(found))
    yield "no record is lost", missed and f"{missed[0]} is"
    yield "no record comes twice", len(found) > len(right) and wrong
    shorter = len({len(own) for own in files}) > 1
    yield "when a file ends, the next file follows", shorter and wrong
    yield "files take turns", wrong


FILES = [[0, 1, 2, 3], [4], [5, 6], [7, 8, 9]]


def _ten(order: Callable) -> str:
    return f"four files with the records 0 to 9 give {order(FILES)}"


flaw(
    "feeding-the-devices/interleave",
    """
def my_order(files):
    order = []
    for round_ in zip(*files):
        order.extend(round_)
    return order
""",
    _ten,
    "no record is lost",
)
flaw(
    "feeding-the-devices/interleave",
    """
def my_order(files):
    from itertools import zip_longest

    rounds = zip_longest(*files)
    return [record for round_ in rounds for record in round_ if record]
""",
    _ten,
    "a record that is 0 is a record",
)
flaw(
    "feeding-the-devices/interleave",
    """
def my_order(files):
    order, open_ = [], [list(own) for own in files]
    while open_:
        for own in open_:
            order.append(own.pop(0))
            if not own:
                open_.remove(own)
    return order
""",
    _ten,
    "when a file ends, the next file follows",
)
