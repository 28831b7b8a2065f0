"""Steps of Keras models under MirroredStrategy, in loops of one's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

import manygpu
from manygpu.prove.adapters.variables import (
    MOST_DEVICES,
    Variables,
    of_variables,
)
from manygpu.prove.subject import Subject
from manygpu.trainings.contract import Training
from manygpu.trainings.engines import adding_strategy, at_work

COUNTED = re.compile(r"_\d+")  # what Keras adds to the names of a second model
Draw = Callable[[int, int], tuple[np.ndarray, np.ndarray]]
Build = Callable[[], tf.keras.Model]
Step = Callable[[tf.distribute.Strategy, tf.keras.Model, tf.Tensor, tf.Tensor], Any]


def of_loop(build: Build, step: Step, draw: Draw, lr: float, **about: Any) -> Subject:
    """Return a subject that trains a Keras model in a loop of one's own.

    Args:
        build: makes the model and compiles it, for SGD or Adam with the rate `lr` and
            one loss. It is called in the scope of a strategy, or of none.
        step: `step(strategy, model, X, y)` takes a step on a whole batch, by
            `model.optimizer`; returns the batch's mean loss, or None.
        draw: `draw(samples, seed)`: X and y.
        lr: the rate of its optimizer.
        about: see `Subject`; `rule` says which optimizer it is.
    """
    gradients, alone = reference_model(build)
    trained = alone.trainable_variables

    def start(params: Variables, devices: list[str]) -> Training:
        strategy = adding_strategy(devices)
        model = built(build, strategy, params)
        return training_of(model, strategy, partial(step, strategy, model))

    weights = [np.asarray(v) for v in trained]
    called = getattr(step, "__name__", "the loop")
    about = {"name": called, "names": [v.path for v in trained]} | about
    return of_variables(start, gradients, weights, draw, lr, **about)


def reference_model(build: Build) -> tuple[Callable, tf.keras.Model]:
    """Return the gradients of a model of no strategy, and the model."""
    manygpu.devices(MOST_DEVICES, quiet=True)  # before Keras starts TensorFlow
    alone = build()
    trained = alone.trainable_variables

    def gradients(X: tf.Tensor, y: tf.Tensor, params: Variables) -> tuple:
        assign(trained, params)
        with tf.GradientTape() as tape:
            loss = alone.compute_loss(X, y, alone(X, training=True))
            summed = loss * tf.cast(tf.shape(X)[0], loss.dtype)
        return summed, tape.gradient(summed, [v.value for v in trained])

    return gradients, alone


def built(
    build: Build,
    strategy: tf.distribute.Strategy,
    params: Sequence[Any] | None = None,
) -> tf.keras.Model:
    """Return the model in the strategy's scope, its optimizer ready.

    params: with which it begins; None leaves it as it is built.
    """
    with strategy.scope():
        model = build()
        model.optimizer.build(model.trainable_variables)
    if params is not None:
        assign(model.trainable_variables, params)
    return model


def all_of(model: tf.keras.Model) -> list:
    """Return all variables that a training of the model may change."""
    return [*model.variables, *model.optimizer.variables]


def assign(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Give variables these values, on all replicas."""
    for v, value in zip(variables, values, strict=True):
        v.assign(value)


def training_of(
    model: tf.keras.Model, strategy: tf.distribute.Strategy, take: Callable
) -> Training:
    """Return the training whose steps `take(X, y)` takes."""
    trained = model.trainable_variables
    ids = {id(v) for v in trained}
    kept = [v for v in all_of(model) if id(v) not in ids]
    # The rate is a variable, too, and nobody's state.
    kept = [v for v in kept if v is not model.optimizer.learning_rate]

    def state() -> dict[str, Sequence[Any]]:
        return {
            f"{COUNTED.sub('', v.name)} ({i})": strategy.experimental_local_results(
                v.value
            )
            for i, v in enumerate(kept)
        }

    def save() -> list[np.ndarray]:
        return [np.array(v.numpy()) for v in all_of(model)]

    made = at_work(take, strategy, [v.value for v in trained], [])
    resume = partial(assign, all_of(model))
    return made._replace(state=state, save=save, resume=resume)
