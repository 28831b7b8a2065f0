"""A small training job that fails in ten ways, for the chapter on steps that hang.

The data, the model and the failures are here. The recorder, and whatever the ranks
compare, are the chapter's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from manygpu.processes.launch import KILL
from manygpu.scratch.beyond.many_workers import Ring, socket_allreduce
from manygpu.scratch.beyond.step_hangs import FlightRecorder
from manygpu.scratch.start.one_device import cross_entropy

# The kinds of failures, and the cause that the verdict must name.
KINDS = {
    "order": "different order",
    "shape": "different shape",
    "transposed": "different shape",
    "slow": "straggler",
    "NaN": "NaN on one rank",
    "shard": "wrong shard",
    "writes": "copies differ",
    "short data": "data ended early",
    "dies": "missing rank",
    "never comes": "missing rank",
}
FEATURES, CLASSES, ROWS, STEPS, EVERY, LR = 6, 4, 8, 6, 2, 0.5


class Failure(NamedTuple):
    """What goes wrong on a rank.

    Attributes:
        kind: a key of `KINDS`, or "" for nothing.
        rank: on which rank.
        step: in which step.
        cured: whether all ranks decide together what to do about a NaN.
    """

    kind: str = ""
    rank: int = 1
    step: int = 3
    cured: bool = False


def own_shards(rank: int, size: int, failure: Failure) -> Iterator[np.ndarray]:
    """Yield the sample ids of each step's shard."""
    reads = (rank + 1) % size if failure.kind == "shard" else rank
    for step in range(failure.step if failure.kind == "short data" else STEPS):
        yield ROWS * (size * step + reads) + np.arange(ROWS)


def drawn_samples(ids: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the features and labels of some samples, the same on every rank."""
    X = np.random.default_rng(0).normal(size=(1024, FEATURES))
    return X[ids], X[ids, :CLASSES].argmax(1)


def softmax_gradients(
    X: np.ndarray, y: np.ndarray, params: dict[str, tf.Tensor]
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Return the summed loss and its gradients by name; W may be stored transposed."""
    with tf.GradientTape() as tape:
        tape.watch(params)
        W = params["W"] if len(params["W"]) == FEATURES else tf.transpose(params["W"])
        loss = tf.reduce_sum(cross_entropy(X @ W + params["b"], y))
    return loss, tape.gradient(loss, params)


def first_params(failure: Failure) -> dict[str, tf.Tensor]:
    """Return zeros: W (features, classes) and b (classes,)."""
    classes = CLASSES + (failure.kind == "shape")
    shape = FEATURES, classes
    W = tf.zeros(shape[::-1] if failure.kind == "transposed" else shape, tf.float64)
    return {"W": W, "b": tf.zeros(classes, tf.float64)}


def befall(kind: str, recorder: FlightRecorder, params: dict[str, tf.Tensor]) -> None:
    """Let a failure happen at the beginning of a step."""
    if kind == "dies":
        os.kill(os.getpid(), KILL)
    if kind == "writes":
        params["b"] += 0.01
    if kind == "slow":
        slow_disk(recorder)


def slow_disk(recorder: FlightRecorder) -> None:
    """Read a file for a minute, or, so that no reader waits, until asked twice."""
    for _ in range(2):
        recorder.asked.clear()
        recorder.asked.wait(30)


def train_watched(
    ring: Ring,
    recorder: FlightRecorder,
    failure: Failure,
    compare_fingerprints: Callable,
    any_rank: Callable,
) -> list[np.ndarray]:
    """Train with a recorder, and with this rank's failure, if it has one.

    Args:
        ring: of the ranks.
        recorder: this rank's.
        failure: this rank's; its rank isn't looked at.
        compare_fingerprints, any_rank: the chapter's functions, or a reader's.

    Returns:
        The parameters in the order of their names.

    Raises:
        PeerError: a neighbour failed.
        DisagreementError: the ranks disagree.
    """
    params, loss = first_params(failure), tf.zeros((), tf.float64)
    shards = own_shards(ring.rank, ring.size, failure)
    for step, ids in enumerate(recorder.steps(shards)):
        now = failure.kind if step == failure.step else ""
        befall(now, recorder, params)
        X, y = drawn_samples(ids)
        loss, grads = softmax_gradients(X * np.nan if now == "NaN" else X, y, params)
        skip = not np.isfinite(loss)  # careful, and wrong: the others don't skip
        recorder.note(finite=not skip)
        if failure.cured:
            skip = any_rank(ring, recorder, skip)
            recorder.note(skipped=skip)
        for name in sorted({} if skip else grads, reverse=now == "order"):
            with recorder.call(f"gradient of {name}", grads[name]):
                total = socket_allreduce(grads[name], ring)
            params[name] -= LR / (ROWS * ring.size) * total
        if step % EVERY == EVERY - 1:
            compare_fingerprints(recorder, ring, params.values(), EVERY)
    with recorder.call("last loss", loss):
        socket_allreduce(loss, ring)
    return [params[name].numpy() for name in sorted(params)]
