"""What rounding hides in one step shows in the mean of many.

In 16 bits a weight keeps two or three digits, and a step changes the last of them. But
a weight that is 0 keeps its whole change. So each parameter in its turn begins at 0,
and many batches are drawn: what rounding does to a step has no direction, and goes
when their counts are averaged. What a wrong step does stays.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from manygpu.prove.counts import (
    Counts,
    Solved,
    basis,
    by_sample,
    nearest,
    unit,
    wide,
)
from manygpu.prove.naming import Step, of_counts
from manygpu.prove.rules import DEFAULT
from manygpu.prove.subject import Arrays, Case, Subject
from manygpu.prove.verdict import Finding

BATCHES = 32
FEW_BATCHES, ROUGHLY = 8, 0.05  # where shares are uneven, and what is off there at most
ERRORS = 5.0  # standard errors of a mean that chance may take it away
COARSE = 2.0**-10  # float16's unit in the last place of 1; bfloat16's is larger


def is_coarse(subject: Subject) -> bool:
    """Return whether the weights have so few digits that one step shows little."""
    plain = subject.rule in (None, DEFAULT) and not subject.hyperparameters
    return plain and unit(subject.weights[0].dtype) >= COARSE


def begun_at_zero(weights: Arrays) -> Iterator[tuple[list[int], Arrays]]:
    """Yield which parameters are 0, and all weights: each matrix alone, then the rest.

    If all were 0, no gradient would reach any; biases often begin there together.
    """
    matrices = [[p] for p, w in enumerate(weights) if w.ndim > 1]
    others = [p for p, w in enumerate(weights) if w.ndim <= 1]
    for zeros in [*matrices, others] if others else matrices:
        begun = [w.copy() for w in weights]
        for p in zeros:
            begun[p] = np.zeros_like(weights[p])
        yield zeros, begun


def many(subject: Subject, case: Case, batches: int = BATCHES) -> np.ndarray:
    """Return how often each batch's samples were counted: [batch, parameter, sample].

    By the first copy of the weights, in steps from weights of 0, and by gradients in
    the subject's own dtype: what its kernels do to all of them, they do to these.
    """
    times = np.ones((batches, len(subject.weights), case.samples))
    for b, own in enumerate(times):
        X, y = subject.draw(case.samples, 1000 * case.seed + b)
        for zeros, begun in begun_at_zero(subject.weights):
            running = subject.start([w.copy() for w in begun], case.devices)
            running.take(X, y)
            after, each = running.copies()[0], by_sample(subject, X, y, begun)
            for p in zeros:
                base = basis(each[p])
                change = -wide(after[p]) / subject.lr
                own[p] = nearest(base.r, base.q.T @ (change - base.mean))
    return times


def averaged(subject: Subject, case: Case) -> Counts:
    """Return the mean counts of many batches, and how far chance may take them.

    Beside chance there is the rate, which a step may round to the weights' dtype: that
    moves all counts alike. And sums in another order may lean by part of a unit. Where
    shares are uneven, what weighs them is rounded, too: only gross faults are seen.
    """
    even = case.samples % case.devices == 0
    batches = BATCHES if even else FEW_BATCHES
    times, dtype = many(subject, case, batches), subject.weights[0].dtype
    rate = float(np.float64(np.asarray(subject.lr).astype(dtype))) / subject.lr
    at_most = abs(rate - 1) / 2 + (unit(dtype) / 4 if even else ROUGHLY)

    def off_by_chance(of_each: np.ndarray) -> np.ndarray:
        error = of_each.std(axis=0, ddof=1) / np.sqrt(batches)
        return at_most + ERRORS * error

    # From halfway between both rates, each is as far.
    mean, slack = times.mean(axis=0) - (rate - 1) / 2, off_by_chance(times)
    # All samples alike: chance moves their mean less than it does each of them.
    whole, slack_of_whole = mean.mean(axis=1), off_by_chance(times.mean(axis=2))
    alike = np.abs(whole - 1) > slack_of_whole
    mean[alike], slack[alike] = whole[alike, None], slack_of_whole[alike, None]
    nothing = np.zeros(len(mean))
    joint = np.average(mean, axis=0, weights=1 / slack.max(axis=1) ** 2)
    left = np.abs(mean - joint).max(axis=1)
    may = Solved(slack, nothing, slack.min(axis=0), slack.max(axis=1))
    found = Solved(mean, nothing, joint, left)
    return Counts([found], True, nothing == 0, lambda: (may, 0.0))


def exact_case(subject: Subject, seed: int = 0) -> Case:
    """Return a case whose shares are powers of two, which no dtype has to round."""
    fit = [k for k in (2, 4, 8, 1) if subject.fits(Case(k, 2 * k))]
    k = fit[0] if fit else subject.least_devices
    return Case(k, 2 * k, 1, seed)


def uneven_cases(subject: Subject) -> list[Case]:
    """Return a case with uneven shares, of a power of two if it takes that."""
    fit = [case for case in (Case(3, 4), Case(5, 8), Case(2, 3)) if subject.fits(case)]
    return [case for case in fit if not subject.is_small(case)][:1]


def patiently(subject: Subject, case: Case) -> Iterator[Finding]:
    """Yield what many batches' counts say is wrong in a step of few digits."""
    nobody = Step(*[None] * len(Step._fields))  # it is asked of one step's rest only
    for found in of_counts(subject, case, nobody, averaged(subject, case), []):
        even = case.samples % case.devices == 0
        batches = BATCHES if even else FEW_BATCHES
        text = f"in the mean of {batches} batches, {found.sentence}"
        yield found._replace(sentence=text, smallest=case)
