"""How a step of TensorFlow comes before the judge: a few lines for each kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

import manygpu
from manygpu.prove.subject import Arrays, Subject
from manygpu.scratch.data_parallel.parameters_and_devices import get_params
from manygpu.scratch.start.one_device import gradients, init_params

MOST_DEVICES = 8
Variables = list[tf.Variable]


class Training:
    """A training on lists of variables; a `Running` for the judge."""

    def __init__(self, take: Callable, copies: Callable, ready: Callable) -> None:
        self._take, self._copies, self._ready = take, copies, ready

    def take(self, X: np.ndarray, y: np.ndarray) -> float | None:
        loss = self._take(*self._ready(X, y))
        return None if loss is None else float(loss)

    def copies(self) -> list[Arrays]:
        return [[p.numpy() for p in own] for own in self._copies()]


def of_variables(
    start: Callable[[Variables, list[str]], tuple[Callable, Callable]],
    gradients: Callable,
    params: Sequence[tf.Variable],
    draw: Callable[[int, int], tuple[np.ndarray, np.ndarray]],
    lr: float,
    **about: Any,
) -> Subject:
    """Return a subject whose step works on lists of variables.

    Args:
        start: `start(params, devices)` copies the parameters to the devices, and
            returns two functions: `take(X, y)` takes a step on a batch, and returns
            its mean loss or None; `copies()` returns each copy of all parameters.
        gradients: `gradients(X, y, params)`, on one device: the loss summed over the
            samples, and its gradient for each parameter.
        params: of the model.
        draw: `draw(samples, seed)`: X and y.
        lr: the rate at which `take` moves them.
        about: see `Subject`.
    """
    devices = manygpu.devices(MOST_DEVICES, quiet=True)
    start_at = [np.asarray(p) for p in params]

    def begin(weights: Arrays, k: int) -> Training:
        with tf.device(devices[0]):
            own = [tf.Variable(w) for w in weights]
        return Training(*start(own, devices[:k]), _tensors)

    @cache
    def one_device(*dtypes: np.dtype) -> Variables:
        own = zip(start_at, dtypes, strict=True)
        with tf.device(devices[0]):
            return [tf.Variable(w.astype(dtype)) for w, dtype in own]

    def reference(
        X: np.ndarray, y: np.ndarray, weights: Arrays
    ) -> tuple[float, Arrays]:
        own = one_device(*(w.dtype for w in weights))  # made once: it takes as long
        for p, w in zip(own, weights, strict=True):
            p.assign(w)
        with tf.device(devices[0]):
            loss, grads = gradients(*_tensors(X, y), own)
        return float(loss), [np.asarray(tf.convert_to_tensor(g)) for g in grads]

    return Subject(begin, reference, draw, start_at, lr, **about)


def _tensors(X: np.ndarray, y: np.ndarray) -> tuple[tf.Tensor, tf.Tensor]:
    with tf.device("CPU:0"):
        return tf.constant(X), tf.constant(y)


def of_step(step: Callable, lr: float = 0.3, **about: Any) -> Subject:
    """Return a subject of a data-parallel step that trains the book's LeNet.

    Args:
        step: `step(X, y, device_params, devices, lr)`, such as `train_batch`; it moves
            device_params[k], LeNet's parameters on device k, by the mean over X.
        lr: the rate it gets.
        about: see `Subject`.
    """

    def start(params: Variables, devices: list[str]) -> tuple[Callable, Callable]:
        replicas = [get_params(params, device) for device in devices]
        return lambda X, y: step(X, y, replicas, devices, lr), lambda: replicas

    def draw(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        return rng.random((samples, 28, 28, 1)), rng.integers(0, 10, samples)

    manygpu.devices(MOST_DEVICES, quiet=True)  # before a variable starts TensorFlow
    params = init_params(dtype=tf.float64)
    for p in params[1::2]:  # no bias is 0
        p.assign(tf.random.stateless_normal(p.shape, (1, 2), dtype=p.dtype) / 10)
    about = {"name": getattr(step, "__name__", "the step")} | about
    return of_variables(start, gradients, params, draw, lr, **about)


class _Kept(tf.keras.callbacks.Callback):
    """Undoes what `fit` does on its first batch."""

    def __init__(self, model: tf.keras.Model, params: Variables) -> None:
        super().__init__()
        for v, p in zip(model.trainable_variables, params, strict=True):
            v.assign(p)
        self.all = [*model.variables, *model.optimizer.variables]
        self.values: list[np.ndarray] = []

    def on_train_begin(self, logs: Any = None) -> None:
        self.values = [np.asarray(v.numpy()) for v in self.all]

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 0:
            for v, value in zip(self.all, self.values, strict=True):
                v.assign(value)


def of_fit(
    build: Callable[[], tf.keras.Model],
    draw: Callable[[int, int], tuple[np.ndarray, np.ndarray]],
    lr: float,
    **about: Any,
) -> Subject:
    """Return a subject that trains a Keras model by `fit` under MirroredStrategy.

    Args:
        build: makes the model and compiles it, for SGD or Adam with the rate `lr` and
            one loss. It is called in the scope of a strategy, or of none.
        draw: `draw(samples, seed)`: X and y.
        lr: the rate of its optimizer.
        about: see `Subject`; `rule` says which optimizer it is.
    """
    manygpu.devices(MOST_DEVICES, quiet=True)  # before Keras starts TensorFlow
    alone = build()
    trained = alone.trainable_variables

    def start(params: Variables, names: list[str]) -> tuple[Callable, Callable]:
        # Collectives of several strategies in one process may meet each other.
        adding = tf.distribute.ReductionToOneDevice()
        strategy = tf.distribute.MirroredStrategy(names, cross_device_ops=adding)
        with strategy.scope():
            model = build()
            model.optimizer.build(model.trainable_variables)

        kept = _Kept(model, params)

        def take(X: tf.Tensor, y: tf.Tensor) -> None:
            # Keras begins by averaging the first batch's shares, so they must be even;
            # what that batch does to the model is undone.
            even = _tensors(*draw(len(names), 0))
            first, then = (tf.data.Dataset.from_tensors(b) for b in (even, (X, y)))
            model.fit(first.concatenate(then), epochs=1, verbose=0, callbacks=[kept])

        def copies() -> list[Variables]:
            own = [
                strategy.experimental_local_results(v.value)
                for v in model.trainable_variables
            ]
            return [list(copy) for copy in zip(*own, strict=True)]

        return take, copies

    def gradients(X: tf.Tensor, y: tf.Tensor, params: Variables) -> tuple:
        for v, p in zip(trained, params, strict=True):
            v.assign(p)
        with tf.GradientTape() as tape:
            loss = alone.compute_loss(X, y, alone(X, training=True))
            summed = loss * tf.cast(tf.shape(X)[0], loss.dtype)
        return summed, tape.gradient(summed, [v.value for v in trained])

    weights = [np.asarray(v) for v in trained]
    about = {"name": "fit", "names": [v.path for v in trained]} | about
    return of_variables(start, gradients, weights, draw, lr, **about)
