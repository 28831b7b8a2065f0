"""Exercises of part 2 about doubt: are two results one, is a time noise?"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.drawn import arrays
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import off, other, whole_numbers


def _length(parts: list[np.ndarray]) -> float:
    """The root of the sum of squares, over all numbers of all arrays."""
    return math.sqrt(sum(float(np.sum(np.square(p, dtype=float))) for p in parts))


def _minus(one: list[np.ndarray], other: list[np.ndarray]) -> list[np.ndarray]:
    return [np.subtract(a, b, dtype=float) for a, b in zip(one, other)]


def _ends(draw: random.Random) -> Iterator[tuple]:
    for start, one, end in (
        ([[1.0]], [[2.0]], [[2.0]]),
        ([[1.0]], [[3.0]], [[2.0]]),
        ([[1.0, 1.0]], [[2.001, 1.999]], [[2.0, 2.0]]),
        ([[0.0], [0.0]], [[3.0], [4.1]], [[3.0], [4.0]]),
        ([[1.0, 1.0]], [[2.0, 1.0 + 1e-7]], [[2.0, 1.0]]),
        ([[100.0, 100.0]], [[100.00101, 100.0]], [[100.001, 100.0]]),
        ([[1.0]], [[1.0]], [[1.0]]),
        ([[0.0], [0.0]], [[1.0], [2e-6]], [[1.0], [1e-6]]),
        ([[0.0], [0.0]], [[1.0], [1.0 + 1.2e-5]], [[1.0], [1.0]]),
        ([[0.0], [0.0]], [[1.0], [1.0 + 1.7e-5]], [[1.0], [1.0]]),
    ):
        yield tuple([np.array(part) for part in each] for each in (start, one, end))
    for size in (1e-7, 1e-7, 1e-3, 1e-3):
        shapes = [(draw.randint(2, 9),), (draw.randint(2, 9),)]
        start = [100 * arrays(draw, *shape) for shape in shapes]
        step = [1e-3 * arrays(draw, *shape) for shape in shapes]
        error = [1 + size * arrays(draw, *shape) for shape in shapes]
        end = [a + b for a, b in zip(start, step)]
        yield start, [a + b * c for a, b, c in zip(start, step, error)], end


@exercise(
    "float32-parts-ways/same-step",
    '''
def my_same_step(start, one, other):
    """Return whether two runs took the same step, up to float32's rounding.

    The steps are the same if the length of their difference is at most 1e-5
    times the length of the step of `other`. A length is over all numbers of
    all arrays.

    start: a list of arrays, the parameters before the step.
    one, other: the parameters after the step, in each of the two runs.
    """
    raise NotImplementedError(
        "Which differences do you need? There are three lists of arrays."
    )
''',
    _ends,
)
def judge_same_step(found, start, one, other):
    apart, step = _length(_minus(one, other)), _length(_minus(other, start))
    right = apart <= 1e-5 * step
    missed = bool(found) and not right
    weights = missed and apart <= 1e-5 * _length(other) and f"it is {found}"
    yield "it is relative to the step, not to the weights", weights
    wrong = bool(found) != right and f"it is {found}"
    yield (
        "two runs that don't move take the same step",
        not apart and not step and wrong,
    )
    each = [
        _length(_minus([a], [b])) <= 1e-5 * _length(_minus([b], [s]))
        for s, a, b in zip(start, one, other)
    ]
    apiece = right and not all(each) and wrong
    yield "lengths are over all numbers of all arrays", apiece
    near = 0.5e-5 * step < apart < 2e-5 * step
    yield "the bound is 1e-5 of the whole step's length", near and wrong
    yield "a mistake is found", missed and f"it is {found}"
    yield "rounding is allowed", right and not found and f"it is {found}"


def _pairs_of(draw: random.Random) -> Iterator[tuple]:
    """The first steps at which runs are apart, by pair, for runs that leapt."""

    def leapt(names: str, leaps: dict[str, int]) -> tuple:
        pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
        steps = [[leaps[n] for n in pair if n in leaps] for pair in pairs]
        return ({p: min(own) if own else None for p, own in zip(pairs, steps)},)

    yield from (leapt("ab", {}), leapt("abc", {}), leapt("ab", {"b": 7}))
    yield from (leapt("abc", {"b": 7}), leapt("abc", {"a": 7}))
    yield from (leapt("abcd", {"c": 3, "a": 9}), leapt("abcd", {"a": 3, "d": 9}))
    two = {("a", "b"): None, ("c", "d"): None}
    yield ({pair: two.get(pair, 4) for pair in leapt("abcd", {})[0]},)
    yield ({("a", "b"): 7, ("a", "c"): 7, ("b", "c"): 3},)
    yield ({("a", "b"): 3, ("a", "c"): 5, ("b", "c"): 8},)
    yield ({pair: 7 if pair in (("a", "b"), ("a", "c")) else 9
            for pair in leapt("abcd", {})[0]},)  # fmt: skip
    for _ in range(4):
        names = "abcdef"[: draw.randint(3, 6)]
        who = draw.sample(names, len(names) - 1)
        yield leapt(names, dict(zip(who, draw.sample(range(1, 99), len(who)))))


@exercise(
    "float32-parts-ways/leaper",
    '''
def my_leaper(leapt):
    """Return the name of the run that leapt first, or None if it isn't known.

    Before the first leap, all runs are close to each other. At one step, the
    run that leaps first is far from all others, while these are still close to
    each other.

    leapt: for each pair of names, the step at which these two runs are first
        far apart, or None if they never are.
    """
    raise NotImplementedError(
        "Which pairs are far apart at the earliest of all steps?",
    )
''',
    _pairs_of,
)
def judge_leaper(found, leapt):
    names = sorted({name for pair in leapt for name in pair})
    steps = [step for step in leapt.values() if step is not None]
    first = [pair for pair, step in leapt.items() if steps and step == min(steps)]
    apart = {n: sum(n in pair for pair in first) for n in names}
    alone = [n for n in names if apart[n] == len(names) - 1]
    said = f"it is {found!r}"
    yield "it is a run's name, or None", found not in (None, *names) and said
    yield "if no run leapt, it is None", not steps and found and said
    two = len(names) == 2 and found and said
    yield "with two runs, it isn't known", two
    parted = steps and not alone and found and said
    own = {step for pair, step in leapt.items() if found in pair}
    whole = parted and None not in own and said
    late = whole and min(own) > min(steps) and said
    yield "before the leap, no two runs are far apart", late
    yield "it is far from all others at one step", whole and len(own) > 1 and said
    yield "one run leapt, not a group", parted
    if steps and len(alone) == 1 and found != alone[0]:
        reference = alone[0] == names[0] and said
        yield "the run that all others are compared with can leap", reference
        yield "later leaps don't count", found and said
        yield "a run that is far from all others is named", said


def _lists_of(draw: random.Random) -> Iterator[tuple]:
    def float32(*parts: object) -> list[np.ndarray]:
        return [np.asarray(part, np.float32) for part in parts]

    yield float32([1, 2]), float32([1, 2])
    yield float32([0, 1]), float32([1, 0])
    yield float32(np.ones(100), [0.2]), float32(np.ones(100), [0.1])
    yield float32([1e-18, 1.000001e-18]), float32([1e-18, 1e-18])
    yield float32([1e-25, 2e-25]), float32([1e-25, 1e-25])
    for _ in range(4):
        own = [arrays(draw, draw.randint(1, 20)) for _ in range(3)]
        yield float32(*own), float32(*(each + 0.1 for each in own))


@exercise(
    "float32-parts-ways/distance",
    '''
def my_distance(found, right):
    """Return the distance of two lists of arrays, relative to `right`.

    The distance is the length of the difference, divided by the length of
    `right`. A length is the root of the sum of the squares of all numbers of
    all arrays, computed in float64.

    found, right: lists of float32 arrays.
    """
    raise NotImplementedError("Make one float64 vector from each list.")
''',
    _lists_of,
    hunted=True,
)
def judge_distance(found, given, right):
    distance = _length(_minus(given, right)) / _length(right)
    wrong = off(found, distance, 1e-6)
    lengths = abs(_length(given) - _length(right)) / _length(right)
    turned = wrong and not off(found, lengths, 1e-6) and wrong
    yield "a different direction is a different result", turned
    small = max(np.max(np.abs(part)) for part in right) < 1e-9 and wrong
    yield "small numbers count", small
    each = [_length(_minus([a], [b])) / _length([b]) for a, b in zip(given, right)]
    mean = wrong and not off(found, np.mean(each), 1e-6) and wrong
    yield "an array counts by its numbers, not as one", mean
    yield "it is the distance", wrong


def _turned(distance: Callable) -> str:
    found = distance([np.float32([0, 1])], [np.float32([1, 0])])
    return f"a gradient is turned by a right angle, and its distance is {found:.0%}"


def _tiny(distance: Callable) -> str:
    right = np.float32([1e-18, 1e-18])
    found = distance([right * np.float32(1.00001)], [right])
    return f"tiny gradients are too large by a factor of 1.00001: distance {found:.0e}"


def _bias(distance: Callable) -> str:
    right = [np.ones(10_000, np.float32), np.float32([0.001])]
    found = distance([right[0], 2 * right[1]], right)
    return f"10,000 weights are right, one tiny bias is doubled: distance {found:.0%}"


flaw(
    "float32-parts-ways/distance",
    """
def my_distance(found, right):
    import numpy as np

    def length(parts):
        flat = np.concatenate([np.ravel(part) for part in parts])
        return np.linalg.norm(flat.astype(np.float64))

    return abs(length(found) - length(right)) / length(right)
""",
    _turned,
    "a different direction is a different result",
)
flaw(
    "float32-parts-ways/distance",
    """
def my_distance(found, right):
    import numpy as np

    apart = sum(np.sum((a - b) ** 2) for a, b in zip(found, right))
    return float(np.sqrt(apart) / np.sqrt(sum(np.sum(b**2) for b in right)))
""",
    _tiny,
    "small numbers count",
)
flaw(
    "float32-parts-ways/distance",
    """
def my_distance(found, right):
    import numpy as np

    distances = []
    for a, b in zip(found, right):
        a, b = a.astype(np.float64), b.astype(np.float64)
        distances.append(np.linalg.norm(a - b) / np.linalg.norm(b))
    return sum(distances) / len(distances)
""",
    _bias,
    "an array counts by its numbers, not as one",
)


def _calls(draw: random.Random) -> Iterator[tuple]:
    tensor, larger = ("tensor", 0.1), ("tensor", 0.2)
    for calls in (
        [(8, 0.1)],
        [(8, 0.1), (8, 0.1)],
        [(8, 0.1), (8, 0.2)],
        [(8, tensor), (8, larger)],
        [(8, tensor), (4, tensor)],
        [(8, tensor), (4, tensor), (8, tensor)],
        [(8, 0.1), (8, tensor)],
    ):
        yield (calls,)
    for _ in range(4):
        rates = (0.1, 0.2, 0.3, tensor, larger)
        yield ([(draw.choice((8, 4)), draw.choice(rates)) for _ in range(12)],)


@exercise(
    "why-slower/traces",
    '''
def my_traces(calls):
    """Return how often a tf.function has been traced after each of its calls.

    calls: pairs (samples, rate). The samples come as a tensor of this length.
        The rate is either a Python number or ("tensor", number), a tensor that
        holds the number.

    The result is a list with one count per call.
    """
    raise NotImplementedError("Which calls can use the same trace?")
''',
    _calls,
)
def judge_traces(found, calls):
    def counts(kind: Callable) -> list[int]:
        kinds = [kind(*call) for call in calls]
        return [len(set(kinds[: i + 1])) for i in range(len(kinds))]

    def rate_kind(rate: object) -> object:
        return "tensor" if isinstance(rate, tuple) else rate

    found = whole_numbers(found)
    right = counts(lambda n, rate: (n, rate_kind(rate)))
    wrong = other(found, right)
    yield "one count per call", len(found) != len(calls) and wrong
    looked = wrong and found == counts(lambda n, rate: (n, rate)) and wrong
    yield "the value in a tensor doesn't matter", looked
    numbers = counts(lambda n, rate: (n, isinstance(rate, tuple)))
    yield "each value of a Python number is traced", found == numbers and wrong
    lengths = wrong and found == counts(lambda n, rate: rate_kind(rate))
    yield "a different length is traced", lengths and wrong
    kinds = [(n, rate_kind(rate)) for n, rate in calls]
    changes = [a != b for a, b in zip(kinds, [None, *kinds])]
    again = found == [sum(changes[: i + 1]) for i in range(len(calls))]
    yield "a call that was traced before isn't traced again", wrong and again and wrong
    yield "each kind of call is traced once", wrong


def _clusters(draw: random.Random) -> Iterator[tuple]:
    yield from ((1, 1, 4, 1, 1), (10, 1, 8, 3, 8), (10, 1, 8, 9, 8))
    yield from ((0, 10, 5, 1, 4), (1, 1, 4, 0, 8), (0, 4, 3, 5, 2), (1, 4, 8, 1, 2))
    for _ in range(5):
        numbers = draw.randint(1, 9), draw.randint(1, 9), draw.randint(1, 99)
        yield *numbers, draw.randint(1, 30), draw.randint(2, 16)


@exercise(
    "why-slower/devices",
    '''
def my_devices(fixed, sample, batch, message, most):
    """Return with how many devices, from 1 to `most`, a step is fastest.

    A step takes `fixed` ms, plus `sample` ms per sample of the largest shard,
    plus `message` ms per device beyond the first. Shards differ by at most one
    sample. If several numbers of devices are equally fast, return the
    smallest.

    batch: the number of samples in a step.
    """
    raise NotImplementedError("First write down the time with k devices.")
''',
    _clusters,
)
def judge_devices(found, fixed, sample, batch, message, most):
    def seconds(k: int, talk: int = message) -> int:
        return fixed + sample * -(-batch // k) + talk * (k - 1)

    def best(time: Callable) -> int:
        return min(range(1, most + 1), key=time)

    right, said = best(seconds), f"it is {found}"
    yield "it is a number of your devices", found not in range(1, most + 1) and said
    wrong = found != right and f"with {found} it takes {seconds(found)} ms"
    floor = wrong and found == best(lambda k: sample * (batch // k) + message * (k - 1))
    yield "the largest share counts", floor and wrong
    fewer = seconds(found) == seconds(right) and f"{said}, fewer take as long"
    yield "of equally fast numbers, it is the smallest", wrong and fewer
    free = wrong and found == best(lambda k: seconds(k, 0)) and wrong
    yield "each further device costs a message", free
    even = best(lambda k: sample * batch / k + message * (k - 1))
    yield "the largest share counts", wrong and found == even and wrong
    last = right == most > 1 and found == min(range(1, most), key=seconds)
    yield "all of the devices may be the fastest", last and wrong
    yield "no other number is faster", wrong


def _rounds(draw: random.Random) -> Iterator[tuple]:
    yield from (([10], [10], [5]), ([10], [10], [20]))
    yield [10] * 3, [12, 8, 10], [9.5] * 3
    yield [10] * 3, [12, 10, 10], [9] * 3
    yield [10] * 3, [8, 10, 10], [9] * 3
    yield [10, 100, 12], [11, 100, 12], [8, 80, 30]
    yield [10] * 3, [8, 10, 10], [8.2] * 3
    yield [8] * 3, [4, 8, 8], [4] * 3
    for _ in range(5):
        drift = [draw.randint(10, 99) for _ in range(5)]
        again = [t * draw.uniform(0.9, 1.1) for t in drift]
        factor = draw.choice((0.5, 0.99, 2.0))
        yield drift, again, [t * factor for t in drift]


def _said(ratio: float, noise: float) -> str:
    if 1 / noise <= ratio <= noise:
        return "noise"
    return "faster" if ratio > 1 else "slower"


@exercise(
    "why-slower/verdict",
    '''
def my_verdict(one, again, many):
    """Return whether many devices are "faster", "slower" or only "noise".

    In each round, three steps were measured, and only times of the same round
    can be compared. The noise is the factor by which `one` and `again` differ
    in the worst round, in either direction. Many devices are faster if the
    median of one / many is above the noise. They are slower if it is below 1 /
    noise.

    one, again, many: for each round, the milliseconds of a step on one device,
        of the same step once more, and of the step on many devices.
    """
    raise NotImplementedError("Which ratio do you compute in each round?")
''',
    _rounds,
    hunted=True,
)
def judge_verdict(found, one, again, many):
    same = np.divide(again, one)
    noise = max(np.max(same), 1 / np.min(same))
    ratio = np.median(np.divide(one, many))
    right, said = _said(ratio, noise), f"it is {found!r}"
    yield (
        "it is one of three words",
        found not in ("faster", "slower", "noise") and said,
    )
    turned = {found, right} == {"faster", "slower"}
    apart = found == _said(np.median(one) / np.median(many), noise)
    yield "only times of the same round are compared", found != right and apart and said
    yield "less time is faster", turned and said
    sided = found in (
        _said(ratio, max(np.max(same), 1)),
        _said(ratio, 1 / np.min(same)),
    )
    yield (
        "the noise counts in both directions",
        noise > 1 and found != right and sided and said,
    )
    yield "a difference within the noise is noise", right == "noise" != found and said
    yield "a difference above the noise is reported", found != right and said


def _verdicts(*rounds: list[float]) -> Callable[[Callable], str]:
    one, again, many = rounds

    def seen(verdict: Callable) -> str:
        times = f"one {one} ms, again {again} ms, many {many} ms"
        return f"{times}: the verdict is {verdict(*rounds)!r}"

    return seen


flaw(
    "why-slower/verdict",
    """
def my_verdict(one, again, many):
    import numpy as np

    noise = max(b / a for a, b in zip(one, again))
    ratio = np.median([a / b for a, b in zip(one, many)])
    if ratio > noise:
        return "faster"
    return "slower" if ratio < 1 / noise else "noise"
""",
    _verdicts([10, 10, 10], [8, 10, 10], [9, 9, 9]),
    "the noise counts in both directions",
)
flaw(
    "why-slower/verdict",
    """
def my_verdict(one, again, many):
    import numpy as np

    factors = [b / a for a, b in zip(one, again)]
    noise = max(max(factors), 1 / min(factors))
    ratio = np.median(one) / np.median(many)
    if ratio > noise:
        return "faster"
    return "slower" if ratio < 1 / noise else "noise"
""",
    _verdicts([10, 100, 12], [11, 100, 12], [8, 80, 30]),
    "only times of the same round are compared",
)
flaw(
    "why-slower/verdict",
    """
def my_verdict(one, again, many):
    import numpy as np

    ratio = np.median([a / b for a, b in zip(one, many)])
    return "faster" if ratio > 1 else "slower"
""",
    _verdicts([10, 10, 10], [12, 9, 10], [9.9, 9.9, 9.9]),
    "a difference within the noise is noise",
)
