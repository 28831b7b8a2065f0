"""Which indicators show a shipped bug: the loss, the gradient norm, copies, counts."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import tensorflow as tf

from experiments.judged import first_broken
from manygpu.prove import steps
from manygpu.prove.curves import (
    BUG_SEED,
    RIGHT_SEEDS,
    Bands,
    Run,
    bands,
    on_one_device,
    same_data,
    train,
    watched,
)
from manygpu.prove.planted import Bug, planted
from manygpu.prove.shown import (
    FILE,
    NO_COUNTS,
    RIGHT_FILE,
    RightRow,
    Row,
    distance,
    first_of_each_thread,
    rows,
)

ROUNDING = 1e-4  # of losses in float32: right steps of one model agree so well


@cache
def right_run(name: str) -> Run:
    """Return the curves of one device on the data that the bugs get.

    Raises:
        ValueError: without a bug, several devices train differently.
    """
    alone = on_one_device(watched(name, BUG_SEED), BUG_SEED)
    several = train(watched(name, BUG_SEED), BUG_SEED)
    if (off := same_data(several, alone)) > ROUNDING or not several.equal:
        raise ValueError(f"{name} must train as one device does, is off by {off:.1g}")
    return alone


bands_of = cache(bands)


def row_of(bug: Bug) -> Row:
    """Return what each indicator says while a bug is planted."""
    right, known = right_run(bug.subject), bands_of(bug.subject)
    judged = steps.BY_NAME[bug.subject](bug.subject)
    tf.random.set_seed(BUG_SEED)  # one of the bugs draws at random
    with planted(bug):
        run = train(watched(bug.subject, BUG_SEED), BUG_SEED)
        counts = first_broken(judged) if judged.gradient else NO_COUNTS
    return Row(
        bug.thread,
        bug.subject,
        bug.broken,
        run.stops,
        distance(run.losses, known.losses),
        distance(run.norms, known.norms),
        not run.equal,
        same_data(run, right),
        counts,
    )


def right_rows(names: Sequence[str]) -> Iterator[RightRow]:
    """Yield what the curves say of each right run, compared with the others.

    Steps that train the same model in the same way have the same right runs: once.
    """
    told_of: list[Bands] = []
    for name in dict.fromkeys(names):
        known = bands_of(name)
        if any(np.allclose(known.losses, own.losses, ROUNDING) for own in told_of):
            continue
        told_of.append(known)
        for i, seed in enumerate(RIGHT_SEEDS):
            pairs = zip(known, known.without(i), strict=True)
            yield RightRow(name, seed, *(distance(own[i], rest) for own, rest in pairs))


def told(row: Row | RightRow) -> list:
    """Return a row's cells; four digits say enough."""
    return [f"{x:.4g}" if isinstance(x, float) else x for x in row]


def write(path: Path, found: Iterator[Row | RightRow], fields: Sequence[str]) -> None:
    """Write a table as its rows come."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(fields)
        for row in found:
            table.writerow(told(row))
            file.flush()
            print(*told(row), flush=True)


def main() -> None:
    """Write both tables: of the first bug of each thread, and of right runs."""
    bugs = first_of_each_thread()
    order = np.random.default_rng(0).permutation(len(bugs))  # a run that is stopped
    # early has drawn its bugs at random
    with np.errstate(all="ignore"):  # a broken step may make numbers that are none
        write(FILE, (row_of(bugs[i]) for i in order), Row._fields)
    names = [row.subject for row in rows()]
    write(RIGHT_FILE, right_rows(names), RightRow._fields)


if __name__ == "__main__":
    main()
