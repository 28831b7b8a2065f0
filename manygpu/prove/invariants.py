"""The third witness: what must not change.

A right step does not depend on the order of the samples, on the number of devices, on
whether the training was saved and resumed in between, and so on. Each such invariance
takes the subject's own step twice, and compares where the weights end. So this needs
no gradient and no reference, and judges whatever moves weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from manygpu.prove import history
from manygpu.prove.counts import is_floating, unit, wide
from manygpu.prove.history import is_counter
from manygpu.prove.naming import as_far, by_moments
from manygpu.prove.repeats import BY_REPEATS, miscounted, wrong_if_uneven
from manygpu.prove.rules import DEFAULT, begun, is_known
from manygpu.prove.subject import Arrays, Subject
from manygpu.prove.trials import (
    Batch,
    Off,
    Saw,
    Trial,
    alike,
    described,
    finite,
    same,
    snapshot,
    state_of,
)
from manygpu.prove.verdict import Finding, Held, raised, stopped

DECLARED = "if that is how it refuses a batch, give the error's class in refusals="
OTHER_SEEDS = (11, 12)  # of batches, to see whether a factor is always the same
IN_ANY_ORDER = 1000  # units in the last place of a change, which a sum's order may move


# Each of these yields what it finds, or a remark. A trial has one batch, but for those
# that ask for two steps.


def same_again(trial: Trial) -> Iterator[Saw]:
    """The same step from the same weights ends the same."""
    again = trial.end(trial.begun())
    if all(a.tobytes() == b.tobytes() for a, b in zip(again, trial.base, strict=True)):
        return
    # How far rounding may go is no help: a step that wanders seems to round as far.
    most = IN_ANY_ORDER * unit(trial.subject.weights[0].dtype)
    if off := trial.off(again, most=most):
        text = f"if the same step is run a second time, {off.said}"
        yield Finding("repeatable", text, trial.case, of_loss=off.only_loss)
    else:
        yield "the same step, run twice, gives results that differ in their last digits"


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
        yield "its devices weren't seen, because its graph was made before"


def each_twice(trial: Trial) -> Iterator[Saw]:
    """A batch that has each sample twice has the same mean."""
    (X, y), *_ = trial.batches
    double = np.concatenate([X, X]), np.concatenate([y, y])
    if off := trial.off(trial.end(trial.begun(), [double])):
        text = f"if the batch has each sample twice, {off.said}"
        known = trial.subject.gradient is not None or "shares" in trial.subject.excused
        if not known and is_of_all(trial, off):
            yield f"{text}: on one device, too, so the loss is no mean over the samples"
            yield Held("")
            return
        broken = "loss" if off.only_loss else "shares"
        yield Finding(broken if off.ratio is None else "mean", text, trial.case)


def is_of_all(trial: Trial, off: Off) -> bool:
    """Return whether the loss is of the whole batch, and no mean, as a contrastive one.

    On one device, too, the step isn't the same if the batch has each sample twice, nor
    twice as long; and the loss isn't twice as large.
    """
    alone = Trial(trial.subject, trial.case._replace(devices=1))
    if off.ratio is not None or not trial.subject.fits(alone.case):
        return False
    (X, y), *_ = alone.batches
    end = alone.end(
        alone.begun(), [(np.concatenate([X, X]), np.concatenate([y, y]))]
    )  # fmt: skip
    count = len(trial.subject.weights)
    summed = len(end) > count and np.isclose(end[-1], 2 * alone.base[-1], rtol=1e-3)
    own = alone.off(end)
    return bool(own and own.ratio is None and not summed)


def on_any_devices(trial: Trial) -> Iterator[Saw]:
    """The step is the one that the fewest devices take."""
    few, many = trial.subject.least_devices, trial.case.devices
    if few == many:
        return
    if off := trial.off(trial.base, trial.end(trial.begun(devices=few))):
        broken = "devices" if off.ratio is None else "mean"
        broken = "loss" if off.only_loss else broken
        text = f"on {many} devices, compared with {few}, {off.said}"
        if not off.only_loss and (how := at_another_rate(trial)):
            broken, text = how[0], f"on {many} devices, {how[1]}"
        elif not off.only_loss and (how := summed_for_a_root(trial)):
            broken, text = "mean", f"on {many} devices, compared with {few}, {how}"
        elif broken in ("devices", "mean") and (found := miscounted(trial)):
            broken, how = found
            text = f"{text}, {how}"
        elif broken == "devices" and wrong_if_uneven(trial):
            broken, text = "shares", f"{text}, although even shares change nothing"
        elif broken == "mean" and (other := of_other_batches(trial)):
            broken, text = "shares", f"{text}, and with another batch {other}"
        yield Finding(broken, text, trial.case)


def at_another_rate(trial: Trial) -> tuple[str, str] | None:
    """Return what a step breaks that goes farther than the fewest devices', and how.

    If it goes the same way, after right steps, only its rate is another one, whatever
    the rule is. None if that doesn't explain how a trial's last step differs.
    """
    subject, case = trial.subject, trial.case
    few, steps = subject.least_devices, case.steps - 1
    if not steps:
        return None
    past = Trial(subject, case._replace(steps=steps))
    before = past.end(past.begun(devices=few))
    if past.off(past.base, before):
        return None
    own = replace(subject, weights=before[: len(subject.weights)])
    off = described(own, trial.base, trial.end(trial.begun(devices=few)), [0])
    if off.ratio is None or off.ratio <= 0:
        return None
    said = f"after {steps} right step{'s' * (steps != 1)}, {off.said}"
    said += f" as on {few} device{'s' * (few != 1)}"
    if subject.gradient is None or not is_known(subject.rule or DEFAULT):
        return "schedule", said
    rule = begun(subject)
    rule.t = steps
    broken, why = as_far(rule, off.ratio)
    return broken, f"{said}: {why}"


def summed_for_a_root(trial: Trial) -> str:
    """Say how often a first step counted each sample, if its rule divides by a root."""
    subject, case = trial.subject, trial.case
    if subject.gradient is None or case.steps > 1:
        return ""
    (X, y), rule = trial.batches[0], begun(subject)
    rule.at(subject.weights)
    _, sums = subject.gradient(X, y, subject.weights)
    pairs = zip(subject.weights, trial.base, strict=False)
    moved = [wide(old) - wide(new) for old, new in pairs]
    return by_moments(rule, case, moved, [wide(g) / len(X) for g in sums])


def of_other_batches(trial: Trial) -> str:
    """Say how other batches differ on many devices, if not by a mere factor."""
    for seed in OTHER_SEEDS:
        other = Trial(trial.subject, trial.case._replace(seed=seed))
        end = other.end(other.begun(devices=trial.subject.least_devices))
        if (off := other.off(other.base, end)) is None:
            return "nothing differs"
        if off.ratio is None:
            return off.said
    return ""


def in_any_order(trial: Trial) -> Iterator[Saw]:
    """Neither samples nor devices have a rank."""
    (X, y), *_ = trial.batches
    # Not reversed: with two samples a device the same two would meet again.
    moved = np.roll(X, 1, axis=0), np.roll(y, 1, axis=0)
    if off := trial.off(trial.end(trial.begun(), [moved])):
        text = f"with the samples in a different order, {off.said}"
        yield from by_repeats(trial, moved)
        yield Finding("order", text, trial.case, of_loss=off.only_loss)
    elif trial.subject.on is not None:
        weights = [w.copy() for w in trial.subject.weights]
        running = trial.subject.on(weights, range(trial.case.devices)[::-1])
        if off := trial.off(trial.end(running)):
            text = f"with the devices in a different order, {off.said}"
            yield Finding("order", text, trial.case, of_loss=off.only_loss)


def by_repeats(trial: Trial, batch: Batch) -> list[Saw]:
    """Return how samples of another batch of a trial are miscounted, if repeats say so.

    A rule that follows little but signs may take the right step on a trial's own batch.
    """
    other = Trial(trial.subject, trial.case)
    other.batches = [batch]
    found = [one for one in on_any_devices(other) if isinstance(one, Finding)]
    return [one for one in found if one.broken in BY_REPEATS]


def with_an_empty_shard(trial: Trial) -> Iterator[Saw]:
    """With fewer samples than devices the step is right, or refused as a whole."""
    subject, case = trial.subject, trial.case
    few = case._replace(samples=case.devices - 1)
    if not few.samples or not subject.fits(few):
        yield Held("")
        return
    batch, running = subject.draw(few.samples, case.seed), trial.begun()
    try:
        end = trial.end(running, [batch])
    except subject.refusals as refusal:
        if not all(alike(own, subject.weights) for own in running.copies()):
            yield Finding("empty", "the step is refused, but weights have moved", few)
        elif off := trial.off(trial.end(running)):
            text = f"the step is refused, and of the next one {off.said}"
            yield Finding("empty", text, few, of_loss=off.only_loss)
        else:
            yield Held("refuses empty shards")
            yield f"with {few} ({few.dealt}), the step is refused: {raised(refusal)}"
        return
    except Exception as error:  # whatever a reader's step may raise
        text = f"{few.dealt}: {stopped(error)} ({DECLARED})"
        yield Finding("empty", text, few)
        return
    right = trial.end(trial.begun(devices=subject.least_devices), [batch])
    if subject.least_devices < case.devices and (off := trial.off(end, right)):
        text = f"where a device has no sample, {off.said}"
        yield Finding("empty", text, few, of_loss=off.only_loss)


def of_twice_the_loss(trial: Trial) -> Iterator[Saw]:
    """Twice the loss is twice the change, for an optimizer that keeps nothing."""
    weights = trial.subject.weights
    doubled = trial.subject.twice([w.copy() for w in weights], trial.case.devices)
    end = trial.end(doubled)[: len(weights)]
    base = [w + 2 * (b - w) for w, b in zip(weights, trial.base, strict=False)]
    if off := trial.off(end, base):
        text = f"with twice the loss, compared with twice the change, {off.said}"
        yield Finding("gradient", text, trial.case)


def in_two_trainings(trial: Trial) -> Iterator[Saw]:
    """Two steps are two trainings of one, unless the optimizer keeps something."""
    first, second = trial.batches
    middle = trial.end(trial.begun(), [first])[: len(trial.subject.weights)]
    end = trial.end(trial.begun(weights=middle), [second])
    subject, known = trial.subject, trial.subject.gradient is not None
    if not known and not is_known(subject.rule):
        yield from as_on_one_device(trial, end)
    elif not begun(subject).remembers:
        if (off := trial.off(end)) and (names := goes_on(trial)):
            said = f"a step depends on {', '.join(names)}, which goes on"
            yield f"{said}: right, if it may"
            yield Held("")
        elif off:
            text = f"in a training run that begins with the second step, {off.said}"
            yield Finding("state", text, trial.case, of_loss=off.only_loss)
    elif alike(end, trial.base):  # in every bit: in 16 bits, rounding explains much
        text = f"the second step of {subject.rule} doesn't depend on the first"
        yield Finding("optimizer", text, trial.case)


def as_on_one_device(trial: Trial, end: Arrays) -> Iterator[Saw]:
    """If one device needs nothing from before a step, neither do several.

    end: of a training that begins with the second step.
    """
    few = trial.subject.least_devices
    yield Held("")
    if few == trial.case.devices or not (off := trial.off(end)) or goes_on(trial):
        return
    alone = Trial(trial.subject, trial.case._replace(devices=few))
    first, second = alone.batches
    middle = alone.end(alone.begun(), [first])[: len(trial.subject.weights)]
    if not alone.off(alone.end(alone.begun(weights=middle), [second])):
        text = f"in a training run that begins with the second step, {off.said}"
        yield Finding("state", f"{text}; on {few}, nothing changes", trial.case)


def goes_on(trial: Trial) -> list[str]:
    """Return the state that a step changes, if all of it is whole numbers: seeds."""
    before, after = state_of(trial.begun()), state_of(trial.first[0])
    changed = [
        name
        for name, own in after.items()
        if not all(map(same, own, before.get(name, own)))
    ]
    whole = all(a is None or a.dtype.kind in "iu" for n in changed for a in after[n])
    return changed if whole else []


def over_a_save(trial: Trial) -> Iterator[Saw]:
    """A training that is resumed goes on as the one that was saved."""
    subject, case = trial.subject, trial.case
    first, second = trial.batches
    running = trial.begun()
    trial.end(running, [first])
    weights, *_ = snapshot(running.copies())
    kept, saved = state_of(running), running.save()
    whole = trial.end(running, [second])
    counts = [case.devices, subject.least_devices]
    counts = counts[:1] if "devices" in subject.excused else counts
    for k in dict.fromkeys(counts):
        of_loss = False
        resumed, what = trial.begun(devices=k), f"resumed on {k} device{'s' * (k != 1)}"
        resumed.resume(saved)
        if not all(alike(own, weights) for own in resumed.copies()):
            text = f"{what}, a copy of the weights is not the saved one"
        elif k == case.devices and (lost := lost_of(kept, state_of(resumed))):
            text = f"{what}, {lost}"
        elif off := trial.off(trial.end(resumed, [second]), whole):
            text, of_loss = f"{what}, of the next step {off.said}", off.only_loss
        else:
            continue
        yield Finding("resume", text, case, of_loss=of_loss)
        return


def with_an_overflow(trial: Trial) -> Iterator[Saw]:
    """With a sample that is infinite nobody moves, or all go astray together."""
    subject, case = trial.subject, trial.case
    (X, y), *_ = trial.batches
    if not is_floating(X):
        yield Held("")  # no number of it can be infinite
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
        if subject.guarded and fates[0] == LOST:
            text = f"{what}, the weights become infinite or NaN"
            yield Finding("overflow", text, case)
            return
        if fates[0] == MOVED and is_lost(subject, bad, y, loss):
            text = f"{what}, which has no finite gradient, the weights move"
            yield Finding("overflow", text, case)
            return
        few, *_ = after_overflow(subject, subject.least_devices, bad, y)
        alone = fate_of(few[0], subject.weights)
        if alone != fates[0]:
            text = f"{what}, a copy {fates[0]} on {case.devices} devices and {alone}"
            yield Finding("overflow", f"{text} on {subject.least_devices}", case)
            return
        if fates[0] == STAYED and (odd := odd_after_skipping(trial, kept, bad)):
            yield Finding("overflow", f"{what}, no weight moves, but {odd}", case)
            return


def odd_after_skipping(trial: Trial, kept: dict, bad: np.ndarray) -> str:
    """Return what is wrong with what is kept after a step that was skipped; or ""."""
    for name, own in kept.items():
        there = [a for a in own if a is not None]
        if not finite(own):
            return f"{name} becomes infinite or NaN"
        if name not in trial.subject.apart and not all(
            same(a, there[0]) for a in there
        ):
            return f"{name} is not the same on all replicas"
    return stuck_scale(trial, bad)


GOOD_STEPS = 3  # before a step that is skipped


def stuck_scale(trial: Trial, bad: np.ndarray) -> str:
    """Return which loss scale isn't lowered by a step that is skipped; or "".

    A loss scale is one power of two. It isn't fixed if good steps double it, or count
    themselves, and a skipped step begins to count anew.
    """
    if not state_of(running := trial.begun()):
        return ""
    (X, y), seen = trial.batches[0], [state_of(running)]
    try:
        for batch in [X] * GOOD_STEPS + [bad]:
            running.take(batch, y)
            seen.append(state_of(running))
    except (*trial.subject.refusals, ArithmeticError):
        return ""
    *good, last = seen
    counts_anew = any(
        is_counter(own[0]) and last[name][0] < own[0] and is_counting(name, good)
        for name, own in good[-1].items()
        if name in last
    )
    for name in good[0].keys() & last.keys():
        values = [one[name][0] for one in seen if name in one]
        if not all(is_scale(a) for a in values) or not same(*values[-2:]):
            continue
        if counts_anew or values[-2] > values[0]:
            return f"the loss scale {name} isn't lowered: the next step overflows, too"
    return ""


def is_scale(a: np.ndarray | None) -> bool:
    """Return whether this is a power of two from 2 on, as loss scales are."""
    one = a is not None and a.size == 1 and is_floating(a) and float(a) >= 2
    return bool(one and np.log2(float(a)) % 1 == 0)


def is_counting(name: str, seen: Sequence[dict]) -> bool:
    """Return whether a number has gone on in each of these steps, or begun anew."""
    pairs = itertools.pairwise(one[name][0] for one in seen)
    return all(new == old + 1 or new == 0 for old, new in pairs)


STAYED, MOVED, LOST = "stays", "moves", "becomes infinite or NaN"


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


class Invariance(NamedTuple):
    """Something that must not change the step.

    Attributes:
        look: yields what a trial finds.
        says: what holds if it finds nothing.
        steps: of a trial.
        needs: what the subject, or its `Training`, must have.
    """

    look: Callable[[Trial], Iterator[Saw]]
    says: str
    steps: int = 1
    needs: str = ""


INVARIANCES = (
    Invariance(same_again, "the same when repeated"),
    Invariance(in_its_place, "each device works, on its own", needs="places"),
    Invariance(on_any_devices, "on any number of devices"),  # the judge says on which
    Invariance(each_twice, "with each sample twice"),
    Invariance(in_any_order, "in any order"),
    Invariance(with_an_empty_shard, "with empty shards"),
    Invariance(of_twice_the_loss, "with twice the loss", needs="twice"),
    Invariance(in_two_trainings, "step after step", steps=2),
    Invariance(history.look, "the same on all replicas", steps=3),
    Invariance(over_a_save, "when saved and resumed", steps=2, needs="save"),
    Invariance(with_an_overflow, "with an overflow"),
)
