"""Exercises of part 8: is my step right, and side by side."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.drawn import arrays
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import all_off, in_digits, mistaken, off, other


def _rounds(draw: random.Random) -> Iterator[tuple]:
    yield from (([2.0], [1.0]), ([2.0, 8.0, 2.0], [1.0, 4.0, 4.0]))
    for _ in range(4):
        slow = [draw.choice((1.0, 1.0, 5.0)) for _ in range(7)]
        one = [own * draw.uniform(1, 1.1) for own in slow]
        yield one, [own / draw.uniform(1.2, 1.9) for own in slow]


@exercise(
    "side-by-side/speedup",
    '''
def my_speedup(one, many):
    """Return the median speedup over several rounds.

    If the machine is busy during a round, both of that round's numbers are
    larger.

    one, many: the seconds of each round, on one device and on many devices.
    """
    raise NotImplementedError("Which two numbers come from the same round?")
''',
    _rounds,
)
def judge_speedup(found, one, many):
    right = statistics.median(a / b for a, b in zip(one, many))
    apart = statistics.median(one) / statistics.median(many)
    mixed = off(found, right) and not off(found, apart) and f"it is {in_digits(found)}"
    yield "only times of the same round are compared", mixed
    turned = (
        off(found, right) and not off(found, 1 / right) and f"it is {in_digits(found)}"
    )
    yield "faster is more than 1", turned
    yield "it is the median of the rounds", off(found, right)


def _tables(draw: random.Random) -> Iterator[tuple]:
    yield ([[1.0], [2.0]],)
    yield ([[1.0, 9.0], [2.0, 10.0]],)
    yield from (([[2.0], [1.0]],), ([[1.0, 2.0], [1.0, 3.0]],))
    yield ([[1.0, 1.0, 5.0], [2.0, 2.0, 4.0], [3.0, 3.0, 6.0]],)
    for _ in range(4):
        slow = [draw.choice((1.0, 1.0, 3.0)) for _ in range(5)]
        rows = [draw.uniform(1, 2) for _ in range(4)]
        yield ([[s * r * draw.uniform(0.9, 1.1) for s in slow] for r in rows],)


@exercise(
    "side-by-side/ordered",
    '''
def my_ordered(times):
    """Return the pairs (a, b) of rows where a was faster in every round.

    If the machine is busy during a round, all numbers of this round are
    larger.

    times: a list of rows. Each row is a list of seconds, with one number per
        round.

    a and b are positions of rows, counted from 0. The pairs may be in any
    order.
    """
    raise NotImplementedError("Which numbers come from the same round?")
''',
    _tables,
)
def judge_ordered(found, times):
    pairs = [(a, b) for a in range(len(times)) for b in range(len(times)) if a != b]
    right = {p for p in pairs if all(x < y for x, y in zip(*(times[i] for i in p)))}
    found = [tuple(pair) for pair in found]
    extra = [p for p in found if p not in right]
    turned = [p for p in extra if p[::-1] in right]
    yield "it is the first of a pair that is faster", turned and f"{turned[0]} isn't"
    yield (
        "a pair that isn't ordered in every round isn't named",
        extra and f"{extra[0]} isn't ordered",
    )
    lacking = right - {*found}
    later = lacking and all(a > b for a, b in lacking) and f"{min(lacking)} is missing"
    yield "the faster row may come later in the table", later
    yield "rounds are compared one by one", lacking and f"{min(lacking)} is missing"
    yield "a pair is named once", other(len(found), len(right))


def _flags(draw: random.Random) -> Iterator[tuple]:
    least = {"data": 0.5, "pipeline": 0.6}
    beside = {"data": "threads", "pipeline": "pieces"}
    times = {"one": [8.0] * 2, "threads": [4.0] * 2, "pieces": [4.0] * 2}
    yield {**times, "data": [3.0, 3.0], "pipeline": [3.0, 3.0]}, beside, least
    times["one"] = [5.0] * 2
    yield {**times, "data": [1.0, 1.0], "pipeline": [1.0, 3.0]}, beside, least
    times["one"] = [8.0] * 2
    yield {**times, "data": [2.0, 2.0], "pipeline": [3.0, 3.0]}, beside, least
    turned = dict(reversed(beside.items()))
    yield {**times, "data": [1.0, 1.0], "pipeline": [2.0, 2.0]}, turned, least
    for _ in range(5):
        slow = [draw.choice((1.0, 4.0)) for _ in range(3)]
        rows = {name: [each[0] * s for s in slow] for name, each in times.items()}
        for name, bound in least.items():
            rows[name] = [4 * s * bound * draw.uniform(0.6, 1.1) for s in slow]
        yield rows, beside, least


@exercise(
    "side-by-side/flagged",
    '''
def my_flagged(times, beside, least):
    """Return the sorted names of rows that break their bound in every round.

    If the machine is busy during a round, all numbers of this round are
    larger.

    times: for each row's name, the seconds of each round.
    beside: for each row that has a bound, the name of the row to divide its
        time by.
    least: for each row that has a bound, the bound. It is the smallest
        possible ratio of the two times.
    """
    raise NotImplementedError(
        "Which two rows does the ratio compare, and in which rounds?"
    )
''',
    _flags,
)
def judge_flagged(found, times, beside, least):
    def broken(name, other_):
        ratios = [a / b for a, b in zip(times[name], times[other_])]
        return all(ratio < least[name] for ratio in ratios)

    right = sorted(name for name in beside if broken(name, beside[name]))
    by_one = sorted(name for name in beside if broken(name, "one"))
    unfair = list(found) == by_one != right and f"it is {found}"
    yield "a row is divided by the row with the same advantage", unfair
    extra = [name for name in found if name not in right]
    yield "a row breaks its bound in every round", extra and f"{extra[0]} doesn't"
    mixed = sorted(found) == right and other(list(found), right)
    yield "names are sorted", mixed
    yield "rounds are compared one by one", other(list(found), right)


def _turns(draw: random.Random) -> Iterator[tuple]:
    yield from (([2.0], 0, 1), ([9.0, 2.0], 1, 1), ([9.0, 2.0, 4.0, 3.0], 1, 2))
    yield [9.0, 8.0, 2.0, 30.0, 3.0], 2, 4
    for _ in range(4):
        turns = [draw.uniform(1, 2) * draw.choice((1, 1, 5)) for _ in range(9)]
        yield [99.0, *turns], 1, draw.randint(2, 9)


@exercise(
    "side-by-side/seconds",
    '''
def my_seconds(turns, warm, steps):
    """Return the median of the seconds per step.

    The first `warm` turns don't count, because they trace, compile and fill
    caches.

    turns: the seconds of each turn.
    steps: how many steps each turn has.
    """
    raise NotImplementedError(
        "Which turns count, and which of them is the median?",
    )
''',
    _turns,
    hunted=True,
)
def judge_seconds(found, turns, warm, steps):
    right = statistics.median(turns[warm:]) / steps
    yield (
        "it is the time of a step, not of a turn",
        mistaken(found, right, right * steps),
    )
    cold = statistics.median(turns) / steps
    yield "turns that warm up aren't measured", mistaken(found, right, cold)
    yield "it is the median", off(found, right)


def _timed(seconds) -> str:
    """Two series of turns of ten steps; the first turn of each compiles."""
    said = []
    for turns in ([9.0, 1.0], [9.0, 1.0, 1.0, 1.0, 6.0]):
        shown = ", ".join(f"{each:g}" for each in turns)
        said.append(f"turns of {shown} s: {seconds(turns, 1, 10):.3f} s per step")
    return f"ten steps per turn, and the first turn compiles; {'; '.join(said)}"


flaw(
    "side-by-side/seconds",
    """
import statistics

def my_seconds(turns, warm, steps):
    each = [seconds / steps for seconds in turns]
    return statistics.median(each)
""",
    _timed,
    "turns that warm up aren't measured",
)
flaw(
    "side-by-side/seconds",
    """
def my_seconds(turns, warm, steps):
    measured = turns[warm:]
    return sum(measured) / len(measured) / steps
""",
    _timed,
    "it is the median",
)
flaw(
    "side-by-side/seconds",
    """
import statistics

def my_seconds(turns, warm, steps):
    measured = [seconds for seconds in turns[warm:] for _ in range(steps)]
    return statistics.median(measured)
""",
    _timed,
    "it is the time of a step, not of a turn",
)


def _bars(draw: random.Random) -> Iterator[tuple]:
    owners = [0, 0, 0, 1, 1, 2, 2]
    yield [1.0] * 7, owners
    yield [1 + 1e-9, 1 - 1e-9, 1.0, 1.0, 1.0, 1.0, 1.0], owners
    yield [7.0] * 7, owners
    yield [7 / 9] * 3 + [7 / 6] * 4, owners
    yield [1.0] * 5 + [0.0] * 2, owners
    yield [3.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], owners
    yield from (
        ([0.0] * 7, owners),
        ([0.9999] * 7, owners),
        ([0.0] + [1.0] * 6, owners),
    )
    yield [1.0, 2.0, 0.5, 1.0, 2.0, 0.5, 1.0], [0, 1, 2, 0, 1, 2, 0]
    for _ in range(4):
        each = [draw.choice((0.5, 1.0, 2.0)) for _ in range(3)]
        yield [each[d] for d in owners], owners


def _read(counts, owners) -> str:
    """What counts say; those of one kind differ by rounding only."""
    near, counts = 1e-6, np.array(counts)
    if np.all(abs(counts - 1) < near):
        return "right"
    if np.ptp(counts) < near:
        return "factor"
    if np.any(abs(counts) < near):
        return "lost"
    apart = [np.ptp(counts[np.equal(owners, d)]) for d in set(owners)]
    return "shares" if max(apart) < near else "samples"


@exercise(
    "is-my-step-right/reading",
    '''
def my_reading(counts, owners):
    """Return the word that describes a step's counts.

    Return the first of these words that is true:
    "right" if each sample counts once,
    "factor" if all samples count equally often,
    "lost" if at least one sample doesn't count at all,
    "shares" if the samples of each device count equally often,
    "samples" if none of these is true.

    counts: how often each sample counts, correct to a millionth.
    owners: the number of the device that has each sample.
    """
    raise NotImplementedError(
        "Which counts must be equal, and how close is equal?",
    )
''',
    _bars,
)
def judge_reading(found, counts, owners):
    right, wrong = _read(counts, owners), other(found, _read(counts, owners))
    exact = set(counts) == {1.0}
    yield "a rounding error isn't a mistake", right == "right" and not exact and wrong
    yield "if all counts are 1, it is 'right'", right == "right" and wrong
    yield "if all counts are equal, it is 'factor'", right == "factor" and wrong
    yield "if a count is 0, it is 'lost'", right == "lost" and wrong
    yield (
        "if each device's counts are equal, it is 'shares'",
        right == "shares" and wrong,
    )
    yield "otherwise it is 'samples'", wrong


def _shared(draw: random.Random) -> Iterator[tuple]:
    yield from (([2, 2], 1), ([3, 2, 2], 1), ([3, 2, 2], 2), ([3, 1, 2], 2))
    for _ in range(4):
        sizes = [draw.randint(1, 6) for _ in range(draw.randint(2, 5))]
        yield sizes, draw.randint(1, 4)


def _overlapped(sizes, extra) -> list[int]:
    """Counts where each device takes the next one's first samples, too."""
    return [1 + (i < extra) for size in sizes for i in range(size)]


@exercise(
    "is-my-step-right/overlap",
    '''
def my_counts(sizes, extra):
    """Return how often each sample counts when shares overlap, as a list.

    Each of at least two devices takes its own share, and also the first
    `extra` samples of the next device's share. If that share is smaller, the
    device takes all of it. The device after the last one is the first. The
    gradients of all samples that were taken are added up and divided by the
    size of the batch.

    sizes: the number of samples in each share, in the order of the batch.
    """
    raise NotImplementedError(
        "Which devices take the first sample of a share?",
    )
''',
    _shared,
)
def judge_overlap(found, sizes, extra):
    right = _overlapped(sizes, extra)
    yield "one number per sample", other(len(found), len(right))
    first = sizes[0]
    turn = list(found[first:]) == right[first:] and other(list(found), right)
    yield "the device after the last one is the first", turn
    share = sum(right) / len(right)
    divided = not off([each * share for each in found], right)
    yield "it is divided by the batch", divided and other(list(found), right)
    yield "two devices count the first samples of a share", other(list(found), right)


def _paths(draw: random.Random) -> Iterator[tuple]:
    for steps, momentum in ((1, 0.5), (2, 0.5), (3, 0.9), (4, draw.uniform(0.1, 0.9))):
        weights, slot = [arrays(draw, 3)], np.zeros(3)
        for _ in range(steps):
            slot = momentum * slot + arrays(draw, 3)
            weights.append(weights[-1] - 0.25 * slot)
        yield weights, 0.25, momentum


@exercise(
    "is-my-step-right/replay",
    '''
def my_gradients(weights, rate, momentum):
    """Return the gradient of each step, as a list, from the weights alone.

    The optimizer is SGD with momentum: slot <- momentum * slot + gradient, and
        then w <- w - rate * slot. The slot begins at 0.

    weights: the weights before the first step, after the first step, after the
        second step, and so on.
    """
    raise NotImplementedError("Which slot did the previous step leave?")
''',
    _paths,
)
def judge_replay(found, weights, rate, momentum):
    slots = [(a - b) / rate for a, b in zip(weights, weights[1:])]
    past = [np.zeros_like(slots[0]), *slots]
    right = [slot - momentum * before for slot, before in zip(slots, past)]
    yield "one gradient per step", other(len(found), len(right))
    for share in (-1, rate, rate**2):  # uphill, or the rate left out, or squared
        taken = mistaken(found[0], right[0], share * right[0])
        yield "a step goes downhill, by the rate times the slot", taken
    yield "the slot begins at 0", off(found[0], right[0])
    kept = all_off(found, right) and not all_off(found, slots) and "it wasn't"
    yield "the part that the slot remembers is subtracted", kept
    yield "they are the gradients of the steps", all_off(found, right, "step")


def _trials(draw: random.Random) -> Iterator[tuple]:
    w, g = arrays(draw, 5), arrays(draw, 5)
    for rate in (0.5, 1e-7):
        step = w - rate * g
        yield w, [step, step], g, rate
        yield w, [w - rate * g * (1 + 1e-6), step], g, rate
        yield w, [w - rate * g / 2] * 2, g, rate
        yield w, [step, w], g, rate
        yield w, [w + rate * g] * 2, g, rate
        yield w, [step, np.full(5, np.nan)], g, rate
        yield w, [step, np.where(np.arange(5) == 2, np.nan, step)], g, rate
        yield w, [np.full(5, np.nan)] * 2, g, rate


@exercise(
    "is-my-step-right/passes",
    '''
def my_passes(before, copies, gradient, rate):
    """Return whether each copy is `before - rate * gradient`, up to rounding.

    The error of a copy may be at most a thousandth as long as the step.

    before: the weights before the step, an array.
    copies: the weights of each device after the step.
    """
    raise NotImplementedError("How long is the error of each copy?")
''',
    _trials,
    hunted=True,
)
def judge_passes(found, before, copies, gradient, rate):
    step = rate * gradient
    apart = [np.linalg.norm(before - step - own) for own in copies]
    fine = [own <= 1e-3 * np.linalg.norm(step) for own in apart]
    wrong = found and not all(fine) and "it passes"
    yield "a right step passes", all(fine) and not found and "it doesn't"
    yield "a copy with NaN is refused", np.isnan(apart).any() and wrong
    yield "every copy is checked", any(fine) and wrong
    turned = np.allclose(before - np.array(copies), -step, rtol=1e-3, atol=0)
    yield "a step uphill is refused", rate > 0.1 and turned and wrong
    yield "with a small rate, a wrong step is refused, too", rate < 0.1 and wrong
    yield "a different step is refused", wrong


def _let_pass(passes) -> str:
    """Which wrong steps a test passes."""
    draw = random.Random(3)
    w, g = arrays(draw, 5), arrays(draw, 5)
    wrong = {
        "half a step": ([w - g / 4] * 2, 0.5),
        "a step that only the first device takes": ([w - g / 2, w], 0.5),
        "a step uphill": ([w + g / 2] * 2, 0.5),
        "a step to NaN": ([np.full(5, np.nan)] * 2, 0.5),
        "no step, with a rate of 1e-7": ([w, w], 1e-7),
    }
    let = [what for what, (own, rate) in wrong.items() if passes(w, own, g, rate)]
    return f"of {len(wrong)} wrong steps this test passes {len(let)}: {', '.join(let)}"


flaw(
    "is-my-step-right/passes",
    """
import numpy as np

def my_passes(before, copies, gradient, rate):
    expected = before - rate * gradient
    return all(np.allclose(own, expected, atol=1e-3) for own in copies)
""",
    _let_pass,
    "with a small rate, a wrong step is refused, too",
)
flaw(
    "is-my-step-right/passes",
    """
import numpy as np

def my_passes(before, copies, gradient, rate):
    expected, step = before - rate * gradient, rate * np.linalg.norm(gradient)
    off = np.linalg.norm(copies[0] - expected)
    return off <= 0.001 * step
""",
    _let_pass,
    "every copy is checked",
)
flaw(
    "is-my-step-right/passes",
    """
import numpy as np

def my_passes(before, copies, gradient, rate):
    expected, step = before - rate * gradient, rate * np.linalg.norm(gradient)
    for own in copies:
        if np.linalg.norm(own - expected) > 0.001 * step:
            return False
    return True
""",
    _let_pass,
    "a copy with NaN is refused",
)
flaw(
    "is-my-step-right/passes",
    """
import numpy as np

def my_passes(before, copies, gradient, rate):
    step = rate * np.linalg.norm(gradient)
    lengths = [np.linalg.norm(own - before) for own in copies]
    return all(abs(length - step) <= 0.001 * step for length in lengths)
""",
    _let_pass,
    "a step uphill is refused",
)
