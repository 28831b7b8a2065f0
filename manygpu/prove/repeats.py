"""How often samples count in a step, whatever its rule is: by repeating them.

A batch that has a sample twice counts it twice, whatever the rule makes of the mean. So
if several devices count samples wrongly, one device that gets the same samples so often
takes the same step.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm

import numpy as np

from manygpu.measure import shares
from manygpu.prove.trials import Batch, Trial

BY_REPEATS = ("shares", "data")  # the properties that are told so
MORE = 2  # steps, which a count that explains a trial must explain, too
Repeated = tuple[str, str, np.ndarray]  # the property, in words, how often each counts


def miscounted(trial: Trial) -> tuple[str, str] | None:
    """Return the property that a trial's steps break, and in words; None if unknown.

    What explains a trial must explain more steps, too: a rule that follows little but
    signs takes one step for many counts.
    """
    if trial.subject.least_devices > 1:
        return None
    longer = Trial(trial.subject, trial.case._replace(steps=trial.case.steps + MORE))
    for broken, said, times in repeated(trial.case.samples, trial.case.devices):
        if is_as_repeated(trial, times) and is_as_repeated(longer, times):
            return broken, f"as on one device {said}"
    return None


def unevenly_shared(trial: Trial) -> str:
    """Return how a trial's steps are one device's if each device's mean counts alike.

    "" if they aren't, or if they are one device's as they are.
    """
    case = trial.case
    if trial.subject.least_devices > 1 or case.samples % case.devices == 0:
        return ""
    broken, said, times = next(repeated(case.samples, case.devices))
    ones = np.ones(case.samples, int)
    if broken != "shares" or is_as_repeated(trial, ones):
        return ""
    return f"as on one device {said}" if is_as_repeated(trial, times) else ""


def wrong_if_uneven(trial: Trial) -> bool:
    """Return whether a trial's devices differ from the fewest, but not if even.

    That is, as many devices take the same steps as the fewest if all shares are even.
    """
    subject, case = trial.subject, trial.case
    least = -(-subject.parts(case.devices) // case.devices)
    samples = case.devices * max(case.samples // case.devices, least)
    few = subject.least_devices
    if few == case.devices or case.samples % case.devices == 0:
        return False

    def differs(own: Trial) -> bool:
        return own.off(own.base, own.end(own.begun(devices=few))) is not None

    cases = [case._replace(samples=samples, seed=case.seed + i) for i in range(2)]
    evens = (Trial(subject, even) for even in cases)
    return differs(trial) and not any(map(differs, evens))


def is_as_repeated(trial: Trial, times: np.ndarray) -> bool:
    """Return whether one device ends so if it gets each sample that many times.

    A step that stops at so many samples doesn't.
    """

    def again(batch: Batch) -> Batch:
        return tuple(np.repeat(part, times, axis=0) for part in batch)

    count = len(trial.subject.weights)
    try:
        end = trial.end(trial.begun(devices=1), [*map(again, trial.batches)])
    except Exception:  # whatever a reader's step may raise
        return False
    return trial.off(trial.base[:count], end[:count]) is None


def repeated(samples: int, devices: int) -> Iterator[Repeated]:
    """Yield how often each sample may be counted, where that is wrong."""
    sizes = shares(samples, devices)
    owner = np.repeat(np.arange(devices), sizes)
    if len({*sizes}) > 1 and min(sizes):
        whole = lcm(*sizes)
        times = np.array([whole // sizes[d] for d in owner])
        yield "shares", "if each device's mean counts alike", times
    ones = np.ones(samples, int)
    for d in range(devices):
        for change, how in ((-1, "without"), (1, "with twice")):
            times = ones + change * (owner == d)
            if devices > 1 and sizes[d]:
                yield "data", f"{how} the samples of device {d}", times
    for i in range(samples):
        for change, how in ((-1, "without"), (1, "with twice")):
            if samples > 1:
                times = ones + change * (np.arange(samples) == i)
                yield "data", f"{how} sample {i}", times
