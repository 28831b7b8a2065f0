"""What a mended project must do: each case's properties, and what is wrong with them.

A judge gets the learner's functions by name, a generator that draws cases, and what
returns the broken script's functions. It yields a property's name and what is wrong,
or "".
"""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from manygpu.scratch.splitting.pipeline import Op, earliest_spans, in_flight

Given = Mapping[str, Any]
Broken = Callable[[], Given]
Found = Iterator[tuple[str, str]]

PATIENCE = 5.0  # seconds in which a step of some milliseconds must end
SINGLE, HALF, DOUBLE = 1e-4, 1e-2, 1e-9  # relative: what rounding may do
SAMPLE = "each sample weighs the same"
LENGTH = "a step has the length of one device's step"
OVERFLOW = "a step that overflows changes no weight"
SCALE = "the scale is halved once in such a step"
AS_BEFORE = "without a stop it trains as before"
DATA = "no batch is read twice or left out"
OPTIMIZER = "the optimizer goes on from its saved state"
ORDER = "each micro-batch has a forward pass, then a backward pass"
BUSY = "stages work at the same time"
HELD = "no stage keeps more than it needs"
WAITS = "no stage waits forever"
GRADIENT = "the gradient equals one device's gradient"
MEAN = "the gradient is the mean over all samples"
FACTOR = "all shares are clipped by one factor"


def apart(found: Any, right: np.ndarray) -> float:
    """The distance from the right numbers, over their norm; infinite for no numbers."""
    found = np.asarray(found, float)
    if found.shape != right.shape or not np.isfinite(found).all():
        return float("inf")
    return float(np.linalg.norm(found - right) / np.linalg.norm(right))


def line(draw: random.Random, samples: int, features: int) -> tuple:
    """Random samples, and what a noisy line makes of them."""
    rng = np.random.default_rng(draw.getrandbits(32))
    X = rng.normal(size=(samples, features))
    return X, X @ rng.normal(size=features) + rng.normal(size=samples)


def squares(w: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The gradient of the mean squared error."""
    return 2 * X.T @ (X @ w - y) / len(y)


def odd_batch(given: Given, draw: random.Random, broken: Broken) -> Found:
    """Steps on one, two and three devices beside those of one."""
    import manygpu

    known = [*manygpu.devices(1, quiet=True), *manygpu.devices(2, quiet=True)[1:]] * 2
    cases = [(1, 5, 5, 1), (2, 5, 5, 1), (2, 6, 6, 1), (3, 8, 8, 1), (2, 21, 7, 2)]
    cases += [(draw.randint(2, 4), n, n, 1) for n in draw.sample(range(5, 40), 3)]
    for k, samples, batch, epochs in cases:
        X, y = (each.astype("float32") for each in line(draw, samples, 3))
        found = given["train"](X, y, known[:k], batch=batch, rate=0.1, epochs=epochs)
        ones = np.concatenate([X, np.ones((samples, 1))], axis=1)
        w = np.zeros(4)
        for _ in range(epochs):
            for i in range(0, samples, batch):
                w = w - 0.1 * squares(w, ones[i : i + batch], y[i : i + batch])
        said = f"with {k} devices and a batch of {batch}, "
        off = apart(found, w)
        times = np.linalg.norm(found) / np.linalg.norm(w)
        same_way = epochs == 1 and apart(found / times, w) < SINGLE
        yield (
            SAMPLE,
            off > SINGLE and not same_way and f"{said}the weights differ by {off:.1%}",
        )
        yield LENGTH, off > SINGLE and f"{said}it is {times:.3g} times as long"


def half_precision(given: Given, draw: random.Random, broken: Broken) -> Found:
    """Steps in parts, uneven ones among them, and steps of which a part overflows."""
    for samples, part in [(4, 4), (6, 4), (10, 4), (draw.randint(9, 15), 8)]:
        X, y = line(draw, samples, 3)
        w = np.ones(3)
        moved, _ = given["step"](w.copy(), X, y, part, 0.1, 64.0)
        off = apart(moved - w, -0.1 * squares(w, X, y))
        said = (
            f"with {samples} samples, {part} at a time, the step differs by {off:.1%}"
        )
        yield SAMPLE, off > HALF and said
    for large in ([0], [7], [0, 5], [0, 7]):
        X, y = line(draw, 8, 3)
        X[large] *= 1e4
        w = np.ones(3)
        moved, scale = given["step"](w.copy(), X, y, 4, 0.1, 64.0)
        said = f"if samples {large} overflow, 4 at a time, "
        changed = not np.array_equal(moved, w) and f"{said}weights move"
        yield OVERFLOW, changed
        yield SCALE, scale != 32 and f"{said}it is {scale:g} after 64"


def resume(given: Given, draw: random.Random, broken: Broken) -> Found:
    """A training that stops here and there, beside one that doesn't."""
    stops = [[4], [5], [3, 8]] + [[draw.randint(1, 12)] for _ in range(3)]
    for momentum, name in ((0.0, DATA), (0.9, OPTIMIZER)):
        for places in stops:
            X, y = line(draw, 20, 3)
            right = trained(broken(), X, y, [], momentum)
            alone = apart(trained(given, X, y, [], momentum), right)
            yield AS_BEFORE, alone > DOUBLE and f"the weights differ by {alone:.1%}"
            off = apart(trained(given, X, y, places, momentum), right)
            where = " and ".join(map(str, places))
            said = f"5 batches per epoch, stopped after step {where}: after 13 steps, "
            yield name, off > DOUBLE and f"{said}the weights differ by {off:.1%}"


def trained(
    given: Given, X: np.ndarray, y: np.ndarray, stops: Sequence[int], momentum: float
) -> np.ndarray:
    """The weights after 13 steps, stopped and taken up again after some of them."""
    state, done = given["start"](X.shape[1]), 0
    with tempfile.TemporaryDirectory() as folder:
        for stop in [*stops, 13]:
            state = given["train"](
                state, X, y, stop - done, size=4, rate=0.05, momentum=momentum
            )
            file, done = Path(folder) / f"{stop}.npz", stop
            given["save"](state, file)
            state = given["load"](file)
    return np.asarray(state["w"])


def pipeline(given: Given, draw: random.Random, broken: Broken) -> Found:
    """Orders, and steps by threads, beside one device's."""
    cases = [(1, 2), (2, 1), (2, 2), (2, 5), (3, 4), (4, 8)]
    cases += [(draw.randint(2, 4), draw.randint(1, 9)) for _ in range(2)]
    for p, m in cases:
        said = f"with {p} stages and {m} micro-batches"
        orders = [
            [Op(kind, stage, i) for kind, i in given["order"](stage, p, m)]
            for stage in range(p)
        ]
        passes = makespan(orders, m)
        yield ORDER, not passes and f"{said} it doesn't"
        least = 2 * (m + p - 1)
        slow = passes > least and f"{said} a step takes {passes} passes, not {least}"
        yield BUSY, slow
        over = [s for s, held in enumerate(in_flight(orders)) if held > p - s]
        yield HELD, over and f"{said} stage {over[0]} holds more"
        rng = np.random.default_rng(draw.getrandbits(32))
        weights = [rng.normal(size=(2, 2)) for _ in range(p)]
        parts, targets = rng.normal(size=(2, m, 3, 2))
        found = ended(lambda: given["run"](weights, parts, targets))  # noqa: B023
        yield WAITS, found is None and f"{said} a step hasn't ended in {PATIENCE:g} s"
        right = chained(weights, parts.reshape(-1, 2), targets.reshape(-1, 2))
        off = apart(found, np.array(right))
        yield GRADIENT, off > DOUBLE and f"{said} it is {off:.1%} off"


def makespan(orders: Sequence[Sequence[Op]], micros: int) -> int:
    """How many passes long a step is, if messages take no time; 0 if it can't be."""
    for s, own in enumerate(orders):
        if sorted(own) != [Op(kind, s, m) for kind in "BF" for m in range(micros)]:
            return 0
    try:
        return max(span.end for span in earliest_spans(orders))
    except ValueError:  # a deadlock
        return 0


def ended(job: Callable[[], Any]) -> Any:
    """What a job returns, or raises; None if it doesn't end in time."""
    found: list[Any] = []

    def work() -> None:
        try:
            found.append(job())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if found and isinstance(found[0], Exception):
        raise found[0]
    return found[0] if found else None


def chained(weights: Sequence[np.ndarray], x: np.ndarray, y: np.ndarray) -> list:
    """Each layer's gradient of half the squared error, on one device."""
    held = [x]
    for w in weights:
        held.append(held[-1] @ w)
    off, found = held.pop() - y, []
    for w in weights[::-1]:
        found.append(held.pop().T @ off)
        off = off @ w.T
    return found[::-1]


def sharded(given: Given, draw: random.Random, broken: Broken) -> Found:
    """Steps whose gradient is cut, and steps whose gradient isn't."""
    for k in (1, 2, 3, 4, draw.randint(2, 6)):
        X, y = line(draw, 12 * k, 7)
        whole = squares(np.zeros(7), X, y)
        length = np.linalg.norm(whole)
        found = given["train"](X, y, k, rate=0.1, limit=length / 4, steps=1)
        off = apart(found, -0.1 * whole / 4)
        said = f"with {k} devices and a gradient that is too long"
        yield FACTOR, off > DOUBLE and f"{said} the weights differ by {off:.1%}"
    for k in (1, 2, 3, 4):
        X, y = line(draw, 12 * k, 7)
        w, velocity, length = np.zeros(7), 0.0, 0.0
        for _ in range(3):
            velocity = 0.9 * velocity - 0.1 * squares(w, X, y)
            length = max(length, float(np.linalg.norm(squares(w, X, y))))
            w = w + velocity
        found = given["train"](X, y, k, rate=0.1, limit=1.5 * length, steps=3)
        off = apart(found, w)
        said = f"with {k} devices and a gradient that isn't too long"
        yield (
            MEAN,
            off > DOUBLE and f"{said} the weights differ by {off:.1%} after 3 steps",
        )
