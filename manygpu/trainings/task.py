"""What a strategy is put to work on: a `Task`, a model to be trained.

A `contract.Training` says what a step leaves behind, and its `Task` what one device
would have left. So whatever is timed can be checked first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from manygpu.checks import short_device_name
from manygpu.measure import nbytes
from manygpu.scratch.splitting.network import Model, transfers
from manygpu.trainings.contract import Training
from manygpu.trainings.keras_losses import Division

LR, MICRO_BATCHES = 0.05, 8


@dataclass
class Task:
    """A model to be trained, with a batch of its own.

    Attributes:
        name: as a reader asks for it.
        model: its layers and its loss.
        batch: X and y, tensors or nests of such; None if any batch may come.
        lr: the rate of plain SGD on the mean loss.
        pieces: micro-batches that a batch, or a share of it, is cut into, at most.
        find: what finds gradients if the model doesn't, `find(X, y, params)`.
        keras: makes the model anew by Keras, in the scope where you are, and compiles
            it for SGD with the rate that it gets.
        seconds: what each layer takes, to cut it fairly; else FLOPs tell.
        uncut: why the layers can't be cut apart; empty if they can.
        own_step: whether only Keras takes its step, as its `train_step` is its own.
        own_loss: whether its `compute_loss` is its own.
        assigns: why only Keras takes its step, if its `train_step` is the usual one.
        fixed: whether it takes as many samples as are in the batch, and no others.
        draws: whether it draws random numbers in training.
        names: of the weights; () where nobody has named them.
        division: how a batch's loss is made of its parts'.
        moves: names of state that layers change beside the usual norms.
        constraints: of the weights, functions or None; () for none at all.
        said: what a reader may not expect of model and batch, in sentences.
    """

    name: str
    model: Model
    batch: tuple[Any, Any] | None
    lr: float = LR
    pieces: int = MICRO_BATCHES
    find: Callable | None = None
    keras: Callable[[float], tf.keras.Model] | None = None
    seconds: Sequence[float] = ()
    uncut: str = ""
    own_step: bool = False
    own_loss: bool = False
    assigns: str = ""
    fixed: bool = False
    draws: bool = False
    names: Sequence[str] = ()
    division: Division = Division()
    moves: Sequence[str] = ()
    constraints: Sequence[Callable | None] = ()
    said: Sequence[str] = ()

    @property
    def samples(self) -> int:
        """How many are in the batch; 0 if any batch may come."""
        return rows_of(self.batch) if self.batch else 0

    def pieces_of(self, samples: int | None) -> int:
        """Return into how many micro-batches so many samples are cut, None for any."""
        return min(self.pieces, samples or self.pieces)

    @property
    def about(self) -> dict[str, Any]:
        """What `table.unfit` asks of a model."""
        layers = [one.name for one in self.model.layers]
        about = {"model": self.name, "samples": self.samples, "uncut": self.uncut}
        about |= {"own_step": self.own_step, "own_loss": self.own_loss}
        about |= {"assigns": self.assigns, "fixed": self.fixed}
        return about | {"layers": layers}

    def gradients(
        self, X: Any, y: Any, params: Sequence, state: Sequence | None = None
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Return the summed loss and its gradients; move `state`, if it is given."""
        return (self.find or self.model.gradients)(X, y, params)

    def mean_gradients(self, X: Any, y: Any, weights: Sequence) -> list[np.ndarray]:
        """Return the gradients of the mean loss on one device, with these weights."""
        _, grads = self.gradients(X, y, [tf.Variable(w) for w in weights])
        return [g.numpy() / rows_of(y) for g in grads]

    def moved(self, X: Any, y: Any, weights: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return by how much one device's step of SGD moves these weights."""
        steps = [-self.lr * g for g in self.mean_gradients(X, y, weights)]
        for i, keep in enumerate(self.constraints):
            if keep:
                after = tf.constant(weights[i] + steps[i])
                steps[i] = keep(after).numpy() - weights[i]
        return steps

    def for_fit(self) -> Task:
        """Return the form of it that Keras' `fit` trains."""
        return self

    def forms(self) -> Iterator[tuple[str, Task]]:
        """Yield forms to compare where this one can't be: what was changed, and it."""
        return iter(())


def rows_of(values: Any) -> int:
    """Return how many samples a batch, or a part of it, has."""
    return tf.nest.flatten(values)[0].shape[0]


def length_of(arrays: Iterable[Any]) -> float:
    """Return the Euclidean norm of all numbers of all arrays, in float64."""
    return float(tf.linalg.global_norm([tf.cast(a, tf.float64) for a in arrays]))


def weights_of(training: Training) -> list[np.ndarray]:
    """Return the first copy of the weights as they are now."""
    return [tf.convert_to_tensor(w).numpy() for w in training.copies()[0]]


def held_by(training: Training) -> dict[str, int]:
    """Return how many bytes lie on each device between steps."""
    held: Counter[str] = Counter()
    for t in training.stored():
        held[short_device_name(t.device)] += nbytes(t)
    return dict(held)


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


def to_be_timed(training: Training, eager: bool = False) -> Training:
    """Return the training whose `take` returns when the step is done.

    The step is one graph, unless it is `eager` or can't be traced. `sent` counts the
    bytes that such a graph sends.
    """
    if not training.traced:
        return training

    def step(X: Any, y: Any) -> None:  # nobody fetches the loss
        training.take(X, y)

    graph = compiled(step)
    last = {t.device: t for t in training.stored()}  # one per device

    def take(X: Any, y: Any) -> None:
        (step if eager else graph)(X, y)
        wait_for(last.values())

    return training._replace(take=take, sent=partial(bytes_in_graph, graph))
