"""Exercises of part 2: a step on many devices, and what makes it fast."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.drawn import arrays
from manygpu.exercises.saying import in_digits, mistaken, off, other


def _numbers(draw: random.Random) -> Iterator[tuple]:
    yield from ((4, 2), (5, 2), (1, 1), (2, 3), (0, 2), (10, 4))
    for _ in range(6):
        yield draw.randint(0, 99), draw.randint(1, 9)


@exercise(
    "many-devices/shares",
    '''
def my_shares(samples, devices):
    """Return how many samples each device gets, as a list.

    The shares differ by at most one sample, and the larger shares come first.
    There may be fewer samples than devices.
    """
    raise NotImplementedError("What does divmod(samples, devices) tell you?")
''',
    _numbers,
)
def judge_shares(found, samples, devices):
    found = list(found)
    yield "one share per device", other(len(found), devices)
    parts = [n for n in found if n != int(n)]
    yield "samples are whole", parts and f"there is {parts[0]}"
    yield "no sample is lost or doubled", other(sum(found), samples)
    yield "shares differ by at most one", max(found) - min(found) > 1 and f"{found}"
    yield (
        "the larger shares come first",
        found != sorted(found, reverse=True) and f"{found}",
    )


def _speeds(draw: random.Random) -> Iterator[tuple]:
    yield from ((4, [1.0, 1.0]), (6, [2.0, 1.0]), (5, [1.0, 1.0]), (4, [2.0, 1.0]))
    yield from ((11, [1.0, 5.0, 1.0]), (1, [1.0, 3.0]), (2, [10.0, 1.0]))
    for _ in range(4):
        speeds = [draw.uniform(0.5, 4) for _ in range(draw.randint(2, 5))]
        yield draw.randint(0, 60), speeds


def _earliest(samples: int, speeds: list[float]) -> float:
    """When the last device is done, at best."""
    given = [0] * len(speeds)
    for _ in range(samples):
        ends = [(n + 1) / speed for n, speed in zip(given, speeds)]
        given[ends.index(min(ends))] += 1
    return max(n / speed for n, speed in zip(given, speeds))


@exercise(
    "many-devices/by-speed",
    '''
def my_shares_by_speed(samples, speeds):
    """Return how many samples each device gets so that the slowest ends early.

    Choose the shares so that no other split of the samples ends earlier. A
    device may get no samples.

    speeds: for each device, how many samples it computes per second.
    """
    raise NotImplementedError(
        "Which device would end first if you gave it one more sample?"
    )
''',
    _speeds,
)
def judge_by_speed(found, samples, speeds):
    yield "one share per device", other(len(found), len(speeds))
    parts = [n for n in found if n != int(n) or n < 0]
    yield "samples are whole", parts and f"there is {parts[0]}"
    yield "no sample is lost or doubled", other(sum(found), samples)
    ends, best = [n / s for n, s in zip(found, speeds)], _earliest(samples, speeds)
    late = max(ends) > best * (1 + 1e-9)
    said = f"it ends after {in_digits(max(ends))} s, {in_digits(best)} s is possible"
    equal = late and max(found) - min(found) <= 1 and said
    yield "a faster device gets more", equal
    yield "no other split ends earlier", late and said


def _epochs(draw: random.Random) -> Iterator[tuple]:
    yield from ((8, 4, 1), (8, 4, 2), (9, 4, 1), (11, 8, 2), (10, 4, 2), (9, 4, 2))
    for _ in range(4):
        batch = draw.randint(16, 256)
        yield draw.randint(300, 9999), batch, draw.randint(1, 8)


@exercise(
    "many-devices/epoch",
    '''
def my_epoch(images, batch, devices):
    """Return the steps of an epoch, and the smallest shard of its last batch.

    The last batch has the images that remain, and the model is trained on it,
    too. In this batch, a device may get no image.

    batch: the images in one step, over all devices together.
    """
    raise NotImplementedError("How many images does the last batch have?")
''',
    _epochs,
)
def judge_epoch(found, images, batch, devices):
    steps, least = found
    right = -(-images // batch)
    many = devices > 1 and steps in (
        -(-images // (batch * devices)),
        images // (batch * devices),
    )
    yield "devices don't change the number of steps", many and other(steps, right)
    yield "the last batch counts, too", other(steps, right)
    last = images - (right - 1) * batch
    full = least == batch // devices and other(least, last // devices)
    yield "the last batch has the images that remain", full
    yield "the smallest shard is rounded down", other(least, last // devices)


def _uneven(draw: random.Random) -> Iterator[tuple]:
    yield from ((4, 2), (5, 2), (23, 8), (1, 4), (7, 1))
    for _ in range(4):
        yield draw.randint(1, 99), draw.randint(2, 9)


@exercise(
    "many-devices/padded",
    '''
def my_padded(samples, devices):
    """Return positions and weights of a batch, padded to equal shards.

    The positions of the batch come first, in order. After them, repeat
    position 0 until all devices get equally many, and no more often. A sample
    of the batch has weight 1, and an added one has weight 0.

    The result is a pair of lists, the positions and the weights.
    """
    raise NotImplementedError(
        "How many are missing from the next multiple of devices?",
    )
''',
    _uneven,
)
def judge_padded(found, samples, devices):
    positions, weights = (list(own) for own in found)
    yield "each position has a weight", other(len(weights), len(positions))
    yield "the shards are equal", len(positions) % devices and f"of {len(positions)}"
    yield "the batch comes first", other(positions[:samples], list(range(samples)))
    more = len(positions) - samples >= devices and f"{len(positions)} of {samples}"
    yield "no more is added than needed", more
    yield (
        "the added positions are sample 0",
        any(positions[samples:]) and f"{positions}",
    )
    heavy = any(weights[samples:]) and f"they weigh {weights[samples:]}"
    yield "the added positions have no weight", heavy
    yield "each sample counts once", other(weights[:samples], [1] * samples)


def _rings(draw: random.Random) -> Iterator[tuple]:
    yield from ((1,), (2,), (3,), (4,), (draw.randint(5, 9),))


@exercise(
    "collectives/reduce-scatter",
    '''
def my_reduce_scatter(n):
    """Return a plan of a reduce-scatter on a ring of n devices.

    After the plan, device i must hold the sum of chunk i. A plan is a list of
    steps, and a step is a list of messages (sender, receiver, chunk). All
    three are numbers from 0 to n - 1. In one step, each device sends at most
    one chunk to its right neighbour, (i + 1) % n, which adds it to its own
    chunk. All messages of a step are sent before any is added.
    """
    raise NotImplementedError(
        "Chunk i must end at device i. At which device does it start?"
    )
''',
    _rings,
)
def judge_reduce_scatter(found, n):
    flat = [(step, *message) for step, each in enumerate(found) for message in each]
    outside = [message for _, *message in flat if not all(0 <= i < n for i in message)]
    no_number = outside and f"one message is {tuple(outside[0])}"
    yield "devices and chunks are numbered 0 to n - 1", no_number
    stray = [(i, j) for _, i, j, _ in flat if j != (i + 1) % n]
    yield "all devices send to the right", stray and f"one is sent along {stray[0]}"
    senders = [(step, i) for step, i, _, _ in flat]
    twice = len(set(senders)) < len(senders) and "a device sends twice in a step"
    yield "a device sends one chunk per step", twice
    held = np.zeros((n, n, n), int)  # whose numbers [device, chunk, from]
    for i in range(n):
        held[i, :, i] = 1
    for each in found:
        sent = [(j, chunk, held[i, chunk].copy()) for i, j, chunk in each]
        for j, chunk, what in sent:
            held[j, chunk] += what
    own = held[np.arange(n), np.arange(n)]
    double = [i for i in range(n) if own[i].max() > 1]
    yield "nothing is added twice", double and f"in chunk {double[0]} something is"
    lacking = [i for i in range(n) if own[i].min() < 1]
    yield "chunk i is summed at device i", lacking and f"chunk {lacking[0]} isn't"
    yield "it takes n - 1 steps", len(found) != n - 1 and f"it takes {len(found)}"
    more = len(flat) > n * (n - 1) and f"there are {len(flat)}"
    yield "it sends n (n - 1) messages", more


def _trees(draw: random.Random) -> Iterator[tuple]:
    yield from ((1,), (2,), (3,), (4,), (5,), (8,), (draw.randint(9, 33),))


@exercise(
    "trees-and-hierarchy/broadcast",
    '''
def my_broadcast(n):
    """Return a plan that sends device 0's numbers to all n devices.

    A plan is a list of steps, and a step is a list of messages (sender,
    receiver). In one step, a device either sends one message or receives one.
    Take as few steps as possible.
    """
    raise NotImplementedError(
        "How many devices can have the numbers after one step, and after two?"
    )
''',
    _trees,
)
def judge_broadcast(found, n):
    flat = [tuple(message) for each in found for message in each]
    outside = [m for m in flat if not all(0 <= i < n for i in m)]
    yield "devices are numbered 0 to n - 1", outside and f"one message is {outside[0]}"
    has = {0}
    for step, each in enumerate(found):
        early = [i for i, _ in each if i not in has]
        yield (
            "a sender has the message",
            early and f"in step {step}, {early[0]} has nothing",
        )
        busy = [device for message in each for device in message]
        two = len(set(busy)) < len(busy) and f"in step {step} a device does two things"
        yield "a device does one thing per step", two
        has |= {j for _, j in each}
    missed = sorted(set(range(n)) - has)
    yield "all devices have it in the end", missed and f"{missed[0]} hasn't"
    fewest = (n - 1).bit_length()
    yield "it takes the fewest steps", len(found) > fewest and f"it takes {len(found)}"


def _lists(draw: random.Random) -> Iterator[tuple]:
    yield from (([4], 8), ([4, 4], 8), ([4, 4, 4], 8), ([9, 1], 8), ([1, 9, 1], 8))
    yield [1, 9], 8
    for _ in range(5):
        sizes = [draw.randint(1, 20) for _ in range(draw.randint(3, 12))]
        yield sizes, draw.randint(5, 40)


@exercise(
    "hiding-communication/buckets",
    '''
def my_buckets(sizes, limit):
    """Return the buckets in the order in which they become full.

    A bucket is a list of positions in `sizes`. The backward pass computes the
    last layer's gradient first, and each gradient goes into the open bucket as
    soon as it is ready. A bucket is closed before it would exceed the limit. A
    gradient that is larger than the limit gets a bucket of its own.

    sizes: the bytes of each parameter's gradient, first layer first.
    limit: the most bytes of a bucket.
    """
    raise NotImplementedError("Which gradient is ready first?")
''',
    _lists,
)
def judge_buckets(found, sizes, limit):
    empty = not all(len(bucket) for bucket in found) and f"they are {found}"
    yield "no bucket is empty", empty
    flat = [i for bucket in found for i in bucket]
    kept = sorted(flat) != list(range(len(sizes))) and f"they hold {flat}"
    yield "each gradient is in one bucket", kept
    yield (
        "the gradient that is ready first leaves first",
        flat != sorted(flat, reverse=True) and (f"they are {found}"),
    )
    large = [b for b in found if len(b) > 1 and sum(sizes[i] for i in b) > limit]
    yield "no bucket exceeds the limit", large and f"{large[0]} does"
    pairs = zip(found, found[1:])
    room = [b for a, b in pairs if sum(sizes[i] for i in (*a, b[0])) <= limit]
    yield "a bucket is filled before the next", room and f"{room[0]} begins early"


def _pieces(draw: random.Random) -> Iterator[tuple]:
    for counts in (
        [2],
        [2, 2],
        [3, 1],
        [5, 5, 2],
        [draw.randint(1, 9)] * 2 + [1],
    ):
        yield [arrays(draw, 2) for _ in counts], counts


@exercise(
    "gradient-accumulation/mean",
    '''
def my_accumulated(means, counts):
    """Return the gradient of the mean loss over all micro-batches.

    means: for each micro-batch, the gradient of its mean loss, an array.
    counts: how many samples each micro-batch has. The last one may have fewer.
    """
    raise NotImplementedError("What must each mean be multiplied by?")
''',
    _pieces,
)
def judge_mean(found, means, counts):
    right = np.average(means, axis=0, weights=counts)
    wrong = off(found, right)
    summed = wrong and len(counts) > 1 and not off(found, np.sum(means, axis=0))
    yield "it doesn't grow with the number of micro-batches", summed and wrong
    yield (
        "each sample weighs the same",
        wrong and not off(found, np.mean(means, axis=0)) and wrong,
    )
    yield "it is the gradient of the whole batch", wrong


def _schedules(draw: random.Random) -> Iterator[tuple]:
    yield from ((0, 4, 0.1, 0.4), (3, 4, 0.1, 0.4), (4, 4, 0.1, 0.4), (9, 4, 0.1, 0.4))
    for _ in range(4):
        steps = draw.randint(2, 20)
        yield draw.randint(0, 30), steps, 0.1, 0.1 * draw.randint(2, 9)


@exercise(
    "large-batches/warm-up",
    '''
def my_rate(step, steps, base, peak):
    """Return the learning rate of a step. Steps are counted from 0.

    In step 0 the rate is `base`. It grows by the same amount in each step, and
    from step number `steps` on it is `peak`.
    """
    raise NotImplementedError("Where between base and peak is the step?")
''',
    _schedules,
)
def judge_warm_up(found, step, steps, base, peak):
    yield "step 0 has the base rate", step == 0 and off(found, base)
    yield "it stays at the peak", step >= steps and off(found, peak)
    yield "it grows evenly", off(found, base + (peak - base) * min(1, step / steps))


def _many(draw: random.Random) -> Iterator[tuple]:
    yield (np.float32([1, 2, 3]),)
    yield (np.float32([2**24] + [1] * 99),)
    for n in (10_000, 100_001):
        rng = np.random.default_rng(draw.getrandbits(32))
        yield (rng.uniform(size=n).astype(np.float32),)


@exercise(
    "float32-parts-ways/sum",
    '''
def my_sum(numbers):
    """Return the sum of a float32 array, to within a millionth of its value.

    Add only float32 numbers, in any order that you like. The result is a
    float32, too. Write the additions yourself, because np.sum and math.fsum
    would do all the work for you.
    """
    raise NotImplementedError(
        "What is lost when a small number is added to a large sum?"
    )
''',
    _many,
)
def judge_sum(found, numbers):
    kind = np.asarray(found).dtype != np.float32 and f"it is {type(found).__name__}"
    yield "it is a float32", kind
    true = float(np.sum(numbers, dtype=np.float64))
    apart = abs(float(found) - true) / abs(true)
    yield (
        "small numbers aren't lost",
        not apart <= 1e-6 and f"the relative error is {apart:.0e}",
    )


def _shares(draw: random.Random) -> Iterator[tuple]:
    yield from ((1.0, 0.0, 1), (1.0, 0.0, 4), (1.0, 0.5, 2), (0.0, 1.0, 8))
    for _ in range(4):
        yield draw.uniform(0.1, 9), draw.uniform(0, 3), draw.randint(2, 64)


@exercise(
    "why-slower/efficiency",
    '''
def my_efficiency(shared, fixed, devices):
    """Return a step's speedup over one device, divided by the devices.

    shared: the seconds of one device's step that are split evenly between
        devices.
    fixed: the seconds that each device needs, however many devices there are.
    """
    raise NotImplementedError(
        "How long does the step take on one device, and on all devices?"
    )
''',
    _shares,
)
def judge_efficiency(found, shared, fixed, devices):
    right = (shared + fixed) / (shared / devices + fixed) / devices
    speed = devices > 1 and off(found, right) and not off(found, right * devices)
    yield (
        "the speedup is divided by the devices",
        speed and f"it is {in_digits(found, 6)}",
    )
    yield "without a fixed part, it is 1", fixed == 0 and off(found, right)
    yield "the fixed part isn't split", mistaken(found, right, 1.0)
    bare = mistaken(found, right, shared / (shared / devices + fixed) / devices)
    yield "one device needs the fixed time, too", bare
    yield "it is the speedup divided by the devices", off(found, right)
