"""Keras' `fit` under MirroredStrategy as a step; one model serves many trainings.

The judge asks for dozens of trainings of a step or two. Keras would compile a model for
each, and TensorFlow make graphs for the iterators of each `fit`: that took minutes. So
a model is compiled once for some devices, and begins anew; and `fit` gets its batch in
shares, which the engine cut for another batch of as many samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import input_lib  # private: Keras knows its class

import manygpu
from manygpu.prove.adapters.engine import (
    Build,
    Draw,
    assign,
    built,
    reference_model,
    rule_of,
    training_of,
)
from manygpu.prove.adapters.variables import (
    MOST_DEVICES,
    Watched,
    reference_of,
    tensors,
)
from manygpu.prove.subject import Arrays, Subject
from manygpu.prove.trials import same
from manygpu.trace.working import Working
from manygpu.trainings.contract import Training
from manygpu.trainings.engines import adding_strategy


def of_fit(build: Build, draw: Draw, lr: float, **about: Any) -> Subject:
    """Return a subject that trains a Keras model by `fit` under MirroredStrategy.

    A model is built once for each number of devices; then its variables are given back
    the values that they began with. With `run_eagerly=True` it is built for each
    training, because Python may then keep more than the variables do.

    Arguments: see `of_loop`.
    """
    devices = manygpu.devices(MOST_DEVICES, quiet=True)
    gradients, alone = reference_model(build)
    weights = [np.asarray(v) for v in alone.trained]
    begun = [np.asarray(v) for v in alone.variables]
    models: dict[tuple[str, ...], Compiled] = {}

    def begin_on(weights: Arrays, order: Sequence[int]) -> Watched:
        names = tuple(devices[d] for d in order)
        if names not in models or not models[names].again:
            models[names] = Compiled(build, names, begun, draw)
        own = models[names]
        return Watched(own.begin(weights), names, own.seen)

    def begin(weights: Arrays, k: int) -> Watched:
        return begin_on(weights, range(k))

    names = [v.path for v in alone.trained]
    about = {"name": "fit", "names": names, "on": begin_on} | about
    about = {"optimizer_says": partial(rule_of, alone)} | about
    known = reference_of(gradients, weights)
    return Subject(begin, known, draw, weights, lr, **about)


class Compiled:
    """A model that is compiled for some devices; it serves trainings in turn.

    A training's own values are in the variables only while something is asked of it.

    Args:
        build: see `of_loop`.
        devices: one for each replica.
        begun: the values that all its variables begin with.
        draw: see `of_loop`.

    Attributes:
        again: whether another training may begin, as all that a training changes is in
            variables whose first values are known.
        seen: what its graphs did when they were made.
    """

    def __init__(
        self, build: Build, devices: Sequence[str], begun: Arrays, draw: Draw
    ) -> None:
        self.strategy, self.seen, self.again = adding_strategy(devices), Working(), True
        self._variables: list[tf.Variable] = []  # one for each replica
        self._begun: Arrays = []
        self._owner: _Owner | None = None
        self._dealt = cache(self._deal)  # it makes graphs
        # Outside of the strategy's scope: it asks for each replica's own variable.
        with tf.variable_creator_scope(self._note):
            self._made = built(build, self.strategy, begun)
        self._begun = self.read()
        self.again &= not self._made.model.run_eagerly
        k = len(devices)
        self._shown = self._in_shares(range(k), *tensors(*draw(k, 0)))

    def begin(self, weights: Arrays) -> Training:
        """Return a training that begins with these weights."""
        owner = _Owner()
        self._turn(owner)
        assign(self._made.trained, weights)
        made = training_of(self._made, self.strategy, self._fit)

        def in_turn(ask: Callable) -> Callable:
            def asked(*given: Any) -> Any:
                self._turn(owner)
                return ask(*given)

            return asked

        asks = {name: ask for name, ask in made._asdict().items() if callable(ask)}
        return made._replace(**{name: in_turn(ask) for name, ask in asks.items()})

    def read(self) -> Arrays:
        """Return the values of all variables, of each replica."""
        return [v.numpy() for v in self._variables]

    def write(self, values: Arrays) -> None:
        """Give the variables these values; those made since begin anew."""
        values = [*values, *self._begun[len(values) :]]
        for v, now, value in zip(self._variables, self.read(), values, strict=True):
            if not same(now, value):
                v.assign(value)

    def _turn(self, owner: _Owner) -> None:
        """Put a training's values in the variables, after keeping another's."""
        if self._owner is owner:
            return
        if self._owner is not None:
            self._owner.values = self.read()
        self.write(owner.values)
        self._owner = owner

    def _note(self, make: Callable, **about: Any) -> tf.Variable:
        """Make a variable, and remember with which value it began."""
        made = make(**about)
        self._variables.append(made)
        if tf.executing_eagerly():
            self._begun.append(made.numpy())
        else:
            self.again = False  # a graph makes it: its first value is never seen
        return made

    def _fit(self, X: tf.Tensor, y: tf.Tensor) -> None:
        """Take a step by `fit`."""
        batch = _Batch(self._shown, self._in_shares(self._dealt(len(y)), X, y))
        about = {"steps_per_epoch": 1, "verbose": 0}
        with tf.variable_creator_scope(self._note):
            self._made.model.fit(batch, callbacks=[_OneStep(self, batch)], **about)

    def _deal(self, samples: int) -> list[np.ndarray]:
        """Return the numbers of each replica's samples, as the engine deals them."""
        numbers = tf.data.Dataset.from_tensors(tf.range(samples))
        (own,) = self.strategy.experimental_distribute_dataset(numbers)
        return [np.array(a) for a in self.strategy.experimental_local_results(own)]

    def _in_shares(self, numbers: Sequence, *batch: tf.Tensor) -> tuple:
        """Return a batch of which each replica has the samples of these numbers."""

        def of_replica(a: tf.Tensor, context: Any) -> tf.Tensor:
            own = numbers[context.replica_id_in_sync_group]
            return tf.gather(a, np.atleast_1d(own))

        spread = self.strategy.experimental_distribute_values_from_function
        return tuple(spread(partial(of_replica, a)) for a in batch)


class _Owner:
    """The values of a training, while its model's variables have another's."""

    values: Sequence[np.ndarray] = ()


class _Batch(input_lib.DistributedDataset):
    """One batch, of which the replicas have their shares already.

    Before Keras trains, it looks at a batch and averages its shares, so they must be
    even: it is shown another one.
    """

    cardinality = tf.data.UNKNOWN_CARDINALITY
    begun = False

    def __init__(self, shown: tuple, batch: tuple) -> None:
        self._shown, self._batch = shown, batch

    def __iter__(self) -> Iterator[tuple]:
        return iter([self._batch if self.begun else self._shown])

    @property
    def element_spec(self) -> Any:
        return tf.nest.map_structure(tf.type_spec_from_value, self._batch)


class _OneStep(tf.keras.callbacks.Callback):
    """Makes a `fit` one step, and undoes what it does at its end.

    There Keras makes the averages of the weights (`use_ema`) the weights. For the judge
    a `fit` is a step, and no end of a training run.
    """

    def __init__(self, compiled: Compiled, batch: _Batch) -> None:
        super().__init__()
        self._compiled, self._batch = compiled, batch
        self._values: Arrays = []

    def on_train_begin(self, logs: Any = None) -> None:
        self._batch.begun = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._values = self._compiled.read()

    def on_train_end(self, logs: Any = None) -> None:
        self._compiled.write(self._values)
