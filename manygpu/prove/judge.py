"""The judge: tries a step on small cases and says what broke."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from manygpu.prove.coarse import NARROW, unit_found
from manygpu.prove.counts import (
    LOSS_UNITS,
    SAFETY,
    TRIALS,
    Counts,
    Solved,
    by_sample,
    count,
    exactly,
    nudged,
    unit,
    wide,
)
from manygpu.prove.doubts import (
    is_alone,
    is_rule,
    not_tried,
    of_one_device,
    unfit_for_trials,
    why_unsure,
)
from manygpu.prove.found import with_rule
from manygpu.prove.invariants import INVARIANCES, Invariance, on_any_devices
from manygpu.prove.naming import Step, of_counts
from manygpu.prove.patience import exact_case, is_coarse, patiently, uneven_cases
from manygpu.prove.progress import Progress, number_of
from manygpu.prove.ranks import NEAR, RankGradients, misses
from manygpu.prove.repeats import BY_REPEATS, unevenly_shared, wrong_if_uneven
from manygpu.prove.rules import DEFAULT, Plain, begun, is_known
from manygpu.prove.subject import LADDER, Arrays, Case, Subject, one_each
from manygpu.prove.told import with_known_names
from manygpu.prove.trials import UNITS, Saw, Trial, alike, largest, snapshot
from manygpu.prove.verdict import Finding, Held, Refused, Verdict, stopped, told

# Of the ranks' gradients: how far off in the last place, as a part, and how many told.
RANKS_UNITS, MOST_NEAR, MOST_MISSES = 1e5, 0.1, 3
SEEDS = 3  # of batches that are drawn for a small case
# What wrong weights of shares look like, if a rule hides how long a gradient was.
UNREADABLE = ("mean", "parameter", "clipping", "gradient", "optimizer", "layout")
APART = "several devices like one"  # a question whose answer no verdict lists
EVEN = (
    "If all batches of your training run give each device as many samples, say so: "
    "pass even=True to the adapter, such as of_fit or of_ddp, or to Subject"
)
SOME_COUNT = "each sample that has a gradient counted once in a mean over these"


class Check(NamedTuple):
    """A question to a step.

    Attributes:
        look: yields what a case shows: findings, and remarks.
        cases: in which it is asked.
        says: what holds if nothing is found.
        first: whether what comes behind means nothing if something is found.
        own: whether it compares several steps with those of the step's one device.
    """

    look: Callable[[Case], Iterable[Saw]]
    cases: Sequence[Case]
    says: str
    first: bool = False
    own: bool = False


def judge(
    subject: Subject, full: bool = False, progress: Progress | None = None
) -> Verdict:
    """Try a step; return what it broke, or that it is right.

    First come the counts, if the subject has a gradient; if they are wrong, that is
    the verdict. Then what must not change, and what all replicas have after each step.
    A case whose batch the step rightly refuses (see `Subject.parts`) isn't judged: a
    remark names it, and it is none of the trials.

    The rule's hyperparameters are those that one device shows, if they aren't told. If
    no rule explains it, that is no fault: the devices are compared with one device.

    What is wrong on one device already is no fault of parallelism: maybe the rule or
    the gradient isn't the step's. Then the devices are compared with the step's own
    one device, and if that finds nothing, the verdict is that nobody can tell.

    Args:
        subject: the step, with its reference and its cases.
        full: up to 8 devices, not only the cases that tell causes apart.
        progress: is told what is tried, and has what was seen if this is stopped.
    """
    try:
        subject = with_known_names(subject)
    except ValueError as error:
        return Verdict(subject.name, [], [], unsure=str(error))
    seen = progress or Progress()
    seen.name = subject.name
    findings, remarks = seen.findings, seen.remarks
    subject = replace(subject, start=seen.heard(subject.start))
    seen.begins("finding out how precisely the step computes")
    if unfit := unfit_for_trials(subject):
        return Verdict(subject.name, [], [], unsure=unfit)
    if coarse := subject.coarse or unit_found(subject):
        subject = replace(subject, coarse=coarse)
        few = f"it computes in {NARROW.get(coarse, 'few digits')}, and its weights are "
        text = f"{few}{subject.weights[0].dtype}: small differences aren't seen"
        remarks[text] = None
    told = subject
    seen.begins("looking for the step's optimizer in its run on one device")
    subject, rule = with_rule(subject)
    if rule:
        remarks[rule] = None
    able = abilities(subject)
    questions = list(checks(subject, able, full))
    seen.total, of_own = number_of(questions), None
    for check in questions:
        found, says = asked(subject, check, seen)
        of_own = found if check.own else of_own
        broken = {finding.broken for finding in findings}
        findings += [one for one in found if one.broken not in broken]
        if says:
            seen.held.append(says)
        if not found:
            continue
        stops = found[0].broken == "runs"
        first = check.first and not is_of_loss(found[0])
        if stops or first and not is_alone(subject, found[0]):
            break
    findings[:] = with_the_loss_last(findings)
    if findings and findings[0].broken == "shares" and not subject.even:
        remarks[EVEN] = None
    if missing := [what for name, what in SEEN_BY.items() if name not in able]:
        remarks[f"not seen: {', '.join(missing)}"] = None
    if refused := seen.refused:
        remarks[f"refused, so not judged: {'; '.join(map(str, refused))}"] = None
    trials = [case for case in seen.tried if case not in refused]
    alone = of_one_device(subject, findings)
    if alone and alone[0] is findings[0] and alone[0].broken != "runs":
        if of_own is None:
            check = of_own_devices(subject, full)
            seen.total = seen.number + number_of([check])
            of_own, _ = asked(subject, check, seen)
        findings = with_own(subject, findings, of_own)
    beyond = len(findings) > len(alone)
    unknown = subject.gradient is not told.gradient
    if beyond and unknown and findings[0].broken not in BY_REPEATS:
        named = by_the_told_rule(told, full, seen.aside())
        known = {one.broken for one in named}
        findings = named + [one for one in findings if one.broken not in known]
    if not any(one.broken == "repeatable" for one in findings):
        # A rule that isn't the step's comes behind what parallelism breaks.
        findings = sorted(findings, key=lambda one: is_rule(subject, one, findings))
    unsure = "" if beyond else why_unsure(subject, findings)
    said = list(remarks), seen.held, not_tried(subject, trials)
    return Verdict(subject.name, findings, trials, *said, unsure)


def is_of_loss(found: Finding) -> bool:
    """Return whether the weights are right, and only the reported loss isn't."""
    return found.of_loss or found.broken == "loss"


def with_the_loss_last(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings; behind those of the weights, what the loss breaks.

    If it isn't the mean, what else it breaks isn't said: that is the same mistake.
    """
    of_loss = [one for one in findings if is_of_loss(one)]
    named = [one for one in of_loss if one.broken == "loss"]
    others = [one for one in findings if not is_of_loss(one)]
    return [*others, *(named or of_loss)]


def with_own(
    subject: Subject, findings: list[Finding], found: list[Finding]
) -> list[Finding]:
    """Return the findings, and what the step's own one device shows of several.

    First comes what repeats explain. What several devices are said to break already
    isn't said again.
    """

    def others(of: list[Finding], there: list[Finding]) -> list[Finding]:
        known = {one.broken for one in there if not is_alone(subject, one)}
        return [one for one in of if one.broken not in known or is_alone(subject, one)]

    if found and found[0].broken in BY_REPEATS:
        return found + others(findings, found)
    return findings + others(found, findings)


def by_the_told_rule(told: Subject, full: bool, seen: Progress) -> list[Finding]:
    """Return what counts call a mistake that several devices make under another rule.

    Only what one device with as many samples doesn't break: that would be the rule's.
    """
    first, *_ = counting(told, full)
    seen.total = seen.number + number_of([first])
    found, _ = asked(told, first, seen)
    if not found or is_alone(told, found[0]):
        return []
    alone = looked(first, found[0].case._replace(devices=told.least_devices))
    broken = {one.broken for one in alone if isinstance(one, Finding)}
    return [one for one in found[:1] if one.broken not in broken]


# What a training may be able to do, and what it lets the judge see.
SEEN_BY = {
    "state": "what is kept beside the weights",
    "save": "saving and resuming",
    "places": "where it ran",
}


def abilities(subject: Subject) -> set[str]:
    """Return which optional methods a subject and its trainings have."""
    able = {""} | {name for name in ("on", "twice") if getattr(subject, name)}
    try:
        running = subject.start(
            [w.copy() for w in subject.weights], subject.least_devices
        )
    except Exception:  # the first check stops in the same way, and says so
        return able
    return able | {name for name in SEEN_BY if getattr(running, name, None)}


def asked(
    subject: Subject, check: Check, progress: Progress
) -> tuple[list[Finding], str]:
    """Return what the first case shows that shows anything, and what holds, or "".

    Nothing is shown to hold if the step refused all cases.
    The first finding gets the smallest case that breaks the same.
    """
    says, remarks = check.says, progress.remarks
    of_loss: list[Finding] = []
    for case in check.cases:
        progress.asks(says or APART, case)
        found = []
        for saw in looked(check, case):
            if isinstance(saw, str):
                remarks[saw] = None
            elif isinstance(saw, Refused):
                progress.refused[saw.case] = None
            elif isinstance(saw, Held):
                says = saw.says
            elif saw.broken in subject.excused:
                says = ""
                remarks[f"{saw.sentence}: right, {subject.excused[saw.broken]}"] = None
            else:
                found.append(saw)
        progress.heed()
        if found and all(map(is_of_loss, found)):  # a worse fault may be behind it
            progress.pending = of_loss = of_loss or found
        elif found:
            return shrunk(subject, check, with_the_loss_last(found + of_loss), progress)
    if of_loss:
        return shrunk(subject, check, of_loss, progress)
    return [], "" if progress.refused.keys() >= {*check.cases} else says


def shrunk(
    subject: Subject, check: Check, found: list[Finding], progress: Progress
) -> tuple[list[Finding], str]:
    """Return what was found, the first with its smallest case; "" for what holds."""
    progress.pending = found
    found = smallest(subject, check, found, progress)
    progress.pending = []
    return found, ""


def looked(check: Check, case: Case) -> list[Saw]:
    """Return what a check sees in a case, or that the step stops there."""
    try:
        return list(check.look(case))
    except Exception as error:  # whatever a reader's step may raise
        return [Finding("runs", stopped(error), case)]


def batches_of(found: Finding, case: Case) -> list[Case]:
    """Return a case with each of the batches that may show what was found.

    In a small one, a rule that follows little but signs may take the right step.
    """
    uneven = found.broken == "shares" and case.samples % case.devices
    return [case._replace(seed=seed) for seed in (range(SEEDS) if uneven else (0,))]


def smallest(
    subject: Subject, check: Check, findings: Sequence[Finding], progress: Progress
) -> list[Finding]:
    """Return the findings; the first with the smallest case that breaks the same.

    If that is on one device, the others get theirs, too, of those on one device.
    """
    first, steps = findings[0], {case.steps for case in check.cases}
    if first.smallest:
        return list(findings)
    own = [case for case in LADDER if len(steps) > 1 or case.steps in steps]
    own = [*itertools.takewhile(lambda case: case != first.case, own)]

    @cache
    def seen(case: Case) -> list[Saw]:
        progress.shrinks(case)
        return looked(check, case)

    def least(one: Finding, cases: Sequence[Case], most: int | None) -> Finding:
        for case in itertools.chain(*(batches_of(one, case) for case in cases)):
            may_refuse = one.broken == "runs" and subject.is_small(case)
            if may_refuse or not subject.fits(case):
                continue
            again = [saw for saw in seen(case) if isinstance(saw, Finding)]
            for saw in again[:most]:
                if saw.broken == one.broken:
                    return one._replace(smallest=saw.case)
        return one._replace(smallest=one.case)

    first, others = least(first, own, 1), findings[1:]
    alone = [case for case in own if case.devices == 1]
    if first.smallest.devices == 1:
        others = [least(one, alone, None) for one in others]
    return [first, *others]


def checks(subject: Subject, able: set[str], full: bool) -> Iterator[Check]:
    """Yield all questions to a subject, in their order.

    able: see `abilities`; what it can't do isn't asked.
    """
    if subject.gradient is not None:
        yield from counting(subject, full)
    trial_of = cache(partial(Trial, subject))
    for one in INVARIANCES:
        if one.needs not in able:
            continue
        cases = subject.uneven(full, one.steps)
        on_any = one.look is on_any_devices
        cases = cases if full or on_any else cases[-1:]
        says = on_devices(subject, cases) if on_any else one.says
        yield Check(
            partial(of_trial, one, trial_of), cases, says, one is INVARIANCES[0]
        )
    unknown = subject.gradient is None and not is_known(subject.rule)
    if unknown or not {"devices", "mean"} & {*subject.excused}:
        yield of_own_devices(subject, full)


def of_own_devices(subject: Subject, full: bool) -> Check:
    """Compare two steps with the step's own on the fewest devices.

    What a step keeps goes into the second one, and so does its number. A rule that is
    known is no reason to leave this out: in few digits, one that divides by a root
    tells little of a gradient, and so of a rate.
    """
    (one,) = (own for own in INVARIANCES if own.look is on_any_devices)
    look = partial(of_trial, one, partial(Trial, subject))
    return Check(look, subject.uneven(full, steps=2)[-1:], "", own=True)


def on_devices(subject: Subject, cases: Sequence[Case]) -> str:
    """On how many devices a step was the same; "" if it takes only one number."""
    tried = {subject.least_devices, *(case.devices for case in cases)}
    if len(tried) == 1:
        return ""
    more = max(case.devices for case in subject.uneven(full=True, steps=1))
    said = f"the same on {min(tried)} to {max(tried)} devices"
    return f"{said} (`--full`: up to {more})" if more > max(tried) else said


def counting(subject: Subject, full: bool = False) -> Iterator[Check]:
    """Yield who is counted how often: in a step, and, of few digits, in many."""
    look, cases = partial(trial_on_ranks, subject), subject.counted(full)
    yield Check(look, cases, "each sample counted once, all copies alike", True)
    if is_coarse(subject):
        look = partial(patiently, subject)
        cases = [exact_case(subject), *uneven_cases(subject)]
        yield Check(look, cases, "no hundredth more or less in many batches", True)


def of_trial(
    invariance: Invariance, begun: Callable[[Case], Trial], case: Case
) -> Iterator[Saw]:
    """Look whether something changes in a case that must not."""
    return invariance.look(begun(case))


def trial(subject: Subject, case: Case) -> Iterator[Saw]:
    """Take the steps of a case; yield what is broken, the likeliest cause first.

    If the step rightly refuses the batch, that is all it yields: a `Refused`.
    """
    steps: list[Step] = []
    try:
        steps.extend(taken(subject, case))
    except Exception as error:  # whatever a reader's step may raise
        yield from of_error(subject, case, error, len(steps) + 1)
        return

    @cache
    def counted(t: int) -> Counts:
        step = steps[t]
        own = subject, step.X, step.y, step.before[0], step.changes, step.rule
        return with_slack_of(counted(t - 1) if t else None, count(*own))

    of_loss_only: list[Finding] = []
    for t, step in enumerate(steps):
        until, found, factor = case._replace(steps=t + 1), [], 1.0
        if not exactly(step.mean, step.changes):
            moved = [past for past in steps[:t] if past.rule.rate]
            found += of_counts(subject, until, step, counted(t), moved)
            found = by_repeats(subject, until, step, found)
        if (
            found
            and (factor := of_those_with_a_gradient(subject, step, counted(t))) > 1
        ):
            yield Held(f"{SOME_COUNT}, all copies alike")
            found = []
        if not found and stood_still(step):
            found.append(Finding("mean", "no weight moves at all", until))
        of_loss_only = of_loss_only or [
            *of_loss(until, step, partial(counted, t), factor)
        ]
        if t and found and found[0].broken == "gradient" and alone(subject, case, step):
            text = "the step is right from the same weights if it is the first one"
            broken = "state" if subject.rule in (None, DEFAULT) else "optimizer"
            found[0] = Finding(broken, text, until)
        if found:  # a loss that is wrong, too, comes behind it
            yield from found
            break
    yield from of_loss_only


def by_repeats(
    subject: Subject, case: Case, step: Step, found: list[Finding]
) -> list[Finding]:
    """Return what is found, by its name if counts can't tell it.

    A rule that clips, or that divides by what gradients were, hides their length; so
    does a rule that isn't the step's. Then, where shares are weighted wrongly, each
    parameter seems to be wrong in its own way.
    """
    if not (found and found[0].broken in UNREADABLE):
        return found
    hidden = step.rule.by_last_digits or np.isfinite(step.rule.clip)
    times = found[0].times
    if not hidden and times is not None and np.allclose(times, times[0], rtol=1e-3):
        return found  # whatever the shares are, all samples count alike
    trial, ends = Trial(subject, case), f"on {case.devices} devices, the weights end up"
    if how := unevenly_shared(trial):
        return [Finding("shares", f"{ends} {how}, although shares are uneven", case)]
    if hidden and found[0].broken != "mean" and wrong_if_uneven(trial):
        text = f"{ends} different from one device's, but not if shares are even"
        return [Finding("shares", text, case)]
    return found


def of_those_with_a_gradient(subject: Subject, step: Step, counts: Counts) -> float:
    """Return how often samples counted, if that makes a mean over some of them; or 1.

    Over those that have a gradient: targets that are ignored, or padded, have none.
    """
    each = np.concatenate(by_sample(subject, step.X, step.y, step.before[0]))
    some = np.abs(each).max(axis=0) > 0
    if not some.any() or some.all() or counts.unexplained.any() or not counts.agree:
        return 1.0
    factor = len(some) / some.sum()
    off = np.abs(counts.joint[:, some] / factor - 1).max()
    return factor if off <= counts.slack.joint.max() else 1.0


def trial_on_ranks(subject: Subject, case: Case) -> Iterator[Saw]:
    """Yield what `trial` does, and along which axis of a mesh ranks were miscounted."""
    saw = list(trial(subject, case))
    yield from saw
    least = max(unit(subject.weights[0].dtype), subject.coarse)
    near = max(NEAR, RANKS_UNITS * least)
    if near > MOST_NEAR or any(not_taken(one) for one in saw):
        return
    running = subject.start([w.copy() for w in subject.weights], case.devices)
    if getattr(running, "ranks", None) is None:
        return
    X, y = subject.draw(case.samples, 1000 * case.seed)
    _, whole = subject.gradient(X, y, subject.weights)
    grads = RankGradients(running.ranks(X, y), whole, near)
    if grads.wrong():
        parts = [(X[i : i + 1], y[i : i + 1]) for i in range(case.samples)]
        each = [subject.gradient(*own, subject.weights)[1] for own in parts]
        told_apart = misses(grads, each)
        more = len(told_apart) - MOST_MISSES
        text = "; ".join(told_apart[:MOST_MISSES]) + f"; and {more} more" * (more > 0)
        yield Finding("ranks", f"of the ranks, {text}", case)
    elif not saw:
        yield Held("each sample counted once, all copies alike, each rank's part right")


def not_taken(saw: Saw) -> bool:
    """Return whether a trial says that the step was refused, or stopped."""
    return isinstance(saw, Refused) or getattr(saw, "broken", "") == "runs"


def of_error(
    subject: Subject, case: Case, error: Exception, step: int
) -> Iterator[Saw]:
    """Say that a case is refused, or that its step of this number stops, a fault."""
    refusal = isinstance(error, subject.refusals)
    if not (refusal and subject.is_small(case)):
        text = stopped(error)
        if runs_if_even(subject, case):
            text = f"{case.dealt}: {text}; with even shares it runs. {EVEN}"
        yield Finding("runs", text, case._replace(steps=step))
        if refusal and subject.parts is one_each:
            yield "a step that cuts a share into micro-batches says so: Subject.parts"
    elif moved_by_refusal(subject, case):
        yield Finding("empty", "the step is refused, but weights have moved", case)
    else:
        yield Refused(case)


def runs_if_even(subject: Subject, case: Case) -> bool:
    """Return whether a step runs that stopped at uneven shares, if they are even."""
    if case.samples % case.devices == 0:
        return False
    samples = case.samples + -case.samples % case.devices
    running = subject.start([w.copy() for w in subject.weights], case.devices)
    try:
        running.take(*subject.draw(samples, 1000 * case.seed))
    except Exception:  # whatever a reader's step may raise
        return False
    return True


def moved_by_refusal(subject: Subject, case: Case) -> bool:
    """Return whether the first step of a case is refused, and moves weights."""
    running = subject.start([w.copy() for w in subject.weights], case.devices)
    try:
        running.take(*subject.draw(case.samples, 1000 * case.seed))
    except subject.refusals:
        return not all(alike(own, subject.weights) for own in running.copies())
    return False


def stood_still(step: Step) -> bool:
    """Return whether nothing moved though a right step would have shown."""
    kept = all(
        np.array_equal(old, new)
        for before, after in zip(step.before, step.after, strict=True)
        for old, new in zip(before, after, strict=True)
    )
    due = copy.deepcopy(step.rule).change(step.mean) if kept else []
    return any(
        largest(change) > UNITS * unit(w.dtype) * largest(w)
        for change, w in zip(due, step.before[0], strict=False)
    )


def alone(subject: Subject, case: Case, step: Step) -> bool:
    """Return whether the same step is right for a training that begins with it."""
    fresh = replace(subject, weights=step.before[0], draw=lambda *_: (step.X, step.y))
    saw = trial(fresh, case._replace(steps=1))
    return all(not isinstance(one, Finding) or is_of_loss(one) for one in saw)


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


def of_loss(
    case: Case, step: Step, counts: Callable[[], Counts], factor: float
) -> Iterator[Finding]:
    """The loss that the step returned is the mean before it, times this factor."""
    if step.loss is None:
        return
    ratio = step.loss * case.samples / (step.total or 1.0) / factor
    if abs(ratio - 1) <= LOSS_UNITS * unit(step.before[0][0].dtype):
        return
    if not abs(ratio - 1) <= counts().loss_slack:
        text = (
            f"the step reports a loss of {step.loss:.4g}, {told(ratio)} times the mean"
        )
        yield Finding("loss", text, case)


def taken(subject: Subject, case: Case) -> Iterator[Step]:
    """Take a case's steps, from the subject's weights; yield each."""
    running = subject.start([w.copy() for w in subject.weights], case.devices)
    before = snapshot(running.copies())
    rules, seen = [begun(subject) for _ in before], []
    for t in range(case.steps):
        X, y = subject.draw(case.samples, 1000 * case.seed + t)
        loss = running.take(X, y)
        after = snapshot(running.copies())
        for rule, own in zip(rules, before, strict=True):
            rule.at(own)
        past = copy.deepcopy(rules[0])
        total, sums = subject.gradient(X, y, before[0])
        right = [wide(g) / case.samples for g in sums]
        seen.append((X, y, before[0]))
        may = cache(partial(drift, subject, past, seen.copy(), right))
        changes = [
            followed(rule, old, new, right, may)
            for rule, old, new in zip(rules, before, after, strict=True)
        ]
        yield Step(X, y, before, after, loss, changes, past, float(total), right)
        before = after


def followed(
    rule: Plain,
    before: Arrays,
    after: Arrays,
    right: Arrays,
    may: Callable[[], Arrays],
) -> Arrays:
    """Return the gradient that a copy followed in a step.

    An optimizer that divides by what the gradient itself has made tells it only by its
    last digits: a move that is right but for them, or for what rounding `may` do to
    the optimizer's averages, half of it at most, followed it.
    """
    moved = [wide(b) - wide(a) for a, b in zip(after, before, strict=True)]
    if rule.by_last_digits:
        due, unit_off = rule.change(right), unit(before[0].dtype)
        off = [np.abs(a - b) for a, b in zip(moved, due, strict=True)]
        most = [
            unit_off * UNITS * largest(w)
            + min(unit_off * rule.units_off, 0.5) * largest(b)
            for b, w in zip(due, before, strict=True)
        ]
        pairs = list(zip(off, most, strict=True))
        if all((o <= m).all() for o, m in pairs) or all(
            (o <= m + d).all() for (o, m), d in zip(pairs, may(), strict=True)
        ):
            rule.follow(right)
            return right
    return rule.gradient(moved, right)


def drift(
    subject: Subject,
    rule: Plain,
    steps: Sequence[tuple[np.ndarray, np.ndarray, Arrays]],
    right: Arrays,
) -> Arrays:
    """Return how far rounding may move what a step changes, for each number.

    All steps, this one the last, are seen again from weights and inputs that are off by
    one unit in the last place. `rule` is as it was before this one.
    """
    rng, due = np.random.default_rng(0), copy.deepcopy(rule).change(right)
    most = [0 * np.abs(one) for one in due]
    for _ in range(TRIALS):
        own = begun(subject)
        for X, y, weights in steps:
            moved = [nudged(w, rng, subject.coarse) for w in weights]
            own.at(moved)
            _, sums = subject.gradient(nudged(X, rng, subject.coarse), y, moved)
            mean = [wide(total) / len(X) for total in sums]
            change = own.change(mean)
            own.follow(mean)
        off = [np.abs(a - b) for a, b in zip(change, due, strict=True)]
        most = [np.maximum(a, b) for a, b in zip(most, off, strict=True)]
    return [
        np.minimum(SAFETY * a, np.abs(b) / 2) for a, b in zip(most, due, strict=True)
    ]
