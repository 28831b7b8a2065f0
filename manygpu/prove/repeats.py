"""How often samples count in a step whose rule nobody knows: by repeating them.

A batch that has a sample twice counts it twice, whatever the rule makes of the mean. So
if several devices count samples wrongly, one device that gets the same samples so often
takes the same step.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm

import numpy as np

from manygpu.measure import shares
from manygpu.prove.rules import is_known
from manygpu.prove.trials import Trial

BY_REPEATS = ("shares", "data")  # the properties that are told so
Repeated = tuple[str, str, np.ndarray]  # the property, in words, how often each counts


def miscounted(trial: Trial) -> tuple[str, str] | None:
    """Return the property that a first step breaks, and in words; None if unknown.

    It isn't asked of a step whose samples others count.
    """
    (X, y), count = trial.batches[0], len(trial.subject.weights)
    counted = trial.subject.gradient is not None or is_known(trial.subject.rule)
    if counted or trial.case.steps > 1 or trial.subject.least_devices > 1:
        return None
    for broken, said, times in repeated(trial.case.samples, trial.case.devices):
        batch = np.repeat(X, times, axis=0), np.repeat(y, times, axis=0)
        few = trial.begun(devices=trial.subject.least_devices)
        if trial.off(trial.base[:count], trial.end(few, [batch])[:count]) is None:
            return broken, f"as on one device {said}"
    return None


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
