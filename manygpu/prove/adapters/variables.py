"""Steps on lists of variables, one list a device."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

import manygpu
from manygpu.checks import short_device_name
from manygpu.prove.subject import Arrays, Subject
from manygpu.scratch.data_parallel.parameters_and_devices import get_params
from manygpu.scratch.start.one_device import gradients, init_params
from manygpu.trace.working import Working
from manygpu.trainings.contract import Places, Ranks, Training

MOST_DEVICES = 8
# A graph raises the same error for all that it finds out when it runs.
ASSERTED = ("assertion failed", "did not hold", "to be true. Summarized data")
NOT_FINITE, OF_AN_OPERATION = "Tensor had ", "{{node "
Variables = list[tf.Variable]


def one_number(loss: Any) -> float:
    """What a step returned, if it is a loss."""
    try:
        return float(loss)
    except (TypeError, ValueError) as error:
        kind = type(loss).__name__
        said = f"a step must return its batch's mean loss, or None; this one's: {kind}"
        raise TypeError(said) from error


@contextlib.contextmanager
def as_of_eager_code() -> Iterator[None]:
    """Raise what eager code would, where a graph's error says why.

    An assertion is how a graph refuses a batch: ValueError. What `check_numerics` finds
    is a FloatingPointError. All others are no refusals: there an operation broke, some
    by a ValueError while the graph is made.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        if any(said in error.message for said in ASSERTED):
            raise ValueError(error.message) from error
        if NOT_FINITE in error.message:
            raise FloatingPointError(error.message) from error
        raise
    except ValueError as error:
        if OF_AN_OPERATION not in str(error):
            raise
        raise tf.errors.InvalidArgumentError(None, None, str(error)) from error


class Watched:
    """A training on these devices as the judge wants it: in arrays, and watched.

    before: notes of graphs that were made for another training and run in this one,
        where they tell nothing; those of its own graphs are added.
    """

    def __init__(
        self, parts: Training, devices: Sequence[str], before: Working | None = None
    ) -> None:
        self._parts, self._seen, self._before = parts, Working(), before
        self._devices = [short_device_name(device) for device in devices]
        self.save, self.resume = parts.save, parts.resume
        self.state = parts.state and self._state
        self.ranks = parts.ranks and self._ranks

    def take(self, X: np.ndarray, y: np.ndarray) -> float | None:
        with Working() as self._seen, as_of_eager_code():
            loss = self._parts.take(*tensors(X, y))
        if self._before is not None:
            self._before.add(self._seen)
            self._seen = self._before
        return None if loss is None else one_number(loss)

    def dtypes(self, X: np.ndarray, y: np.ndarray) -> set[str]:
        """Take a step; return of which dtypes its floating-point results are."""
        self.take(X, y)
        return self._seen.floats

    def copies(self) -> list[Arrays]:
        return [[np.asarray(p) for p in own] for own in self._parts.copies()]

    def places(self) -> Places:
        heavy, read = self._seen.heavy, self._seen.read
        strays = [*self._misplaced()]
        strays += [f"work ran on {d} too" for d in heavy if d not in self._devices]
        strays += [f"{d} worked with variables of {owner}" for d, owner in read]
        return Places([heavy[device] for device in self._devices], strays)

    def _ranks(self, X: np.ndarray, y: np.ndarray) -> Ranks:
        return self._parts.ranks(*tensors(X, y))

    def _misplaced(self) -> Iterator[str]:
        """Yield which copy of a parameter doesn't lie on its device."""
        copies = self._parts.copies()
        if len(copies) != len(self._devices):
            return
        for c, (own, device) in enumerate(zip(copies, self._devices, strict=True)):
            for p, value in enumerate(own):
                if not isinstance(value, tf.Variable):  # made only to be looked at
                    return
                if (place := short_device_name(value.device)) != device:
                    yield f"parameter {p} of copy {c} lies on {place}, not on {device}"

    def _state(self) -> dict[str, list[np.ndarray | None]]:
        return {
            name: [None if value is None else np.asarray(value) for value in own]
            for name, own in self._parts.state().items()
        }


def of_variables(
    start: Callable[[Variables, list[str]], Training | tuple[Callable, Callable]],
    gradients: Callable | None,
    params: Sequence[tf.Variable],
    draw: Callable[[int, int], tuple[np.ndarray, np.ndarray]],
    lr: float,
    **about: Any,
) -> Subject:
    """Return a subject whose step works on lists of variables.

    Args:
        start: `start(params, devices)` copies the parameters to the devices, and
            returns a `Training`, or only its `take` and `copies`.
        gradients: `gradients(X, y, params)`, on one device: the loss summed over the
            samples, and its gradient for each parameter. Or None, see `Subject`.
        params: of the model.
        draw: `draw(samples, seed)`: X and y.
        lr: the rate at which `take` moves them.
        about: see `Subject`.
    """
    devices = manygpu.devices(MOST_DEVICES, quiet=True)
    start_at = [np.asarray(p) for p in params]

    def begin(weights: Arrays, k: int) -> Training:
        return begin_on(weights, range(k))

    def begin_on(weights: Arrays, order: Sequence[int]) -> Training:
        names = [devices[d] for d in order]
        with tf.device(names[0]):
            own = [tf.Variable(w) for w in weights]
        return Watched(Training(*start(own, names)), names)

    about = {"on": begin_on} | about
    known = reference_of(gradients, start_at, devices[0])
    return Subject(begin, known, draw, start_at, lr, **about)


def reference_of(
    gradients: Callable | None, like: Arrays, place: str | None = None
) -> Callable | None:
    """Return a `Subject`'s gradient from `gradients(X, y, params)`; None is None.

    like: arrays of the parameters' shapes. place: the device; None leaves it open.
    """
    if gradients is None:
        return None

    @cache
    def one_device(*dtypes: np.dtype) -> Variables:
        own = zip(like, dtypes, strict=True)
        with tf.device(place):
            return [tf.Variable(w.astype(dtype)) for w, dtype in own]

    def known(X: np.ndarray, y: np.ndarray, weights: Arrays) -> tuple[float, Arrays]:
        own = one_device(*(w.dtype for w in weights))  # made once: it is slow
        for p, w in zip(own, weights, strict=True):
            p.assign(w)
        with tf.device(place):
            loss, grads = gradients(*tensors(X, y), own)
        return float(loss), [np.asarray(tf.convert_to_tensor(g)) for g in grads]

    return known


def tensors(X: np.ndarray, y: np.ndarray) -> tuple[tf.Tensor, tf.Tensor]:
    """Return a batch as tensors in the host's memory."""
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
    about = {"name": getattr(step, "__name__", "the step"), "rule": "sgd"} | about
    about = {"hyperparameters": {}} | about  # the rate is the one that it gets
    return of_variables(start, gradients, params, draw, lr, **about)
