"""The judge: tries a step on small cases and says what broke."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np

from manygpu.prove.counts import (
    LOSS_UNITS,
    Counts,
    Solved,
    count,
    exactly,
    unit,
    wide,
)
from manygpu.prove.naming import Step, of_counts
from manygpu.prove.rules import RULES
from manygpu.prove.subject import FULL, LADDER, TELLING, Arrays, Case, Subject
from manygpu.prove.verdict import Finding, Verdict


def judge(subject: Subject, full: bool = False) -> Verdict:
    """Try a step; return what it broke, or that it is right.

    Args:
        subject: the step, with its reference and its cases.
        full: up to 8 devices, not only the cases that tell causes apart.
    """
    tried = [case for case in (FULL if full else TELLING) if fits(subject, case)]
    findings: list[Finding] = []
    for case in tried:
        findings = list(trial(subject, case))
        if findings:
            break
    if not findings:
        return Verdict(subject.name, [], tried)
    return Verdict(subject.name, smallest(subject, findings), tried)


def fits(subject: Subject, case: Case) -> bool:
    """Return whether a subject takes so many devices."""
    return subject.least_devices <= case.devices <= subject.most_devices


def smallest(subject: Subject, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings; the first with the smallest case that breaks the same."""
    first = findings[0]
    for case in itertools.takewhile(lambda case: case != first.case, LADDER):
        again = list(trial(subject, case)) if fits(subject, case) else []
        if again and again[0].broken == first.broken:
            return [first._replace(smallest=case), *findings[1:]]
    return [first._replace(smallest=first.case), *findings[1:]]


def trial(subject: Subject, case: Case) -> Iterator[Finding]:
    """Take the steps of a case; yield what is broken, the likeliest cause first."""
    try:
        steps = list(taken(subject, case))
    except Exception as error:  # whatever a reader's step may raise
        text = f"it stops with {type(error).__name__}: {str(error)[:200]}"
        yield Finding("runs", text, case)
        return

    @cache
    def counted(t: int) -> Counts:
        step = steps[t]
        own = subject, step.X, step.y, step.before[0], step.changes, step.rule
        return with_slack_of(counted(t - 1) if t else None, count(*own))

    for t, step in enumerate(steps):
        until, found = case._replace(steps=t + 1), []
        if not exactly(step.mean, step.changes):
            found += of_counts(subject, until, step, counted(t), steps[:t])
        found += of_loss(until, step, partial(counted, t))
        if t and found and found[0].broken == "gradient" and alone(subject, case, step):
            text = "the step is right from the same weights if it is the first one"
            found[0] = Finding("optimizer", text, until)
        yield from found
        if found:
            return


def alone(subject: Subject, case: Case, step: Step) -> bool:
    """Return whether the same step is right for a training that begins with it."""
    fresh = replace(subject, weights=step.before[0], draw=lambda *_: (step.X, step.y))
    return not list(trial(fresh, case._replace(steps=1)))


def with_slack_of(past: Counts | None, now: Counts) -> Counts:
    """Allow what rounding did in the steps before: averages have kept it."""
    if past is None:
        return now

    def rounding() -> tuple[Solved, float]:
        slack, of_loss = own()
        times = np.broadcast_to(past.slack.times.max(), slack.times.shape)
        joint = np.broadcast_to(past.slack.joint.max(), slack.joint.shape)
        pairs = zip(slack, past.slack._replace(times=times, joint=joint), strict=True)
        return Solved(*(np.maximum(a, b) for a, b in pairs)), of_loss

    own = now.rounding
    return replace(now, rounding=cache(rounding))


def of_loss(case: Case, step: Step, counts: Callable[[], Counts]) -> Iterator[Finding]:
    """The loss that the step returned is the mean before it."""
    if step.loss is None:
        return
    ratio = step.loss * case.samples / (step.total or 1.0)
    if abs(ratio - 1) <= LOSS_UNITS * unit(step.before[0][0].dtype):
        return
    if not abs(ratio - 1) <= counts().loss_slack:
        text = f"the step reports a loss of {step.loss:.4g}, {ratio:.3g} times the mean"
        yield Finding("loss", text, case)


def taken(subject: Subject, case: Case) -> Iterator[Step]:
    """Take a case's steps, from the subject's weights; yield each."""
    running = subject.start([w.copy() for w in subject.weights], case.devices)
    before = snapshot(running.copies())
    rules = [RULES[subject.rule](subject.lr) for _ in before]
    for t in range(case.steps):
        X, y = subject.draw(case.samples, 1000 * case.seed + t)
        loss = running.take(X, y)
        after = snapshot(running.copies())
        past = copy.deepcopy(rules[0])
        total, sums = subject.gradient(X, y, before[0])
        right = [wide(g) / case.samples for g in sums]
        changes = [
            rule.gradient(
                [wide(b) - wide(a) for a, b in zip(new, old, strict=True)], right
            )
            for rule, new, old in zip(rules, after, before, strict=True)
        ]
        yield Step(X, y, before, after, loss, changes, past, float(total), right)
        before = after


def snapshot(copies: Iterable[Arrays]) -> list[Arrays]:
    """Return the weights as they are now."""
    return [[np.array(w) for w in own] for own in copies]
