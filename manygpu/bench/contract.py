"""What a strategy gets, a `Task`, and what it gives for it: a `Running`.

Whatever is timed can be checked first: a `Running` says what a step leaves behind, and
its `Task` what one device would have left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from manygpu.checks import short_device_name
from manygpu.measure import distance, nbytes
from manygpu.scratch.splitting.network import Model, transfers

LR, MICRO_BATCHES = 0.05, 8


@dataclass
class Task:
    """A model to be trained, with a batch of its own.

    Attributes:
        name: as a reader asks for it.
        model: its layers and its loss.
        batch: X and y, tensors or nests of such.
        lr: the rate of plain SGD on the mean loss.
        pieces: micro-batches that a batch, or a share of it, is cut into, at most.
        find: what finds gradients if the model doesn't, `find(X, y, params)`.
        keras: makes the model anew by Keras, in the scope where you are, and compiles
            it for SGD with the rate that it gets.
        seconds: what each layer takes, to cut it fairly; else FLOPs tell.
        uncut: why the layers can't be cut apart; empty if they can.
        own_step: whether only Keras takes its step, as its `train_step` is its own.
        own_loss: whether its `compute_loss` is its own.
        said: what a reader may not expect of model and batch, in sentences.
    """

    name: str
    model: Model
    batch: tuple[Any, Any]
    lr: float = LR
    pieces: int = MICRO_BATCHES
    find: Callable | None = None
    keras: Callable[[float], tf.keras.Model] | None = None
    seconds: Sequence[float] = ()
    uncut: str = ""
    own_step: bool = False
    own_loss: bool = False
    said: Sequence[str] = ()

    @property
    def samples(self) -> int:
        """How many are in the batch."""
        return rows_of(self.batch)

    @property
    def about(self) -> dict[str, Any]:
        """What `table.unfit` asks of a model."""
        layers = [one.name for one in self.model.layers]
        about = {"model": self.name, "samples": self.samples, "uncut": self.uncut}
        about |= {"own_step": self.own_step, "own_loss": self.own_loss}
        return about | {"layers": layers}

    def gradients(
        self, X: Any, y: Any, params: Sequence, state: Sequence | None = None
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Return the summed loss and its gradients; move `state`, if it is given."""
        return (self.find or self.model.gradients)(X, y, params)

    def moved(self, X: Any, y: Any, weights: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return by how much one device's step moves these weights."""
        _, grads = self.gradients(X, y, [tf.Variable(w) for w in weights])
        return [-self.lr / rows_of(y) * g.numpy() for g in grads]

    def for_fit(self) -> Task:
        """Return the form of it that Keras' `fit` trains."""
        return self

    def forms(self) -> Iterator[tuple[str, Task]]:
        """Yield forms to compare where this one can't be: what was changed, and it."""
        return iter(())


@dataclass(frozen=True)
class Running:
    """A strategy at work on a task, on devices of its own.

    Attributes:
        task: what it was made for.
        take: takes one step on a batch (X, y); returns when it is done.
        result: the weights as they are now, whole and in the order of the unsplit
            model.
        stored: what lies on the devices between steps.
        sent: bytes that devices send each other in a step on a batch (X, y); None
            where an engine hides its messages.
    """

    task: Task
    take: Callable[[Any, Any], None]
    result: Callable[[], list[np.ndarray]]
    stored: Callable[[], Iterable[tf.Tensor | tf.Variable]]
    sent: Callable[[Any, Any], int] | None = None

    def held(self) -> dict[str, int]:
        """Return how many bytes lie on each device between steps."""
        held: Counter[str] = Counter()
        for t in self.stored():
            held[short_device_name(t.device)] += nbytes(t)
        return dict(held)

    def reference(self, X: Any, y: Any) -> list[np.ndarray]:
        """Return by how much one device's step would move the weights."""
        return self.task.moved(X, y, self.result())


def rows_of(values: Any) -> int:
    """Return how many samples a batch, or a part of it, has."""
    return tf.nest.flatten(values)[0].shape[0]


def length_of(arrays: Iterable[Any]) -> float:
    """Return the Euclidean norm of all numbers of all arrays, in float64."""
    return float(tf.linalg.global_norm([tf.cast(a, tf.float64) for a in arrays]))


def step_of(running: Running, X: Any, y: Any) -> list[np.ndarray]:
    """Take a step; return by how much it moved the weights."""
    before = running.result()
    running.take(X, y)
    return [a - b for a, b in zip(running.result(), before, strict=True)]


def step_distance(running: Running, X: Any, y: Any) -> float:
    """Take a step; return how far it was from one device's, see `measure.distance`.

    That is of the steps, for weights hardly move.
    """
    wanted = running.reference(X, y)
    return distance(step_of(running, X, y), wanted)


def wait_for(values: Iterable[tf.Tensor | tf.Variable]) -> None:
    """Return when all of `values` are there: a GPU may still be at work on them."""
    for value in values:
        value.numpy()


def bytes_in_graph(step: Any, *batch: Any) -> int:
    """Return how many bytes go from device to device in the graph of a `compiled`."""
    graph = step.get_concrete_function(*batch).graph
    return sum(move.bytes for move in transfers(graph))


def compiled(step: Callable) -> Callable:
    """Return `step` as a graph, without AutoGraph.

    AutoGraph rewrites Python's loops over tensors, and no step here has one. Without
    it a process takes its first step in half the time.
    """
    return tf.function(step, autograph=False)
