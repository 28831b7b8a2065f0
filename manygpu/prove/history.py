"""The fourth witness: what a training has after each of its steps.

All replicas' weights must be alike, byte for byte. So must be what is kept beside them
(slots of the optimizer, counters, moving averages), unless the subject says why each
replica has its own: then it must not be alike. And it moves as far as on one device.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

import numpy as np

from manygpu.prove.counts import is_floating, unit, wide
from manygpu.prove.naming import NEAR, named_factor
from manygpu.prove.subject import Arrays, Case, Subject
from manygpu.prove.trials import (
    Saw,
    Trial,
    finite,
    largest,
    same,
    snapshot,
    state_of,
)
from manygpu.prove.verdict import Finding, told

Kept = dict[str, list[np.ndarray | None]]
# Of a change of what is kept: the part of it, and units in its last place, that it may
# be off on other numbers of devices.
APART, FEW_UNITS = 0.05, 64


def look(trial: Trial) -> Iterator[Saw]:
    """Take a case's steps; yield what is wrong after the first wrong one."""
    subject, running = trial.subject, trial.begun()
    before = state_of(running)
    alone = cache(partial(counters_alone, trial))
    yield from of_one_replica(before)
    for t, (X, y) in enumerate(trial.batches):
        running.take(X, y)
        after, until = state_of(running), trial.case._replace(steps=t + 1)
        saw = [
            *of_copies(subject, until, snapshot(running.copies())),
            *of_forms(until, before, after),
            *of_replicas(subject, until, after),
            *of_steps(subject, until, before, after, alone),
            *of_averages(subject, until, before, after, running.copies()[0]),
        ]
        yield from saw
        if any(isinstance(one, Finding) for one in saw):
            return
        before = after
    yield from as_far_as_alone(trial, before)


def of_one_replica(kept: Kept) -> Iterator[str]:
    """Remark what lies on some replicas only, as a row-parallel bias may."""
    for name, own in kept.items():
        there = [str(r) for r, a in enumerate(own) if a is not None]
        if len(there) < len(own):
            where = f"replica {', '.join(there)} only" if there else "no replica"
            yield f"{name} is on {where}: right, because its part is added once"


def of_copies(subject: Subject, case: Case, copies: Sequence[Arrays]) -> Iterator[Saw]:
    """All copies of the weights are one, and of the dtype they had."""
    for p, weight in enumerate(subject.weights):
        name = subject.name_of(p)
        for c, own in enumerate(copies):
            if own[p].dtype != weight.dtype or own[p].shape != weight.shape:
                what = f"{own[p].dtype}, shape {own[p].shape}"
                yield Finding("kept", f"copy {c} of {name} has become {what}", case)
                return
            if own[p].tobytes() != copies[0][p].tobytes():
                odd = int((own[p] != copies[0][p]).sum())
                text = f"{odd} numbers of {name} differ between copy {c} and copy 0"
                yield Finding("copies", text, case)
                return
        if not finite([own[p] for own in copies]):
            yield Finding("overflow", f"{name} became infinite or NaN", case)
            return


def of_forms(case: Case, before: Kept, after: Kept) -> Iterator[Saw]:
    """Nothing that is kept gets lost, changes its form, or isn't finite."""
    for name, own in before.items():
        if name not in after:
            yield Finding("kept", f"{name} is missing after a step", case)
        elif forms(own) != forms(after[name]):
            text = f"{name} was {forms(own)[0]} and is {forms(after[name])[0]}"
            yield Finding("kept", text, case)
        elif not finite(after[name]):
            yield Finding("kept", f"{name} became infinite or NaN", case)


def forms(own: Sequence[np.ndarray | None]) -> list[str]:
    """Return dtype and shape of each replica's part."""
    return ["nothing" if a is None else f"{a.dtype} {a.shape}" for a in own]


def of_replicas(subject: Subject, case: Case, after: Kept) -> Iterator[Saw]:
    """What is kept is alike on all replicas, or on none."""
    for name, own in after.items():
        there = [(r, a) for r, a in enumerate(own) if a is not None]
        others = [r for r, a in there[1:] if not same(a, there[0][1])]
        if name not in subject.apart:
            if others:
                text = (
                    f"{name} is not the same on replicas {there[0][0]} and {others[0]}"
                )
                yield Finding("kept", text, case)
        elif two := same_random(there):
            text = f"{name} is the same on replicas {two[0]} and {two[1]}"
            yield Finding("random", f"{text} ({subject.apart[name]})", case)
        elif len(there) > 1 and not others and np.any(there[0][1]):
            text = f"{name} is the same on all replicas ({subject.apart[name]})"
            yield Finding("kept", text, case)
        elif others:
            yield f"{name} differs between replicas, and should: {subject.apart[name]}"


def same_random(there: Sequence[tuple[int, np.ndarray]]) -> tuple[int, int] | None:
    """Return two replicas whose random state is one; None if there are none.

    Shares of different sizes may have drawn more numbers, so not all need be alike.
    """
    for (r, a), (s, b) in itertools.combinations(there, 2):
        if is_random(a) and np.any(a) and same(a, b):
            return r, s
    return None


def of_averages(
    subject: Subject, case: Case, before: Kept, after: Kept, weights: Arrays
) -> Iterator[Saw]:
    """A copy of the weights that is kept, such as their average, follows them.

    What has been one of the weights when the training began is such a copy. Weights
    that are all alike, such as biases of 0, tell nothing: momentum begins like them.
    """
    if case.steps > 1:
        return
    for name, (old, *_) in before.items():
        for w, now in zip(subject.weights, weights, strict=True):
            if old is None or not (same(old, w) and np.ptp(wide(w))):
                continue
            moved, ahead = wide(after[name][0]) - wide(old), wide(now) - wide(old)
            size = np.linalg.norm(moved) * np.linalg.norm(ahead)
            if size and float(moved @ ahead) < -size / 2:
                text = f"{name}, a copy of weights before, moves away from them"
                yield Finding("kept", text, case)
                return


def as_far_as_alone(trial: Trial, end: Kept) -> Iterator[Saw]:
    """What is kept, and alike on all replicas, has moved as on the fewest devices."""
    subject, case = trial.subject, trial.case
    few = subject.least_devices
    if not end or few == case.devices or {"devices", "mean"} & {*subject.excused}:
        return
    running = trial.begun(devices=few)
    begun = state_of(running)
    trial.end(running)
    odd: dict[str, float] = {}  # how many times as far each has moved
    for name, own in state_of(running).items():
        first, right, found = begun.get(name), own[0], end.get(name, [None])[0]
        if first is None or name in subject.apart or not may_compare(found, right):
            continue
        due, moved = wide(right) - wide(first[0]), wide(found) - wide(first[0])
        size = max(largest(right), largest(found))
        most = FEW_UNITS * max(unit(found.dtype), subject.coarse) * size
        most += max(APART, FEW_UNITS * subject.coarse) * largest(due)
        if largest(moved - due) > most:
            odd[name] = float(moved @ due) / (float(due @ due) or 1.0)
    if not odd:
        return
    name, ratio = next(iter(odd.items()))
    on_few = f"on {few} device{'s' * (few != 1)}"
    if factor := of_moments(case, [*odd.values()]):
        text = f"first moments are {told(factor)} times as large as {on_few}, and "
        text += f"second ones {told(factor**2)} times{named_factor(factor, case, NEAR)}"
        yield Finding("mean", text, case)
        return
    yield Finding("kept", f"{name} moved {told(ratio)} times as far as {on_few}", case)


def of_moments(case: Case, ratios: Sequence[float]) -> float | None:
    """Return by what gradients were multiplied, if averages and squares say the same.

    Squares alone, or averages alone, may be wrong by themselves.
    """
    for factor in (case.devices, case.samples, 1 / case.devices, 1 / case.samples):
        due = factor, factor**2
        found = [[abs(r / one - 1) <= APART for r in ratios] for one in due]
        if (
            factor != 1
            and all(map(any, found))
            and all(map(any, zip(*found, strict=True)))
        ):
            return factor
    return None


def may_compare(found: np.ndarray | None, right: np.ndarray | None) -> bool:
    """Return whether these are floating-point arrays of one shape, and finite."""
    there = found is not None and right is not None
    return there and found.shape == right.shape and is_floating(found) and finite(
        [found, right]
    )  # fmt: skip


def counters_alone(trial: Trial) -> list[dict[str, int]]:
    """Return by how much each whole number goes on in each step on fewest devices."""
    running = trial.begun(devices=trial.subject.least_devices)
    seen = [state_of(running)]
    for X, y in trial.batches:
        running.take(X, y)
        seen.append(state_of(running))
    return [
        {
            name: int(own[0]) - int(old[name][0])
            for name, own in new.items()
            if is_counter(own[0]) and name in old and is_counter(old[name][0])
        }
        for old, new in itertools.pairwise(seen)
    ]


def of_steps(
    subject: Subject,
    case: Case,
    before: Kept,
    after: Kept,
    alone: Callable[[], list[dict[str, int]]],
) -> Iterator[Saw]:
    """Counters go on by one, or as on the fewest devices, and random state goes on."""
    for name, own in after.items():
        for r, (old, new) in enumerate(zip(before.get(name, own), own, strict=True)):
            if is_counter(new) and is_counter(old) and int(new) - int(old) != 1:
                text = f"{name} on replica {r} went from {int(old)} to {int(new)}"
                if alone()[case.steps - 1].get(name) == int(new) - int(old):
                    few = subject.least_devices
                    text += f", on {few} device{'s' * (few != 1)}, too"
                    yield f"{text}: right, if it counts something other than steps"
                else:
                    yield Finding("counter", text, case)
                break
            if name in subject.apart and is_random(new) and same(old, new):
                text = f"{name} on replica {r} didn't change: it draws the same again"
                yield Finding("random", text, case)
                break


def is_counter(a: np.ndarray | None) -> bool:
    """Return whether this counts steps: one whole number."""
    return a is not None and a.size == 1 and a.dtype.kind in "iu"


def is_random(a: np.ndarray | None) -> bool:
    """Return whether this is the state of a generator: several whole numbers."""
    return a is not None and a.size > 1 and a.dtype.kind in "iu"
