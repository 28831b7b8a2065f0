"""A Keras model's loss: the usual one, and how a batch's is made of its parts'.

A mean over samples is the mean of its parts' means, weighted by their samples; a sum is
the sum of theirs. A loss that counts only some labels (a mask, `ignore_class`) is a sum
over a count, and the count is the batch's. Some are neither, such as the Dice loss. The
kind is found by trying: the loss and its gradient of a batch, and of two parts of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from keras.src.losses import loss as scaling

from manygpu.trainings.table import UnfitError

NO_LOSS = "The model was compiled without a loss, so all rows train {}."
MEAN, SUM, COUNTED, WHOLE = "mean", "sum", "counted", "whole"
ROUNDING = 1e-4  # how far float32 may lead two ways to the same gradient, at most
ENDS = (tf.keras.ops.sigmoid, tf.keras.ops.softmax)


class Division(NamedTuple):
    """How the loss of a batch is made of the losses of its parts.

    Attributes:
        kind: MEAN, weighted by their samples; SUM; COUNTED, by how many labels each
            counts, whose losses were made sums; or WHOLE, not at all.
        why: what a table says of a row that cuts the batch; "" if nothing.
        by_replicas: what it says of a row in which Keras averages the parts' losses.
    """

    kind: str = MEAN
    why: str = ""
    by_replicas: str = ""


def mean_loss(
    model: tf.keras.Model, X: Any, y: Any, weights: Any, outputs: Any
) -> tf.Tensor:
    """Return the model's loss as one device finds it, in a replica, too."""
    with unscaled():
        return model.compute_loss(x=X, y=y, y_pred=outputs, sample_weight=weights)


@contextlib.contextmanager
def unscaled() -> Iterator[None]:
    """Let Keras divide no loss by the number of replicas; steps here do that.

    Keras divides means, and neither sums nor losses of one number, so nobody can take
    that back behind it.
    """
    usual = scaling.scale_loss_for_distribution
    scaling.scale_loss_for_distribution = lambda value: value
    try:
        yield
    finally:
        scaling.scale_loss_for_distribution = usual


def compile_usual(model: tf.keras.Model, y: Any, outputs: Any) -> str:
    """Compile a model with the usual loss of its labels; return a sentence on it.

    Raises:
        UnfitError: no loss is usual for such labels, so the reader must say one.
    """
    loss = default_loss(y, outputs)
    model.compile(loss=loss)
    logits = getattr(loss, "from_logits", False)
    return NO_LOSS.format(f"{type(loss).__name__}{'(from_logits=True)' * logits}")


def default_loss(y: Any, outputs: Any) -> tf.keras.losses.Loss:
    """Return cross-entropy for whole labels, else the mean square error.

    Args:
        y: all labels of the batch.
        outputs: of one of its samples. Whether these are logits or probabilities, they
            tell themselves.

    Raises:
        UnfitError: several outputs, or labels that are no classes of these outputs.
    """
    if not tf.is_tensor(y) or not tf.is_tensor(outputs):
        raise UnfitError(
            "compile the model with a loss: it has several outputs, and "
            "these don't tell which losses are meant"
        )
    given, made = y.shape[1:], outputs.shape[1:]
    if not y.dtype.is_integer and given == made:
        return tf.keras.losses.MeanSquaredError()
    if given == made[:-1] and made[-1] > 1 and _are_classes(y, made[-1]):
        sums = tf.reduce_sum(tf.cast(outputs, tf.float32), axis=-1)
        shares = np.all(outputs >= 0) and np.allclose(sums, 1, atol=1e-2)
        return tf.keras.losses.SparseCategoricalCrossentropy(not shares)
    kind = "whole numbers" if y.dtype.is_integer else "numbers"
    raise UnfitError(
        f"compile the model with a loss, such as binary_crossentropy or mse: per "
        f"sample, its labels are {kind} of the shape {tuple(given)} and its outputs "
        f"have the shape {tuple(made)}, and these don't tell which loss is meant"
    )


def _are_classes(y: tf.Tensor, count: int) -> bool:
    """Whether labels are whole numbers from 0 to below the count."""
    least, most = tf.reduce_min(y), tf.reduce_max(y)
    return y.dtype.is_integer and int(least) >= 0 and int(most) < count


def ending_of(outputs: tf.Tensor) -> Callable | None:
    """Return the softmax or sigmoid that made these outputs, if Keras kept its input.

    Cross-entropies of Keras look for that input, the logits. So a last stage hands
    over the logits, and the loss begins with the ending.

    Raises:
        LookupError: it was another function, or along another axis.
    """
    logits = logits_of(outputs)
    if logits is outputs:
        return None
    for end in ENDS:
        if np.allclose(end(logits), outputs, atol=1e-2):
            return end
    raise LookupError("its last activation is no softmax or sigmoid of the last axis")


def logits_of(outputs: tf.Tensor) -> tf.Tensor:
    """Return what an activation at the end was given, if Keras kept it."""
    return getattr(outputs, "_keras_logits", outputs)


class Summed:
    """A Keras loss in the form of a sum, times what makes it the mean of one batch.

    That batch is the first one that it sees.
    """

    def __init__(self, loss: tf.keras.losses.Loss) -> None:
        self.name, self._loss = loss.name, loss
        self._factor: float | None = None

    def _sum(self, *labels_and_outputs: Any) -> tf.Tensor:
        usual = self._loss.reduction
        self._loss.reduction = "sum"  # no copy: not all losses can be copied
        try:
            return self._loss(*labels_and_outputs)
        finally:
            self._loss.reduction = usual

    def __call__(self, *labels_and_outputs: Any) -> tf.Tensor:
        total = self._sum(*labels_and_outputs)
        if self._factor is None:
            mean = float(self._loss(*labels_and_outputs))
            self._factor = mean / float(total) if float(total) else 0.0
        return self._factor * total


def division_of(
    model: tf.keras.Model, X: Any, y: Any, weights: Any, outputs: Any, own: bool
) -> Division:
    """Find how a model's loss is divided; where labels are counted, make it sums.

    Args:
        model: built and compiled, with a loss.
        X, y, weights: a batch; `weights` of its samples, or None.
        outputs: what the model makes of it, masks and all.
        own: whether its `compute_loss` is its own.
    """
    parts = model._compile_loss

    def loss(X: Any, y: Any, weights: Any, outputs: Any) -> tf.Tensor:
        if own:
            return mean_loss(model, X, y, weights, outputs)
        return parts(y, outputs, weights)

    if not own and (parts is None or not model.loss):
        return Division()
    trial = Trial(loss, (X, y, weights), outputs)
    for kind in (MEAN, SUM):
        if trial.is_(kind):
            return Division(kind, by_replicas=_by_replicas(kind, trial))
    name = "its compute_loss" if own else f"the loss {', '.join(_names(parts))}"
    if not own:
        usual = parts._flat_losses
        parts._flat_losses = [one._replace(loss=Summed(one.loss)) for one in usual]
        trial()  # so that each knows its factor
        if trial.is_(SUM):
            return Division(COUNTED, by_replicas=UNEVEN.format(name))
        parts._flat_losses = usual
    return Division(WHOLE, NO_PARTS.format(name), NO_PARTS.format(name))


NO_PARTS = "{} is computed over the whole batch, so two halves have a different loss"
UNEVEN = (
    "{} counts some labels only, so Keras' average over the devices weighs the labels "
    "of two shares differently"
)
ADDED = (
    "its loss is one number per batch, which Keras doesn't divide by the number of "
    "devices whose gradients it adds up"
)


def _by_replicas(kind: str, trial: Trial) -> str:
    """Why Keras takes another step where it adds up what replicas find."""
    return ADDED if kind == MEAN else ""


def _names(parts: Any) -> list[str]:
    """What the losses of a model are called, each once."""
    return [*dict.fromkeys(one.loss.name for one in parts._flat_losses)]


class Trial:
    """A loss of a batch, beside the losses of an uneven third of it and of the rest.

    loss: `loss(X, y, weights, outputs)`. batch: X, y and weights. outputs: of it.
    """

    def __init__(self, loss: Callable, batch: tuple, outputs: Any) -> None:
        self.loss, self.batch, self.outputs = loss, batch, outputs
        self.samples = tf.nest.flatten(batch[0])[0].shape[0]

    def __call__(self, start: int = 0, stop: int | None = None) -> tuple:
        """Return the loss of some samples, and its gradient for each output."""
        rows = slice(start, stop)
        outputs = _rows(self.outputs, rows)
        batch = [_rows(one, rows) for one in self.batch]
        asked = [t for t in tf.nest.flatten(outputs) if t.dtype.is_floating]
        with tf.keras.StatelessScope(), tf.GradientTape() as tape:
            tape.watch(asked)
            loss = tf.cast(self.loss(*batch, outputs), tf.float32)
        grads = tape.gradient(loss, asked, unconnected_gradients="zero")
        return loss.numpy(), [tf.convert_to_tensor(g).numpy() for g in grads]

    def is_(self, kind: str) -> bool:
        """Whether the batch's loss is this of the parts'."""
        if self.samples < 2:
            return kind == MEAN
        cut = max(1, self.samples // 3)
        edges = ((0, cut), (cut, self.samples))
        made = [self(a, b) for a, b in edges]
        weights = [(b - a) / self.samples if kind == MEAN else 1.0 for a, b in edges]
        whole, grads = self()
        losses = [w * loss for w, (loss, _) in zip(weights, made, strict=True)]
        parts = [
            np.concatenate([w * g for w, g in zip(weights, same, strict=True)])
            for same in zip(*(own for _, own in made), strict=True)
        ]
        return near([np.float32(sum(losses))], [whole], sum(map(abs, losses))) and near(
            parts, grads
        )


def near(found: Sequence, wanted: Sequence, size: float | None = None) -> bool:
    """Whether arrays are the same but for rounding; both may be zero."""
    size = _length(wanted) if size is None else size
    pairs = zip(found, wanted, strict=True)
    return _length([a - b for a, b in pairs]) <= ROUNDING * size + 1e-12


def _length(arrays: Sequence) -> float:
    return float(np.sqrt(sum(np.sum(np.square(a, dtype=np.float64)) for a in arrays)))


def _rows(values: Any, rows: slice) -> Any:
    """Some rows of all tensors of a nest, in at least 32 bits, with their masks."""

    def one(t: tf.Tensor) -> tf.Tensor:
        some = tf.identity(t[rows])
        if some.dtype in (tf.float16, tf.bfloat16):
            some = tf.cast(some, tf.float32)
        mask = getattr(t, "_keras_mask", None)
        if mask is not None:
            some._keras_mask = mask[rows]
        return some

    return values if values is None else tf.nest.map_structure(one, values)
