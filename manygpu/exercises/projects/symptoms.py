"""What is seen of each project's bugs: a loss, a time, weights that part ways."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from manygpu import tables

Given = Mapping[str, Any]


def odd_batch(given: Given) -> None:
    """The loss by epochs, on one device and on two."""
    import manygpu

    X, y = given["make_data"](630)
    devices, rows = manygpu.devices(2, quiet=True), []
    for epochs in (1, 2, 3):
        both = [given["train"](X, y, devices[:k], epochs=epochs) for k in (1, 2)]
        rows.append((epochs, *(float(given["loss"](w, X, y)) for w in both)))
    columns = {"epochs": "", "loss on 1 device": ".2e", "loss on 2": ".2e"}
    tables.table(rows, columns, "The loss after some epochs, on one device and on two.")


def half_precision(given: Given) -> None:
    """How far a step is from that of float64, for several parts of the batch."""
    from manygpu.exercises.projects.judges import apart, squares

    X, y = given["make_data"](20, seed=1)
    X = np.clip(X, -2, 2)
    large = X * np.where(np.arange(20) == 3, 1e4, 1)[:, None]
    rows = []
    for said, data, part in (("20", X, 20), ("10", X, 10), ("8", X, 8), ("7", X, 7)):
        moved, scale = given["step"](np.zeros(4), data, y, part, 0.1, 64.0)
        rows.append((said, apart(moved, -0.1 * squares(np.zeros(4), data, y)), scale))
    moved, scale = given["step"](np.zeros(4), large, y, 10, 0.1, 64.0)
    rows.append(
        ("10, one sample is huge", f"moves by {np.linalg.norm(moved):.2g}", scale)
    )
    columns = {"samples per part": "", "error of the step": ".1%", "scale after": ".0f"}
    tables.table(
        rows, columns, "A step on 20 samples with the scale 64, compared with float64."
    )


def resume(given: Given) -> None:
    """How far weights are from the right ones, after training was resumed."""
    from manygpu.exercises.projects.judges import apart, trained

    X, y = given["make_data"](20)
    rows = []
    for stop in (1, 4, 5, 9, 10):
        stopped, right = (trained(given, X, y, s, 0.9) for s in ([stop], []))
        rows.append((stop, apart(stopped, right)))
    columns = {"stopped after step": "", "error of the weights after step 13": ".1%"}
    tables.table(
        rows,
        columns,
        "Training that was stopped and resumed, compared with an unstopped run.",
    )


def pipeline(given: Given) -> None:
    """The time of a step, beside the time if all stages work at once."""
    pause, rows = 0.01, []
    for p, m in ((1, 8), (2, 8), (4, 8)):
        weights, (parts, targets) = [np.eye(2)] * p, np.ones((2, m, 1, 2))
        begun = time.monotonic()
        given["run"](weights, parts, targets, pause=pause)
        rows.append((p, m, time.monotonic() - begun, 2 * (m + p - 1) * pause))
    columns = {"stages": "", "micro-batches": "", "seconds": ".2f", "forecast": ".2f"}
    tables.table(
        rows, columns, f"The time of a step. Each pass takes {pause * 1e3:.0f} ms."
    )


def sharded(given: Given) -> None:
    """How far the first step moves all weights together, by devices."""
    X, y = given["make_data"](64)
    rows = []
    for k in (1, 2, 4):
        short, free = (
            given["train"](X, y, k, rate=1.0, limit=limit) for limit in (1.0, 1e9)
        )
        rows.append((k, float(np.linalg.norm(short)), float(np.linalg.norm(free))))
    columns = {"devices": "", "clipped to 1": ".2f", "not clipped": ".2f"}
    tables.table(
        rows, columns, "The length of the first step, at a learning rate of 1."
    )
