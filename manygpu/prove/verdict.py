"""What a trial is called when it breaks, and how a verdict reads."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from manygpu.chapters import reference
from manygpu.prove.reasons import reason_of
from manygpu.prove.subject import Case


class Property(NamedTuple):
    """Something that each right step has."""

    says: str
    chapter: str


PROPERTIES = {
    "mean": Property(
        "the gradient is the mean over the batch: the sum of the gradients of all "
        "samples, divided once, by the size of the batch",
        "data-parallel/many-devices",
    ),
    "shares": Property(
        "each sample has the same weight, even if the shares have different sizes",
        "data-parallel/many-devices",
    ),
    "data": Property(
        "each sample of the batch is counted once, and no other sample is counted",
        "engine/files-for-many-workers",
    ),
    "ranks": Property(
        "along each axis of a mesh, the ranks' gradients are summed as often as the "
        "letter of their array says",
        "splitting/hybrid-meshes",
    ),
    "parameter": Property(
        "the gradients of all parameters are summed equally often",
        "splitting/layerwise",
    ),
    "part": Property(
        "all numbers of a parameter are summed over all devices",
        "data-parallel/collectives",
    ),
    "copies": Property(
        "all copies of a parameter stay equal", "data-parallel/many-devices"
    ),
    "state": Property(
        "a step starts from the current weights and the current batch",
        "in-step/asynchronous",
    ),
    "optimizer": Property(
        "the optimizer's averages and its counter are updated once per step",
        "splitting/sharded-state",
    ),
    "schedule": Property(
        "the learning rate is the one that belongs to the number of this step",
        "data-parallel/large-batches",
    ),
    "clipping": Property(
        "a gradient is clipped, or scaled, by one factor, from the whole batch and all "
        "parameters",
        "data-parallel/many-devices",
    ),
    "layout": Property(
        "each number of a gradient arrives at its own place", "splitting/layerwise"
    ),
    "gradient": Property(
        "the step follows the gradient of the loss, and nothing else",
        "start/three-ways-to-split",
    ),
    "loss": Property(
        "the reported loss is the mean over the batch",
        "data-parallel/many-devices",
    ),
    "overflow": Property(
        "infinite numbers and NaN have the same effect on all devices, and a step that "
        "checks for them moves no weight",
        "engine/mixed-precision",
    ),
    "order": Property(
        "the result depends neither on the order of the samples nor on the order of "
        "the devices",
        "data-parallel/many-devices",
    ),
    "devices": Property(
        "the step is the same for any number of devices", "data-parallel/many-devices"
    ),
    "empty": Property(
        "a device without samples adds nothing, or the step is refused before a weight "
        "has moved",
        "data-parallel/many-devices",
    ),
    "resume": Property(
        "a saved training run goes on as if it had never stopped, also on different "
        "devices",
        "beyond/worker-dies",
    ),
    "repeatable": Property(
        "the same step from the same weights gives the same result", "start/one-device"
    ),
    "place": Property(
        "each device computes, and only with its own variables", "start/devices"
    ),
    "kept": Property(
        "the numbers kept beside the weights (slots, averages) are equal on all "
        "replicas, are finite, keep their dtype, and change as on one device",
        "splitting/sharded-state",
    ),
    "counter": Property(
        "a counter of steps grows by one per step, on every replica",
        "splitting/sharded-state",
    ),
    "random": Property(
        "replicas with different data draw different random numbers, and new ones in "
        "each step",
        "splitting/transformer",
    ),
    "runs": Property(
        "the step runs with this number of devices and samples", "start/devices"
    ),
}


class Finding(NamedTuple):
    """Something that a trial broke: the property, where, and what was counted.

    Attributes:
        broken: a key of PROPERTIES.
        sentence: what was found, with numbers.
        case: in which trial.
        times: how often each sample was counted, where that shows it; else None.
        smallest: the smallest trial that breaks the same.
        of_loss: whether the weights are right, and only the reported loss isn't.
    """

    broken: str
    sentence: str
    case: Case
    times: np.ndarray | None = None
    smallest: Case | None = None
    of_loss: bool = False


class Held(NamedTuple):
    """What a trial shows to hold, where that isn't what its check asked for."""

    says: str


class Refused(NamedTuple):
    """A case that isn't judged: the step refuses a batch with so few samples."""

    case: Case


NOTHING = 1e-9  # beside 1: what rounding leaves of 0
DIGITS = range(3, 13)


def told(*values: float) -> str:
    """Numbers in three digits, or in as many as tell them from right ones, from 1."""
    values = [0.0 if abs(v) < NOTHING else v for v in values]
    for digits in DIGITS:
        said = [f"{v:.{digits}g}" for v in values]
        if set(said) != {"1"}:
            break
    return " ".join(said)


def stopped(error: Exception) -> str:
    """Say with which error a step stops: its reason, without what is wrapped around."""
    return f"it stops with {raised(error)}"


def raised(error: Exception) -> str:
    """Return an error's class and its reason."""
    return reason_of(str(error), type(error).__name__)


class Verdict(NamedTuple):
    """What became of all trials.

    Attributes:
        name: of what was judged.
        findings: what is broken, the likeliest cause first.
        trials: the cases that were run.
        remarks: what looked wrong and isn't, or couldn't be seen.
        held: what was asked and is so, in a few words each.
        untried: what no trial could ask, and why.
        unsure: why nobody can tell whether the step is right; "" if it can be told.
        unfinished: how far the trials came before they were stopped; "" if all ran.
    """

    name: str
    findings: Sequence[Finding]
    trials: Sequence[Case]
    remarks: Sequence[str] = ()
    held: Sequence[str] = ()
    untried: Sequence[str] = ()
    unsure: str = ""
    unfinished: str = ""

    @property
    def right(self) -> bool:
        return not (self.findings or self.unsure or self.unfinished)

    def __str__(self) -> str:
        counts = [case.devices for case in self.trials]
        if self.unsure or self.unfinished:
            said = [f"{self.name}: can't tell, because {self.unsure}."]
            if self.unfinished:
                said = [f"{self.name}: not finished: {self.unfinished}."]
            for found in self.findings:
                said.append(f"  With {found.smallest or found.case}, {found.sentence}.")
            if self.held:
                said.append(f"  Tried, and found to hold: {', '.join(self.held)}.")
        elif self.right:
            said = [
                f"{self.name}: right in {len(self.trials)} trials, on "
                f"{min(counts)} to {max(counts)} devices: {', '.join(self.held)}."
            ]
        else:
            first, *others = self.findings
            rule = PROPERTIES[first.broken]
            said = [
                f"{self.name}: wrong. Broken: {rule.says}.",
                f"  With {first.case}, {first.sentence}.",
                f"  Smallest trial: {first.smallest}.",
                f"  Read {reference(rule.chapter)}",
                *(f"  Also, {other.sentence}." for other in others),
            ]
        said += [f"  not tried: {text}" for text in self.untried]
        said += [f"  note: {text}" for text in self.remarks]
        # An address stays whole, so that it can be copied.
        keep = {"break_long_words": False, "break_on_hyphens": False}
        fill = partial(textwrap.fill, width=80, subsequent_indent="    ", **keep)
        return "\n".join(map(fill, said))
