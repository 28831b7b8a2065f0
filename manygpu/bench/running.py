"""The one contract of what can be timed: `Running`, and whether it does its step.

Every kind of step, LeNet's strategies and the chains alike, is made by a function of
a list of devices that returns a `Running`. It brings a batch of its own kind and what
one device would make of it, so that whatever is timed can be checked first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from manygpu.checks import short_device_name
from manygpu.measure import distance, nbytes


@dataclass(frozen=True)
class Running:
    """A kind of step at work, on devices of its own.

    Attributes:
        take: takes one step on a batch (X, y); returns when it is done.
        result: what a step leaves behind: the weights as they are now, whole and in
            the order of the unsplit model, or the logits of a forward pass.
        reference: what one device would do to `result` on a batch (X, y), computed
            without the strategy: by how much the weights move, or the logits.
        batch: makes a batch of so many samples, always the same.
        held: bytes of parameters on each device.
        moves: whether a step moves what was there; a forward pass makes it anew.
    """

    take: Callable[[tf.Tensor, tf.Tensor], None]
    result: Callable[[], list[np.ndarray]]
    reference: Callable[[tf.Tensor, tf.Tensor], list[np.ndarray]]
    batch: Callable[[int], tuple[tf.Tensor, tf.Tensor]]
    held: Callable[[], dict[str, int]]
    moves: bool = True


def step_distance(running: Running, X: tf.Tensor, y: tf.Tensor) -> float:
    """Take a step; return how far it was from one device's, see `measure.distance`.

    The distance is that of the steps, not of the weights: those hardly move.
    """
    wanted = running.reference(X, y)
    before = running.result() if running.moves else None
    running.take(X, y)
    found = running.result()
    if before is not None:
        found = [after - b for after, b in zip(found, before, strict=True)]
    return distance(found, wanted)


def wait_for(values: Iterable[tf.Tensor | tf.Variable]) -> None:
    """Return when all of `values` are there: a GPU may still be at work on them."""
    for value in values:
        value.numpy()


def bytes_by_device(tensors: Iterable[tf.Tensor | tf.Variable]) -> dict[str, int]:
    """Return how many bytes of `tensors` lie on each device."""
    held: Counter[str] = Counter()
    for t in tensors:
        held[short_device_name(t.device)] += nbytes(t)
    return dict(held)


def compiled(step: Callable) -> Callable:
    """Return `step` as a graph, without AutoGraph.

    AutoGraph rewrites Python's loops over tensors, and no step here has one. Without
    it a process takes its first step in half the time.
    """
    return tf.function(step, autograph=False)
