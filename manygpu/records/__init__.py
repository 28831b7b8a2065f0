"""Experiments too long to run with a page, kept with the machine they ran on.

`make records` runs them and writes `manygpu/records/<name>.json`; a chapter draws
them with `load`. `manygpu bench` keeps its comparisons so too, where the reader says.
A record is checked before it is written and when it is read: what all have in common
here, the rest by its kind, see `KINDS`. Comparisons that others sent are in a folder
of their own: `machines` reads them, `measured` lists their times.
"""

from __future__ import annotations

import datetime
import json
import os
import stat
import statistics
import tempfile
from collections.abc import Callable, Iterable
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

from manygpu._files import data_folder
from manygpu.records import comparison, gpu, training
from manygpu.records.fields import check_fields, check_range

FOLDER = data_folder("records", "*.json")
# Comparisons of `manygpu bench` on others' machines.
MACHINES = data_folder("records/machines", "*.json")
FORMAT = 2
LARGE = 100e6  # bytes of a file that is read
# What checks the experiment and the runs of a record of this kind. A new kind has a
# module of its own beside `training`.
KINDS: dict[str, Callable[[dict[str, Any]], None]] = {
    "training": training.check,
    "comparison": comparison.check,
    "gpu": gpu.check,
}

MORE = {"comparison": comparison.MORE}  # what a record of this kind has besides
# What every record must hold, and of which type.
RECORD = {"format": int, "kind": str, "name": str, "date": str, "machine": dict}
RECORD |= {"experiment": dict, "runs": list}
MACHINE = {"cpu": str, "cores": int, "memory_gib": float, "system": str}
MACHINE |= {"python": str, "tensorflow": str, "numpy": str}


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
    return read(FOLDER / f"{name}.json")


def gpu_record(question: str, **own: Real | Iterable[Real]) -> str:
    """What the kept run on GPUs has for a page's question; or that none is kept yet.

    Args:
        question: a key of `gpu.QUESTIONS`, the name of a page.
        own: what this machine measured, by the names of that question's measures: a
            number, or one of each round.

    Raises:
        ValueError: no such question or measure; the record's file is not a whole one.
    """
    kept = load(gpu.NAME) if gpu.NAME in names() else None
    return gpu.said(kept, question, own)


class Measured(NamedTuple):
    """A row of a comparison: what was asked, and what it took.

    Attributes:
        record: its name.
        row: a strategy of `manygpu bench`.
        devices: how many it had.
        asked: what `manygpu choose` is asked of that model on that machine.
        seconds: the median of the rounds.
        rounds: how many.
        spread: the longest over the shortest: how restless the machine was.
    """

    record: str
    row: str
    devices: int
    asked: dict[str, Any]
    seconds: float
    rounds: int
    spread: float


def machines(folder: Path = MACHINES) -> dict[str, dict[str, Any]]:
    """Return the comparisons in a folder, checked, by the names of their files.

    Raises:
        ValueError: a file that is no whole comparison; the message names it.
    """
    found = {}
    for path in sorted(folder.glob("*.json")):
        found[path.stem] = read(path)
        if found[path.stem]["kind"] != "comparison":
            raise ValueError(f"{path.name}: manygpu bench --json didn't write it")
    return found


def measured(kept: dict[str, dict[str, Any]] | None = None) -> Iterable[Measured]:
    """Yield each timed row of some comparisons; of those in the package by default."""
    for name, record in (machines() if kept is None else kept).items():
        for run in record["runs"]:
            if run["times"] and not run["cannot"]:
                times = run["times"]
                middle, spread = statistics.median(times) / 1e3, max(times) / min(times)
                about = run["devices"], record["choose"], middle, len(times), spread
                yield Measured(name, run["strategy"], *about)


def read(path: Path) -> dict[str, Any]:
    """Return the record in a file, checked.

    Raises:
        ValueError: the file can't be read, or is not a whole record.
    """
    record = read_json(path)
    try:
        check(record)
    except ValueError as wrong:
        raise ValueError(f"{path} is no whole record: {wrong}") from wrong
    return record


def read_json(path: Path, needed: str = "file must be one of JSON") -> Any:
    """Return the JSON in a file. What isn't a regular file is never opened.

    A pipe would keep its reader waiting, and /dev/zero has no end.

    Args:
        path: where it lies.
        needed: how an error's message begins.

    Raises:
        ValueError: the file can't be read, or holds no JSON.
    """
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise ValueError("no regular file")
        if about.st_size > LARGE:
            raise ValueError(f"a file of more than {LARGE / 1e6:.0f} MB")
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as wrong:
        why = (wrong.strerror or str(wrong)).lower()
    except RecursionError:
        why = "nested too deep"
    except ValueError as wrong:  # bytes that are no text, too
        why = str(wrong)
    raise ValueError(f"{needed}, got {path} ({why}): name another")


def save(record: dict[str, Any], path: Path) -> None:
    """Check `record` and write it at `path`, whole or not at all.

    Raises:
        ValueError: the record is not one; what stood at `path` stays.
    """
    check(record)
    write_whole(json.dumps(record, indent=1, allow_nan=False) + "\n", path)


def write_whole(text: str, path: Path) -> None:
    """Write a text at `path`, whole or not at all; half a letter by its number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
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
    kind = record.get("kind") if isinstance(record, dict) else None
    check_fields("record", record, RECORD | MORE.get(str(kind), {}))
    if record["format"] != FORMAT:
        raise ValueError(f"record.format must be {FORMAT}, got {record['format']}")
    if record["kind"] not in KINDS:
        raise ValueError(
            f"record.kind must be one of {[*KINDS]}, got {record['kind']!r}"
        )
    _check_date(record["date"])
    machine = record["machine"]
    check_fields("record.machine", machine, MACHINE)
    check_range("record.machine.cores", machine["cores"], 1, 2**20)
    check_range("record.machine.memory_gib", machine["memory_gib"], 0, 2**20)
    if not record["runs"]:
        raise ValueError("record.runs is empty")
    KINDS[record["kind"]](record)


def _check_date(date: str) -> None:
    """Refuse what is no day as in 2026-11-21."""
    try:
        datetime.date.fromisoformat(date)
    except ValueError as broken:
        raise ValueError(f"record.date must be like 2026-11-21: {broken}") from broken
