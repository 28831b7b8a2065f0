"""From counts to a name: what must have gone wrong for samples to be counted so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from manygpu.measure import shares
from manygpu.prove.counts import Counts, by_sample, length, wide
from manygpu.prove.rules import DEFAULT, Plain
from manygpu.prove.subject import Arrays, Case, Subject
from manygpu.prove.trials import ONE_FACTOR
from manygpu.prove.verdict import Finding, told

LEAST_SCALE = 6  # the power of 2 that a loss scale has at least
FACTOR = 1e-3  # what a factor may leave of a parameter's gradient
NEAR, MOST_NEAR = 0.02, 0.15  # to a number that is named, whatever rounding does
EXPLAINED = 0.1  # of what is off: the part that an explanation may leave


class Step(NamedTuple):
    """One step of a trial: its batch, and all copies of the weights around it."""

    X: np.ndarray
    y: np.ndarray
    before: list[Arrays]
    after: list[Arrays]
    loss: float | None
    changes: list[Arrays]  # the gradient that each copy followed
    rule: Plain  # as it was before
    total: float  # the loss summed over the batch, before
    mean: Arrays  # the batch's mean gradient: what is right


def shard_of(case: Case) -> np.ndarray:
    """Return which device has each sample, if the batch is cut in order."""
    return np.repeat(np.arange(case.devices), shares(case.samples, case.devices))


def named_factor(factor: float, case: Case, near: float) -> str:
    """Return what a number is, of those that a wrong division leaves."""
    k, n, size = case.devices, case.samples, case.samples / case.devices
    known = [
        (k, "the number of devices: a sum instead of a mean"),
        (1 / k, "one over the number of devices: divided twice"),
        (n, "the number of samples: a sum instead of a mean"),
        (1 / n, "one over the number of samples: divided twice"),
        (n / (n // k), "as if divided by the samples of one device"),
        (n / -(-n // k), "as if divided by the samples of one device"),
        (k * k, "the number of devices squared: reduced twice"),
        (size, "the number of samples of a share: a mean of sums"),
        (0.5, "a half"),
        (2.0, "double"),
        (0.0, "not at all: it never moves"),
        (-1.0, "the wrong sign"),
    ]
    for value, what in known:
        if abs(factor - value) <= near * max(abs(value), 1e-3):
            return f", {what}"
    return ""


def of_counts(
    subject: Subject, case: Case, step: Step, counts: Counts, earlier: Sequence[Step]
) -> Iterator[Finding]:
    """Yield what the counts of a step say is wrong, the likeliest cause first."""
    off, odd = counts.off, counts.unexplained
    if step.rule is not None and not step.rule.by_last_digits and is_faint(counts, odd):
        odd = odd & False
    if not (off | odd).any():
        return
    if not all(np.isfinite(own.rest).all() for own in counts.copies):
        yield Finding("overflow", "a weight became infinite or NaN", case)
        return
    if own := of_own_share(case, counts):
        yield own
        return
    bad = (off | odd).any(axis=1)
    if not bad.all():
        which = ", ".join(str(c) for c in np.flatnonzero(bad))
        text = f"of {len(bad)} copies of the weights, these are wrong: {which}"
        yield Finding("copies", text, case)
        return
    if odd.any() and parted(step, counts):
        yield Finding("copies", "the copies of the weights changed differently", case)
        return
    joint, near = counts.joint, near_of(counts)
    if factor := one_factor(step, counts, near):
        yield of_factor(case, step, factor, near, earlier)
        return
    if odd.any():
        yield from of_rest(subject, case, step, counts, earlier)
        return
    if np.ptp(joint, axis=0).max() > 2 * near:
        text = "the copies of the weights followed different samples"
        yield Finding("copies", text, case, joint[0])
    elif counts.agree:
        yield of_samples(case, joint[0], near)
    else:
        yield from of_parameters(subject, case, counts, near)


def is_faint(counts: Counts, odd: np.ndarray) -> bool:
    """Return whether the counts explain all but what is nothing beside their error.

    Rounding leaves such a rest in a parameter of few numbers.
    """
    if not odd.any() or not counts.told_apart:
        return False
    rest = np.array([own.rest for own in counts.copies])[odd].max()
    return bool(rest <= FACTOR * np.abs(counts.joint - 1).max())


def one_factor(step: Step, counts: Counts, near: float) -> float | None:
    """Return by what all parameters' right changes were multiplied, if that is all.

    All are asked: of one with few numbers, a factor may look like something else.
    """
    if step.mean is None or step.rule.by_last_digits:
        return None  # the counts are of many batches, or no factor shows
    if np.ptp(counts.joint, axis=0).max() > 2 * near:  # the copies aren't alike
        return None
    right = [wide(g) for g in step.mean]
    found = [wide(c) for c in step.changes[0]]
    lengths = [np.linalg.norm(g) or 1.0 for g in right]
    pairs = list(zip(found, right, lengths, strict=True))
    size = sum(bool(g.any()) for g in right)
    if not size or not all(np.isfinite(c).all() for c in found):
        return None
    factor = float(sum(c @ g / n**2 for c, g, n in pairs)) / size
    most = FACTOR * max(1.0, abs(factor))
    fits = all(np.linalg.norm(c - factor * g) <= most * n for c, g, n in pairs)
    return factor if fits and abs(factor - 1) > FACTOR else None


def of_factor(
    case: Case, step: Step, factor: float, near: float, earlier: Sequence[Step]
) -> Finding:
    """Name what multiplies the whole gradient.

    A sum where a mean is meant is a number that the case has. Any other one, of a step
    that clips, comes from another norm than that of the whole gradient.
    """
    known = named_factor(factor, case, near)
    times = np.full(case.samples, factor)
    text = f"every sample counted {told(factor)} times"
    clips = bool(np.isfinite(step.rule.clip))
    if clips and (scale := loss_scale(factor)):
        why = f"as if clipped before a loss scale of {scale} was divided out"
        return Finding("clipping", f"{text}, {why}", case, times)
    if clips and case.devices > 1 and not known:
        why = "as if clipped by another norm than the whole gradient's"
        return Finding("clipping", f"{text}, {why}", case, times)
    if earlier:  # which were right
        steps = f"{len(earlier)} right step{'s' * (len(earlier) != 1)}"
        text = f"after {steps}, {text}{known}"
        return Finding("schedule", text, case, times)
    return Finding("mean", text + known, case, times)


def loss_scale(factor: float) -> int:
    """Return of which loss scale a factor is the inverse; 0 if of none."""
    if factor <= 0:
        return 0
    power = np.log2(1 / factor)
    whole = abs(power - np.rint(power)) <= 1e-3 and power >= LEAST_SCALE
    return 2 ** int(np.rint(power)) if whole else 0


def parted(step: Step, counts: Counts) -> bool:
    """Return whether copies of a parameter changed otherwise, beyond rounding."""
    first, *others = step.changes
    return any(
        np.linalg.norm(wide(b) - wide(a)) > max(most, 1e-6) * np.linalg.norm(wide(a))
        for own in others
        for a, b, most in zip(first, own, counts.slack.rest, strict=True)
    )


def near_of(counts: Counts) -> float:
    """Return how near a count must be to a number that is named."""
    return min(max(NEAR, float(counts.slack.joint.max())), MOST_NEAR)


def of_own_share(case: Case, counts: Counts) -> Finding | None:
    """Each copy moved along its own samples alone: nobody reduced anything."""
    own = shard_of(case)
    if len(counts.joint) != case.devices or case.devices == 1:
        return None
    others = [counts.joint[d][own != d] for d in range(case.devices)]
    if not counts.told_apart or counts.unexplained.any():
        return None
    near = near_of(counts)
    if np.abs(np.concatenate(others)).max() > near:
        return None
    if np.abs(counts.joint).max() <= near:  # nobody moved at all
        return None
    text = "each copy followed only the samples of its own device: nothing was reduced"
    return Finding("copies", text, case, counts.joint[0])


def of_parameters(
    subject: Subject, case: Case, counts: Counts, near: float
) -> Iterator[Finding]:
    """Some parameters are right, or wrong in their own way."""
    times, wrong = counts.copies[0].times, np.flatnonzero(counts.off[0])
    if all(by_device(case, own, near) for own in times[counts.solvable]):
        text = "each device scaled the gradient of each parameter before the sum"
        yield Finding("clipping", text, case, times[int(np.argmax(counts.solvable))])
        return
    factors = times.mean(axis=1)
    if len(wrong) == len(times) and is_scaled(times[counts.solvable], near):
        text = f"the parameters counted different numbers of times: {told(*factors)}"
        yield Finding("clipping", text, case, times[0])
        return
    names = ", ".join(subject.name_of(int(q)) for q in wrong[:3])
    names += " and others" if len(wrong) > 3 else ""
    first = times[wrong[0]]
    said = f"{told(*first)} times{named_factor(first.mean(), case, near)}"
    text = f"of {len(times)} parameters, {names} counted the samples {said}"
    yield Finding("parameter", text, case, first)


def is_scaled(times: np.ndarray, near: float) -> bool:
    """Return whether each parameter counted all samples alike, each in its own way."""
    factors = times.mean(axis=1)
    most = near * np.abs(factors).max()
    return bool(np.ptp(times, axis=1).max() <= most < np.ptp(factors))


def scaled_apart(right: np.ndarray, found: np.ndarray, most: int) -> bool:
    """Return whether a few factors make of all right numbers those that were found."""
    there = np.abs(right) > 1e-6 * np.abs(right).max()
    factors = np.sort(found[there] / right[there])
    jumps = np.diff(factors) > 1e-4 * np.abs(factors).max()
    return 0 < jumps.sum() < most and not np.isclose(factors, 1, atol=1e-4).any()


def of_samples(case: Case, times: np.ndarray, near: float) -> Finding:
    """All parameters counted the samples in the same wrong way."""
    said = f"the samples counted {told(*times)} times"
    if np.ptp(times) <= 2 * near * max(1, abs(times.mean())):
        factor = float(times.mean())
        text = (
            f"every sample counted {told(factor)} times"
            f"{named_factor(factor, case, near)}"
        )
        return Finding("mean", text, case, times)
    if is_mean_of_means(case, times, near):
        factor = float(times.mean())
        if abs(factor - case.devices) <= near * case.devices:
            text = f"{said}: the devices' means were summed, so the gradient is "
            text += f"{case.devices} times too large, once per device"
            return Finding("mean", text, case, times)
        if abs(factor - 1) > near:
            text = f"{said}: a mean of the devices' means, {told(factor)} times"
            return Finding("mean", text + named_factor(factor, case, near), case, times)
        means = "a mean of the devices' means, although their shares are uneven"
        return Finding("shares", f"{said}: {means}", case, times)
    if is_whole(times, near) or np.abs(times).min() <= near:
        lost = (np.abs(times) <= near).sum()
        how = f"{lost} not at all" if lost else "some more often than others"
        return Finding("data", f"{said}: {how}", case, times)
    if times.min() > near and is_whole(times / times.min(), near):
        often = f"some {times.max() / times.min():.0f} times as often as others"
        return Finding("data", f"{said}: {often}", case, times)
    if by_device(case, times, near):
        scaled = (
            "each device scaled its own gradient before the sum, as if it clipped it"
        )
        return Finding("clipping", f"{said}: {scaled}", case, times)
    return Finding("shares", f"{said}: they don't have the same weight", case, times)


def is_whole(times: np.ndarray, near: float) -> bool:
    """Return whether all are whole numbers."""
    return bool(np.abs(times - np.rint(times)).max() <= near)


def is_mean_of_means(case: Case, times: np.ndarray, near: float) -> bool:
    """Return whether each device's samples counted in all as much as any other's.

    Engines cut a batch in their own way; whose samples are whose is seen in the counts.
    """
    if not np.all(times > near):
        return False
    sizes = times.sum() / (case.devices * times)  # of the share that a sample is in
    whole = np.abs(sizes - np.rint(sizes)).max() <= 3 * near
    return bool(whole and np.abs((1 / sizes).sum() - case.devices) <= 3 * near)


def by_device(case: Case, times: np.ndarray, near: float) -> bool:
    """Return whether the samples of a device counted alike, and devices didn't."""
    own = shard_of(case)
    spread = [np.ptp(times[own == d]) for d in range(case.devices)]
    return case.samples > case.devices > 1 and max(spread) <= near < np.ptp(times)


def of_rest(
    subject: Subject, case: Case, step: Step, counts: Counts, earlier: Sequence[Step]
) -> Iterator[Finding]:
    """The change is no sum of this batch's gradients at these weights: of which?"""
    c, p = np.argwhere(counts.unexplained)[0]
    change, name = wide(step.changes[c][p]), subject.name_of(int(p))
    right = by_sample(subject, step.X, step.y, step.before[c])
    mean = [g.mean(axis=1) for g in right]
    pairs = zip(step.before[c], step.after[c], strict=True)
    moved = [wide(old) - wide(new) for old, new in pairs]
    if own := of_rate(case, step, moved, mean, earlier):
        yield own
        return
    for past in reversed(earlier):
        for X, y, what in (
            (step.X, step.y, "this batch at the weights of an earlier step"),
            (past.X, past.y, "the batch of an earlier step"),
        ):
            old = by_sample(subject, X, y, past.before[0])
            now = by_sample(subject, step.X, step.y, step.before[0])
            both = np.concatenate([now[p], old[p]], axis=1)
            most, (numbers, columns) = max(counts.slack.rest[p], 1e-6), both.shape
            if numbers > columns and left_over(change, both) <= most:
                yield Finding("state", f"{name} followed {what}", case)
                return
    if part := of_part(subject, case, step, counts, int(c), int(p)):
        yield part
        return
    slack = counts.slack.rest.max()
    if scales := scales_of(np.concatenate(mean), np.concatenate(step.changes[c]), case):
        text = f"parts of {name} and others were scaled by different factors: {scales}"
        yield Finding("clipping", text, case)
        return
    if same_numbers(np.concatenate(mean), np.concatenate(step.changes[c]), slack):
        text = f"{name} and others have the right numbers, but at each other's places"
        yield Finding("layout", text, case)
        return
    both = np.concatenate(mean), np.concatenate(step.changes[c])
    if scaled_apart(*both, most=case.devices + len(mean)):
        text = "the parts of the gradient are scaled by different factors"
        yield Finding("clipping", text, case)
        return
    if text := by_moments(step.rule, case, moved, mean):
        yield Finding("mean", text, case)
        return
    if subject.rule not in (None, DEFAULT) and same_signs(
        step.rule.change(mean), moved
    ):
        text = f"{name} moved the right way, but not as far as {subject.rule} says"
        yield Finding("optimizer", text, case)
        return
    wrong = counts.unexplained.any(axis=0)
    text = (
        f"the change of {name} is no sum of the samples' gradients: "
        f"{counts.copies[c].rest[p]:.2g} of it is left over "
        f"({wrong.sum()} of {len(wrong)} parameters)"
    )
    yield Finding("gradient", text, case)


def of_rate(
    case: Case, step: Step, moved: Arrays, mean: Arrays, earlier: Sequence[Step]
) -> Finding | None:
    """Name a rate: all weights went the right way, but by a factor too far.

    A gradient that is too long does that in no rule that keeps an average of others.
    """
    due, found = (np.concatenate(own) for own in (step.rule.change(mean), moved))
    size = float(due @ due)
    ratio = float(found @ due) / (size or 1.0)
    left = np.linalg.norm(found - ratio * due)
    if not earlier or ratio <= 0 or abs(ratio - 1) <= ONE_FACTOR:
        return None
    if not left <= ONE_FACTOR * np.linalg.norm(found):
        return None
    steps = f"{len(earlier)} right step{'s' * (len(earlier) != 1)}"
    text = f"after {steps}, the weights move {told(ratio)} times as far as they should"
    broken, why = as_far(step.rule, ratio)
    return Finding(broken, f"{text}: {why}", case)


def as_far(rule: Plain, ratio: float) -> tuple[str, str]:
    """Return what a step breaks that goes so many times as far, and how."""
    if t := rule.as_step(ratio):
        return "optimizer", f"as if this step {rule.t + 1} were counted as step {t}"
    own = rule.rate
    return "schedule", f"at a rate of {ratio * own:.4g}, not {own:.4g}"


def by_moments(rule: Plain, case: Case, moved: Arrays, mean: Arrays) -> str:
    """Say by what all gradients were multiplied, if that explains how weights moved.

    A rule that divides by a root goes as far along a sum as along a mean, but for its
    epsilon: that shows in the smallest gradients only.
    """
    found, k, n = np.concatenate(moved), case.devices, case.samples
    if not rule.by_last_digits or not np.isfinite(found).all():
        return ""

    def left(factor: float) -> float:
        due = rule.change([factor * g for g in mean])
        return float(np.linalg.norm(found - np.concatenate(due)))

    best = min(dict.fromkeys((k, n, 1 / k, 1 / n)), key=left)
    if best == 1 or not left(best) <= EXPLAINED * left(1):
        return ""
    named = named_factor(best, case, NEAR)
    moments = f"first moments {told(best)} times, second ones {told(best * best)} times"
    return f"every sample counted {told(best)} times{named} ({moments} one device's)"


def scales_of(right: np.ndarray, found: np.ndarray, case: Case) -> str:
    """Return by what the devices' shards were scaled, if that is all; else nothing."""
    large = np.abs(right) > NEAR * np.abs(right).max()
    ratios = np.sort(found[large] / right[large])
    apart = np.diff(ratios) > NEAR * np.abs(ratios[1:])
    groups = np.split(ratios, np.flatnonzero(apart) + 1)
    alike = all(np.ptp(g) <= NEAR * np.abs(g).max() for g in groups if g.size)
    if not large.any() or not alike or not 1 < len(groups) <= case.devices:
        return ""
    return f"{told(*(group.mean() for group in groups))} times"


def same_numbers(right: np.ndarray, found: np.ndarray, slack: float) -> bool:
    """Return whether both have the same numbers, but in another order."""
    most = min(max(slack, 1e-6), 0.1) * np.linalg.norm(right)
    alike = np.linalg.norm(np.sort(right) - np.sort(found)) <= most
    return bool(alike and np.linalg.norm(right - found) > most)


def same_signs(right: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> bool:
    """Return whether nearly every number has the sign that it should have."""
    ones = np.sign(np.concatenate(right)) == np.sign(np.concatenate(found))
    return bool(ones.mean() > 0.95)


def left_over(change: np.ndarray, grads: np.ndarray) -> float:
    """Return the part of a change that no sum of these gradients explains."""
    found, *_ = np.linalg.lstsq(grads, change, rcond=1e-9)
    return float(np.linalg.norm(change - grads @ found)) / length(grads)


def of_part(
    subject: Subject, case: Case, step: Step, counts: Counts, c: int, p: int
) -> Finding | None:
    """Some numbers of a parameter are summed over all devices, others over some."""
    grads = by_sample(subject, step.X, step.y, step.before[0])[p]
    change, own, k = wide(step.changes[c][p]), shard_of(case), case.devices
    size = np.linalg.norm(grads, axis=1) / case.samples + 1e-300
    most = max(1e-5, counts.slack.rest[p]) * size
    right = grads.mean(axis=1)
    parts = [(n * right, f"{n:.3g} times as large") for n in (k, 1 / k)]
    parts.append((0 * right, "of no device"))
    for d in range(k):
        total, count = grads[:, own == d].sum(axis=1), (own == d).sum()
        parts.append((total / case.samples, f"of device {d} alone"))
        parts.append((total / count, f"of device {d} alone"))
        parts.append((right - total / case.samples, f"without device {d}"))
        parts.append((right + total / case.samples, f"with device {d} twice"))
    is_right = np.abs(change - right) <= most
    explained, said = is_right.copy(), []
    for value, what in parts:
        now = ~explained & (np.abs(change - value) <= most)
        if now.any():
            said.append(f"{now.sum()} {what}")
            explained |= now
    if explained.mean() < 0.98 or is_right.all() or not said:
        return None
    text = (
        f"of {change.size} numbers of {subject.name_of(p)}, {is_right.sum()} are "
        f"summed over all devices, {', '.join(said)}"
    )
    return Finding("part", text, case)
