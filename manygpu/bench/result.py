"""What `manygpu bench` finds out: a model, its strategies, and a row for each.

It holds no step and starts nothing, so it needs no TensorFlow: a comparison can be
kept, read again, gone on with, and shown on a machine that has none.
"""

from __future__ import annotations

import datetime
import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from manygpu import records
from manygpu.choosing import measured
from manygpu.records import machine
from manygpu.tables import Cell, Column, columns_of, spread
from manygpu.trainings.table import (
    ADAM,
    ALIKE,
    BASE,
    QUIET,
    STRATEGIES,
    WIDE,
    unfit,
)

UNCLEAR = 1e-2  # where rounding alone may do this much, equality can't be told
TIME, MEMORY = "time a step [ms]", "memory a device [MB]"
PLAIN_STEP = "of plain SGD"
OWN_STEP = "by the model's own train_step and its own optimizer"
KERAS_STEP = "of plain SGD as Keras takes it"
ON_FULLEST = "on the fullest device, as TensorFlow counts it."
IN_SHARES = (
    "as TensorFlow counts it. Logical CPU devices share one allocator, so this is all "
    "devices' sum over their number."
)
NOTES = {
    "time": "Time: the median of the rounds, the least and the most. Speedup: the time "
    "of one device over that of the row, both of the same round; of two rounds in the "
    "middle, the geometric mean. Efficiency: the speedup over the devices.",
    "cores": "{many} logical CPU devices share {cores} cores here: no time of theirs "
    "says anything about {many} real devices.",
    "memory": "Memory: parameters, and the most that a step held beyond them, {where}",
    "threads": "More threads: one device with as many threads as there are devices, "
    "{many}. What it gains, threads gain without any strategy.",
    "hidden": "Rows that hide their messages ({rows}) have here what the same sum "
    "sends by hand, 2 (k - 1) times the parameters.",
    "uneven": "fit averages the means of the shares, and {samples} samples make uneven "
    "ones for {many} devices: that is another step.",
    "limit": "{limits}: no strategy, but a limit. The devices train apart, so a step "
    "takes what it would if messages were free.",
    "own": "Its own: where devices share a train_step or compute_loss of the model's "
    "own, the result is the model's, right or not, so it is measured and not judged. "
    "Keras adds up what the replicas find: if the step is as many times as long as "
    "there are devices, the loss of a replica isn't divided by their number.",
    "off": "A step that is so many % off: how far the weights end from where one "
    "device's step takes them, beside the length of that step.",
    "equal": "Equal: how the trained weights move in a first step, {step}, against one "
    "device's. What rounding may do is allowed: ten times what another order of the "
    "samples does to one device.",
    WIDE: "'In float32': in that step only, for 16 bits round so much that equality "
    "couldn't be told. Times and memory are those of 16 bits.",
    QUIET: "'Random layers off' (dropout, noise, augmentation): in that step only, for "
    "each share would draw its own.",
    ALIKE: "'If normalized alike': in training, a layer such as BatchNorm takes the "
    "mean of the samples that it sees, a share or a micro-batch. That is another step "
    "than one device's. With the moving averages in place of those means it is the "
    "same.",
}


@dataclass
class Row:
    """One strategy of a comparison.

    Attributes:
        strategy: a key of `table.STRATEGIES`.
        devices: how many it has.
        times: median milliseconds a step, one number a round.
        facts: what was found out before any timing, see `manygpu.records.comparison`:
            distance and tolerance of its step, bytes sent, held and needed.
        cannot: why it doesn't run here; empty if it does.
    """

    strategy: str
    devices: int
    times: list[float] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    cannot: str = ""

    @property
    def title(self) -> str:
        """How a table calls it."""
        return STRATEGIES[self.strategy].title

    @property
    def verdict(self) -> str:
        """Whether its step is that of one device, in words."""
        distance, tolerance = self.facts.get("distance"), self.facts.get("tolerance")
        if distance is None or tolerance is None:
            return "not compared"
        remark, times = self.facts.get("remark", ""), self.facts.get("own")
        why = self.facts.get("why", "")
        if tolerance > UNCLEAR:
            return f"can't tell: {why or 'rounding hides it'}"
        if distance <= tolerance:
            return ", ".join(filter(None, ["yes", remark]))
        if STRATEGIES[self.strategy].limit:
            return "no: it is a limit"
        if unlike := STRATEGIES[self.strategy].unlike:
            return f"no: {unlike}"
        if times is not None and not why:
            return f"its own: {_times(times)} times as long" if times else "its own"
        if many := self.facts.get("times"):
            found = f"no: its step is {_times(many)} times as long"
        else:
            found = f"no: its step is {percent(distance)} off"
        return f"{found} ({why})" if why else found


@dataclass
class Comparison:
    """One model under many strategies, on one machine, in turns.

    Attributes:
        experiment: what was asked, see `manygpu.records.comparison.EXPERIMENT`.
        rows: one a strategy, by its name.
        machine: where, see `manygpu.records.machine`.
        date: when it began, such as 2026-11-21.
    """

    experiment: dict[str, Any]
    rows: dict[str, Row]
    machine: dict[str, Any]
    date: str

    @property
    def running(self) -> dict[str, Row]:
        """The rows that can run here, as far as is known."""
        return {name: row for name, row in self.rows.items() if not row.cannot}

    @property
    def rounds(self) -> int:
        """How many rounds all rows that run have had."""
        return min((len(row.times) for row in self.running.values()), default=0)

    @property
    def times(self) -> dict[str, list[float]]:
        """Milliseconds a step, one number a full round, of the rows that run."""
        return {n: row.times[: self.rounds] for n, row in self.running.items()}


def begin(asked: Mapping[str, Any]) -> Comparison:
    """Return a comparison without results, on this machine, today.

    Args:
        asked: the experiment without `about`: model, source, devices, batch, steps,
            kernels, strategies.
    """
    rows, about = {}, {"model": asked["model"]}
    for name in asked["strategies"]:
        devices = 1 if STRATEGIES[name].alone else asked["devices"]
        cannot = unfit(STRATEGIES[name], about, devices)
        rows[name] = Row(name, devices, cannot=cannot)
    today = datetime.date.today().isoformat()
    return Comparison({**asked, "about": {}}, rows, machine.facts(), today)


def resume(path: Path, asked: Mapping[str, Any]) -> Comparison:
    """Return what is in a file, to go on with; if there is none, begin.

    Raises:
        ValueError: it can't be read, or holds no comparison, or one of another machine
            or other arguments (see `begin`); the message says which differ.
    """
    fresh = begin(asked)
    if not path.exists():
        return fresh
    kept = read(path)
    there, here = kept.experiment | kept.machine, fresh.experiment | fresh.machine
    there["batch"], here["batch"] = (
        one["batch"] or "the model's own" for one in (there, here)
    )
    differ = [
        "the model's file has changed"
        if name == "source"
        else f"{name} is {there[name]} there and {here[name]} here"
        for name in there
        if name != "about" and there[name] != here[name]
    ]
    if differ:
        raise ValueError(
            f"{path} belongs to another comparison ({'; '.join(differ)}): name "
            f"another file, or remove this one"
        )
    return kept


def read(path: Path) -> Comparison:
    """Return the comparison in a file.

    Raises:
        ValueError: the file can't be read, or holds no comparison.
    """
    record = records.read(path)
    if record["kind"] != "comparison":
        raise ValueError(
            f"{path} holds a record of the kind {record['kind']!r}: name a file that "
            f"manygpu bench --json wrote"
        )
    strange = [r["strategy"] for r in record["runs"] if r["strategy"] not in STRATEGIES]
    if strange:
        raise ValueError(f"{path} has strategies that are not known here: {strange}")
    rows = {run["strategy"]: Row(**run) for run in record["runs"]}
    return Comparison(record["experiment"], rows, record["machine"], record["date"])


def keep(comparison: Comparison, path: Path) -> None:
    """Write a comparison at `path`, whole or not at all; OSError if it can't be there.

    With it stands what `manygpu choose` is asked after it, see `choosing.measured`.
    """
    record = {"format": records.FORMAT, "kind": "comparison", "name": path.stem}
    record |= asdict(comparison) | {"choose": measured.question(comparison)}
    record["runs"] = [*record.pop("rows").values()]
    records.save(record, path)


def percent(share: float) -> str:
    """Return a share of something in percent, in two digits, without an exponent."""
    if not 0 < share < math.inf:
        return f"{100 * share:g}%"
    digits = max(0, 1 - math.floor(math.log10(100 * share)))
    return f"{100 * share:,.{digits}f}%"


def _times(number: float) -> str:
    """Return how many times as long, in three digits, without an exponent."""
    return np.format_float_positional(number, 3, fractional=False, trim="-")


def ratio(
    times: Mapping[str, list[float]], measured: str, against: str
) -> tuple[float, float, float]:
    """Return the median, least and largest of the rounds' ratios of two cases.

    Of an even number of rounds, the median is the geometric mean of the two in the
    middle: so the ratio the other way round is one over it.

    Raises:
        ValueError: a case that was not timed, no rounds, not as many of both, or a
            time of 0 to divide by.
    """
    for name in (measured, against):
        if name not in times:
            raise ValueError(f"{name!r} was not timed: choose from {[*times]}")
    pairs = [*zip(times[measured], times[against], strict=True)]
    if not pairs or min(times[against]) <= 0:
        raise ValueError(f"{against!r} must have times above 0, got {times[against]}")
    found = sorted(a / b for a, b in pairs)
    middle = math.sqrt(statistics.median_low(found) * statistics.median_high(found))
    return middle, found[0], found[-1]


def columns(comparison: Comparison) -> list[Column]:
    """Return the comparison's table, as `manygpu.tables` shows it.

    Its rows are those that run here; without any times or facts it has no row, and
    that is a ValueError. One that takes another step than one device can't be the best.
    """
    headers = {"strategy": "", "devices": "d", TIME: ".1f", "speedup": ".2f"}
    headers |= {"efficiency [%]": ".0f", MEMORY: ".3g", "sent [MB a step]": ".3g"}
    headers |= {"equal to one device": ""}
    rows = comparison.running.values()
    cells = [_cells(comparison.times, row) for row in rows]
    best = {TIME: min} if comparison.rounds else {}
    if any("memory" in row.facts for row in rows):
        best[MEMORY] = min
    out = frozenset(n for n, row in enumerate(rows) if row.verdict.startswith("no:"))
    return [replace(made, out=out) for made in columns_of(cells, headers, (), best)]


def _cells(times: Mapping[str, list[float]], row: Row) -> list[Cell]:
    """A row of the table."""
    facts, time, speedup, efficiency = row.facts, None, None, None
    if times[row.strategy]:
        time = spread(times[row.strategy])
        if BASE in times:
            speedup = ratio(times, BASE, row.strategy)
            if row.devices > 1 or row.strategy == BASE:  # else there is none
                efficiency = 100 * speedup[0] / row.devices
    megabytes = (facts[n] / 1e6 if n in facts else None for n in ("memory", "sent"))
    equal = row.verdict if facts else None
    return [row.title, row.devices, time, speedup, efficiency, *megabytes, equal]


def notes(comparison: Comparison) -> list[str]:
    """Return what must be known to read the table, a sentence or two each."""
    rows, cores = comparison.running.values(), comparison.machine["cores"]
    many, about = comparison.experiment["devices"], comparison.experiment["about"]
    samples = about.get("samples", 0)
    shared = any(row.facts.get("shared") for row in rows)
    hide = [r.title for r in rows if STRATEGIES[r.strategy].hides and "sent" in r.facts]
    apart = [row.title for row in rows if STRATEGIES[row.strategy].limit]
    remarks = " ".join(row.facts.get("remark", "") for row in rows)
    due = {
        "time": True,
        "cores": shared and many > cores,
        "memory": any("memory" in row.facts for row in rows),
        "threads": "threads" in comparison.running,
        "hidden": hide,
        "uneven": "fit" in comparison.running and samples % many,
        "limit": apart,
        "own": any(row.verdict.startswith("its own") for row in rows),
        "off": any("% off" in row.verdict for row in rows),
        "equal": True,
        WIDE: WIDE in remarks,
        QUIET: QUIET in remarks,
        ALIKE: ALIKE in remarks,
    }
    said = {"many": many, "cores": cores, "samples": samples, "rows": "; ".join(hide)}
    said["limits"] = "; ".join(apart)
    said["where"] = IN_SHARES if shared else ON_FULLEST
    said["step"] = OWN_STEP if about.get("own_step") else PLAIN_STEP
    said["step"] = KERAS_STEP if about.get("assigns") else said["step"]
    by_adam = [row.title for row in rows if STRATEGIES[row.strategy].rule == ADAM]
    if by_adam:
        said["step"] += f", or of Adam ({'; '.join(by_adam)})"
    found = [NOTES[name].format(**said) for name, here in due.items() if here]
    return [*about.get("said", []), *found]
