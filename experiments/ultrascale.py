"""All runs of the Ultra-Scale Playbook's sweep: what the book took from them.

    curl -LO https://huggingface.co/spaces/nanotron/ultrascale-playbook/resolve/main/\
assets/data/benchmarks/benchmarks_interactive.html
    python experiments/ultrascale.py benchmarks_interactive.html

The figure has every layout that was tried, with tokens a second where it ran. From
there come three tables in `manygpu/simulate/data`, written anew each time:

    ultrascale_cells.csv: where the forecast puts each cell's fastest run among those
        that ran, and what its own favourite really lost.
    ultrascale_least.csv: what a layer takes for a micro-batch at least
        (`transformer.LEAST`).
    ultrascale_late.csv: runs that take much longer than forecast, by their stages.

Seconds: one core, less than a minute.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from manygpu.simulate import ranking, transformer
from manygpu.simulate.published import SHAPES, Published, fitted_whole, runs
from manygpu.simulate.ranking import FULL
from manygpu.simulate.transformer import GIB, Hardware, Run

DATA = Path(ranking.__file__).parent / "data"
# What the figure calls them; its four columns are the models.
NAMES = "DP", "TP", "PP", "GradAcc", "MBS", "ZeRO"
SIZES = dict(zip(("x", "x2", "x3", "x4"), SHAPES, strict=True))
LATE = 1.5  # times the forecast
SPARE = 40.0  # GiB: half of the memory is free


class Tried(NamedTuple):
    """A layout of the sweep; NaN: it did not run. Rate: tokens a second and GPU."""

    size: float
    run: Run
    rate: float
    mfu: float
    memory: float

    @property
    def seconds(self) -> float:
        """Of a step."""
        return self.run.tokens / self.run.gpus / self.rate

    def slower(self, other: Tried | None) -> bool:
        """Whether another run of this layout is better, or this one didn't run."""
        return other is not None and other.rate > 0 and not self.rate > other.rate

    @property
    def key(self) -> tuple[int, ...]:
        """The layout, as numbers."""
        return tuple(self.run[1:])


def figure(path: Path) -> list[Tried]:
    """The sweep, from the figure's file; a layout that ran twice by its faster run,
    whatever heads of keys and values it had.

    Raises ValueError if the file is not that figure.
    """
    text = path.read_text(encoding="utf-8")
    start = text.find("[", text.find("Plotly.newPlot("))
    if "Plotly.newPlot(" not in text or "GradAcc" not in text:
        raise ValueError(f"path must be benchmarks_interactive.html, got {path}")
    traces, _ = json.JSONDecoder().raw_decode(text, start)
    found: dict[tuple, Tried] = {}
    for trace in traces:
        for label in trace.get("text", []):
            one = tried(SIZES[trace["xaxis"]], re.sub("<[^>]*>", "|", label))
            key = one.size, one.key
            if one.run.tokens == 2**20 and not one.slower(found.get(key)):
                found[key] = one
    return list(found.values())


def tried(size: float, label: str) -> Tried:
    """A point of the figure, from its label."""

    def number(name: str) -> float:
        said = re.search(rf"{name}:\s*([\d.,]+|nan)", label)
        return float(said.group(1).replace(",", ""))

    rate, mfu, memory = map(number, ("tok/s/gpu", "MFU", "GPU memory"))
    run = Run(SHAPES[size], *(int(number(name)) for name in NAMES))
    found = Published(size, run, mfu, memory, rate, "speed")
    # Some runs of the largest had 8 heads of keys and values: their MFU counts less.
    if size == max(SHAPES) and found.counted > 1.06 * mfu:
        shape = run.shape._replace(heads=64, kv_heads=8)
        run = run._replace(shape=shape)
    return Tried(size, run, rate, mfu, memory)


def said(these: Sequence[Tried], hardware: Hardware) -> np.ndarray:
    """What the formula says of each, in seconds."""
    found = np.zeros(len(these))
    for shape in {one.run.shape for one in these}:
        own = [i for i, one in enumerate(these) if one.run.shape == shape]
        columns = np.array([these[i].key for i in own]).T
        found[own] = transformer.parts(Run(shape, *columns), hardware).seconds
    return found


def fits(one: Tried, whole: float) -> bool:
    """Whether the memory formula lets it run; `whole`: see `transformer.held`."""
    return bool(transformer.held(one.run, whole).total <= FULL * GIB)


def wholes(constants: str) -> dict[float, float]:
    """What is fitted of memory, by size: of the others, if the own one is held out."""
    found = dict.fromkeys(SHAPES, transformer.WHOLE)
    for size in SHAPES if constants == ranking.HELD_OUT else ():
        rest = [row for row in runs() if row.size != size]
        found[size] = fitted_whole([r.run for r in rest], [r.memory for r in rest])
    return found


def cells(sweep: Sequence[Tried], name: str, constants: Sequence[Hardware]) -> Iterable:
    """A row for each cell: the fastest among those that ran and should fit.

    `ranking.Ranked` says what the columns are; `near` and `late` are of all its runs,
    whether they fit or not.
    """
    whole = wholes(name)
    for row, hardware in zip(runs(), constants, strict=True):
        gpus, best = row.run.gpus, tuple(row.run[1:])
        cell = [one for one in sweep if (one.size, one.run.gpus) == (row.size, gpus)]
        ran = [one for one in cell if one.rate > 0]
        first = next(one for one in ran if one.key == best)
        if first.seconds > min(one.seconds for one in ran):
            raise ValueError(f"ultrascale.csv: {row} is not the fastest of its cell")
        others = [one for one in ran if one.key != best and fits(one, whole[row.size])]
        among = [first._replace(run=row.run), *others]
        taken, real = said(among, hardware), np.array([one.seconds for one in among])
        columns = Run(row.run.shape, *np.array([one.key for one in among]).T)
        beside = ranking.neighbours(columns, row.run)
        every = said(ran, hardware) / [one.seconds for one in ran]
        favourite = int(np.argmin(taken))
        yield {
            "nodes": gpus // 8,
            "size": row.size,
            "constants": name,
            "tried": len(cell),
            "ran": len(ran),
            "ranked": len(among),
            "second": round(float(np.sort(real)[1] / real[0] - 1), 4),
            "said": round(float(taken[0]), 4),
            "rank": 1 + int(np.sum(taken < taken[0] * (1 - 1e-9))),
            "tie": 1 + int(np.sum(taken < taken[0] / 1.02)),
            "favourite": "x".join(map(str, among[favourite].key)),
            "lost": round(float(real[favourite] / real[0] - 1), 4),
            "neighbours": int(np.sum(beside)),
            "faster": int(np.sum(taken[beside] < taken[0] / 1.02)),
            "near": round(float(np.mean(np.abs(every - 1) <= 0.25)), 4),
            "late": int(np.sum(1 / every > LATE)),
        }


def least(sweep: Sequence[Tried]) -> Iterable[dict]:
    """Milliseconds a layer and micro-batch, where GPUs need less than half of them.

    On up to 16 nodes, of runs that fit; on one stage, all within a node together. One
    that takes over 2.5 times its group's lower quartile is late for another reason.
    `spare`: the median of those that have allocated less than 40 GiB.
    """
    groups: dict[tuple[int, bool], list[tuple[Tried, float]]] = {}
    for one in sweep:
        run, several = one.run, one.run.stages > 1
        layers = transformer.dealt(run).most
        taken = one.seconds / (run.accumulation + run.stages - 1) / layers
        waits = transformer.busy_seconds(run, Hardware()) < taken / 2
        ran = one.rate > 0 and one.memory <= FULL and run.gpus <= 128
        if ran and run.layerwise > 1 and waits:
            ways = run.layerwise if several else max(run.layerwise, 8)
            groups.setdefault((ways, several), []).append((one, 1e3 * taken))
    for (ways, several), found in sorted(groups.items()):
        most = 2.5 * np.percentile([taken for _, taken in found], 25)
        sizes: dict[float, list[float]] = {}
        for one, taken in found:
            if taken <= most:
                sizes.setdefault(one.size, []).append(taken)
        kept = [taken for times in sizes.values() for taken in times]
        spare = [t for one, t in found if t <= most and one.memory < SPARE]
        low, middle, high = np.percentile(kept, (10, 50, 90))
        medians = [np.median(times) for times in sizes.values()]
        yield {
            "layerwise": ways,
            "stages": "several" if several else "one",
            "runs": len(kept),
            "later": len(found) - len(kept),
            "low": round(low, 2),
            "median": round(middle, 2),
            "high": round(high, 2),
            "least_of_sizes": round(min(medians), 2),
            "most_of_sizes": round(max(medians), 2),
            "with_spare": len(spare),
            "spare": round(np.median(spare), 2),
        }


def late(sweep: Sequence[Tried], hardware: Hardware) -> Iterable[dict]:
    """Late runs by their stages, and what a hand-over took if that is all: `Late`."""
    ran = [one for one in sweep if one.rate > 0]
    pairs = zip(ran, said(ran, hardware), strict=True)
    behind = [one for one, taken in pairs if one.seconds > LATE * taken]
    cut = [one for one in behind if one.run.stages > 1]
    real, tries = np.array([one.seconds for one in cut]), np.arange(0, 0.5, 0.005)
    taken = np.array([said(cut, replace(hardware, handover=s)) for s in tries])
    own = tries[np.argmin(np.abs(np.log(taken / real)), axis=0)]
    slow = said(cut, replace(hardware, handover=float(np.median(own))))
    near = np.abs(slow / real - 1) <= 0.25
    for stages in sorted({one.run.stages for one in ran}):
        mine = np.array([one.run.stages == stages for one in cut])
        quarters = np.percentile(own[mine], (25, 50, 75)) if any(mine) else [""] * 3
        low, middle, high = (q and round(q, 3) for q in quarters)
        yield {
            "stages": stages,
            "runs": sum(one.run.stages == stages for one in ran),
            "late": sum(one.run.stages == stages for one in behind),
            "near": int(np.sum(near[mine])) if any(mine) else "",
            "low": low,
            "middle": middle,
            "high": high,
        }


def paces(sweep: Sequence[Tried], constants: Hardware) -> None:
    """Print how well shares of the network's pace tell ZeRO 0 from ZeRO 1.

    On one stage and 8 to 32 nodes, where sums weigh; each is a median error, of pairs
    with one or two micro-batches and of those with more.
    """
    ran = {(one.size, one.key): one for one in sweep if one.rate > 0}
    pairs = []
    for (size, key), one in ran.items():
        twin, run = ran.get((size, (*key[:5], 1))), one.run
        near = run.stages == 1 and run.data > 1 and run.layerwise <= 8
        if twin and key[5] == 0 and near and 64 <= run.gpus <= 256:
            pairs.append((one, twin))
    real = np.array([one.seconds / twin.seconds for one, twin in pairs])
    few = np.array([one.run.accumulation <= 2 for one, _ in pairs])
    for share in (0.25, 0.35, 0.5, 0.7, 1.0):
        hardware = replace(constants, beside=share)
        ones, twins = (said(side, hardware) for side in zip(*pairs, strict=True))
        off = np.log(ones / twins / real)
        print(f"{share:.2f}: {np.median(off[few]):+.3f} {np.median(off[~few]):+.3f}")


def write(name: str, rows: list[dict]) -> None:
    """A table, to the package's data and to the screen."""
    with (DATA / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(name)
    for row in rows:
        print("  ", *row.values())


def main() -> None:
    """Read the figure, and write what the book says of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("figure", type=Path, help="benchmarks_interactive.html")
    sweep = figure(parser.parse_args().figure)
    write("ultrascale_least", [*least(sweep)])  # what follows forecasts with it
    transformer._least.cache_clear()
    plain, fitted = [Hardware()] * len(runs()), ranking.from_the_others()
    found = [*cells(sweep, ranking.PLAIN, plain)]
    found += cells(sweep, ranking.HELD_OUT, fitted)
    write("ultrascale_cells", found)
    write("ultrascale_late", [*late(sweep, ranking.of_all())])
    paces(sweep, ranking.of_all())


if __name__ == "__main__":
    main()
