"""When nobody can tell whether a step is right, and what no trial has tried."""

from __future__ import annotations

from collections.abc import Sequence

from manygpu.prove.counts import is_floating
from manygpu.prove.repeats import BY_REPEATS
from manygpu.prove.rules import DEFAULT, UNKNOWN, is_known
from manygpu.prove.subject import Case, Subject
from manygpu.prove.told import NAMED
from manygpu.prove.trials import Trial, alike
from manygpu.prove.verdict import Finding, stopped

# What a rule, a gradient or a loss other than those that were told breaks, too.
COUNTED = ("mean", "shares", "data", "parameter", "part", "clipping", "layout")
A_FACTOR = "a factor of all gradients shows only if it changes the weights"
OF_MANY = (
    "shares",
    "state",
    "optimizer",
    "schedule",
    "gradient",
    "loss",
    "order",
    "runs",
    "ranks",
)


def is_alone(subject: Subject, found: Finding) -> bool:
    """Return whether a step breaks this on one device, so not by parallelism.

    If it takes several samples, only what a loss that is no mean over them breaks, too,
    or a rule. A step that cuts a batch even on one device may break it by cutting it.
    """
    case = found.smallest or found.case
    if case.devices > 1 or case.samples > 1 and subject.parts(1) > 1:
        return False
    return found.broken in OF_MANY or case.samples == 1 and found.broken in COUNTED


def is_rule(subject: Subject, found: Finding, findings: Sequence[Finding] = ()) -> bool:
    """Return whether this may be of a rule or a loss only, and no count shows it.

    findings: all of them. If repeats explain the first that several devices break, the
    counts of one device show but a rule that isn't the step's.
    """
    several = [one for one in findings if not is_alone(subject, one)]
    explained = bool(several) and several[0].broken in BY_REPEATS
    counted = found.broken in COUNTED and not explained
    return not counted and is_alone(subject, found)


def of_one_device(subject: Subject, findings: Sequence[Finding]) -> list[Finding]:
    """Return which findings one device breaks already, by a rule or a gradient.

    If the weights are right, the number that is reported as the loss isn't.
    """
    alone = [one for one in findings if is_alone(subject, one)]
    known = subject.gradient is not None
    return [] if known and all(one.broken == "loss" for one in alone) else alone


def unfit_for_trials(subject: Subject) -> str:
    """Return why no trial can draw or begin this, and what to do; "" if one can."""
    least, most = subject.least_devices, subject.most_devices
    if not 1 <= least <= most:
        return (
            f"least_devices must be from 1 to most_devices, got {least} and {most}: "
            "give numbers of devices that the step takes"
        )
    for p, w in enumerate(subject.weights):
        if not is_floating(w):
            return (
                f"the weights must be float64, float32, float16 or bfloat16, got "
                f"{w.dtype} for {subject.name_of(p)}: convert them"
            )
    case = subject.enough(least, 1)
    try:
        X, y = subject.draw(case.samples, 0)
        drawn = len(X), len(y)
    except Exception as error:  # whatever a reader's function may raise
        return f"of draw({case.samples}, 0), {stopped(error)}"
    if drawn != (case.samples, case.samples):
        return (
            f"draw({case.samples}, 0) must return {case.samples} samples and as many "
            f"targets, got {drawn[0]} and {drawn[1]}"
        )
    try:
        subject.start([w.copy() for w in subject.weights], least)
    except Exception as error:  # whatever a reader's function may raise
        counted = f"{least} device{'s' * (least != 1)}"
        return f"when a training run is to begin on {counted}, {stopped(error)}"
    return ""


def why_unsure(subject: Subject, findings: Sequence[Finding]) -> str:
    """Return why nobody can tell whether a step is right, from what one device shows.

    "" if it is right in all that was tried, and that shows how samples are counted.
    """
    if findings:
        if findings[0].broken == "runs":
            return "the step stops on one device"
        what = "a loss that is a mean over the samples asks for"
        if subject.gradient is not None:
            what = f"the gradient and rule={subject.rule or DEFAULT!r} say"
        elif findings[0].broken in ("state", "optimizer"):
            what = f"rule={subject.rule!r} says"
        return (
            f"on one device, where no work is shared, the step isn't what {what} "
            "(if the rule has another name, such as rule='other', devices are compared)"
        )
    if subject.gradient is not None:
        return ""
    if subject.least_devices == subject.most_devices > 1:
        return (
            f"no trial can count the samples, as {why_uncounted(subject)}, "
            f"and only {subject.most_devices} devices, to compare with themselves"
        )
    if {"devices", "mean"} <= {*subject.excused}:
        return (
            f"no trial can count the samples, as {why_uncounted(subject)}, "
            "and comparing different numbers of devices is excused"
        )
    if not moves(subject):
        return "no weight moves in a trial's steps, and a step that stands is any step"
    return ""


def moves(subject: Subject) -> bool:
    """Return whether some steps on the fewest devices move any weight."""
    case = subject.enough(subject.least_devices, steps=3)
    return not alike(Trial(subject, case).base[: len(subject.weights)], subject.weights)


def why_uncounted(subject: Subject) -> str:
    """Return why the samples of a subject without a gradient aren't counted."""
    if subject.rule == UNKNOWN:
        return (
            "no known rule, with any hyperparameters, explains the step on one device: "
            f"{A_FACTOR} (if you know the rule, give rule= and hyperparameters=)"
        )
    if subject.rule is not None and not is_known(subject.rule):
        known = f"only {', '.join(NAMED)} can"
        return (
            f"rule={subject.rule!r} is none that can be replayed ({known}): {A_FACTOR}"
        )
    return "there is no reference (gradient=None)"


def not_tried(subject: Subject, trials: Sequence[Case]) -> list[str]:
    """Return which properties had no case, and why."""
    said = []
    if subject.gradient is None:
        said.append(f"how often each sample is counted, as {why_uncounted(subject)}")
    if len({case.devices for case in trials} | {subject.least_devices}) == 1:
        said.append(f"other numbers of devices than {subject.least_devices}")
    elif all(case.samples % case.devices == 0 for case in trials):
        why = "the step takes even ones" if subject.even else "all were refused"
        said.append(f"shares of different sizes: {why}")
    return said
