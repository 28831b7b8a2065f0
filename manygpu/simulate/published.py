"""What others measured and published, and what the models here predict of it.

`runs` has the 26 best configurations of the Ultra-Scale Playbook (Hugging Face, 2025):
1 to 64 nodes of 8 H100, sequences of 4,096 tokens, 1,048,576 tokens a step, read from
its figure `what_we_learnt_heatmap.svg`. The models' shapes, what a MFU counts and what
is kept where are those of the code that ran them, `huggingface/nanotron`
(`scripts/scaling_benchmarks.py`, `models/llama.py`, `optim/`, commit 2411b022): with
its vocabulary of 131,072, the four have 1.34, 3.57, 8.86 and 80.0 billion parameters.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from manygpu.simulate import transformer
from manygpu.simulate.cluster import Link
from manygpu.simulate.collectives import ring_seconds
from manygpu.simulate.transformer import Hardware, Run, Shape

FILE = Path(__file__).parent / "data" / "ultrascale.csv"
SHAPES = {
    1.34: Shape(16, 2048, 8192, tied=True),
    3.57: Shape(28, 3072, 8192, tied=True),
    8.86: Shape(32, 4096, 14336, tied=False),
    80.0: Shape(80, 8192, 28672, tied=False),
}


class Published(NamedTuple):
    """A run of the playbook: parameters in billions, MFU in percent, memory in GiB."""

    size: float
    run: Run
    mfu: float
    memory: float


@functools.cache
def runs() -> tuple[Published, ...]:
    """The 26 best configurations.

    Raises ValueError if the file does not hold what it should: GPUs that are not the
    product of the axes, or another number of tokens a step.
    """
    axes = ("dp", "tp", "pp", "accumulation", "micro_batch", "zero")
    found = []
    with FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            size = float(row["params_billion"])
            run = Run(SHAPES[size], *(int(row[axis]) for axis in axes))
            if run.gpus != 8 * int(row["nodes"]) or run.tokens != 2**20:
                raise ValueError(f"{FILE.name}: this row can't be right: {row}")
            mfu, memory = float(row["mfu_percent"]), float(row["memory_gb"])
            found.append(Published(size, run, mfu, memory))
    return tuple(found)


class Predicted(NamedTuple):
    """What constants from the other sizes say of each run, and those constants."""

    mfu: list[float]
    memory: list[float]
    hardware: dict[float, Hardware]


@functools.cache
def each_size_from_the_others() -> Predicted:
    """Fit the constants four times, each time without one size; predict that one."""
    rows, hardware, whole = runs(), {}, {}
    for size in SHAPES:
        rest = [row for row in rows if row.size != size]
        of = [row.run for row in rest]
        hardware[size] = transformer.fitted(of, [row.mfu for row in rest])
        whole[size] = fitted_whole(of, [row.memory for row in rest])
    mfu = [transformer.mfu(row.run, hardware[row.size]) for row in rows]
    memory = [transformer.memory(row.run, whole[row.size]) for row in rows]
    return Predicted(mfu, memory, hardware)


def fitted_whole(of: Sequence[Run], measured: Sequence[float]) -> float:
    """Bytes a hidden number that stay whole: the least mean error, of 0 to 5."""

    def error(whole: float) -> float:
        said = np.array([transformer.memory(run, whole) for run in of])
        return float(np.mean(np.abs(np.log(said / np.asarray(measured)))))

    return float(min(np.arange(0, 5, 0.1), key=error))


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
    """All tables; none of their constants was fitted on the table itself.

    The playbook's series use constants fitted on its 26 runs, in which no run of a
    series is; the others data sheets, and what their `taken` says.
    """
    rows, said = runs(), each_size_from_the_others()
    hardware = transformer.fitted([r.run for r in rows], [r.mfu for r in rows])
    return [
        sizes(said.mfu),
        _memory(said.memory),
        _data_series(hardware),
        _layerwise_series(hardware, "sequence", (3, 9, 18, 40, 90)),
        _layerwise_series(hardware, "whole", (3, 8, 12, 16, 20)),
        _gpipe(),
        _megatron(),
        _goyal(),
        _llama(),
        _guide(),
    ]


def sizes(mfu: Sequence[float], tool: str = "formula") -> Table:
    """The table of the 26 runs, from MFUs that `tool` predicted, in percent."""
    rows = [
        (f"{row.size} B, {row.run.gpus} GPUs", row.mfu, said)
        for row, said in zip(runs(), mfu, strict=True)
    ]
    why = "80 B on 32 GPUs: at the edge of memory, says the playbook; unknown here"
    return Table("playbook: MFU", tuple(rows), why, tool=tool)


def _memory(memory: Sequence[float]) -> Table:
    rows = [
        (f"{row.size} B, {row.run.gpus} GPUs", row.memory, said)
        for row, said in zip(runs(), memory, strict=True)
    ]
    why = "what layerwise GPUs keep of all tokens is fitted; 80 B on 512 kept none"
    return Table("playbook: memory", tuple(rows), why)


def _relative(of: Sequence[Run], changes: Sequence[float], hardware: Hardware) -> list:
    """Tokens a second and GPU in units of the first run's, published and predicted."""
    said = [r.tokens / r.gpus / transformer.parts(r, hardware).seconds for r in of]
    true = np.cumprod([1 + change / 100 for change in changes])
    return [
        (f"{run.gpus} GPUs", float(t), s / said[0])
        for run, t, s in zip(of[1:], true, said[1:], strict=True)
    ]


def _data_series(hardware: Hardware) -> Table:
    """The figure names no model; only the smallest makes 35,000 tokens a second."""
    of = [Run(SHAPES[1.34], 2**k, 1, 1, 1, 1, 0) for k in range(3, 9)]
    rows = _relative(of, (-6.3, -6.0, -12.0, -15.0, -40.6), hardware)
    why = "no model is named; at 256 GPUs a step costs more a node than a line says"
    return Table("playbook: data parallel", tuple(rows), why, "model; rate at 8 GPUs")


def _layerwise_series(hardware: Hardware, kind: str, batches: Sequence[int]) -> Table:
    changes = {
        "sequence": (-5.0, -19.1, -43.4, -41.4),
        "whole": (-10.8, -12.2, -42.7, -65.6),
    }[kind]
    of = [
        Run(SHAPES[3.57], 1, 2**k, 1, 1, batch, 0)
        for k, batch in enumerate(batches, start=1)
    ]
    rows = _relative(of, changes, hardware)
    name = "playbook: layerwise" + (" and sequence" if kind == "sequence" else "")
    why = "one bandwidth between nodes, however the ring crosses them"
    if kind == "whole":
        why = "norms and sums are computed by all; the model shares them out"
    return Table(name, tuple(rows), why, "rate at 2 GPUs")


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
