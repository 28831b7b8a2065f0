"""Small Keras models as a reader may have them, each with a batch.

`manygpu bench --model tests.unit.bench.some_models:two_inputs` takes them, too.
"""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from keras import layers as L

RNG = np.random.default_rng(0)


def chain():
    """Three layers in a row; its labels are classes."""
    model = keras.Sequential([L.Input((6,)), L.Dense(8, "relu"), L.Dense(8, "relu")])
    model.add(L.Dense(4))
    return model, (RNG.normal(size=(12, 6)), RNG.integers(0, 4, 12))


def twelve():
    """As many classes as LeNet has not."""
    model = keras.Sequential([L.Input((6,)), L.Dense(8, "relu"), L.Dense(12)])
    return model, (RNG.normal(size=(24, 6)), np.arange(24) % 12)


def restless():
    """Nothing but a layer that keeps state."""
    model = keras.Sequential([L.Input((6,)), L.BatchNormalization()])
    return model, (RNG.normal(size=(12, 6)), RNG.integers(0, 6, 12))


def two_inputs():
    """Two inputs, one number out."""
    a, b = keras.Input((6,)), keras.Input((4,))
    h = L.Concatenate()([L.Dense(5, "tanh")(a), L.Dense(5, "tanh")(b)])
    X = [RNG.normal(size=(12, 6)), RNG.normal(size=(12, 4))]
    return keras.Model([a, b], L.Dense(1)(h)), (X, RNG.normal(size=(12, 1)))


def normed():
    """A norm over the batch, and dropout."""
    model = keras.Sequential(
        [L.Input((6,)), L.Dense(8, "relu"), L.BatchNormalization()]
    )
    model.add(L.Dropout(0.5))
    model.add(L.Dense(4))
    return model, (RNG.normal(size=(12, 6)), RNG.integers(0, 4, 12))


def words():
    """Whole numbers in: an embedding's gradient comes as some of its rows."""
    model = keras.Sequential([L.Input((3,), dtype="int32"), L.Embedding(9, 4)])
    for layer in (L.Flatten(), L.Dense(5, "relu"), L.Dense(4)):
        model.add(layer)
    return model, (RNG.integers(0, 9, (12, 3)), RNG.integers(0, 4, 12))


def late_words():
    """Whole numbers go through a layer first; its stage may end there."""
    model = keras.Sequential([L.Input((3,)), L.Reshape((3,)), L.Embedding(9, 4)])
    for layer in (L.Flatten(), L.Dense(4)):
        model.add(layer)
    return model, (RNG.integers(0, 9, (12, 3)), RNG.integers(0, 4, 12))


def masked():
    """Layers hand on beside their outputs which of these count."""
    model = keras.Sequential([L.Embedding(9, 4, mask_zero=True), L.LSTM(5), L.Dense(4)])
    return model, (RNG.integers(0, 3, (12, 6)), RNG.integers(0, 4, 12))


class Stepper(keras.Sequential):
    """Three times the usual gradient, whatever the optimizer."""

    def train_step(self, data):
        X, y = data
        with tf.GradientTape() as tape:
            loss = 3 * self.compute_loss(x=X, y=y, y_pred=self(X, training=True))
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(
            zip(grads, self.trainable_variables, strict=True)
        )
        return {"loss": loss}


def own_step():
    """A step of its own, and an optimizer that remembers."""
    model = Stepper([L.Input((6,)), L.Dense(8, "relu"), L.Dense(4)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(1e-3, momentum=0.9), loss)
    return model, (RNG.normal(size=(12, 6)), RNG.integers(0, 4, 12))


def one_layer():
    return keras.Sequential([L.Dense(2)]), (
        RNG.normal(size=(6, 3)),
        RNG.normal(size=(6, 2)),
    )


def with_penalty():
    decay = keras.regularizers.L2(0.1)
    model = keras.Sequential([L.Input((3,)), L.Dense(2, kernel_regularizer=decay)])
    model.add(L.Dense(2))
    return model, (RNG.normal(size=(6, 3)), RNG.normal(size=(6, 2)))


def probabilities():
    model = keras.Sequential([L.Input((3,)), L.Dense(4, activation="softmax")])
    return model, (RNG.normal(size=(6, 3)), RNG.integers(0, 4, 6))
