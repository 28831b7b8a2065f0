"""Experiments too long to run with a page, kept with the machine they ran on.

`make records` runs them and writes `manygpu/records/<name>.json`; a chapter draws
them with `load`. A record is checked before it is written and when it is read.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
FORMAT = 1

# What each level of a record must hold, and of which type.
RECORD = {"format": int, "name": str, "date": str, "machine": dict}
RECORD |= {"experiment": dict, "runs": list}
MACHINE = {"cpu": str, "cores": int, "memory_gib": float, "system": str}
MACHINE |= {"python": str, "tensorflow": str, "numpy": str}
EXPERIMENT = {"model": str, "data": str, "batch_size": int, "lr": float}
EXPERIMENT |= {"scale": float, "seed": int, "epochs": int}
EXPERIMENT |= {"train_samples": int, "test_samples": int}
EXPERIMENT |= {"early_epochs": int, "early_every": int, "early_test_samples": int}
RUN = {"devices": int, "hardware": str, "step": str, "init": str}
RUN |= {"per_epoch": list, "early": list}
EPOCH = {"seconds": float, "test_accuracy": float, "training_loss": float}
EARLY = {"step": int, "test_accuracy": float}
STEPS = ("eager", "compiled")
INITS = ("source", "he")


def names() -> list[str]:
    """Names of the records that come with the package."""
    return sorted(p.stem for p in FOLDER.glob("*.json"))


def load(name: str) -> dict[str, Any]:
    """Return a record, checked.

    Args:
        name: such as 'source-experiment'; `names` lists them.

    Raises:
        TypeError: `name` is not a string.
        ValueError: there is no such record, or its file is not a whole record.
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, got {name!r}")
    if name not in names():
        raise ValueError(f"name {name!r} is no record: choose from {names()}")
    try:
        record = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    except ValueError as broken:
        raise ValueError(f"record {name!r} is not JSON: {broken}") from broken
    check(record)
    return record


def save(record: dict[str, Any], path: Path) -> None:
    """Check `record` and write it at `path`, whole or not at all.

    Raises:
        ValueError: the record is not one; what stood at `path` stays.
    """
    check(record)
    text = json.dumps(record, indent=1, allow_nan=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(part, 0o644)  # mkstemp's are for their owner only
        os.replace(part, path)
    finally:
        Path(part).unlink(missing_ok=True)


def check(record: Any) -> None:
    """Refuse what is not a whole record of plausible numbers.

    Raises:
        ValueError: the message names the place and what is wrong there.
    """
    _fields("record", record, RECORD)
    if record["format"] != FORMAT:
        raise ValueError(f"record.format must be {FORMAT}, got {record['format']}")
    _fields("record.machine", record["machine"], MACHINE)
    experiment = record["experiment"]
    _fields("record.experiment", experiment, EXPERIMENT)
    if not record["runs"]:
        raise ValueError("record.runs is empty")
    for i, run in enumerate(record["runs"]):
        _check_run(f"record.runs[{i}]", run, experiment)
    kinds = [(r["devices"], r["step"], r["init"]) for r in record["runs"]]
    if len(set(kinds)) < len(kinds):
        raise ValueError(f"record.runs holds one kind of run twice: {kinds}")


def _check_run(place: str, run: Any, experiment: dict[str, Any]) -> None:
    """Refuse a run that is cut short or holds an impossible number."""
    _fields(place, run, RUN)
    for key, known in (("step", STEPS), ("init", INITS)):
        if run[key] not in known:
            raise ValueError(f"{place}.{key} must be one of {known}, got {run[key]!r}")
    if run["devices"] < 1:
        raise ValueError(f"{place}.devices must be at least 1, got {run['devices']}")
    if len(run["per_epoch"]) != experiment["epochs"]:
        raise ValueError(
            f"{place}.per_epoch has {len(run['per_epoch'])} entries for "
            f"{experiment['epochs']} epochs"
        )
    for e, epoch in enumerate(run["per_epoch"]):
        _fields(f"{place}.per_epoch[{e}]", epoch, EPOCH)
        _between(f"{place}.per_epoch[{e}].seconds", epoch["seconds"], 0.01, 36_000)
        _between(f"{place}.per_epoch[{e}].training_loss", epoch["training_loss"], 0, 10)
        _between(f"{place}.per_epoch[{e}].test_accuracy", epoch["test_accuracy"], 0, 1)
    per_epoch = math.ceil(experiment["train_samples"] / experiment["batch_size"])
    last = per_epoch * min(experiment["early_epochs"], experiment["epochs"])
    wanted = list(range(0, last + 1, experiment["early_every"]))
    for e, point in enumerate(run["early"]):
        _fields(f"{place}.early[{e}]", point, EARLY)
        _between(f"{place}.early[{e}].test_accuracy", point["test_accuracy"], 0, 1)
    if [p["step"] for p in run["early"]] != wanted:
        raise ValueError(
            f"{place}.early must have a point every {experiment['early_every']} steps "
            f"from 0 to {last}"
        )


def _fields(place: str, value: Any, wanted: dict[str, type]) -> None:
    """Refuse a dictionary whose keys or types are not exactly the wanted ones."""
    if not isinstance(value, dict):
        raise ValueError(f"{place} must be a dictionary, got {type(value).__name__}")
    if value.keys() != wanted.keys():
        raise ValueError(f"{place} must have {sorted(wanted)}, got {sorted(value)}")
    for key, kind in wanted.items():
        if type(value[key]) is not kind:
            found = type(value[key]).__name__
            raise ValueError(f"{place}.{key} must be {kind.__name__}, got {found}")


def _between(place: str, value: float, least: float, most: float) -> None:
    """Refuse a number out of range; NaN is out of every range."""
    if not least <= value <= most:
        raise ValueError(f"{place} must lie in {least} to {most}, got {value}")
