"""What a trial is called when it breaks, and how a verdict reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from manygpu.prove.subject import Case


class Property(NamedTuple):
    """Something that each right step has."""

    says: str
    chapter: str


PROPERTIES = {
    "mean": Property(
        "the sum of all samples' gradients is divided once, by the batch",
        "data-parallel/many-devices",
    ),
    "shares": Property(
        "each sample weighs the same, however uneven the shares are",
        "data-parallel/many-devices",
    ),
    "data": Property(
        "each sample of the batch is counted once, and no other",
        "engine/files-for-many-workers",
    ),
    "parameter": Property(
        "each parameter is summed as often as every other", "splitting/layerwise"
    ),
    "part": Property(
        "all numbers of a parameter are summed over all devices",
        "data-parallel/collectives",
    ),
    "copies": Property(
        "all copies of a parameter stay the same", "data-parallel/many-devices"
    ),
    "state": Property(
        "a step starts from the weights and the batch that are there now",
        "in-step/asynchronous",
    ),
    "optimizer": Property(
        "the optimizer's averages and counter go on, once a step",
        "splitting/sharded-state",
    ),
    "clipping": Property(
        "a gradient is scaled by what the whole batch and all parameters say",
        "data-parallel/many-devices",
    ),
    "layout": Property(
        "each number of a gradient comes to its own place", "splitting/layerwise"
    ),
    "gradient": Property(
        "the step follows the gradient of the loss, and nothing else",
        "splitting/three-ways-to-split",
    ),
    "loss": Property(
        "the loss that is reported is the mean over the batch",
        "data-parallel/many-devices",
    ),
    "overflow": Property(
        "what isn't finite moves no weight, on no device", "engine/mixed-precision"
    ),
    "runs": Property("the step runs with so many devices and samples", "start/devices"),
}


class Finding(NamedTuple):
    """Something that a trial broke: the property, where, and what was counted.

    Attributes:
        broken: a key of PROPERTIES.
        sentence: what was found, with numbers.
        case: in which trial.
        times: how often each sample was counted, where that shows it; else None.
        smallest: the smallest trial that breaks the same.
    """

    broken: str
    sentence: str
    case: Case
    times: np.ndarray | None = None
    smallest: Case | None = None


class Verdict(NamedTuple):
    """What became of all trials.

    Attributes:
        name: of what was judged.
        findings: what is broken, the likeliest cause first.
        trials: the cases that were run.
        remarks: what looked wrong and isn't, or couldn't be seen.
    """

    name: str
    findings: Sequence[Finding]
    trials: Sequence[Case]
    remarks: Sequence[str] = ()

    @property
    def right(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        if self.right:
            most = max(case.devices for case in self.trials)
            lines = [
                f"{self.name}: right in {len(self.trials)} trials, on 1 to {most} "
                f"devices: each sample counted once, all copies alike."
            ]
        else:
            first, *others = self.findings
            rule = PROPERTIES[first.broken]
            lines = [
                f"{self.name}: wrong. Broken: {rule.says}.",
                f"  With {first.case}, {first.sentence}.",
                f"  Smallest trial: {first.smallest}. Read {rule.chapter}.",
                *(f"  Also, {other.sentence}." for other in others),
            ]
        return "\n".join([*lines, *(f"  note: {text}" for text in self.remarks)])
