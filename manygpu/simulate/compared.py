"""Published tables beside what the models here predict of them, with the errors."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from manygpu.simulate import ranking, transformer
from manygpu.simulate.cluster import Link
from manygpu.simulate.collectives import ring_seconds
from manygpu.simulate.published import (
    DATA,
    LAYERWISE,
    SHAPES,
    WHOLE,
    Published,
    Series,
    fitted_whole,
    runs,
)
from manygpu.simulate.transformer import Hardware


class Predicted(NamedTuple):
    """What constants from the other sizes say of each run, and those constants."""

    mfu: list[float]
    memory: list[float]
    hardware: list[Hardware]


@functools.cache
def predicted() -> Predicted:
    """Each of the 26 runs with constants that have never seen its size."""
    hardware, whole = ranking.from_the_others(), {}
    for size in SHAPES:
        rest = [row for row in runs() if row.size != size]
        whole[size] = fitted_whole([r.run for r in rest], [r.memory for r in rest])
    pairs = zip(runs(), hardware, strict=True)
    mfu = [float(transformer.mfu(row.run, own)) for row, own in pairs]
    memory = [transformer.memory(row.run, whole[row.size]) for row in runs()]
    return Predicted(mfu, memory, hardware)


class Table(NamedTuple):
    """A published table: (what, published, predicted) by row, and why it differs.

    `taken` says what the prediction took from the table itself; rows that are right for
    that reason alone are not among the rows. `tool`: what made it, loop or formula.
    """

    name: str
    rows: tuple[tuple[str, float, float], ...]
    why: str
    taken: str = "nothing"
    tool: str = "formula"

    @property
    def errors(self) -> np.ndarray:
        """Relative errors, by row."""
        return np.array([said / true - 1 for _, true, said in self.rows])

    @property
    def median(self) -> float:
        """Of the errors' sizes."""
        return float(np.median(np.abs(self.errors)))

    @property
    def worst(self) -> float:
        """The largest of them."""
        return float(np.max(np.abs(self.errors)))

    @property
    def bias(self) -> float:
        """The median of the errors with their signs: above 0, predicted too high."""
        return float(np.median(self.errors))


def tables() -> list[Table]:
    """All tables; only the third one was fitted to, beside the 26 runs.

    The playbook's series use constants fitted on all of its 26 runs; the others data
    sheets, and what their `taken` says.
    """
    hardware = ranking.of_all()
    layers = "one bandwidth between nodes, however the ring crosses them"
    whole = "norms and sums are computed by all; the model shares them out"
    data = "no model is named; a ring's latency is the same for every message"
    return [
        sizes(),
        _memory(),
        _of_series(LAYERWISE, hardware, layers, "rate at 2 GPUs; fitted to the rest"),
        _of_series(WHOLE, hardware, whole, "rate at 2 GPUs"),
        _of_series(DATA, hardware, data, "model; rate at 8 GPUs"),
        _gpipe(),
        _megatron(),
        _goyal(),
        _llama(),
        _guide(),
    ]


def sizes(mfu: Sequence[float] | None = None, tool: str = "formula") -> Table:
    """The table of the 26 runs, from MFUs that `tool` predicted, in percent."""
    said = predicted().mfu if mfu is None else mfu
    pairs = zip(runs(), said, strict=True)
    rows = [(_name(row), row.reached, each) for row, each in pairs]
    why = "what 64 nodes cost: there, most runs were late"
    return Table("playbook: MFU", tuple(rows), why, tool=tool)


def _name(row: Published) -> str:
    return f"{row.size} B, {row.run.gpus} GPUs"


def _memory() -> Table:
    said = predicted().memory
    rows = [(_name(r), r.memory, each) for r, each in zip(runs(), said, strict=True)]
    why = "what layerwise GPUs keep of all tokens is fitted; 80 B on 512 is as if none"
    return Table("playbook: memory", tuple(rows), why)


def _of_series(series: Series, hardware: Hardware, why: str, taken: str) -> Table:
    """The table of a series of the playbook."""
    triples = zip(
        series.runs.gpus, series.published, series.said(hardware), strict=True
    )
    rows = [(f"{gpus} GPUs", float(true), float(said)) for gpus, true, said in triples]
    return Table(f"playbook: {series.name}", tuple(rows[1:]), why, taken)


def _gpipe() -> Table:
    """Table 2, Transformer, normalized to 2 stages and 1 micro-batch."""
    measured = {
        1: (1.0, 1.07, 1.3),
        4: (1.7, 3.2, 4.8),
        32: (1.8, 3.4, 6.3),
    }
    rows = [
        (f"{k} stages, {m} micro-batches", speed, k * m / (m + k - 1))
        for m, speeds in measured.items()
        for k, speed in zip((2, 4, 8), speeds, strict=True)
    ]
    why = "recomputing fills part of the bubble, and 1 micro-batch is not small"
    return Table("GPipe, table 2", tuple(rows[1:]), why, "rate of 2 stages")


def _megatron() -> Table:
    """Weak scaling of version 1.0 on a DGX-2H: 62.4 TFLOP/s a V100, NVSwitch.

    A layer has 96 h^2 FLOPs a token with recomputing, and 6 all-reduces of the
    activations of 8 sequences of 1,024 tokens.
    """
    rows, tokens, link = [], 8 * 1024, Link(5e-6, 150e9)
    for ways, hidden, share in ((2, 1920, 0.907), (4, 2304, 0.865), (8, 3072, 0.796)):
        computing = 96 * hidden**2 * tokens / ways / 62.4e12
        sums = 6 * ring_seconds(ways, 2 * tokens * hidden, link)
        rows.append((f"{ways} GPUs", share, computing / (computing + sums)))
    why = "smaller products are less efficient, and the head is not split here"
    return Table("Megatron-LM, weak scaling", tuple(rows), why, "rate of one GPU")


def _goyal() -> Table:
    """8 to 256 P100: 100 MB travel at 50 Gbit/s while 120 ms of backward pass run."""
    travels = ring_seconds(32, 100e6, Link(20e-6, 50e9 / 8))
    backward, forward = 0.120, 0.060
    step = forward + max(backward, travels)
    rows = ((("256 GPUs", 0.9, (forward + backward) / step)),)
    why = "all of it overlaps in the model: no stragglers, no slow-down, no input"
    return Table("Goyal et al.", rows, why, "time of a backward pass")


def _llama() -> Table:
    """8,192 to 16,384 GPUs: 16 stages, 32 and then 16 micro-batches of a replica.

    Interleaved, a layer a piece (8 a stage), the bubble is that of 8 times as many.
    """
    busy = {m: 8 * m / (8 * m + 15) for m in (32, 16)}
    rows = (("16,384 GPUs", 400 / 430, busy[16] / busy[32]),)
    why = "the bubble alone; 8 pieces a stage are assumed"
    return Table("Llama 3, TFLOP/s", rows, why, "rate at 8,192 GPUs")


def _guide() -> Table:
    """The guide's own figures, from its own parts."""
    parts = 0.5 + 0.1 + 1.0 + 0.3 + 0.3
    alone = 2 * (0.5 + 0.1 + 1.0) + 0.3
    rows = (
        ("a step on 2 GPUs [ms]", 2.3, parts),
        ("the same on 1 GPU [ms]", 4.6, alone),
        ("pipeline, 4 stages, 7 micro-batches", 0.75, 7 / (7 + 3)),
        ("2 GPUs, one behind the other [ms]", 2.5, 1.0 + 0.5 + 1.0),
    )
    why = "4.6 ms counts an all-reduce, and two updates, on one GPU"
    return Table("parallel-training guide", rows, why, "times of the parts")


KINDS = {
    "layers whole": lambda run: run.layerwise == 1,
    "layers split": lambda run: run.layerwise > 1,
    "one stage": lambda run: run.stages == 1,
    "stages": lambda run: run.stages > 1,
    "ZeRO 0": lambda run: run.zero == 0,
    "ZeRO 1": lambda run: run.zero == 1,
    "64 nodes": lambda run: run.gpus == 512,
}


def by_layout(errors: Sequence[float]) -> list[tuple[str, int, float, float, float]]:
    """Of each kind of the 26 runs: how many, median, median with sign, largest error.

    `errors`: of MFU, by run.
    """
    rows = []
    for name, test in KINDS.items():
        own = [
            error for error, row in zip(errors, runs(), strict=True) if test(row.run)
        ]
        sizes = np.abs(own)
        rows.append((name, len(own), np.median(sizes), np.median(own), max(sizes)))
    return rows
