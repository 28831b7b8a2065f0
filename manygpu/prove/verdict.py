"""What a trial is called when it breaks, and how a verdict reads."""

from __future__ import annotations

import re
import textwrap
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
    "ranks": Property(
        "along each axis of a mesh, each rank's gradient is summed as often as its "
        "letter says",
        "splitting/hybrid-meshes",
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
    "schedule": Property(
        "the rate is the one that this step's number asks for",
        "data-parallel/large-batches",
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
        "start/three-ways-to-split",
    ),
    "loss": Property(
        "the loss that is reported is the mean over the batch",
        "data-parallel/many-devices",
    ),
    "overflow": Property(
        "what isn't finite ends the same on all devices; a step that looks for it "
        "moves no weight then",
        "engine/mixed-precision",
    ),
    "order": Property(
        "a step asks neither in which order samples come nor in which the devices are",
        "data-parallel/many-devices",
    ),
    "devices": Property(
        "the step is the same on however many devices", "data-parallel/many-devices"
    ),
    "empty": Property(
        "a device without samples adds nothing, or the step is refused and nothing "
        "has moved",
        "data-parallel/many-devices",
    ),
    "resume": Property(
        "a training that was saved goes on as if it had never stopped, also on "
        "other devices",
        "beyond/worker-dies",
    ),
    "repeatable": Property(
        "the same step from the same weights ends the same", "start/one-device"
    ),
    "place": Property(
        "each device works, on its own variables and nobody else's", "start/devices"
    ),
    "kept": Property(
        "what is kept beside the weights (slots, averages) is alike on all replicas, "
        "finite, and of the dtype it had",
        "splitting/sharded-state",
    ),
    "counter": Property(
        "a counter of steps goes on by one a step, on every replica",
        "splitting/sharded-state",
    ),
    "random": Property(
        "replicas that have other data draw other random numbers, and new ones each "
        "step",
        "splitting/transformer",
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


class Held(NamedTuple):
    """What a trial shows to hold, where that isn't what its check asked for."""

    says: str


class Refused(NamedTuple):
    """A case that isn't judged: the step refuses a batch with so few samples."""

    case: Case


NOTHING = 1e-9  # beside 1: what rounding leaves of 0


def told(*values: float) -> str:
    """Numbers in three digits, or in as many as tell them from right ones, from 1."""
    values = [0.0 if abs(v) < NOTHING else v for v in values]
    for digits in (3, 4, 5, 6):
        said = [f"{v:.{digits}g}" for v in values]
        if set(said) != {"1"}:
            break
    return " ".join(said)


def stopped(error: Exception) -> str:
    """Say with which error a step stops: by its first line, and its last.

    TensorFlow puts a node's full name before what is wrong, and its operation behind.
    """
    readable = re.sub(r"\{\{.*?\}\}\s*|\s*\[Op:\w+\]( name:.*)?", "", str(error))
    lines = readable.strip().splitlines() or [""]
    said = " ... ".join(line[:150] for line in dict.fromkeys([lines[0], lines[-1]]))
    return f"it stops with {type(error).__name__}: {said}"


class Verdict(NamedTuple):
    """What became of all trials.

    Attributes:
        name: of what was judged.
        findings: what is broken, the likeliest cause first.
        trials: the cases that were run.
        remarks: what looked wrong and isn't, or couldn't be seen.
        held: what was asked and is so, in a few words each.
    """

    name: str
    findings: Sequence[Finding]
    trials: Sequence[Case]
    remarks: Sequence[str] = ()
    held: Sequence[str] = ()

    @property
    def right(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        if self.right:
            counts = [case.devices for case in self.trials]
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
                f"  Smallest trial: {first.smallest}. Read {rule.chapter}.",
                *(f"  Also, {other.sentence}." for other in others),
            ]
        said += [f"  note: {text}" for text in self.remarks]
        return "\n".join(textwrap.fill(s, 80, subsequent_indent="    ") for s in said)
