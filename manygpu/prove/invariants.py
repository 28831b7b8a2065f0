"""The third witness: what must not change.

A right step does not depend on the order of the samples, on the number of devices, on
whether the training was saved and resumed in between, and so on. Each such invariance
takes the subject's own step twice, and compares where the weights end. So this needs
no gradient and no reference, and judges whatever moves weights.

How far two ends may be apart is not guessed: the step itself is taken from weights and
inputs that were moved by one unit in the last place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from manygpu.prove.counts import SAFETY, TRIALS, is_floating, nudged, unit, wide
from manygpu.prove.subject import SGD, Arrays, Case, Running, Subject
from manygpu.prove.verdict import Finding, stopped

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
    ) -> Running:
        """Return a training that has just begun."""
        weights = self.subject.weights if weights is None else weights
        k = self.case.devices if devices is None else devices
        return self.subject.start([w.copy() for w in weights], k)

    def end(self, running: Running, batches: Sequence[Batch] | None = None) -> Arrays:
        """Take steps; return the first copy's weights then, and the loss, if any."""
        loss = None
        for X, y in self.batches if batches is None else batches:
            loss = running.take(X, y)
        weights, *_ = snapshot(running.copies())
        return weights if loss is None else [*weights, np.array(loss)]

    @cached_property
    def first(self) -> tuple[Running, Arrays]:
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
            weights = [nudged(w, rng) for w in self.subject.weights]
            batches = [(nudged(X, rng), y) for X, y in self.batches]
            end = self.end(self.begun(weights=weights), batches)
            off = map(distance, end, self.base)
            most = [max(pair) for pair in zip(most, off, strict=True)]
        return [SAFETY * one for one in most]

    def off(self, end: Arrays, base: Arrays | None = None) -> Off | None:
        """Say how an end differs from another; None if rounding explains it."""
        base = self.base if base is None else base
        off = list(map(distance, end, base))
        most = [self.last_digits(b) for b in base]
        if any(not o <= m for o, m in zip(off, most, strict=True)):
            most = [m + r for m, r in zip(most, self.rounding, strict=True)]
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
        return Off("weights become infinite or no numbers at all")
    size = float(right_way @ right_way)
    ratio = float(way @ right_way) / (size or 1.0)
    left = np.linalg.norm(way - ratio * right_way)
    if size and left <= ONE_FACTOR * np.linalg.norm(way):
        return Off(f"the weights move {ratio:.3g} times as far", ratio)
    named = subject.name_of(wrong[0])
    others = len([i for i in wrong if i < count]) - 1
    named += f" and {others} more" if others else ""
    part = np.linalg.norm(way - right_way) / (np.sqrt(size) or 1.0)
    return Off(f"{named} end elsewhere, off by {100 * part:.2g}% of the whole change")


# Each of these yields what it finds, or a remark. The trial's first batch is the only
# one, but for those that ask for two steps.
Saw = Finding | str


def same_again(trial: Trial) -> Iterator[Saw]:
    """The same step from the same weights ends the same."""
    again = trial.end(trial.begun())
    if all(a.tobytes() == b.tobytes() for a, b in zip(again, trial.base, strict=True)):
        return
    if off := trial.off(again):
        text = f"of the same step, taken a second time, {off.said}"
        yield Finding("repeatable", text, trial.case)
    else:
        yield "the same step, taken twice, differs in its last digits"


def in_its_place(trial: Trial) -> Iterator[Saw]:
    """Each device works, and only on what is its own."""
    where, case = trial.first[0].places(), trial.case
    idle = [str(d) for d, count in enumerate(where.worked) if not count]
    if any(where.worked) and idle and case.samples >= case.devices:
        busy = len(where.worked) - len(idle)
        text = f"{busy} of {case.devices} devices worked; idle: {', '.join(idle)}"
        yield Finding("place", text, case)
    elif where.strays:
        text = "; ".join(where.strays[:2])
        text += f" and {len(where.strays) - 2} more" if len(where.strays) > 2 else ""
        yield Finding("place", text, case)
    elif not any(where.worked):
        yield "nobody saw where it ran: its graph was made before"


def each_twice(trial: Trial) -> Iterator[Saw]:
    """A batch that has each sample twice has the same mean."""
    (X, y), *_ = trial.batches
    double = np.concatenate([X, X]), np.concatenate([y, y])
    if off := trial.off(trial.end(trial.begun(), [double])):
        broken = "shares" if off.ratio is None else "mean"
        yield Finding(
            broken, f"if the batch has each sample twice, {off.said}", trial.case
        )


def on_any_devices(trial: Trial) -> Iterator[Saw]:
    """The step is the one that the fewest devices take."""
    few, many = trial.subject.least_devices, trial.case.devices
    if few == many:
        return
    if off := trial.off(trial.base, trial.end(trial.begun(devices=few))):
        broken = "devices" if off.ratio is None else "mean"
        broken = "loss" if off.only_loss else broken
        yield Finding(
            broken, f"on {many} devices, against {few}, {off.said}", trial.case
        )


def in_any_order(trial: Trial) -> Iterator[Saw]:
    """Neither samples nor devices have a rank."""
    (X, y), *_ = trial.batches
    # Not reversed: with two samples a device the same two would meet again.
    moved = np.roll(X, 1, axis=0), np.roll(y, 1, axis=0)
    if off := trial.off(trial.end(trial.begun(), [moved])):
        text = f"with the samples in another order, {off.said}"
        yield Finding("order", text, trial.case)
    elif trial.subject.on is not None:
        weights = [w.copy() for w in trial.subject.weights]
        running = trial.subject.on(weights, range(trial.case.devices)[::-1])
        if off := trial.off(trial.end(running)):
            text = f"with the devices in another order, {off.said}"
            yield Finding("order", text, trial.case)


def with_an_empty_shard(trial: Trial) -> Iterator[Saw]:
    """With fewer samples than devices the step is right, or refused as a whole."""
    subject, case = trial.subject, trial.case
    few = case._replace(samples=case.devices - 1)
    if not few.samples or not subject.fits(few):
        return
    batch, running = subject.draw(few.samples, case.seed), trial.begun()
    try:
        end = trial.end(running, [batch])
    except subject.refusals:
        if not all(alike(own, subject.weights) for own in running.copies()):
            yield Finding("empty", "the step is refused, but weights have moved", few)
        elif off := trial.off(trial.end(running)):
            text = f"the step is refused, and of the next one {off.said}"
            yield Finding("empty", text, few)
        return
    except Exception as error:  # whatever a reader's step may raise
        yield Finding("empty", stopped(error), few)
        return
    right = trial.end(trial.begun(devices=subject.least_devices), [batch])
    if subject.least_devices < case.devices and (off := trial.off(end, right)):
        yield Finding("empty", f"where a device has no sample, {off.said}", few)


def of_twice_the_loss(trial: Trial) -> Iterator[Saw]:
    """Twice the loss is twice the change, for an optimizer that keeps nothing."""
    weights = trial.subject.weights
    doubled = trial.subject.twice([w.copy() for w in weights], trial.case.devices)
    end = trial.end(doubled)[: len(weights)]
    base = [w + 2 * (b - w) for w, b in zip(weights, trial.base, strict=False)]
    if off := trial.off(end, base):
        text = f"of twice the loss, against twice the change, {off.said}"
        yield Finding("gradient", text, trial.case)


def in_two_trainings(trial: Trial) -> Iterator[Saw]:
    """Two steps are two trainings of one, unless the optimizer keeps something."""
    first, second = trial.batches
    middle = trial.end(trial.begun(), [first])[: len(trial.subject.weights)]
    off = trial.off(trial.end(trial.begun(weights=middle), [second]))
    if trial.subject.rule == SGD and off:
        text = f"in a training that begins with the second step, {off.said}"
        yield Finding("state", text, trial.case)
    elif trial.subject.rule != SGD and not off:
        text = f"the second step of {trial.subject.rule} knows nothing of the first"
        yield Finding("optimizer", text, trial.case)


def over_a_save(trial: Trial) -> Iterator[Saw]:
    """A training that is resumed goes on as the one that was saved."""
    subject, case = trial.subject, trial.case
    first, second = trial.batches
    running = trial.begun()
    trial.end(running, [first])
    weights, *_ = snapshot(running.copies())
    kept, saved = state_of(running), running.save()
    whole = trial.end(running, [second])
    for k in dict.fromkeys([case.devices, subject.least_devices]):
        resumed, what = trial.begun(devices=k), f"resumed on {k} devices"
        resumed.resume(saved)
        if not all(alike(own, weights) for own in resumed.copies()):
            text = f"{what}, a copy of the weights is not the saved one"
        elif k == case.devices and (lost := lost_of(kept, state_of(resumed))):
            text = f"{what}, {lost}"
        elif off := trial.off(trial.end(resumed, [second]), whole):
            text = f"{what}, of the next step {off.said}"
        else:
            continue
        yield Finding("resume", text, case)
        return


def with_an_overflow(trial: Trial) -> Iterator[Saw]:
    """With a sample that is infinite nobody moves, or all go astray together."""
    subject, case = trial.subject, trial.case
    (X, y), *_ = trial.batches
    if not is_floating(X):
        return
    for i in dict.fromkeys([0, len(X) - 1]):
        bad = X.copy()
        bad[i] = np.inf
        copies, loss, kept = after_overflow(subject, case.devices, bad, y)
        fates = [fate_of(own, subject.weights) for own in copies]
        what = f"with an infinite sample {i}"
        if not all(alike(own, copies[0]) for own in copies):
            said = ", ".join(f"copy {c} {fate}" for c, fate in enumerate(fates))
            yield Finding("overflow", f"{what}, {said}", case)
            return
        if fates[0] == MOVED and is_lost(subject, bad, y, loss):
            text = f"{what}, whose gradient is none, the weights move by something"
            yield Finding("overflow", text, case)
            return
        few, *_ = after_overflow(subject, subject.least_devices, bad, y)
        alone = fate_of(few[0], subject.weights)
        if alone != fates[0]:
            text = f"{what}, a copy {fates[0]} on {case.devices} devices and {alone}"
            yield Finding("overflow", f"{text} on {subject.least_devices}", case)
            return
        names = [name for name, own in kept.items() if not finite(own)]
        if fates[0] == STAYED and names:
            text = f"{what}, no weight moves, but {names[0]} is no number any more"
            yield Finding("overflow", text, case)
            return


STAYED, MOVED, LOST = "stays", "moves", "becomes infinite or no number"


def after_overflow(
    subject: Subject, k: int, X: np.ndarray, y: np.ndarray
) -> tuple[list[Arrays], float | None, dict]:
    """Return all copies, the loss and the state after a step on such a batch."""
    running, loss = subject.start([w.copy() for w in subject.weights], k), None
    try:
        with np.errstate(all="ignore"):  # a step written in NumPy would warn
            loss = running.take(X, y)
    except (*subject.refusals, ArithmeticError):  # it says so: nothing may have moved
        loss = None
    copies = snapshot(running.copies())
    return copies, loss, state_of(running)


def is_lost(subject: Subject, X: np.ndarray, y: np.ndarray, loss: float | None) -> bool:
    """Return whether a batch's gradient is no number; some layers hide an infinity."""
    if subject.gradient is None:
        return loss is not None and not np.isfinite(loss)
    with np.errstate(all="ignore"):
        _, grads = subject.gradient(X, y, subject.weights)
    return not finite(grads)


def fate_of(own: Arrays, before: Arrays) -> str:
    """Return what became of a copy."""
    if not finite(own):
        return LOST
    return STAYED if alike(own, before) else MOVED


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


def state_of(running: Running) -> dict[str, list[np.ndarray | None]]:
    """Return what a training keeps beside its weights, as it is now; {} if unseen."""
    if (state := getattr(running, "state", None)) is None:
        return {}
    return {
        name: [None if a is None else np.array(a) for a in own]
        for name, own in state().items()
    }


def lost_of(before: dict, after: dict) -> str:
    """Return what of the state isn't there any more after resuming, in words."""
    for name, own in before.items():
        if name not in after:
            return f"{name} is gone"
        pairs = list(zip(own, after[name], strict=True))
        if all(same(a, b) for a, b in pairs):
            continue
        zero = not any(np.any(b) for b in after[name] if b is not None)
        return f"{name} is {'back at zero' if zero else 'not what was saved'}"
    return ""


def same(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    """Return whether two arrays of the state are one, byte for byte."""
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


class Invariance(NamedTuple):
    """Something that must not change the step.

    Attributes:
        look: yields what a trial finds.
        says: what holds if it finds nothing.
        breaks: the first property that it may find broken.
        steps: of a trial.
        needs: what the subject, or its `Running`, must have.
    """

    look: Callable[[Trial], Iterator[Saw]]
    says: str
    breaks: str
    steps: int = 1
    needs: str = ""


INVARIANCES = (
    Invariance(same_again, "the same when repeated", "repeatable"),
    Invariance(in_its_place, "each device works, on its own", "place", needs="places"),
    Invariance(each_twice, "with each sample twice", "mean"),
    Invariance(on_any_devices, "on any number of devices", "devices"),
    Invariance(in_any_order, "in any order", "order"),
    Invariance(with_an_empty_shard, "with empty shards", "empty"),
    Invariance(of_twice_the_loss, "with twice the loss", "gradient", needs="twice"),
    Invariance(in_two_trainings, "step after step", "state", steps=2),
    Invariance(over_a_save, "when saved and resumed", "resume", steps=2, needs="save"),
    Invariance(with_an_overflow, "with an overflow", "overflow"),
)
