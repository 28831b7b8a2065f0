"""How few digits a step computes in: maybe fewer than its weights have.

With mixed precision, weights are float32 and products are of 16 bits; or gradients are
sent in 16 bits. Who allows what rounding does must know the narrowest dtype. Nobody has
to tell it: the framework says of which dtypes a step's results are. Where it doesn't,
or where hardware rounds inside a product, it shows: a small change of an input changes
nothing, where something rounds the input first.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from manygpu.prove.counts import is_floating, unit
from manygpu.prove.subject import Arrays, Case, Subject
from manygpu.trainings.contract import Training
from manygpu.trainings.table import SGD

NARROW = {
    2.0**-23: "float32",
    2.0**-10: "float16 or TF32",
    2.0**-7: "bfloat16",
    2.0**-3: "float8",
}
UNITS = {
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float8_e4m3": 2.0**-3,
    "float8_e5m2": 2.0**-2,
}
NUMBERS, LEAST = 5, 6  # how many are changed; powers of 2 beyond the dtype's own unit
MATRICES = 1  # how many begin at 0, to show all digits of their change


def unit_found(subject: Subject) -> float:
    """Return the unit in the last place of 1 that the step, or its reference, has.

    0 if that is the weights' own.
    """
    case = _small_case(subject)
    if (seen := unit_seen(subject, case)) or subject.gradient is None:
        return seen
    return max(_of_reference(subject), _of_step(subject, case))


def unit_seen(subject: Subject, case: Case) -> float:
    """Return the unit of the narrowest dtype of a step's results, if that is less."""
    running = _begun(subject, subject.weights, case)
    if running is None or getattr(running, "dtypes", None) is None:
        return 0.0
    try:
        names = running.dtypes(*subject.draw(case.samples, 0))
    except Exception:  # the first trial stops in the same way, and says so
        return 0.0
    own = max(unit(w.dtype) for w in subject.weights)
    units = [u for name in names for n, u in UNITS.items() if name.startswith(n)]
    return max([u for u in units if u > own], default=0.0)


def _small_case(subject: Subject) -> Case:
    """Return a case on two devices, or as few as the step takes: what is sent shows."""
    two = min(max(2, subject.least_devices), subject.most_devices)
    return subject.enough(two, steps=1)


def _begun(subject: Subject, weights: Arrays, case: Case) -> Training | None:
    """Return a training that has just begun; None if it stops."""
    try:
        return subject.start([w.copy() for w in weights], case.devices)
    except Exception:  # the first trial stops in the same way, and says so
        return None


def _of_step(subject: Subject, case: Case) -> float:
    """Return to which unit a step of plain SGD rounds its inputs, or what it sends.

    A matrix that begins at 0 keeps all digits of its change.
    """
    X, y = subject.draw(case.samples, 0)
    if subject.rule not in (None, SGD) or not is_floating(X):
        return 0.0
    found, matrices = [], [p for p, w in enumerate(subject.weights) if w.ndim > 1]
    for p in matrices[:MATRICES]:
        weights = list(subject.weights)
        weights[p] = np.zeros_like(weights[p])

        def moved(inputs: np.ndarray, p: int = p, weights: Arrays = weights) -> Arrays:
            running = subject.start([w.copy() for w in weights], case.devices)
            running.take(inputs, y)
            return [np.array(running.copies()[0][p])]

        try:
            found.append(_unit_of(X, moved))
        except Exception:  # the first trial stops in the same way, and says so
            return 0.0
    return min(found, default=0.0)


def _of_reference(subject: Subject) -> float:
    """Return the unit in the last place of 1 that the reference computes in."""
    samples = subject.enough(subject.least_devices, steps=1).samples
    X, y = subject.draw(samples, 0)
    weights = [w.copy() for w in subject.weights]
    found, matrices = [], [p for p, w in enumerate(weights) if w.ndim > 1]
    if is_floating(X):
        found.append(_unit_of(X, lambda moved: subject.gradient(moved, y, weights)[1]))
    if matrices:
        before, (own, *after) = weights[: matrices[0]], weights[matrices[0] :]
        of = lambda moved: subject.gradient(X, y, [*before, moved, *after])[1]  # noqa: E731
        found.append(_unit_of(own, of))
    return min(found, default=0.0)


def _unit_of(a: np.ndarray, of: Callable[[np.ndarray], Arrays]) -> float:
    """Return to which unit `of` rounds its argument; 0 for the argument's own."""
    own, base = int(math.log2(unit(a.dtype))), of(a)
    if not _same(of((a * (1 + 2.0**own)).astype(a.dtype)), base):
        return 0.0
    largest = np.argsort(-np.abs(a.astype(np.float64)).ravel())[:NUMBERS]
    powers = sorted(_power_of(a, int(i), of, base, own) for i in largest)
    power = powers[len(powers) // 2]
    if power < own + LEAST:
        return 0.0
    return min(NARROW, key=lambda one: abs(math.log2(one) - power - 1))


def _power_of(
    a: np.ndarray, i: int, of: Callable, base: Arrays, own: int
) -> float:  # fmt: skip
    """Return the power of 2 by which number i must change until a gradient does."""

    def changes(power: int) -> bool:
        moved = a.copy()
        moved.flat[i] = a.flat[i] * (1 + 2.0**power)
        return not _same(of(moved), base)

    if not changes(-1):
        return own  # nothing depends on it
    low, high = own - 1, -1  # the least that changes anything is in (low, high]
    while high - low > 1:
        power = (low + high) // 2
        low, high = (low, power) if changes(power) else (power, high)
    return high


def _same(a: Arrays, b: Arrays) -> bool:
    pairs = zip(a, b, strict=True)
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in pairs)
