"""Records of trainings: losses, accuracies and seconds of each epoch, for each run."""

from __future__ import annotations

import math
from typing import Any

from manygpu.records.fields import check_choice, check_fields, check_range

EXPERIMENT = {"model": str, "data": str, "batch_size": int, "lr": float}
EXPERIMENT |= {"scale": float, "seed": int, "epochs": int}
EXPERIMENT |= {"train_samples": int, "test_samples": int}
EXPERIMENT |= {"early_epochs": int, "early_every": int, "early_test_samples": int}
# Least and most of the experiment's numbers.
LIMITS = dict.fromkeys(("batch_size", "epochs", "train_samples"), (1, 10**9))
LIMITS |= dict.fromkeys(("test_samples", "early_every"), (1, 10**9))
LIMITS |= dict.fromkeys(("early_epochs", "early_test_samples", "seed"), (0, 10**9))
LIMITS |= dict.fromkeys(("lr", "scale"), (1e-9, 1e3))
RUN = {"devices": int, "hardware": str, "step": str, "init": str}
RUN |= {"per_epoch": list, "early": list}
EPOCH = {"seconds": float, "test_accuracy": float, "training_loss": float}
# An epoch of no time was not timed; the loss of ten classes by chance is 2.3.
EPOCH_LIMITS = {"seconds": (0.01, 36_000), "training_loss": (0, 10)}
EPOCH_LIMITS |= {"test_accuracy": (0, 1)}
EARLY = {"step": int, "test_accuracy": float}
STEPS = ("eager", "compiled")
INITS = ("source", "he")


def check(record: dict[str, Any]) -> None:
    """Refuse a record whose experiment or runs are no whole training.

    Raises:
        ValueError: the message names the place and what is wrong there.
    """
    experiment = record["experiment"]
    check_fields("record.experiment", experiment, EXPERIMENT)
    for key, limits in LIMITS.items():
        check_range(f"record.experiment.{key}", experiment[key], *limits)
    for i, run in enumerate(record["runs"]):
        _check_run(f"record.runs[{i}]", run, experiment)
    kinds = [(r["devices"], r["step"], r["init"]) for r in record["runs"]]
    if len(set(kinds)) < len(kinds):
        raise ValueError(f"record.runs holds one kind of run twice: {kinds}")


def _check_run(place: str, run: Any, experiment: dict[str, Any]) -> None:
    """Refuse a run that is cut short or holds an impossible number."""
    check_fields(place, run, RUN)
    check_choice(f"{place}.step", run["step"], STEPS)
    check_choice(f"{place}.init", run["init"], INITS)
    check_range(f"{place}.devices", run["devices"], 1, 2**20)
    if len(run["per_epoch"]) != experiment["epochs"]:
        raise ValueError(
            f"{place}.per_epoch has {len(run['per_epoch'])} entries for "
            f"{experiment['epochs']} epochs"
        )
    for e, epoch in enumerate(run["per_epoch"]):
        check_fields(f"{place}.per_epoch[{e}]", epoch, EPOCH)
        for key, limits in EPOCH_LIMITS.items():
            check_range(f"{place}.per_epoch[{e}].{key}", epoch[key], *limits)
    _check_early(f"{place}.early", run["early"], experiment)


def _check_early(place: str, points: list, experiment: dict[str, Any]) -> None:
    """Refuse looks at the first epochs that are not there, or at other steps."""
    for e, point in enumerate(points):
        check_fields(f"{place}[{e}]", point, EARLY)
        check_range(f"{place}[{e}].test_accuracy", point["test_accuracy"], 0, 1)
    per_epoch = math.ceil(experiment["train_samples"] / experiment["batch_size"])
    last = per_epoch * min(experiment["early_epochs"], experiment["epochs"])
    wanted = list(range(0, last + 1, experiment["early_every"]))
    if [p["step"] for p in points] != wanted:
        raise ValueError(
            f"{place} must have a point every {experiment['early_every']} steps "
            f"from 0 to {last}"
        )
