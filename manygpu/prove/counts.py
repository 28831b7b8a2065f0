"""The first witness: who counted how often.

If a step of SGD is right, it changes each weight by -lr times the mean of the samples'
gradients. Whatever it does wrong with samples, it changes the weight by some other
sum of them, -lr * (c_1 g_1 + ... + c_N g_N). The g_i are known: one device finds them,
a sample at a time. So the c_i can be solved for, and N c_i says how often sample i was
counted: 1 each if the step is right.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from manygpu.prove.rules import Plain
from manygpu.prove.subject import Arrays, Subject

TRIALS, SAFETY = 3, 10.0
LEAST = 1e3 * np.finfo(np.float64).eps  # what solving itself may leave
LOSS_UNITS = 4  # in the last place: the loss is a number of the weights' dtype
ALIKE = 1e-7  # gradients that differ by less, as a part of them, are one


class Solved(NamedTuple):
    """Who counted how often in one copy of the weights; or how far rounding may be off.

    Attributes:
        times: times[parameter, sample], of each parameter alone; 1 is right.
        rest: rest[parameter], what no sum of the samples explains, as a part of the
            change.
        joint: joint[sample], if all parameters counted alike.
        left: left[parameter], what `joint` doesn't explain.
    """

    times: np.ndarray
    rest: np.ndarray
    joint: np.ndarray
    left: np.ndarray


@dataclass
class Counts:
    """Who counted how often in a step, in each copy of the weights.

    Attributes:
        copies: of each, what was solved.
        told_apart: whether all parameters together tell the samples apart.
        solvable: solvable[parameter], whether it alone does.
        rounding: returns how far from 1, or from 0, rounding alone may move that, and
            the loss, as a part of it.
    """

    copies: Sequence[Solved]
    told_apart: bool
    solvable: np.ndarray
    rounding: Callable[[], tuple[Solved, float]]

    @property
    def slack(self) -> Solved:
        return self.rounding()[0]

    @property
    def loss_slack(self) -> float:
        return self.rounding()[1]

    @property
    def joint(self) -> np.ndarray:
        """How often in all, [copy, sample]."""
        return np.array([own.joint for own in self.copies])

    @property
    def off(self) -> np.ndarray:
        """Whether rounding does not explain the times, [copy, parameter]."""
        near = [np.abs(own.times - 1) <= self.slack.times for own in self.copies]
        return ~np.array(near).all(axis=2)

    @property
    def unexplained(self) -> np.ndarray:
        """Whether rounding does not explain the rest, [copy, parameter]."""
        most = self.slack.rest
        near = [own.rest <= most * at_least_once(own.times) for own in self.copies]
        return ~np.array(near)

    @property
    def agree(self) -> bool:
        """Whether all parameters counted alike."""
        most = self.slack.left
        near = [own.left <= most * at_least_once(own.joint) for own in self.copies]
        return bool(np.all(near))


def at_least_once(times: np.ndarray) -> np.ndarray:
    """Return how often the sample counted that counted most, 1 if none did more.

    `rounding` is of samples that count once. One that counts twice brings twice its
    rounding along.
    """
    return np.maximum(1.0, np.abs(times).max(axis=-1))


def wide(a: np.ndarray) -> np.ndarray:
    """Return the numbers in one row, in float64, which only this module computes in."""
    return np.asarray(a).astype(np.float64).ravel()


def exactly(mean: Arrays, changes: Sequence[Arrays]) -> bool:
    """Return whether all copies followed the batch's mean gradient, to the last digits.

    Then there is nothing to solve for: most steps that are right in float64 are so.
    """
    sizes = [np.linalg.norm(wide(m)) for m in mean]
    return all(
        np.linalg.norm(wide(c) - wide(m)) <= LEAST * size
        for own in changes
        for c, m, size in zip(own, mean, sizes, strict=True)
    )


def by_sample(
    subject: Subject, X: np.ndarray, y: np.ndarray, weights: Arrays
) -> list[np.ndarray]:
    """Return for each parameter the gradients of each sample alone: (numbers, N)."""
    each = []
    for i in range(len(X)):
        _, grads = subject.gradient(X[i : i + 1], y[i : i + 1], weights)
        each.append(grads)
    grads = zip(*each, strict=True)
    return [np.stack([wide(g) for g in same], axis=1) for same in grads]


class Basis(NamedTuple):
    """The samples' gradients of a parameter, made ready to solve for many changes.

    Attributes:
        grads: (numbers, N), a sample a column; q @ r is the same, r a small matrix.
        mean: of the columns.
        length: what a change of the parameter is measured by.
    """

    grads: np.ndarray
    q: np.ndarray
    r: np.ndarray
    mean: np.ndarray
    length: float


def basis(grads: np.ndarray) -> Basis:
    """Return the basis of the gradients of each sample."""
    q, r = np.linalg.qr(grads)
    return Basis(grads, q, r, grads.mean(axis=1), length(grads))


def length(grads: np.ndarray) -> float:
    """Return what the change of a parameter is measured by; 1 if nothing moves it."""
    return float(np.linalg.norm(grads)) / grads.shape[1] or 1.0


def nearest(r: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Return N c, from a change less the right one, both in the basis.

    Of all c that fit, those nearest to 1/N: if two samples' gradients are one, as
    those of a number are, nobody can tell which of them was counted.
    """
    more, *_ = np.linalg.lstsq(r, change, rcond=ALIKE)
    return 1 + r.shape[1] * more


def solve(change: np.ndarray, base: Basis) -> tuple[np.ndarray, float]:
    """Return N c for one parameter, and the part of the change that is no sum."""
    samples = base.grads.shape[1]
    if not np.isfinite(change).all():
        return np.full(samples, np.nan), np.inf
    off = change - base.mean
    times = nearest(base.r, base.q.T @ off)
    rest = np.linalg.norm(off - base.grads @ ((times - 1) / samples))
    return times, float(rest) / base.length


def solved(changes: Sequence[np.ndarray], bases: Sequence[Basis]) -> Solved:
    """Return who counted how often, from the gradients that a copy followed."""
    alone = [solve(c, b) for c, b in zip(changes, bases, strict=True)]
    times, rest = zip(*alone, strict=True)
    samples = len(times[0])
    joint, left = np.full(samples, np.nan), np.full(len(bases), np.inf)
    if np.isfinite(rest).all():
        # Each parameter by its own length, so that none drowns another.
        pairs = list(zip(changes, bases, strict=True))
        off = np.concatenate([b.q.T @ (c - b.mean) / b.length for c, b in pairs])
        joint = nearest(together(bases), off)
        ends = [np.linalg.norm(c - b.grads @ joint / samples) for c, b in pairs]
        left = np.array(ends) / [b.length for b in bases]
    return Solved(np.array(times), np.array(rest), joint, left)


def together(bases: Sequence[Basis]) -> np.ndarray:
    """Return the small matrices of all parameters, one below the other."""
    return np.concatenate([b.r / b.length for b in bases])


def tells_apart(r: np.ndarray) -> bool:
    """Return whether there is only one way to count the samples for a change."""
    sizes = np.linalg.svd(r, compute_uv=False)
    return bool((sizes > ALIKE * sizes.max(initial=0)).sum() == r.shape[1])


def count(
    subject: Subject,
    X: np.ndarray,
    y: np.ndarray,
    before: Arrays,
    changes: Sequence[Arrays],
    rule: Plain,
) -> Counts:
    """Return who counted how often in a step on X, y.

    Args:
        subject: whose gradients are taken.
        X, y: the whole batch.
        before: the weights from which the step went.
        changes: changes[copy][parameter], the gradient that the step followed.
        rule: of the optimizer, as it was before the step.
    """
    bases = [basis(grads) for grads in by_sample(subject, X, y, before)]
    found: dict[bytes, Solved] = {}  # copies that went alike are solved for once
    copies = []
    for own in changes:
        key = b"".join(c.tobytes() for c in own)
        if key not in found:
            found[key] = solved([wide(c) for c in own], bases)
        copies.append(found[key])
    may = cache(partial(rounding, subject, X, y, before, bases, rule))
    alone = np.array([tells_apart(base.r) for base in bases])
    return Counts(copies, tells_apart(together(bases)), alone, may)


def rounding(
    subject: Subject,
    X: np.ndarray,
    y: np.ndarray,
    before: Arrays,
    bases: Sequence[Basis],
    rule: Plain,
) -> tuple[Solved, float]:
    """Return how far one device's own step is off by rounding alone.

    Every weight, and every input that is no whole number, is moved by one unit in its
    last place, up or down; one device takes the right step from there, in the
    subject's own numbers; and it is solved for as any other. The worst of some trials,
    some times over, is what is allowed.
    """
    rng, found, losses = np.random.default_rng(0), [], []
    for _ in range(TRIALS):
        moved = [nudged(w, rng, subject.coarse) for w in before]
        loss, sums = subject.gradient(nudged(X, rng, subject.coarse), y, moved)
        mean = [wide(total) / len(X) for total in sums]
        if subject.coarse:
            mean = [
                m + rounded_off(b, rng, subject.coarse)
                for m, b in zip(mean, bases, strict=True)
            ]
        made = []
        for w, change in zip(before, copy.deepcopy(rule).change(mean), strict=True):
            after = (wide(w).astype(w.dtype) - change.astype(w.dtype)).astype(w.dtype)
            made.append(wide(w) - wide(after))
        back = copy.deepcopy(rule).gradient(made, mean)
        found.append(solved(back, bases))
        losses.append(float(loss))
    exact, _ = subject.gradient(X, y, before)
    off = np.abs(np.array(losses) / (float(exact) or 1.0) - 1).max()
    times = np.max([np.abs(one.times - 1) for one in found], axis=0)
    # A parameter's samples are rounded alike: the worst of them is for all.
    times = np.broadcast_to(times.max(axis=1, keepdims=True), times.shape)
    joint = np.max([np.abs(one.joint - 1).max() for one in found])
    if subject.coarse:  # where samples are nearly alike, few trials may miss the worst
        alone, all_together = likely_off(bases, subject.coarse)
        times = np.maximum(times, alone[:, None])
        joint = max(joint, all_together)
    rest, left = (np.max([getattr(one, what) for one in found], axis=0)
                  for what in ("rest", "left"))  # fmt: skip
    slack = Solved(times, rest, np.full(len(X), joint), left)
    loss_slack = SAFETY * off + LOSS_UNITS * unit(before[0].dtype)
    return Solved(*(SAFETY * part + LEAST for part in slack)), loss_slack


def rounded_off(base: Basis, rng: np.random.Generator, coarse: float) -> np.ndarray:
    """Return what a mean gradient is off by, if each sample's is of few digits."""
    signs = rng.choice([-1.0, 1.0], base.grads.shape)
    return (base.grads * (coarse / 4 * signs)).mean(axis=1)


def likely_off(bases: Sequence[Basis], coarse: float) -> tuple[np.ndarray, float]:
    """Return how far `rounded_off` moves counts: of the worst sample, in the root mean.

    Of each parameter alone, and of all together.
    """
    samples = bases[0].grads.shape[1]
    sizes = [coarse / 4 / samples * np.linalg.norm(b.grads, axis=1) for b in bases]
    noise = [b.q.T * size for b, size in zip(bases, sizes, strict=True)]

    def worst(r: np.ndarray, parts: Sequence[np.ndarray]) -> float:
        back = np.linalg.pinv(r, rcond=ALIKE)
        ends = np.cumsum([len(part) for part in parts])[:-1]
        pairs = zip(np.split(back, ends, axis=1), parts, strict=True)
        moved = np.concatenate([b @ part for b, part in pairs], axis=1)
        return samples * float(np.linalg.norm(moved, axis=1).max())

    alone = [worst(b.r, [part]) for b, part in zip(bases, noise, strict=True)]
    scaled = [part / b.length for b, part in zip(bases, noise, strict=True)]
    return np.array(alone), worst(together(bases), scaled)


def nudged(a: np.ndarray, rng: np.random.Generator, coarse: float = 0.0) -> np.ndarray:
    """Return an array whose numbers are one unit in the last place up or down.

    coarse: see `Subject`. What is rounded to such numbers is off by half their last
    place at most, and that is half of the unit, or all of it.
    """
    if not is_floating(a):
        return a
    signs = rng.choice([-1.0, 1.0], a.shape)
    return (a.astype(np.float64) * (1 + max(unit(a.dtype), coarse / 4) * signs)).astype(
        a.dtype
    )


def is_floating(a: np.ndarray) -> bool:
    """Return whether these are floating-point numbers, bfloat16's too."""
    return a.dtype.kind == "f" or a.dtype.name == "bfloat16"


def unit(dtype: np.dtype) -> float:
    """Return the unit in the last place of 1, in this dtype."""
    return 2.0**-7 if dtype.name == "bfloat16" else float(np.finfo(dtype).eps)
