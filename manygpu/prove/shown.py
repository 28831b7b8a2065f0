"""Which indicators show a bug that was shipped: the loss, the norm, copies, counts.

`experiments/loss_looks_right.py` plants the first bug of each thread, trains for a few
steps, and writes the two tables that `rows` and `right_rows` read.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from manygpu._files import data_file
from manygpu.prove.planted import BUGS, Bug

FILE = data_file("prove/loss_looks_right.csv")
RIGHT_FILE = data_file("prove/right_runs.csv")
LIMIT = 5.0  # standard deviations; few right runs lie so far from the others
SAME = 1e-3  # of the largest loss: its third digit, which is in every log
NO_COUNTS = "none"


def distance(values: np.ndarray, right: np.ndarray) -> float:
    """Return how far a curve lies from those of right runs, in standard deviations.

    It is the largest distance of a single step's value, or, if that is larger, the
    distance of the mean over the second half of the steps: many small differences in
    the same direction show in a smoothed curve. A curve that ends early, or that has a
    value that is no finite number, is infinitely far.
    """
    if len(values) < right.shape[1] or not np.isfinite(values).all():
        return np.inf
    half = right.shape[1] // 2
    looked = np.append(values, values[half:].mean())
    right = np.column_stack([right, right[:, half:].mean(axis=1)])
    off = np.abs(looked - right.mean(axis=0))
    return float(np.max(off / right.std(axis=0, ddof=1)))


class Row(NamedTuple):
    """What each indicator says of a planted bug.

    Attributes:
        thread: where somebody shipped it.
        subject: of `steps.BY_NAME`.
        broken: the property that it breaks.
        stops: the step that raises an error; 0 if none does.
        loss, norm: the `distance` of a run's curve from those of right runs; infinite
            if it stops.
        copies: whether they differ after a step.
        same_data: the largest difference of a loss from that of one device on the same
            data, as a part of the latter's largest loss.
        counts: the first property that the judge's counts find broken; "" for none,
            NO_COUNTS if the step has no loss that is a sum over samples to count with.
    """

    thread: str
    subject: str
    broken: str
    stops: int
    loss: float
    norm: float
    copies: bool
    same_data: float
    counts: str


class RightRow(NamedTuple):
    """What the curves say of a right run, compared with the other right runs.

    subject: the first one that has these runs; others that train the same model in the
    same way have them, too.
    """

    subject: str
    seed: int
    loss: float
    norm: float


def first_of_each_thread() -> list[Bug]:
    """Return the first planted bug of each thread, in the table's order."""
    found: dict[str, Bug] = {}
    for bug in BUGS:
        if bug.thread:
            found.setdefault(bug.thread, bug)
    return list(found.values())


def rows() -> list[Row]:
    """Return what each indicator says of the first planted bug of each thread."""
    return [
        Row(a, b, c, int(d), float(e), float(f), g == "True", float(h), i)
        for a, b, c, d, e, f, g, h, i in cells(FILE)
    ]


def right_rows() -> list[RightRow]:
    """Return what the curves say of each right run."""
    return [
        RightRow(name, int(seed), float(loss), float(norm))
        for name, seed, loss, norm in cells(RIGHT_FILE)
    ]


def cells(path: Path) -> list[list[str]]:
    """Return a table's cells, without its head."""
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.reader(lines))[1:]


INDICATORS: Mapping[str, Callable[[Row], bool]] = {
    "loss curve": lambda row: row.loss > LIMIT,
    "gradient norm": lambda row: row.norm > LIMIT,
    "copies": lambda row: row.copies or row.stops > 0,
    "loss on the same data": lambda row: row.same_data > SAME,
    "counts": lambda row: row.counts not in ("", NO_COUNTS),
}
