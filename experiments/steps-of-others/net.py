"""What the steps of lists of variables share: a small net, batches, and a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

import manygpu
from manygpu.prove import Subject, Training

manygpu.devices(8, quiet=True)  # before a variable starts TensorFlow
from manygpu.prove.adapters import of_variables  # noqa: E402

RATE, FEATURES, HIDDEN, CLASSES = 0.2, 5, 7, 4
SHAPES = ((FEATURES, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))
Grads = list[tf.Tensor]
Share = tuple[tf.Tensor, tf.Tensor]


def numbers(*shapes: tuple, dtype: Any = np.float64, size: float = 0.5) -> list:
    """Draw where a training begins."""
    rng = np.random.default_rng(3)
    return [(size * rng.normal(size=shape)).astype(dtype) for shape in shapes]


def draw(samples: int, seed: int, dtype: Any = np.float64) -> tuple:
    """Return features, and classes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(samples, FEATURES)).astype(dtype)
    return X, rng.integers(0, CLASSES, samples)


draw32 = partial(draw, dtype=np.float32)


def logits_of(X: tf.Tensor, p: Sequence) -> tf.Tensor:
    """Two dense layers."""
    return tf.tanh(X @ p[0] + p[1]) @ p[2] + p[3]


def cross_entropies(X: tf.Tensor, y: tf.Tensor, p: Sequence) -> tf.Tensor:
    """The loss of each sample."""
    logits = logits_of(X, p)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)


def gradients_of(total: Callable) -> Callable:
    """Return `gradients(X, y, params)` of a loss, such as one summed over samples."""

    def gradients(X: tf.Tensor, y: tf.Tensor, params: Sequence) -> tuple:
        with tf.GradientTape() as tape:
            loss = total(X, y, params)
        zero = tf.UnconnectedGradients.ZERO
        grads = tape.gradient(loss, list(params), unconnected_gradients=zero)
        return loss, [tf.convert_to_tensor(g) for g in grads]

    return gradients


def total_loss(X: tf.Tensor, y: tf.Tensor, p: Sequence) -> tf.Tensor:
    """The loss of a share, summed over its samples."""
    return tf.reduce_sum(cross_entropies(X, y, p))


summed = gradients_of(total_loss)


def in_order(X: tf.Tensor, y: tf.Tensor, k: int) -> list[Share]:
    """Cut a batch into k shares; the first ones are larger by one."""
    n = len(X)
    sizes = [n // k + (d < n % k) for d in range(k)]
    return list(zip(tf.split(X, sizes), tf.split(y, sizes), strict=True))


def like(own: Sequence[tf.Variable]) -> list[tf.Variable]:
    """Return zeros of the parameters' shapes."""
    return [tf.Variable(tf.zeros_like(v)) for v in own]


def a_count(first: int = 0) -> list[tf.Variable]:
    """Return a whole number that is kept."""
    return [tf.Variable(first, dtype=tf.int64)]


def sgd(own: Sequence, mean: Grads, _: dict, rate: float = RATE) -> None:
    """Move a replica."""
    for v, g in zip(own, mean, strict=True):
        v.assign_sub(rate * g)


def on_each(params: Sequence, devices: Sequence[str]) -> list[list[tf.Variable]]:
    """Copy the parameters to each device."""
    replicas = []
    for device in devices:
        with tf.device(device):
            replicas.append([tf.Variable(p) for p in params])
    return replicas


def over(devices: Sequence[str], *rows: Sequence) -> Iterator[Any]:
    """Yield what belongs to each device, and be on that device meanwhile."""
    for device, *own in zip(devices, *rows, strict=True):
        with tf.device(device):
            yield own if len(own) > 1 else own[0]


def state_of(slots: list[dict]) -> dict[str, list]:
    """Return what each replica keeps, by name, as the judge asks for it."""
    return {
        f"{name} {i}": [own[name][i] for own in slots]
        for name in slots[0]
        for i in range(len(slots[0][name]))
    }


def added_up(found: list[Grads], counts: Sequence, _: int) -> Grads:
    """Sum over devices, and divide once, by the samples of all."""
    total = tf.add_n([tf.cast(c, found[0][0].dtype) for c in counts])
    return [tf.add_n(list(g)) / total for g in zip(*found, strict=True)]


def loop(
    params: Sequence,
    devices: list[str],
    update: Callable = sgd,
    gradients: Callable = summed,
    reduce: Callable = added_up,
    kept: Callable | None = None,
    cut: Callable = in_order,
    count: Callable | None = None,
    loss: Callable | None = None,
    before: Callable | None = None,
) -> Training:
    """Start a data-parallel training: shares, gradients, one sum, an update each.

    Args:
        update: `update(own, mean, slots)` moves a replica.
        gradients: of a share: `gradients(X, y, own)`, or with the slots if it asks
            for four arguments.
        reduce: `reduce(found, counts, d)`: what moves replica d.
        kept: makes what is kept beside a replica.
        cut: cuts the batch.
        count: what a share counts in the mean; its samples.
        loss: `loss(losses, counts)`, which the step returns; None: nothing.
        before: `before(X, y, replicas, slots)`, with the whole batch.
    """
    replicas, slots = on_each(params, devices), []
    for device, own in zip(devices, replicas, strict=True):
        with tf.device(device):
            slots.append(kept(own) if kept else {})
    asks_slots = gradients.__code__.co_argcount == 4

    def take(X: tf.Tensor, y: tf.Tensor) -> Any:
        if before:
            before(X, y, replicas, slots)
        shares, losses, found = cut(X, y, len(devices)), [], []
        for d, (x, t) in enumerate(shares):
            with tf.device(devices[d]):
                more = (slots[d],) if asks_slots else ()
                one, grads = gradients(x, t, replicas[d], *more)
            losses.append(one)
            found.append([tf.convert_to_tensor(g) for g in grads])
        counts = [count(x, t) if count else float(len(x)) for x, t in shares]
        for d, own in enumerate(replicas):
            with tf.device(devices[d]):
                update(own, reduce(found, counts, d), slots[d])
        return loss(losses, counts) if loss else None

    return Training(take, lambda: replicas, partial(state_of, slots) if kept else None)


def subject(
    gradients: Callable | None = summed,
    draw: Callable = draw,
    params: Sequence | None = None,
    lr: float = RATE,
    start: Callable | None = None,
    about: dict | None = None,
    **of_loop: Any,
) -> Subject:
    """Return the subject of a loop, or of another start.

    Args:
        gradients: the reference, which the loop uses, too, if `of_loop` has none.
        start: see `of_variables`; None: a `loop` with the arguments `of_loop`.
        about: see `Subject`.
    """
    params = numbers(*SHAPES) if params is None else params
    if gradients is not None:
        of_loop = {"gradients": gradients} | of_loop
    start = start or partial(loop, **of_loop)
    return of_variables(start, gradients, params, draw, lr, **(about or {}))
