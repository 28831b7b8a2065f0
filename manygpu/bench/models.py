"""Keras models to be compared: the reader's own, found by name, and a transformer.

All are made in one way: a function without arguments returns a built model and a batch
(X, y). A process makes the model itself, so that its variables are where it wants them.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from manygpu.bench.running import UnfitError

# The transformer's: samples in a batch, tokens in a sample, kinds of tokens.
SAMPLES, TOKENS, KINDS = 64, 32, 64
# Its width, attention heads and blocks.
WIDTH, HEADS, BLOCKS = 64, 4, 4
# Attributes by which layers with random numbers say how much they change.
RANDOM = ("rate", "stddev", "dropout", "recurrent_dropout")


def load(name: str, samples: int | None = None) -> tuple[tf.keras.Model, tuple]:
    """Return a built model with a loss, and a batch (X, y) of tensors.

    Args:
        name: "transformer", or `module:function` of the reader's own.
        samples: in the batch; None for as many as the function gives. It is cut, or
            its samples come again.

    Raises:
        UnfitError: the function failed, or didn't return a model and a batch.
    """
    tf.keras.utils.set_random_seed(0)  # every process has the same weights
    make = transformer if name == "transformer" else _function(name)
    try:
        made = make()
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        raise UnfitError(f"{name} failed: {type(error).__name__}: {error}") from error
    model, batch = _checked(name, made)
    batch = _with_samples(name, batch, samples)
    try:
        _ready(model, batch)
    except Exception as error:
        raise UnfitError(
            f"{name}: the model doesn't take its batch: {first_line(error)}"
        ) from error
    if not model.trainable_variables:
        raise UnfitError(f"{name}: the model has nothing to train")
    return model, batch


def _function(name: str) -> Callable:
    """The function `module:function`; the current folder is searched first."""
    module, _, function = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), function)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        raise UnfitError(f"{name}: {type(error).__name__}: {error}") from error


def _checked(name: str, made: Any) -> tuple[tf.keras.Model, tuple]:
    """The model and the batch that a function returned, the batch as tensors."""
    if not _is_pair(made) or not isinstance(made[0], tf.keras.Model):
        raise _no_model_and_batch(name, _kinds(made))
    model, batch = made
    if isinstance(batch, tf.data.Dataset):
        batch = next(iter(batch))
    if not _is_pair(batch):
        said = f"a model and {type(batch).__name__}"
        if isinstance(batch, tuple | list):
            said = f"a model and a batch of {len(batch)} parts"
            said += ": leave sample weights out" * (len(batch) == 3)
        raise _no_model_and_batch(name, said)
    X, y = batch
    return model, (_tensors(X), _tensors(y))


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2


def _kinds(made: Any) -> str:
    """What a function returned, by its types."""
    kind = type(made).__name__
    if not isinstance(made, tuple | list):
        return kind
    parts = ", ".join(type(part).__name__ for part in made)
    return f"a {kind} of {len(made)} ({parts})"


def _no_model_and_batch(name: str, got: str) -> UnfitError:
    return UnfitError(
        f"{name} must return a Keras model and one batch of inputs and labels, "
        f"`return model, (X, y)`; got {got}"
    )


def _tensors(values: Any) -> Any:
    """Arrays, nested as you like, as tensors; Python's and NumPy's float64 as Keras."""

    def tensor(value: Any) -> tf.Tensor:
        value = tf.convert_to_tensor(value)
        return tf.cast(value, tf.float32) if value.dtype == tf.float64 else value

    if isinstance(values, list) and values and hasattr(values[0], "shape"):
        values = tuple(values)  # several inputs, as Keras takes them
    if isinstance(values, tuple | dict):
        return tf.nest.map_structure(tensor, values)
    return tensor(values)


def _with_samples(name: str, batch: tuple, samples: int | None) -> tuple:
    """The batch with so many samples."""
    lengths = {None if not t.shape.rank else t.shape[0] for t in tf.nest.flatten(batch)}
    if len(lengths) != 1 or not all(lengths):
        raise UnfitError(
            f"{name}: all arrays of the batch must have as many samples, got "
            f"{sorted(map(str, lengths))}"
        )
    (there,) = lengths
    if samples in (None, there):
        return batch
    rows = np.arange(samples) % there
    return tf.nest.map_structure(lambda t: tf.gather(t, rows), batch)


def _ready(model: tf.keras.Model, batch: tuple) -> None:
    """Build what is not built, give it a loss if it has none, and try both."""
    X, y = tf.nest.map_structure(lambda t: t[:1], batch)
    outputs = model(X)
    if steps_itself(model) and model.compiled:
        return  # it knows its loss
    if not model.compiled or model.loss is None:
        model.compile(loss=default_loss(model, y, outputs))
    model.compute_loss(x=X, y=y, y_pred=outputs)


def steps_itself(model: tf.keras.Model) -> bool:
    """Whether the reader wrote a `train_step`, which only Keras' own loop calls."""
    return type(model).train_step is not tf.keras.Model.train_step


def default_loss(model: tf.keras.Model, y: Any, outputs: Any) -> tf.keras.losses.Loss:
    """Return cross-entropy for whole labels, else the mean square error.

    Whether the model gives logits or probabilities, its last activation tells.

    Raises:
        UnfitError: several outputs, for which the reader must say a loss.
    """
    if not tf.is_tensor(y) or not tf.is_tensor(outputs):
        raise UnfitError("it has several outputs and no loss: compile it with one")
    if not y.dtype.is_integer:
        return tf.keras.losses.MeanSquaredError()
    last = getattr(model.layers[-1], "activation", None)
    logits = last is not tf.keras.activations.softmax
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=logits)


def what_is_drawn(model: tf.keras.Model) -> list[tuple[Any, str]]:
    """Return the layers that draw numbers in training, and what says how much."""
    return [
        (one, name)
        for one in model._flatten_layers()
        if hasattr(one, "seed_generator")
        for name in RANDOM
        if isinstance(getattr(one, name, None), float | int) and getattr(one, name) > 0
    ]


def hush(model: tf.keras.Model) -> None:
    """Switch dropout and noise off for good."""
    for one, name in what_is_drawn(model):
        with contextlib.suppress(AttributeError):  # a cell's, seen from outside
            setattr(one, name, 0.0)


def freeze_norms(model: tf.keras.Model) -> None:
    """Let BatchNorm take its moving averages in training, too, and stay as it is."""
    for one in model._flatten_layers():
        if isinstance(one, tf.keras.layers.BatchNormalization):
            one.trainable = False


def first_line(error: Exception) -> str:
    """What an error says first."""
    said = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {said[0]}"


class Tokens(tf.keras.layers.Layer):
    """(samples, tokens) whole numbers -> (samples, tokens, width), with positions."""

    def __init__(self, kinds: int, tokens: int, width: int) -> None:
        super().__init__()
        self.what = tf.keras.layers.Embedding(kinds, width)
        self.where = tf.keras.layers.Embedding(tokens, width)
        self.tokens = tokens

    def build(self, shape: tuple) -> None:
        self.what.build(shape)
        self.where.build((self.tokens,))
        self.built = True

    def call(self, X: tf.Tensor) -> tf.Tensor:
        return self.what(X) + self.where(tf.range(self.tokens))


class Block(tf.keras.layers.Layer):
    """Attention, then a perceptron, each behind a norm and added to what comes in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        L = tf.keras.layers
        self.norms = [L.LayerNormalization(), L.LayerNormalization()]
        self.attention = L.MultiHeadAttention(heads, width // heads)
        self.wide, self.narrow = L.Dense(4 * width, activation="gelu"), L.Dense(width)
        self.width = width

    def build(self, shape: tuple) -> None:
        for norm in self.norms:
            norm.build(shape)
        self.attention.build(shape, shape)
        self.wide.build(shape)
        self.narrow.build((*shape[:-1], 4 * self.width))
        self.built = True

    def call(self, h: tf.Tensor) -> tf.Tensor:
        first, second = self.norms
        read = first(h)
        h = h + self.attention(read, read, use_causal_mask=True)
        return h + self.narrow(self.wide(second(h)))


def mnist_of_35095() -> tuple[tf.keras.Model, tuple[np.ndarray, np.ndarray]]:
    """Return the model of TensorFlow's issue 35095, and random images with labels.

    X: (64, 28, 28, 1), y: (64,) whole numbers below 10.
    """
    L = tf.keras.layers
    model = tf.keras.Sequential(
        [
            tf.keras.Input((28, 28, 1)),
            L.Conv2D(48, 7, activation="relu"),
            L.MaxPooling2D(),
            L.Flatten(),
            L.Dense(24, activation="relu"),
            L.Dense(10, activation="softmax"),
        ]
    )
    model.compile(loss="sparse_categorical_crossentropy")
    rng = np.random.default_rng(0)
    X = rng.random((64, 28, 28, 1), dtype=np.float32)
    return model, (X, rng.integers(0, 10, 64))


def transformer() -> tuple[tf.keras.Model, tuple[np.ndarray, np.ndarray]]:
    """Return a small transformer that guesses the next token, and tokens, drawn.

    X and y: (64, 32) whole numbers below 64; y is X one place on.
    """
    L = tf.keras.layers
    blocks = [Block(WIDTH, HEADS) for _ in range(BLOCKS)]
    model = tf.keras.Sequential(
        [L.Input((TOKENS,), dtype="int32"), Tokens(KINDS, TOKENS, WIDTH), *blocks]
        + [L.LayerNormalization(), L.Dense(KINDS)]
    )
    drawn = np.random.default_rng(0).integers(0, KINDS, (SAMPLES, TOKENS + 1))
    return model, (drawn[:, :-1].astype("int32"), drawn[:, 1:].astype("int32"))
