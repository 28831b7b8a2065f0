"""Twelve tiny models of the kinds that Keras' own examples show, in words of their own.

As in `kinds.py`, a function returns a model and a batch.
"""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from keras import layers as L
from keras import losses
from kinds import SPARSE, Made, N, classes, images, numbers


def mnist_convnet() -> Made:
    layers = L.Conv2D(4, 3, activation="relu"), L.MaxPooling2D(), L.Flatten()
    ends = L.Dropout(0.5), L.Dense(10, activation="softmax")
    y = np.eye(10, dtype="float32")[classes(10)]
    loss, shape = "categorical_crossentropy", (12, 12, 1)
    return images(*layers, *ends, loss=loss, y=y, shape=shape)


class Sampling(L.Layer):
    """Draws a code around its mean."""

    def __init__(self) -> None:
        super().__init__()
        self.seed_generator = keras.random.SeedGenerator(7)

    def call(self, given: list[tf.Tensor]) -> tf.Tensor:
        mean, spread = given
        drawn = keras.random.normal(tf.shape(mean), seed=self.seed_generator)
        return mean + tf.exp(0.5 * spread) * drawn


class Vae(keras.Model):
    """A variational autoencoder with a step of its own, and no call."""

    def __init__(self) -> None:
        super().__init__()
        X = keras.Input((12,))
        h = L.Dense(8, "relu")(X)
        mean, spread = L.Dense(2)(h), L.Dense(2)(h)
        self.encoder = keras.Model(X, [mean, spread, Sampling()([mean, spread])])
        self.decoder = keras.Sequential([keras.Input((2,)), L.Dense(12, "sigmoid")])
        self.seen = keras.metrics.Mean(name="loss")

    @property
    def metrics(self) -> list:
        return [self.seen]

    def train_step(self, data: tf.Tensor) -> dict:
        with tf.GradientTape() as tape:
            mean, spread, code = self.encoder(data)
            rebuilt = losses.binary_crossentropy(data, self.decoder(code))
            apart = -0.5 * (1 + spread - mean**2 - tf.exp(spread))
            loss = tf.reduce_mean(12 * rebuilt + tf.reduce_sum(apart, axis=1))
        grads = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(grads, self.trainable_weights, strict=True))
        self.seen.update_state(loss)
        return {"loss": self.seen.result()}


def vae() -> Made:
    model = Vae()
    model.compile(keras.optimizers.Adam())
    X = np.random.default_rng(0).random((2 * N, 12)).astype("float32")
    return model, tf.data.Dataset.from_tensor_slices(X).batch(N)


class Gan(keras.Model):
    """Two networks, two optimizers, one step of its own."""

    def __init__(self) -> None:
        super().__init__()
        judge = L.Conv2D(4, 3, 2, "same", activation="leaky_relu"), L.Flatten()
        self.judge = keras.Sequential([keras.Input((8, 8, 1)), *judge, L.Dense(1)])
        made = L.Dense(4 * 4 * 2), L.Reshape((4, 4, 2))
        up = L.Conv2DTranspose(1, 3, 2, "same", activation="sigmoid")
        self.maker = keras.Sequential([keras.Input((6,)), *made, up])
        self.seed_generator = keras.random.SeedGenerator(3)

    def compile(self, of_judge: object, of_maker: object, loss: object) -> None:
        super().compile()
        self.of_judge, self.of_maker, self.by = of_judge, of_maker, loss

    def train_step(self, real: tf.Tensor) -> dict:
        count = tf.shape(real)[0]
        drawn = keras.random.normal((count, 6), seed=self.seed_generator)
        both = tf.concat([self.maker(drawn), real], axis=0)
        told = tf.concat([tf.ones((count, 1)), tf.zeros((count, 1))], axis=0)
        with tf.GradientTape() as tape:
            of_judge = self.by(told, self.judge(both))
        self._move(tape, of_judge, self.judge, self.of_judge)
        with tf.GradientTape() as tape:
            of_maker = self.by(told[count:], self.judge(self.maker(drawn)))
        self._move(tape, of_maker, self.maker, self.of_maker)
        return {"judge": of_judge, "maker": of_maker}

    def _move(self, tape: object, loss: object, part: object, by: object) -> None:
        grads = tape.gradient(loss, part.trainable_weights)
        by.apply_gradients(zip(grads, part.trainable_weights, strict=True))


def dcgan() -> Made:
    model, adam = Gan(), keras.optimizers.Adam
    loss = losses.BinaryCrossentropy(from_logits=True)
    model.compile(adam(1e-3), adam(1e-3), loss)
    X = np.random.default_rng(0).random((2 * N, 8, 8, 1)).astype("float32")
    return model, tf.data.Dataset.from_tensor_slices(X).batch(N)


def siamese() -> Made:
    """Two images by one network; a loss that returns one number."""

    def loss(y: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean((1 - y) * p**2 + y * tf.maximum(1 - p, 0) ** 2)

    one = keras.Sequential(
        [keras.Input((8, 8, 1)), L.Conv2D(4, 3, activation="tanh"), L.Flatten()]
    )
    one.add(L.Dense(4, "tanh"))
    a, b = keras.Input((8, 8, 1)), keras.Input((8, 8, 1))

    def apart(pair: list) -> tf.Tensor:
        squares = tf.reduce_sum((pair[0] - pair[1]) ** 2, axis=1, keepdims=True)
        return tf.sqrt(tf.maximum(squares, 1e-7))

    h = L.Lambda(apart, output_shape=(1,))([one(a), one(b)])
    model = keras.Model([a, b], L.Dense(1, "sigmoid")(L.BatchNormalization()(h)))
    model.compile("rmsprop", loss)
    X = [numbers(N, 8, 8, 1), numbers(N, 8, 8, 1)[::-1]]
    return model, (X, classes(2, N, 1).astype("float32"))


def lstm_seq2seq() -> Made:
    read, written = keras.Input((None, 7)), keras.Input((None, 9))
    _, h, c = L.LSTM(6, return_state=True)(read)
    out = L.LSTM(6, return_sequences=True)(written, initial_state=[h, c])
    model = keras.Model([read, written], L.Dense(9, activation="softmax")(out))
    model.compile("rmsprop", "categorical_crossentropy")
    X = [np.eye(7)[classes(7, N, 5)], np.eye(9)[classes(9, N, 4)]]
    return model, (X, np.eye(9)[classes(9, N, 4)[:, ::-1]])


def ctc() -> Made:
    """Letters of a strip, whose places nobody knows."""

    def loss(y: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
        rows = tf.ones(tf.shape(y)[0], tf.int32)
        lengths = rows * tf.shape(y)[1], rows * tf.shape(p)[1]
        return keras.ops.ctc_loss(tf.cast(y, tf.int32), p, *lengths)

    layers = L.Conv1D(8, 3, activation="relu", padding="same"), L.Dense(6)
    model = keras.Sequential([keras.Input((12, 4)), *layers])
    model.compile("adam", loss)
    return model, (numbers(N, 12, 4), 1 + classes(5, N, 3))


def text_from_strings() -> Made:
    words = L.TextVectorization(max_tokens=20, output_sequence_length=5)
    lines = ["a cat sat", "the dog ran far", "a bird", "the cat ran"] * 4
    words.adapt(lines)
    X = keras.Input((), dtype="string")
    h = L.GlobalAveragePooling1D()(L.Embedding(20, 4)(words(X)))
    model = keras.Model(X, L.Dense(1, "sigmoid")(h))
    model.compile("adam", "binary_crossentropy")
    return model, (np.array(lines), classes(2, N, 1).astype("float32"))


def conv_3d() -> Made:
    layers = L.Conv3D(2, 3, activation="relu"), L.MaxPool3D(2), L.BatchNormalization()
    ends = L.GlobalAveragePooling3D(), L.Dense(4, "relu"), L.Dropout(0.3)
    y = classes(2, N, 1).astype("float32")
    out, shape = L.Dense(1, activation="sigmoid"), (8, 8, 8, 1)
    return images(*layers, *ends, out, loss="binary_crossentropy", y=y, shape=shape)


class Quantizer(L.Layer):
    """The nearest of some learned codes; it adds what the codes are off."""

    def build(self, shape: tuple) -> None:
        self.codes = self.add_weight(shape=(5, shape[-1]), initializer="uniform")

    def call(self, h: tf.Tensor) -> tf.Tensor:
        apart = tf.reduce_sum((h[..., None, :] - self.codes) ** 2, axis=-1)
        near = tf.gather(tf.convert_to_tensor(self.codes), tf.argmin(apart, axis=-1))
        self.add_loss(0.25 * tf.reduce_mean((tf.stop_gradient(near) - h) ** 2))
        self.add_loss(tf.reduce_mean((near - tf.stop_gradient(h)) ** 2))
        return h + tf.stop_gradient(near - h)


def vq_vae() -> Made:
    layers = L.Dense(6, "relu"), L.Dense(3), Quantizer(), L.Dense(6, "relu")
    model = keras.Sequential([keras.Input((10,)), *layers, L.Dense(10)])
    model.compile("adam", "mse")
    X = numbers(N, 10)
    return model, (X, X)


class Tokens(L.Layer):
    """Adds to each token's numbers those of its place."""

    def __init__(self, length: int, kinds: int, width: int) -> None:
        super().__init__()
        self.word, self.place = L.Embedding(kinds, width), L.Embedding(length, width)

    def call(self, X: tf.Tensor) -> tf.Tensor:
        return self.word(X) + self.place(tf.range(tf.shape(X)[-1]))


def transformer_classifier() -> Made:
    X = keras.Input((8,), dtype="int32")
    h = Tokens(8, 20, 8)(X)
    seen = L.Dropout(0.1)(L.MultiHeadAttention(2, 4, dropout=0.1)(h, h))
    h = L.LayerNormalization()(h + seen)
    h = L.LayerNormalization()(h + L.Dense(8)(L.Dense(16, "relu")(h)))
    h = L.Dropout(0.1)(L.GlobalAveragePooling1D()(h))
    model = keras.Model(X, L.Dense(2, activation="softmax")(h))
    model.compile("adam", SPARSE)
    return model, (classes(20, N, 8), classes(2))


class Retrieval(keras.Model):
    """Users and things; each user's thing is told from all of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.things = L.Embedding(9, 4), L.Embedding(7, 4)

    def call(self, X: dict) -> tuple:
        return self.users(X["user"]), self.things(X["thing"])

    def compute_loss(
        self,
        x: object = None,
        y: object = None,
        y_pred: object = None,
        sample_weight: object = None,
        training: bool = True,
    ) -> tf.Tensor:
        users, things = y_pred
        own = tf.range(tf.shape(users)[0])
        near = tf.matmul(users, things, transpose_b=True)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(own, near)
        return tf.reduce_sum(each)


def retrieval() -> Made:
    model = Retrieval()
    model.compile(keras.optimizers.Adagrad(0.1))
    return model, ({"user": classes(9), "thing": classes(7)}, classes(7))


def autoencoder() -> Made:
    ends = L.Conv2DTranspose(4, 3, 2, "same", activation="relu")
    out = L.Conv2D(1, 3, activation="sigmoid", padding="same")
    X = np.random.default_rng(0).random((N, 8, 8, 1)).astype("float32")
    first = L.Conv2D(4, 3, activation="relu", padding="same"), L.MaxPooling2D()
    model, _ = images(
        *first, ends, out, loss="binary_crossentropy", y=X, shape=(8, 8, 1)
    )
    return model, (X, X)
