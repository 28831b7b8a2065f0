"""Small Keras models as a reader may have them, each with a batch.

`manygpu bench --model tests.unit.bench.some_models:two_inputs` takes them, too.
"""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from keras import layers as L

RNG = np.random.default_rng(0)


def row_of(*layers, kinds=4, samples=12, whole=False, make=keras.Sequential):
    """Layers in a row, and a batch with labels below `kinds` for them."""
    shape = (samples, *layers[0].shape[1:])
    X = RNG.integers(0, 9, shape) if whole else RNG.normal(size=shape)
    return make(layers), (X, RNG.integers(0, kinds, samples))


def chain():
    """Three layers in a row; its labels are classes."""
    dense = L.Dense(8, "relu"), L.Dense(8, "relu"), L.Dense(4)
    return row_of(L.Input((6,)), *dense)


def twelve():
    """As many classes as LeNet has not."""
    model, (X, _) = row_of(L.Input((6,)), L.Dense(8, "relu"), L.Dense(12), samples=24)
    return model, (X, np.arange(24) % 12)


def restless():
    """Nothing but a layer that keeps state."""
    return row_of(L.Input((6,)), L.BatchNormalization(), kinds=6)


def two_inputs():
    """Two inputs, one number out."""
    a, b = keras.Input((6,)), keras.Input((4,))
    h = L.Concatenate()([L.Dense(5, "tanh")(a), L.Dense(5, "tanh")(b)])
    X = [RNG.normal(size=(12, 6)), RNG.normal(size=(12, 4))]
    return keras.Model([a, b], L.Dense(1)(h)), (X, RNG.normal(size=(12, 1)))


def normed():
    """A norm over the batch, and dropout."""
    norm = L.Dense(8, "relu"), L.BatchNormalization(), L.Dropout(0.5)
    return row_of(L.Input((6,)), *norm, L.Dense(4))


def words():
    """Whole numbers in: an embedding's gradient comes as some of its rows."""
    dense = L.Flatten(), L.Dense(5, "relu"), L.Dense(4)
    return row_of(L.Input((3,), dtype="int32"), L.Embedding(9, 4), *dense, whole=True)


def late_words():
    """Whole numbers go through a layer first; its stage may end there."""
    layers = L.Reshape((3,)), L.Embedding(9, 4), L.Flatten(), L.Dense(4)
    return row_of(L.Input((3,)), *layers, whole=True)


def masked():
    """Layers hand on beside their outputs which of these count."""
    layers = L.Embedding(9, 4, mask_zero=True), L.LSTM(5), L.Dense(4)
    return row_of(L.Input((6,)), *layers, whole=True)


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
    layers = L.Input((6,)), L.Dense(8, "relu"), L.Dense(4)
    model, batch = row_of(*layers, make=Stepper)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(1e-3, momentum=0.9), loss)
    return model, batch


class Rivals(keras.Model):
    """Two networks, each with an optimizer of its own: one is kept in a dict."""

    def __init__(self):
        super().__init__()
        parts = [keras.Sequential([L.Input((6,)), L.Dense(6)]) for _ in range(2)]
        self.a, self.b = parts

    def compile(self, of_a, of_b):
        super().compile()
        self.of_a, self.others = of_a, {"b": of_b}

    def train_step(self, X):
        for part, by in [(self.a, self.of_a), (self.b, self.others["b"])]:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self.b(self.a(X)) - X) ** 2)
                # fit adds up the gradients of the replicas.
                loss /= tf.distribute.get_strategy().num_replicas_in_sync
            weights = part.trainable_variables
            by.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


def rivals():
    """A GAN's way of training; without random numbers, so that steps are comparable."""
    model, SGD = Rivals(), keras.optimizers.SGD
    model.compile(SGD(1e-2, momentum=0.9), SGD(3e-2, momentum=0.9))
    return model, np.random.default_rng(0).random((12, 6)).astype("float32")


def lstm():
    """A loop, whose FLOPs nobody counts, and a compiled loss."""
    layers = L.Embedding(9, 4), L.LSTM(5), L.Dense(4)
    model, batch = row_of(L.Input((6,), dtype="int32"), *layers, whole=True)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    return model, batch


def residual():
    """A block of convolutions around which its input goes, with norms of batches."""
    h = X = keras.Input((8, 8, 3))
    h = start = L.Conv2D(4, 3, padding="same")(h)
    h = L.ReLU()(L.BatchNormalization()(h))
    h = L.Add()([L.Conv2D(4, 3, padding="same")(h), start])
    model = keras.Model(X, L.Dense(4)(L.GlobalAveragePooling2D()(h)))
    return model, (RNG.normal(size=(12, 8, 8, 3)), RNG.integers(0, 4, 12))


class Own(keras.Model):
    """A subclass, whose layers stand in attributes."""

    def __init__(self):
        super().__init__()
        self.wide, self.out = L.Dense(8, "relu"), L.Dense(1)

    def call(self, X):
        return self.out(self.wide(X))


def subclassed():
    """In a data set, with a weight for each sample."""
    X, y = RNG.normal(size=(12, 6)), RNG.normal(size=(12, 1))
    model = Own()
    model.compile("sgd", "mse")
    batches = tf.data.Dataset.from_tensor_slices((X, y, RNG.random(12)))
    return model, batches.batch(12)


class OwnLoss(Own):
    """A mean of its own, not divided by any replicas."""

    def compute_loss(self, x, y, y_pred, sample_weight, training=True):
        return tf.reduce_mean(tf.abs(y_pred - y))


def own_loss():
    """A loss that only the model knows."""
    model = OwnLoss()
    model.compile("sgd")
    return model, (RNG.normal(size=(12, 6)), RNG.normal(size=(12, 1)))


class AddsLoss(Own):
    """Its only loss is the one that it adds."""

    def call(self, X):
        self.add_loss(tf.reduce_mean(self.wide(X) ** 2))
        return super().call(X)


def adds_loss():
    """Compiled without a loss, and on purpose."""
    model = AddsLoss()
    model.compile("sgd")
    return model, (RNG.normal(size=(12, 6)), RNG.normal(size=(12, 1)))


def two_outputs():
    """Classes and a number, of which one counts more."""
    X = keras.Input((6,))
    h = L.Dense(8, "relu")(X)
    ends = {"kind": L.Dense(3, "softmax")(h), "size": L.Dense(1)(h)}
    model = keras.Model(X, ends)
    losses = {"kind": "sparse_categorical_crossentropy", "size": "mse"}
    model.compile("sgd", losses, loss_weights={"kind": 1.0, "size": 0.1})
    y = {"kind": RNG.integers(0, 3, 12), "size": RNG.normal(size=(12, 1))}
    return model, (RNG.normal(size=(12, 6)), y)


def mixed(policy="mixed_bfloat16"):
    """Products in 16 bits, the loss in 32."""
    dense = L.Dense(16, "relu", dtype=policy), L.Dense(8, "relu", dtype=policy)
    out = L.Dense(4, dtype="float32")
    model, batch = row_of(L.Input((6,)), *dense, out)
    model.dtype_policy = policy
    return model, batch


def float16():
    """Whose gradients are scaled, or they would be 0."""
    return mixed("mixed_float16")


def one_layer():
    """Nowhere to cut; not built before its first batch."""
    X, y = RNG.normal(size=(6, 3)), RNG.normal(size=(6, 2))
    return keras.Sequential([L.Dense(2)]), (X, y)


def with_penalty():
    """A loss besides that of its outputs."""
    decay = keras.regularizers.L2(0.1)
    return row_of(L.Input((3,)), L.Dense(2, kernel_regularizer=decay), L.Dense(4))


def probabilities():
    """Its last layer is a softmax already."""
    return row_of(L.Input((3,)), L.Dense(4, activation="softmax"))
