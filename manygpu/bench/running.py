"""The one contract of what can be timed: `Running`, and whether it does its step.

Every kind of step, LeNet's strategies and the chains alike, is made by a function of
a list of devices that returns a `Running`. It brings a batch of its own kind and what
one device would make of it, so that whatever is timed can be checked first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from manygpu.checks import short_device_name
from manygpu.measure import distance, nbytes
from manygpu.scratch.splitting.network import transfers


class UnfitError(ValueError):
    """A model, or its batch, that a strategy can't train; the message says why."""


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
        sent: bytes that devices send each other in a step on a batch (X, y); None
            where an engine hides its messages.
        alike: other forms of the same step, to be compared where this one can't be or
            is another on purpose: what was changed, and the form.
    """

    take: Callable[[tf.Tensor, tf.Tensor], None]
    result: Callable[[], list[np.ndarray]]
    reference: Callable[[tf.Tensor, tf.Tensor], list[np.ndarray]]
    batch: Callable[[int], tuple[tf.Tensor, tf.Tensor]]
    held: Callable[[], dict[str, int]]
    moves: bool = True
    sent: Callable[[Any, Any], int] | None = None
    alike: Callable[[], Iterator[tuple[str, Running]]] = lambda: iter(())


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


def bytes_in_graph(step: Callable, *batch: Any) -> int:
    """Return how many bytes go from device to device in the graph of a step."""
    graph = tf.function(step, autograph=False).get_concrete_function(*batch).graph
    return sum(move.bytes for move in transfers(graph))


def tolerance_of(running: Running, X: Any, y: Any) -> float:
    """Return how far a step may be from one device's by rounding alone.

    That is ten times what another order of the samples does to one device's step, and
    what is left of a small step when the weights it moves are rounded to 24 bits.

    Raises:
        UnfitError: one device's step is none, or not finite.
    """
    wanted = running.reference(X, y)
    again = running.reference(*tf.nest.map_structure(lambda t: t[::-1], (X, y)))
    length = _length(wanted)
    if not 0 < length < float("inf"):
        raise UnfitError(f"one device's step is {length:g} long: nothing to compare")
    return 10 * distance(again, wanted) + 2.0**-23 * _length(running.result()) / length


def _length(arrays: Iterable[np.ndarray]) -> float:
    """The Euclidean norm of all numbers of all arrays."""
    return float(np.sqrt(sum(np.sum(np.square(a, dtype="float64")) for a in arrays)))


def compiled(step: Callable) -> Callable:
    """Return `step` as a graph, without AutoGraph.

    AutoGraph rewrites Python's loops over tensors, and no step here has one. Without
    it a process takes its first step in half the time.
    """
    return tf.function(step, autograph=False)
