"""Exercises of part 2 about batches: in pieces, and large ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.drawn import arrays
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import in_digits, off, other


def _shares(draw: random.Random) -> Iterator[tuple]:
    yield from ((4, 1, 10, 5, 40), (4, 1, 10, 5, 39), (4, 1, 10, 5, 24))
    yield from (
        (4, 1, 10, 5, 9),
        (3, 2, 10, 5, 15),
        (5, 1, 10, 0, 20),
        (4, 1, 10, 5, 12),
        (5, 2, 10, 0, 20),
        (5, 3, 10, 0, 15),
    )
    for _ in range(5):
        devices = draw.randint(1, 8)
        batch = draw.randint(devices, 99)
        yield batch, devices, 10, draw.randint(0, 40), draw.randint(10, 400)


@exercise(
    "gradient-accumulation/micro-batches",
    '''
def my_micro_batches(batch, devices, sample, gradients, room):
    """Return the fewest micro-batches with which a step fits, or None.

    The devices' shares differ by at most one sample, and so do the
    micro-batches of a share. Each device must have at least one sample in each
    micro-batch. With more than one micro-batch, a device also stores the sum
    of their gradients. If no number of micro-batches fits, return None.

    sample: the bytes of one sample's activations.
    gradients: the bytes of the sum of the gradients.
    room: the bytes that a device has for both.
    """
    raise NotImplementedError(
        "How many samples does the largest micro-batch have?",
    )
''',
    _shares,
)
def judge_micro_batches(found, batch, devices, sample, gradients, room):
    def fewest(share: int, extra: int, up: bool = True) -> int | None:
        for m in range(1, batch // devices + 1):
            largest = -(-share // m) if up else share // m
            if largest * sample + extra * (m > 1) <= room:
                return m
        return None

    share, most = -(-batch // devices), batch // devices
    right, said = fewest(share, gradients), f"it is {found}"
    wrong = found != right and said
    yield "the sum of the gradients needs room", found == fewest(share, 0) and wrong
    small = batch % devices and found == fewest(batch // devices, gradients)
    yield "the largest share must fit", small and wrong
    floor = found == fewest(share, gradients, up=False)
    yield "the largest micro-batch must fit", floor and wrong
    empty = found is not None and found > most and f"a share may have {most}, {said}"
    yield "each device has a sample in each micro-batch", empty
    yield "it is None if nothing fits", right is None and wrong
    yield "something fits", found is None and wrong
    yield "fewer micro-batches wouldn't fit", wrong and found > right and said
    yield "it fits", wrong


def _norm(v: np.ndarray, most: float) -> np.ndarray:
    """v, no longer than most."""
    return np.asarray(v) * min(1, most / max(float(np.linalg.norm(v)), 1e-300))


def _sums(draw: random.Random) -> Iterator[tuple]:
    yield [[np.array([0.6, 0.8])]], 2, 1.0
    yield [[np.array([6.0, 8.0])]], 2, 1.0
    yield [[np.array([6.0, 0.0]), np.array([0.0, 0.8])]], 1, 1.0
    yield [[np.array([9.0, 0.0])], [np.array([0.0, 0.8])]], 1, 1.0
    yield [[np.array([[3.0, 0.0], [0.0, 4.0]])]], 1, 1.0
    yield [[8 * arrays(draw, 3) for _ in range(m)] for m in (3, 1)], 8, 1.0
    for _ in range(4):
        devices, m = draw.randint(2, 4), draw.randint(2, 4)
        sums = [[8 * arrays(draw, 3) for _ in range(m)] for _ in range(devices)]
        yield sums, devices * m * 2, draw.uniform(0.2, 2)


@exercise(
    "gradient-accumulation/clip",
    '''
def my_clipped(sums, count, most):
    """Return the gradient of the mean loss, shortened to at most `most`.

    A gradient that is too long keeps its direction.

    sums: sums[d][j] is the gradient of the summed loss of micro-batch j on
        device d, an array.
    count: the number of samples in all micro-batches of all devices.
    """
    raise NotImplementedError(
        "When is the gradient of the whole batch complete?",
    )
''',
    _sums,
)
def judge_clip(found, sums, count, most):
    flat = [each for own in sums for each in own]
    mean = np.sum(flat, axis=0) / count
    right = _norm(mean, most)
    wrong = off(found, right)
    own = [_norm(np.sum(each, axis=0) / count, most) for each in sums]
    apart = [_norm(each / count, most) for each in flat]
    early = [sum(own), _norm(sum(own), most), sum(apart), _norm(sum(apart), most)]
    unclipped = wrong and not off(found, mean) and wrong
    yield "a gradient that is too long is made shorter", unclipped
    undivided = not off(found, _norm(np.sum(flat, axis=0), most) / count)
    yield "the mean is clipped, not the sum", wrong and undivided and wrong
    before = wrong and not all(off(found, each) for each in early) and wrong
    yield "it is clipped once, when the sum is complete", before
    short = np.linalg.norm(mean) <= most and wrong
    yield "a gradient that is short enough stays", short
    along = np.vdot(found, right) / np.vdot(right, right) * right
    across = float(np.linalg.norm(found - along))
    yield "it keeps its direction", across > 1e-9 * np.linalg.norm(found) and wrong
    yield "it is no shorter than necessary", wrong


def _races(draw: random.Random) -> Iterator[tuple]:
    for least, critical, one, end in (
        (100.0, 0.0, 8, 16),
        (100.0, 50.0, 8, 16),
        (10.0, 1000.0, 4, 256),
        (draw.uniform(10, 999), draw.uniform(1, 999), 16, draw.randint(17, 512)),
        (draw.uniform(10, 999), draw.uniform(1, 999), 64, draw.randint(2, 63)),
    ):
        yield (*((b, least * (1 + critical / b)) for b in (one, end)),)


@exercise(
    "critical-batch/critical",
    '''
def my_critical(one, other):
    """Return (S_min, B_crit) of the curve that goes through two races.

    The curve is S(B) = S_min (1 + B_crit / B). It gives the steps that a batch
    of B images needs to reach a certain loss.

    one, other: for each race, a pair of the images in its batch and the steps
        that it took. Their batches differ in size.
    """
    raise NotImplementedError(
        "How does the number of images in a race, B S(B), depend on B?"
    )
''',
    _races,
)
def judge_critical(found, one, other):
    least, critical = found
    images = [b * steps for b, steps in (one, other)]
    S = (images[0] - images[1]) / (one[0] - other[0])
    B = images[0] / S - one[0]
    said = f"it is {in_digits(least, 6)}, {in_digits(critical, 6)}"
    turned = off(least, S, 1e-6) and not off(critical, S, 1e-6) and said
    yield "S_min comes first", turned
    flat = abs(B) < 1e-6 and off(least, S, 1e-6) and said
    yield "where a larger batch saves no step, S_min is that many", flat
    measured = off(least, S, 1e-6) and not off(least, min(one[1], other[1]), 1e-6)
    yield (
        "S_min belongs to an infinite batch, it isn't the fewest measured steps",
        measured and said,
    )
    gaps = [off(least * (1 + critical / b), steps, 1e-6) for b, steps in (one, other)]
    yield "the curve goes through both races", any(gaps) and said


def _ways(draw: random.Random) -> Iterator[tuple]:
    yield from (([1.0], [0.1], 0.5), ([1.0, 1.0], [0.1, 0.1], 0.5))
    yield [1.0, 0.0], [0.1, 0.2], 0.5
    for _ in range(4):
        n = draw.randint(3, 8)
        gradients = [draw.uniform(-2, 2) for _ in range(n)]
        rates = [draw.uniform(0.01, 0.5) for _ in range(n)]
        yield gradients, rates, draw.uniform(0.5, 0.9)


def _way(
    gradients: list[float], rates: list[float], momentum: float, change: Callable
) -> np.ndarray:
    """Where SGD is after each step; first, its buffer times change(old, new)."""
    at, buffer, before, found = 0.0, 0.0, rates[0], []
    for gradient, rate in zip(gradients, rates):
        buffer = momentum * buffer * change(before, rate) + rate * gradient
        at, before = at - buffer, rate
        found.append(at)
    return np.array(found)


@exercise(
    "large-batches/momentum",
    '''
def my_way(gradients, rates, momentum):
    """Return the weights after each step of SGD with momentum, as a list.

    The weights and the buffer start at 0. In each step, multiply the buffer by
    `momentum`, add the rate times the gradient, and subtract the buffer from
    the weights. The buffer contains past steps with their old rates. So first
    multiply it by the new rate, divided by the old one.

    gradients: the gradient of each step.
    rates: the learning rate of each step.
    """
    raise NotImplementedError(
        "Which rate do the gradients in the buffer have?",
    )
''',
    _ways,
)
def judge_momentum(found, gradients, rates, momentum):
    given = gradients, rates, momentum
    right = _way(*given, lambda old, new: new / old)
    wrong = other(len(found), len(right)) or off(found, right)
    yield "one position per step", len(found) != len(right) and wrong
    up = wrong and not off(-np.asarray(found), right) and wrong
    yield "a step goes downhill", up
    plain = wrong and not off(found, _way(*given, lambda old, new: 1)) and wrong
    yield "the buffer follows the rate", plain
    turned = (
        wrong and not off(found, _way(*given, lambda old, new: old / new)) and wrong
    )
    yield "the buffer is multiplied by new over old", turned
    forgets = wrong and not off(found, _way(*given, lambda old, new: 0)) and wrong
    yield "past gradients still count", forgets
    yield "it is the path of SGD with momentum", wrong


def _shards_of(draw: random.Random) -> Iterator[tuple]:
    yield [np.array([3.0, 1.0]), np.array([3.0, -1.0])], 8
    for k in (2, 4, 8):
        yield [10 + arrays(draw, 20) for _ in range(k)], draw.randint(2, 32)


def _scale(small: float, large: float, shard: int, batch: int) -> float:
    """tr(Sigma) / |G|^2 from the squared lengths of both batch sizes' gradients."""
    noise = (small - large) / (1 / shard - 1 / batch)
    return noise / ((batch * large - shard * small) / (batch - shard))


@exercise(
    "critical-batch/noise",
    '''
def my_noise_scale(means, shard):
    """Return the gradient noise scale, noise divided by signal, in samples.

    The squared length of a mean gradient over B samples is, on average, signal
    + noise / B. Two different values of B give both unknowns.

    means: for each of at least two devices, the mean gradient over its shard,
        an array. The mean of all of them is the batch's gradient.
    shard: how many samples each shard has.
    """
    raise NotImplementedError("Which two squared lengths do you know?")
''',
    _shards_of,
    hunted=True,
)
def judge_noise(found, means, shard):
    k = len(means)
    small = float(np.mean([m @ m for m in means]))
    mean = np.mean(means, axis=0)
    large, batch = float(mean @ mean), k * shard
    wrong = off(found, _scale(small, large, shard, batch), 1e-6)
    summed = not off(found, _scale(small, k * k * large, shard, batch), 1e-6)
    yield "the batch's gradient is a mean, too", wrong and summed and wrong
    noise = (small - large) / (1 / shard - 1 / batch)
    noisy = any(not off(found, noise / each, 1e-6) for each in (large, small))
    yield "the batch's gradient has noise in it, too", wrong and noisy and wrong
    lengths = float(np.mean([np.sqrt(m @ m) for m in means])), large**0.5
    roots = not off(found, _scale(*lengths, shard, batch), 1e-6)
    yield "lengths are squared", wrong and roots and wrong
    yield "it is noise divided by signal", wrong


def _of_a_thousand(noise_scale: Callable) -> str:
    draw = np.random.default_rng(0)  # signal 1, and 1,000 times as much noise
    means = [1 / 100 + draw.normal(0, 0.1 * 10**0.5 / 16, 10_000) for _ in range(4)]
    said = in_digits(noise_scale(means, 256), 3)
    return f"the noise scale is 1,000 samples, and it says {said}"


flaw(
    "critical-batch/noise",
    """
def my_noise_scale(means, shard):
    batch = len(means) * shard
    small = sum(m @ m for m in means) / len(means)
    mean = sum(means) / len(means)
    large = mean @ mean
    noise = (small - large) / (1 / shard - 1 / batch)
    return noise / large
""",
    _of_a_thousand,
    "the batch's gradient has noise in it, too",
)
flaw(
    "critical-batch/noise",
    """
def my_noise_scale(means, shard):
    batch = len(means) * shard
    small = sum(m @ m for m in means) / len(means)
    total = sum(means)
    large = total @ total
    noise = (small - large) / (1 / shard - 1 / batch)
    signal = (batch * large - shard * small) / (batch - shard)
    return noise / signal
""",
    _of_a_thousand,
    "the batch's gradient is a mean, too",
)
flaw(
    "critical-batch/noise",
    """
def my_noise_scale(means, shard):
    import numpy as np

    batch = len(means) * shard
    small = np.mean([np.linalg.norm(m) for m in means])
    large = np.linalg.norm(np.mean(means, axis=0))
    noise = (small - large) / (1 / shard - 1 / batch)
    signal = (batch * large - shard * small) / (batch - shard)
    return noise / signal
""",
    _of_a_thousand,
    "lengths are squared",
)
