"""What others measured and published.

The Ultra-Scale Playbook (Hugging Face, 2025) trained four models on 1 to 64 nodes of 8
H100, sequences of 4,096 tokens, 1,048,576 tokens a step, in thousands of layouts. The
best of each of 26 cells by MFU are read from its figure `what_we_learnt_heatmap.svg`,
the fastest ones, and tokens a second, from its figure `benchmarks_interactive.html`,
which has all that ran (`experiments/ultrascale.py` reads it). The models' shapes and
what is kept where are those of the code that ran them, `huggingface/nanotron`
(`scripts/scaling_benchmarks.py`, `models/llama.py`, `optim/`, commit 2411b022): with
its vocabulary of 131,072, the four have 1.34, 3.57, 8.86 and 80.0 billion parameters.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from manygpu._files import data_folder
from manygpu.simulate import transformer
from manygpu.simulate.transformer import Hardware, Run, Shape

FOLDER = data_folder("simulate/data", "ultrascale*.csv")
SHAPES = {
    1.34: Shape(16, 2048, 8192, tied=True),
    3.57: Shape(28, 3072, 8192, tied=True),
    8.86: Shape(32, 4096, 14336, tied=False),
    80.0: Shape(80, 8192, 28672, tied=False),
}


class Published(NamedTuple):
    """A run of the playbook.

    Attributes:
        size: of the cell's model, in billions of parameters.
        run: its layout.
        mfu: as published, in percent.
        memory: that the first GPU has allocated at most, in GiB.
        rate: tokens a second and GPU.
        best_by: "mfu", "speed" or "both": among all that ran in its cell.
    """

    size: float
    run: Run
    mfu: float
    memory: float
    rate: float
    best_by: str

    @property
    def seconds(self) -> float:
        """Of a step."""
        return self.run.tokens / self.run.gpus / self.rate

    @property
    def reached(self) -> float:
        """The MFU, in percent, as this book counts it (`transformer.utilization`)."""
        return float(transformer.utilization(self.run, Hardware(), self.seconds))

    @property
    def counted(self) -> float:
        """The MFU that its rate makes if FLOPs are counted as in its figure, percent.

        There each parameter counts as a product, and a matrix that is tied counts
        twice once it lies on two stages. But words are looked up, not multiplied.
        """
        shape = self.run.shape
        looked_up = not shape.tied or self.run.stages > 1
        flops = shape.flops(1) + 6 * looked_up * shape.embedding
        return 100 * flops * self.rate / Hardware().peak


def read(what: str = "") -> list[dict[str, str]]:
    """The rows of `ultrascale.csv`, or of what the experiment wrote of `what`."""
    file = FOLDER / f"ultrascale{what and '_'}{what}.csv"
    with file.open(encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


@functools.cache
def rows() -> tuple[Published, ...]:
    """The best configurations of the 26 cells, by MFU and by speed.

    Raises ValueError if the file does not hold what it should: GPUs that are not the
    product of the axes, or another number of tokens a step.
    """
    axes = ("dp", "tp", "pp", "accumulation", "micro_batch", "zero")
    found = []
    for row in read():
        size = float(row["params_billion"])
        shape = SHAPES[size]
        if row["kv_heads"]:
            shape = shape._replace(heads=64, kv_heads=int(row["kv_heads"]))
        run = Run(shape, *(int(row[axis]) for axis in axes))
        if run.gpus != 8 * int(row["nodes"]) or run.tokens != 2**20:
            raise ValueError(f"ultrascale.csv: this row can't be right: {row}")
        names = "mfu_percent", "memory_gb", "tokens_per_second"
        measured = (float(row[name]) for name in names)
        found.append(Published(size, run, *measured, row["best_by"]))
    return tuple(found)


def runs() -> tuple[Published, ...]:
    """The fastest of each of the 26 cells."""
    return tuple(row for row in rows() if row.best_by != "mfu")


class Series(NamedTuple):
    """How much slower a GPU gets from run to run; the first rate isn't predicted.

    Attributes:
        name: of the figure.
        size: of the model, in billions of parameters.
        runs: as one, of arrays.
        changes: of tokens a second and GPU, in percent, from each run to the next.
    """

    name: str
    size: float
    runs: Run
    changes: tuple[float, ...]

    @property
    def published(self) -> np.ndarray:
        """Rates in units of the first one."""
        return np.cumprod([1, *(1 + change / 100 for change in self.changes)])

    def said(self, hardware: Hardware) -> np.ndarray:
        """The same, predicted."""
        taken = transformer.parts(self.runs, hardware).seconds
        rates = self.runs.tokens / self.runs.gpus / taken
        return rates / rates[0]

    def errors(self, hardware: Hardware) -> list[float]:
        """How far they are off, as logarithms."""
        return np.log(self.said(hardware) / self.published)[1:].tolist()


def _series(name: str, size: float, rows: Sequence, changes: Sequence) -> Series:
    """`rows`: GPUs of a layer, replicas, and sequences at once."""
    t, data, batch = np.array(rows).T
    one = np.ones_like(t)
    run = Run(SHAPES[size], data, t, one, one, batch, 0 * one)
    return Series(name, size, run, tuple(changes))


WAYS = 2, 4, 8, 16, 32
# Read from the playbook's figures; the script that made the runs (nanotron's
# `scaling_benchmarks.py`) notes the same micro-batches and rates of the first series.
LAYERWISE = _series(
    "layerwise and sequence",
    3.57,
    [(t, 1, batch) for t, batch in zip(WAYS, (3, 9, 18, 40, 90), strict=True)],
    (-5.0, -19.1, -43.4, -41.4),
)
WHOLE = _series(
    "layerwise",
    3.57,
    [(t, 1, batch) for t, batch in zip(WAYS, (3, 8, 12, 16, 20), strict=True)],
    (-10.8, -12.2, -42.7, -65.6),
)
# The figure names no model; only the smallest makes 35,000 tokens a second.
DATA = _series(
    "data parallel",
    1.34,
    [(1, 2**k, 1) for k in range(3, 9)],
    (-6.3, -6.0, -12.0, -15.0, -40.6),
)
SERIES = (LAYERWISE,)  # what constants are fitted to, beside the 26 runs


def fitted_whole(of: Sequence[Run], measured: Sequence[float]) -> float:
    """Bytes a hidden number that stay whole: the least mean error, of 0 to 5."""

    def error(whole: float) -> float:
        said = np.array([transformer.memory(run, whole) for run in of])
        return float(np.mean(np.abs(np.log(said / np.asarray(measured)))))

    return float(min(np.arange(0, 5, 0.1), key=error))
