"""Exercises of part 3: what a profile says."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

from manygpu.exercises.checking import exercise
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import off, other


def _spans(draw: random.Random) -> Iterator[tuple]:
    yield from (
        ([(0, 2)], [(1, 3)]),
        ([(0, 2)], [(2, 3)]),
        ([(0, 1), (0, 2)], [(1, 3)]),
        ([(0, 2)], []),
        ([], [(1, 3)]),
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
    """Return how long sending and computing happen at the same time.

    computing, sending: lists of time spans (start, end), whole numbers, in any
        order. A list may be empty. Spans of one list may overlap, and the time
        that two of them cover counts once.
    """
    raise NotImplementedError("In which seconds is each of the two active?")
''',
    _spans,
)
def judge_hidden(found, computing, sending):
    def ticks(spans: list[tuple[int, int]]) -> set[int]:
        return {t for a, b in spans for t in range(a, b)}

    right = len(ticks(computing) & ticks(sending))
    pairs = [max(0, min(b, d) - max(a, c)) for a, b in computing for c, d in sending]
    twice = found != right and found == sum(pairs) and f"it is {found}"
    yield "time that two spans cover counts once", twice
    alone = found != right and found == len(ticks(sending)) and f"it is {found}"
    yield "sending alone doesn't count", alone
    yield "it is the time in which both happen", other(found, right)


def _work(draw: random.Random) -> Iterator[tuple]:
    yield from (([2.0], 3.0), ([2.0, 2.0], 3.0), ([3.0, 1.0], 4.0), ([4.0, 0.0], 4.0))
    for _ in range(4):
        work = [draw.uniform(0, 9) for _ in range(draw.randint(2, 8))]
        yield work, max(work) * draw.uniform(1, 2)


@exercise(
    "looking-inside/even",
    '''
def my_gain(work, seconds):
    """Return how many times as fast a step gets if its work is split evenly.

    work: for each device, the seconds that it works in a step.
    seconds: the time of the whole step. The time that it takes beyond the work
        of its slowest device doesn't change.
    """
    raise NotImplementedError(
        "How long does the slowest device work after that?",
    )
''',
    _work,
)
def judge_even(found, work, seconds):
    mean, most = sum(work) / len(work), max(work)
    right = seconds / (seconds - most + mean)
    wrong = off(found, right)
    even = most - min(work) < 1e-9 and wrong
    yield "even shares gain nothing", even
    down = wrong and not off(found, 1 / right) and wrong
    yield "more than 1 means faster", down
    alone = wrong and not off(found, most / mean) and wrong
    yield "time that isn't work stays", alone
    least = not off(found, seconds / max(seconds - most + min(work), 1e-300))
    yield "all devices take the mean, not the least", wrong and least and wrong
    yield "it is the old time over the new one", wrong


def _lines(draw: random.Random) -> Iterator[tuple]:
    yield from ((8, 8.0, 4, 4.0, 2), (8, 8.0, 4, 8.0, 2), (8, 6.0, 4, 4.0, 4))
    yield from ((8, 8.0, 4, 3.0, 2), (256, 9.0, 64, 2.0, 8))
    for _ in range(4):
        few, fixed, each = draw.randint(1, 64), draw.uniform(0, 9), draw.uniform(0.1, 1)
        many = few * draw.randint(2, 8)
        yield many, fixed + many * each, few, fixed + few * each, draw.randint(2, 16)


@exercise(
    "looking-inside/speedup",
    '''
def my_speedup(many, t_many, few, t_few, devices):
    """Return how many times as fast `devices` devices would take a large step.

    A step of n samples on one device takes a + b n seconds. The devices split
    the samples evenly, and each of them needs the time a. If a would be
    negative, set it to 0 and b to t_many / many.

    many, few: two numbers of samples. The speedup is for `many` samples.
    t_many, t_few: the seconds of one device's step with each of them.
    """
    raise NotImplementedError("Which a and b give both times?")
''',
    _lines,
)
def judge_speedup(found, many, t_many, few, t_few, devices):
    b = (t_many - t_few) / (many - few)
    raw = t_many - b * many

    def speedup(a: float) -> float:
        return t_many / (a + (t_many - a) / devices)

    right = speedup(max(raw, 0))
    wrong = off(found, right, 1e-6)
    perfect = wrong and raw > 1e-9 and not off(found, devices, 1e-6) and wrong
    yield "time that doesn't shrink with the batch isn't split", perfect
    below = wrong and raw < 0 and not off(found, speedup(raw), 1e-6) and wrong
    yield "a cost isn't negative", below
    rest = raw < 0 and wrong
    yield "if a would be negative, all of t_many is split", rest
    fixed = abs(t_many - t_few) < 1e-9 and wrong
    yield "if all time is fixed, devices gain nothing", fixed
    down = wrong and not off(found, 1 / right, 1e-6) and wrong
    yield "more than 1 means faster", down
    yield "it is one device's time, divided by the time of all", wrong


def _readings(draw: random.Random) -> Iterator[tuple]:
    nan = math.nan
    yield from (({"late": (0.1, 0.25)},), ({"late": (0.3, 0.25)},))
    yield ({"data": (0.3, 0.25), "talk": (0.6, 0.25), "late": (0.1, 0.25)},)
    yield ({"talk": (0.6, 0.25), "traces": (2, 1), "calls": (900, 50)},)
    yield ({"fixed": (0.5, 0.5), "late": (0.25, 0.25)},)
    yield ({"fixed": (nan, 0.33), "late": (0.1, 0.25)},)
    yield ({"fixed": (nan, 0.33), "talk": (0.3, 0.25), "data": (0.6, 0.25)},)
    yield ({"calls": (2, 50), "data": (0.5, 0.25), "traces": (2, 1)},)
    for _ in range(4):
        shares = {n: (draw.uniform(0, 0.5), 0.25) for n in ("data", "talk", "late")}
        counts = {n: (draw.randint(0, 4), 2) for n in ("traces", "calls")}
        yield (shares | counts,)


@exercise(
    "looking-inside/diagnosis",
    '''
def my_diagnosis(readings):
    """Return a list of the probes to look at, with the first cause first.

    Name the probes whose value is above their limit. First come the counts,
    "traces" and "calls", in the order of `readings`. Then come the other
    probes, which are shares, with the largest share first. Last come the
    probes whose value is nan, because they couldn't be read clearly.

    readings: a dict. For each probe's name, it has (value, limit).
    """
    raise NotImplementedError("What does Python say about nan > 1?")
''',
    _readings,
    hunted=True,
)
def judge_diagnosis(found, readings):
    over = [name for name, (value, limit) in readings.items() if value > limit]
    counts = [name for name in over if name in ("traces", "calls")]
    shares = sorted(set(over) - set(counts), key=lambda name: -readings[name][0])
    unclear = [name for name, (value, _) in readings.items() if math.isnan(value)]
    found = list(found)
    right, said = counts + shares + unclear, f"it is {found}"
    silent = set(unclear) - set(found)
    yield "an unclear probe is reported", silent and said
    at = [n for n in found if readings[n][0] == readings[n][1]]
    yield "a probe at its limit is healthy", at and said
    healthy = set(found) - set(right)
    yield "a healthy probe isn't named", healthy and said
    yield "a probe above its limit is named", set(right) - set(found) and said
    yield "no probe comes twice", len(found) > len(right) and said
    early = [n for n in found if n not in unclear] != found[: len(counts + shares)]
    yield "unclear probes come last", early and said
    late = [n for n in found if n in counts] != found[: len(counts)]
    yield "counts come before shares", late and said
    yield "counts stay in their order", found[: len(counts)] != counts and said
    yield "the largest share comes first", found != right and said


READINGS = {
    "fixed": (math.nan, 0.33),
    "data": (0.3, 0.25),
    "talk": (0.6, 0.25),
    "traces": (2, 1),
}


def _readings_seen(diagnosis: Callable) -> str:
    shown = [f"{n} {value} (limit {most})" for n, (value, most) in READINGS.items()]
    return f"{', '.join(shown)}: {diagnosis(READINGS)}"


flaw(
    "looking-inside/diagnosis",
    """
def my_diagnosis(readings):
    over = [name for name, (value, limit) in readings.items() if value > limit]
    counts = [name for name in over if name in ("traces", "calls")]
    shares = [name for name in over if name not in counts]
    shares.sort(key=lambda name: readings[name][0], reverse=True)
    return counts + shares
""",
    _readings_seen,
    "an unclear probe is reported",
)
flaw(
    "looking-inside/diagnosis",
    """
def my_diagnosis(readings):
    import math

    unclear = [name for name, (value, _) in readings.items() if math.isnan(value)]
    over = {name: value / limit for name, (value, limit) in readings.items()}
    found = [name for name in over if over[name] > 1]
    return sorted(found, key=over.get, reverse=True) + unclear
""",
    _readings_seen,
    "counts come before shares",
)
flaw(
    "looking-inside/diagnosis",
    """
def my_diagnosis(readings):
    counts, shares = [], []
    for name, (value, limit) in readings.items():
        if value <= limit:
            continue
        if name in ("traces", "calls"):
            counts.append(name)
        else:
            shares.append(name)
    shares.sort(key=lambda name: readings[name][0], reverse=True)
    return counts + shares
""",
    _readings_seen,
    "unclear probes come last",
)
