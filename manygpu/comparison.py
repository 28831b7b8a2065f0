"""What `manygpu bench` finds out: a model, its strategies, and a row for each.

It holds no step and starts nothing, so it needs no TensorFlow: a comparison can be
kept, read again, gone on with, and shown on a machine that has none.
"""

from __future__ import annotations

import datetime
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from manygpu import records
from manygpu.records import machine
from manygpu.tables import Cell, Column, columns_of, spread

LENET = "lenet"  # the book's model, which it cuts by hand in every way
BASE = "one"  # the strategy that all others are divided by
DATA = "data"  # the batch shared out, by hand: what its sums take tells of the link
UNCLEAR = 1e-2  # where rounding alone may do this much, equality can't be told
PLAIN_STEP = "of plain SGD"
OWN_STEP = "the model's own train_step, which only one device and fit take"
QUIET, ALIKE = "dropout off", "if normalized alike"  # what a remark may say


class Way(NamedTuple):
    """A strategy as a reader asks for it.

    Attributes:
        title: how a table calls it.
        variant: what a process times, a key of `manygpu.bench.VARIANTS`.
        alone: whether it takes one device, however many there are.
        lenet: whether the book has it for its own LeNet only.
        said: whether the engine hides its messages; what the same sum sends is said.
        threads: whether the one device gets as many threads as there are devices.
    """

    title: str
    variant: str
    alone: bool = False
    lenet: bool = False
    said: bool = False
    threads: bool = False


WAYS = {
    BASE: Way("one device", "compiled", alone=True),
    "accumulation": Way("one device, accumulation", "accumulation", alone=True),
    "recomputation": Way("one device, recomputation", "recomputation", alone=True),
    "eager": Way("data, by hand, eager", "eager", lenet=True),
    DATA: Way("data, by hand", "compiled"),
    "pieces": Way("data, accumulation", "pieces"),
    "engine": Way("data, MirroredStrategy", "engine", said=True),
    "fit": Way("data, Keras fit", "fit", said=True),
    "dtensor": Way("data, DTensor", "dtensor", lenet=True, said=True),
    "network": Way("network", "network"),
    "pipeline": Way("pipeline", "pipeline"),
    "layerwise": Way("layerwise", "layerwise", lenet=True),
    "threads": Way("one device, more threads", "compiled", alone=True, threads=True),
    "apart": Way("data, never communicate", "apart", lenet=True),
}
# No strategies, so only if asked for: what the threads of so many devices do without
# them, and what a step would take if messages were free.
NO_STRATEGY = ("threads", "apart")


@dataclass
class Row:
    """One strategy of a comparison.

    Attributes:
        strategy: a key of `WAYS`.
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
        return WAYS[self.strategy].title

    @property
    def verdict(self) -> str:
        """Whether its step is that of one device, in words."""
        distance, tolerance = self.facts.get("distance"), self.facts.get("tolerance")
        if distance is None or tolerance is None:
            return "not compared"
        remark = self.facts.get("remark", "")
        if tolerance > UNCLEAR:
            return "can't tell: rounding hides it"
        if distance <= tolerance:
            return ", ".join(filter(None, ["yes", remark]))
        return f"no: {distance:.0e} off"


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

    def cut(self) -> None:
        """Forget a round that not all rows have had."""
        whole = self.rounds
        for row in self.running.values():
            del row.times[whole:]

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
    rows = {}
    for name in asked["strategies"]:
        way = WAYS[name]
        row = rows[name] = Row(name, 1 if way.alone else asked["devices"])
        if way.lenet and asked["model"] != LENET:
            row.cannot = "the book has it for its own LeNet only"
    today = datetime.date.today().isoformat()
    return Comparison({**asked, "about": {}}, rows, machine.facts(), today)


def resume(path: Path, asked: Mapping[str, Any]) -> Comparison:
    """Return what is in a file, to go on with; if there is none, begin.

    Args:
        path: of a file that `keep` wrote, or of none.
        asked: see `begin`.

    Raises:
        OSError: the file can't be read.
        ValueError: it holds no comparison, or one of another machine or other
            arguments; the message says which differ.
    """
    fresh = begin(asked)
    if not path.exists():
        return fresh
    kept = read(path)
    pairs = [(kept.experiment, fresh.experiment), (kept.machine, fresh.machine)]
    differ = [
        f"{name} is {found[name]!r} there and {wanted[name]!r} here"
        for found, wanted in pairs
        for name in found
        if name != "about" and found[name] != wanted[name]
    ]
    if differ:
        raise ValueError(
            f"{path} belongs to another comparison ({'; '.join(differ)}): name "
            f"another file, or remove this one"
        )
    kept.cut()
    return kept


def read(path: Path) -> Comparison:
    """Return the comparison in a file.

    Raises:
        OSError: the file can't be read.
        ValueError: it holds no comparison.
    """
    record = records.read(path)
    if record["kind"] != "comparison":
        raise ValueError(
            f"{path} holds a record of the kind {record['kind']!r}: name a file that "
            f"manygpu bench --json wrote"
        )
    strange = [r["strategy"] for r in record["runs"] if r["strategy"] not in WAYS]
    if strange:
        raise ValueError(f"{path} has strategies that are not known here: {strange}")
    rows = {run["strategy"]: Row(**run) for run in record["runs"]}
    return Comparison(record["experiment"], rows, record["machine"], record["date"])


def keep(
    comparison: Comparison, path: Path, choose: Mapping[str, Any] | None = None
) -> None:
    """Write a comparison at `path`, whole or not at all.

    Args:
        comparison: what to write.
        path: where.
        choose: what `manygpu choose` is asked after it, found anew each time: see
            `manygpu.choosing.measured`.

    Raises:
        OSError: it can't be written there.
    """
    record = {"format": records.FORMAT, "kind": "comparison", "name": path.stem}
    record |= {"date": comparison.date, "machine": comparison.machine}
    record |= {"experiment": comparison.experiment}
    record["runs"] = [asdict(row) for row in comparison.rows.values()]
    record["choose"] = dict(choose or {})
    records.save(record, path)


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
    headers = {"strategy": "", "devices": "d", "time a step [ms]": ".1f"}
    headers |= {"speedup": ".2f", "efficiency [%]": ".0f"}
    rows = comparison.running.values()
    units = [_unit([r.facts.get(name) for r in rows]) for name in ("memory", "sent")]
    memory, sent = f"memory a device [{units[0]}]", f"sent [{units[1]} a step]"
    headers |= {memory: ".1f", sent: ".2f", "equal to one device": ""}
    cells = [_cells(comparison, row, units) for row in rows]
    best = {"time a step [ms]": min} if comparison.rounds else {}
    if any(row.facts.get("memory") for row in rows):
        best[memory] = min
    out = frozenset(n for n, row in enumerate(rows) if row.verdict.startswith("no:"))
    return [replace(made, out=out) for made in columns_of(cells, headers, (), best)]


def _unit(sizes: Sequence[int | None]) -> str:
    """Megabytes, or kilobytes where all sizes are small."""
    return "MB" if max(filter(None, sizes), default=10**6) >= 10**6 else "kB"


def _cells(comparison: Comparison, row: Row, units: Sequence[str]) -> list[Cell]:
    """A row of the table."""
    times, facts = comparison.times, row.facts
    time = speedup = efficiency = None
    if comparison.rounds:
        time = spread(times[row.strategy])
        if BASE in times:
            speedup = ratio(times, BASE, row.strategy)
            efficiency = 100 * speedup[0] / row.devices
    sizes = [
        facts[name] / {"MB": 1e6, "kB": 1e3}[unit] if name in facts else None
        for name, unit in zip(("memory", "sent"), units, strict=True)
    ]
    found = row.verdict if facts else None
    return [row.title, row.devices, time, speedup, efficiency, *sizes, found]


def notes(comparison: Comparison) -> list[str]:
    """Return what must be known to read the table, a sentence or two each."""
    rows, cores = comparison.running.values(), comparison.machine["cores"]
    facts = [row.facts for row in rows]
    said = [
        "Time: the median of the rounds, the least and the most. Speedup: the time of "
        "one device over that of the row, both of the same round; of two rounds in "
        "the middle, the geometric mean. Efficiency: the speedup over the devices."
    ]
    shared = [f for f in facts if f.get("shared")]
    many = comparison.experiment["devices"]
    if shared and many > cores:
        said.append(
            f"{many} logical CPU devices share {cores} cores here: no time of theirs "
            f"says anything about {many} real devices."
        )
    if any("memory" in f for f in facts):
        said.append(_about_memory(bool(shared)))
    if "threads" in comparison.running:
        said.append(
            f"More threads: one device with {many} thread(s), as many as there are "
            f"devices. What it gains, threads gain without any strategy."
        )
    hide = [row for row in rows if WAYS[row.strategy].said and "sent" in row.facts]
    if hide:
        said.append(
            f"Rows that hide their messages ({'; '.join(row.title for row in hide)}) "
            f"have here what the same sum sends by hand, 2 (k - 1) times the "
            f"parameters."
        )
    samples = comparison.experiment["about"].get("samples", 0)
    if "fit" in comparison.running and samples % many:
        said.append(
            f"fit averages the means of the shares, and {samples} samples make uneven "
            f"ones for {many} devices: that is another step."
        )
    own_step = comparison.experiment["about"].get("own_step")
    return said + _about_equality(rows, OWN_STEP if own_step else PLAIN_STEP)


def _about_memory(shared: bool) -> str:
    """What the column of memory counts."""
    what = "Memory: parameters, and the most that a step held beyond them"
    if shared:
        return (
            f"{what}, as TensorFlow counts it. Logical CPU devices share one "
            f"allocator, so this is all devices' sum over their number."
        )
    return f"{what}, on the fullest device, as TensorFlow counts it."


def _about_equality(rows: Sequence[Row], step: str) -> list[str]:
    """How a step is compared, and why another one may be right."""
    said = [
        f"Equal: how the trained weights move in a first step, {step}, against "
        "one device's. What rounding may do is allowed: ten times what another order "
        "of the samples does to one device."
    ]
    remarks = " ".join(row.facts.get("remark", "") for row in rows)
    if QUIET in remarks:
        said.append(
            "'Dropout off': in that step only, for each share would draw its own."
        )
    if ALIKE in remarks:
        said.append(
            "'If normalized alike': in training, a layer such as BatchNorm takes the "
            "mean of the samples that it sees, a share or a micro-batch. That is "
            "another step than one device's. With the moving averages in place of "
            "those means it is the same."
        )
    return said
