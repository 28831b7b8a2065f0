"""How few digits a step computes in: maybe fewer than its weights have.

With mixed precision, weights are float32 and products are of 16 bits. Who allows what
rounding does must know the narrowest dtype; nobody has to tell it, because it shows:
a small change of an input changes nothing, where something rounds the input first.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from manygpu.prove.counts import is_floating, unit
from manygpu.prove.subject import Arrays, Subject

NARROW = {
    2.0**-23: "float32",
    2.0**-10: "float16 or TF32",
    2.0**-7: "bfloat16",
    2.0**-3: "float8",
}
NUMBERS, LEAST = 5, 6  # how many are changed; powers of 2 beyond the dtype's own unit


def unit_found(subject: Subject) -> float:
    """Return the unit in the last place of 1 that the reference computes in.

    0 if that is the weights' own, or if there is no reference.
    """
    if subject.gradient is None:
        return 0.0
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
    for power in range(own, 0):
        moved = a.copy()
        moved.flat[i] = a.flat[i] * (1 + 2.0**power)
        if not _same(of(moved), base):
            return power
    return own  # nothing depends on it


def _same(a: Arrays, b: Arrays) -> bool:
    pairs = zip(a, b, strict=True)
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in pairs)
