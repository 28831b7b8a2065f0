"""Trials of a subject's own step, and how two of them are compared.

How far two ends may be apart is not guessed: the step itself is taken from weights and
inputs that were moved by one unit in the last place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from manygpu.prove.counts import SAFETY, TRIALS, nudged, unit, wide
from manygpu.prove.subject import Arrays, Case, Subject
from manygpu.prove.verdict import Finding, Held, Refused, told
from manygpu.trainings.contract import Training

# What a look at a trial yields; a text is a remark.
Saw = Finding | Held | Refused | str
Batch = tuple[np.ndarray, np.ndarray]
UNITS = 4  # in the last place of the largest weight, which one more rounding may take
ONE_FACTOR = 0.01  # the part of a change that a mere factor may leave unexplained


class Off(NamedTuple):
    """How an end differs from another.

    Attributes:
        said: in words.
        ratio: how many times as far all weights went, if that is all; else None.
        only_loss: whether the weights are alike, and the reported losses aren't.
    """

    said: str
    ratio: float | None = None
    only_loss: bool = False


@dataclass
class Trial:
    """A subject's own step on the batches of a case; each run begins anew."""

    subject: Subject
    case: Case

    @cached_property
    def batches(self) -> list[Batch]:
        draw, first = self.subject.draw, 1000 * self.case.seed
        return [draw(self.case.samples, first + t) for t in range(self.case.steps)]

    def begun(
        self, devices: int | None = None, weights: Arrays | None = None
    ) -> Training:
        """Return a training that has just begun."""
        weights = self.subject.weights if weights is None else weights
        k = self.case.devices if devices is None else devices
        return self.subject.start([w.copy() for w in weights], k)

    def end(self, running: Training, batches: Sequence[Batch] | None = None) -> Arrays:
        """Take steps; return the first copy's weights then, and the loss, if any."""
        loss = None
        for X, y in self.batches if batches is None else batches:
            loss = running.take(X, y)
        weights, *_ = snapshot(running.copies())
        return weights if loss is None else [*weights, np.array(loss)]

    @cached_property
    def first(self) -> tuple[Training, Arrays]:
        """A training that has taken the case's steps, and its end."""
        running = self.begun()
        return running, self.end(running)

    @property
    def base(self) -> Arrays:
        return self.first[1]

    @cached_property
    def rounding(self) -> list[float]:
        """How far rounding alone may move each array of an end."""
        rng, most = np.random.default_rng(0), [0.0] * len(self.base)
        for _ in range(TRIALS):
            coarse = self.subject.coarse
            weights = [nudged(w, rng, coarse) for w in self.subject.weights]
            batches = [(nudged(X, rng, coarse), y) for X, y in self.batches]
            end = self.end(self.begun(weights=weights), batches)
            off = map(distance, end, self.base)
            most = [max(pair) for pair in zip(most, off, strict=True)]
        return [SAFETY * one for one in most]

    def off(
        self, end: Arrays, base: Arrays | None = None, most: float | None = None
    ) -> Off | None:
        """Say how an end differs from another; None if rounding explains it.

        most: the part of the largest change that may differ; None finds out.
        """
        base = self.base if base is None else base
        off = list(map(distance, end, base))
        digits = [self.last_digits(b) for b in base]
        if most is not None:
            moved = max(map(distance, base, self.subject.weights))
            most = [d + most * moved for d in digits]
        elif all(o <= d for o, d in zip(off, digits, strict=True)):
            return None
        else:
            most = [d + r for d, r in zip(digits, self.rounding, strict=False)]
        wrong = [i for i, o in enumerate(off) if not o <= most[i]]
        return described(self.subject, end, base, wrong) if wrong else None

    def last_digits(self, a: np.ndarray) -> float:
        """Return what a few units in the last place of the largest number are."""
        return UNITS * unit(self.subject.weights[0].dtype) * largest(a)


def largest(a: np.ndarray) -> float:
    return float(np.abs(wide(a)).max(initial=0))


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Return the largest difference of two arrays' numbers."""
    return largest(wide(a) - wide(b))


def described(subject: Subject, end: Arrays, base: Arrays, wrong: Sequence[int]) -> Off:
    """Say how two ends differ, in the arrays numbered `wrong`."""
    count = len(subject.weights)
    if wrong[0] == count:
        loss, right = float(end[-1]), float(base[-1])
        return Off(f"the loss is reported as {loss:.4g}, not {right:.4g}", None, True)
    way, right_way = (
        np.concatenate(
            [wide(a) - wide(w) for a, w in zip(one, subject.weights, strict=True)]
        )
        for one in (end[:count], base[:count])
    )
    if not np.isfinite(way).all():
        return Off("weights become infinite or NaN")
    size = float(right_way @ right_way)
    ratio = float(way @ right_way) / (size or 1.0)
    left = np.linalg.norm(way - ratio * right_way)
    if size and left <= ONE_FACTOR * np.linalg.norm(way):
        return Off(f"the weights move {told(ratio)} times as far", ratio)
    named = subject.name_of(wrong[0])
    others = len([i for i in wrong if i < count]) - 1
    named += f" and {others} more" if others else ""
    part = np.linalg.norm(way - right_way) / (np.sqrt(size) or 1.0)
    percent = f"{100 * part:.2g}" if part < 1 else f"{100 * part:.0f}"
    return Off(f"{named} end up different, by {percent}% of the whole change")


def finite(arrays: Sequence[np.ndarray | None]) -> bool:
    """Return whether all numbers of these are finite."""
    return all(np.isfinite(wide(a)).all() for a in arrays if a is not None)


def alike(a: Arrays, b: Arrays) -> bool:
    """Return whether two copies have the same numbers; none is like none."""
    pairs = zip(a, b, strict=True)
    return all(np.array_equal(wide(x), wide(y), equal_nan=True) for x, y in pairs)


def snapshot(copies: Iterable[Arrays]) -> list[Arrays]:
    """Return the weights as they are now."""
    return [[np.array(w) for w in own] for own in copies]


def state_of(running: Training) -> dict[str, list[np.ndarray | None]]:
    """Return what a training keeps beside its weights, as it is now; {} if unseen."""
    if (state := getattr(running, "state", None)) is None:
        return {}
    return {
        name: [None if a is None else np.array(a) for a in own]
        for name, own in state().items()
    }


def same(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    """Return whether two arrays of the state are one, byte for byte."""
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
