"""What others measured and published.

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
