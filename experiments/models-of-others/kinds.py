"""Small Keras models as people have them, each with a batch: one kind a function.

`manygpu bench --model kinds:softmax` takes them, from this folder. They are written
after the kinds of public reports and of Keras' own examples; none is a copy.
"""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from keras import layers as L
from keras import losses

Made = tuple[keras.Model, object]
N = 16  # samples in a batch


def rng() -> np.random.Generator:
    """Return a source of numbers that begins anew, so that all processes agree."""
    return np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray:
    """Return numbers of a bell curve."""
    return rng().normal(size=shape).astype("float32")


def classes(kinds: int, *shape: int) -> np.ndarray:
    """Return whole numbers below `kinds`."""
    return rng().integers(0, kinds, shape or (N,)).astype("int32")


def one_hot(kinds: int) -> np.ndarray:
    """Return rows with a single 1."""
    return np.eye(kinds, dtype="float32")[classes(kinds)]


def chain(
    *ends: L.Layer, loss: object, y: object, optimizer: object = "sgd", **more: object
) -> Made:
    """Return a dense layer with others after it, compiled, and five numbers a row."""
    model = keras.Sequential([keras.Input((5,)), L.Dense(8, "relu"), *ends])
    model.compile(optimizer, loss, **more)
    return model, (numbers(N, 5), y)


def images(
    *layers: L.Layer, loss: object, y: object, shape: tuple[int, ...] = (8, 8, 3)
) -> Made:
    """Return layers for images, compiled, and images."""
    model = keras.Sequential([keras.Input(shape), *layers])
    model.compile("sgd", loss)
    return model, (numbers(N, *shape), y)


SPARSE, LOGITS = "sparse_categorical_crossentropy", {"from_logits": True}


# Probabilities at the end


def softmax() -> Made:
    return chain(L.Dense(3, activation="softmax"), loss=SPARSE, y=classes(3))


def softmax_categorical() -> Made:
    end = L.Dense(3, activation="softmax")
    return chain(end, loss="categorical_crossentropy", y=one_hot(3))


def softmax_activation() -> Made:
    return chain(L.Dense(3), L.Activation("softmax"), loss=SPARSE, y=classes(3))


def softmax_layer() -> Made:
    return chain(L.Dense(3), L.Softmax(), loss=SPARSE, y=classes(3))


def softmax_after_dropout() -> Made:
    ends = L.Dropout(0.5), L.Dense(3, activation="softmax")
    return chain(*ends, loss=SPARSE, y=classes(3))


def softmax_nested() -> Made:
    head = keras.Sequential([L.Dense(4, "relu"), L.Dense(3, activation="softmax")])
    return chain(head, loss=SPARSE, y=classes(3))


def softmax_of_tensorflow() -> Made:
    return chain(L.Dense(3), L.Lambda(tf.nn.softmax), loss=SPARSE, y=classes(3))


def softmax_with_mse() -> Made:
    return chain(L.Dense(3, activation="softmax"), loss="mse", y=one_hot(3))


def softmax_smoothed() -> Made:
    loss = losses.CategoricalCrossentropy(label_smoothing=0.1)
    return chain(L.Dense(3, activation="softmax"), loss=loss, y=one_hot(3))


def softmax_in_16_bits() -> Made:
    dense = L.Dense(16, "relu", dtype="mixed_bfloat16")
    end = L.Dense(3, activation="softmax", dtype="float32")
    return chain(dense, end, loss=SPARSE, y=classes(3))


def sigmoid() -> Made:
    y = classes(2, N, 1).astype("float32")
    return chain(L.Dense(1, activation="sigmoid"), loss="binary_crossentropy", y=y)


def sigmoid_activation() -> Made:
    y = classes(2, N, 1).astype("float32")
    ends = L.Dense(1), L.Activation("sigmoid")
    return chain(*ends, loss="binary_crossentropy", y=y)


def sigmoid_of_many() -> Made:
    y = classes(2, N, 4).astype("float32")
    return chain(L.Dense(4, activation="sigmoid"), loss="binary_crossentropy", y=y)


def sigmoid_focal() -> Made:
    y = classes(2, N, 1).astype("float32")
    end = L.Dense(1, activation="sigmoid")
    return chain(end, loss=losses.BinaryFocalCrossentropy(), y=y)


def softmax_uncompiled() -> Made:
    layers = keras.Input((5,)), L.Dense(8, "relu"), L.Dense(3), L.Softmax()
    return keras.Sequential(layers), (numbers(N, 5), classes(3))


def softmax_per_token() -> Made:
    layers = L.Embedding(20, 8), L.Dense(8, "tanh"), L.Dense(5, activation="softmax")
    model = keras.Sequential([keras.Input((6,), dtype="int32"), *layers])
    model.compile("adam", SPARSE)
    return model, (classes(20, N, 6), classes(5, N, 6))


# Losses that are no plain mean over samples


def summed() -> Made:
    loss = losses.SparseCategoricalCrossentropy(**LOGITS, reduction="sum")
    return chain(L.Dense(3), loss=loss, y=classes(3))


def summed_and_regularized() -> Made:
    end = L.Dense(2, kernel_regularizer=keras.regularizers.L2(0.1))
    return chain(end, loss=losses.MeanSquaredError("sum"), y=numbers(N, 2))


def masked_tokens() -> Made:
    """Sentences of different lengths, one class for each token."""
    made = L.Embedding(20, 8, mask_zero=True), L.LSTM(8, return_sequences=True)
    model = keras.Sequential([keras.Input((10,), dtype="int32"), *made, L.Dense(5)])
    model.compile("adam", losses.SparseCategoricalCrossentropy(**LOGITS))
    return model, (short_sentences(), classes(5, N, 10))


def short_sentences() -> np.ndarray:
    """Return tokens, and zeros where a sentence is over."""
    X = rng().integers(1, 20, (N, 10))
    X[np.arange(10) >= rng().integers(1, 11, (N, 1))] = 0
    return X.astype("int32")


def masked_last_state() -> Made:
    made = L.Embedding(20, 8, mask_zero=True), L.GRU(8), L.Dense(3)
    model = keras.Sequential([keras.Input((10,), dtype="int32"), *made])
    model.compile("adam", losses.SparseCategoricalCrossentropy(**LOGITS))
    return model, (short_sentences(), classes(3))


def class_ignored() -> Made:
    loss = losses.SparseCategoricalCrossentropy(**LOGITS, ignore_class=0)
    return chain(L.Dense(3), loss=loss, y=classes(3))


def weighted() -> Made:
    model, (X, y) = chain(L.Dense(2), loss="mse", y=numbers(N, 2))
    return model, (X, y, rng().random(N))


def mean_of_weights() -> Made:
    loss = losses.MeanSquaredError("mean_with_sample_weight")
    model, (X, y) = chain(L.Dense(2), loss=loss, y=numbers(N, 2))
    return model, (X, y, rng().random(N))


def weighted_tokens() -> Made:
    layers = L.Embedding(20, 8), L.GRU(8, return_sequences=True), L.Dense(5)
    model = keras.Sequential([keras.Input((6,), dtype="int32"), *layers])
    model.compile("adam", losses.SparseCategoricalCrossentropy(**LOGITS))
    return model, (classes(20, N, 6), classes(5, N, 6), rng().random((N, 6)))


def one_number() -> Made:
    """A loss that returns one number for the batch."""

    def loss(y: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean((y - p) ** 2)

    return chain(L.Dense(2), loss=loss, y=numbers(N, 2))


def one_number_summed() -> Made:
    def loss(y: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum((y - p) ** 2)

    return chain(L.Dense(2), loss=loss, y=numbers(N, 2))


def dice() -> Made:
    def dice(y: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
        both, all_ = tf.reduce_sum(y * p), tf.reduce_sum(y) + tf.reduce_sum(p)
        return 1 - (2 * both + 1) / (all_ + 1)

    end = L.Conv2D(1, 3, padding="same", activation="sigmoid")
    y = classes(2, N, 8, 8, 1).astype("float32")
    return images(L.Conv2D(4, 3, padding="same"), end, loss=dice, y=y)


def dice_of_keras() -> Made:
    y = classes(2, N, 8, 8, 1).astype("float32")
    end = L.Conv2D(1, 3, padding="same", activation="sigmoid")
    return images(end, L.Identity(), loss=losses.Dice(), y=y)


def contrastive() -> Made:
    """Each sample is told from all others of the batch."""

    def in_batch(y: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax_cross_entropy_with_logits(tf.eye(tf.shape(p)[0]), p @ y)

    def contrastive(y: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(in_batch(tf.transpose(y), p))

    return chain(L.Dense(4), loss=contrastive, y=numbers(N, 4))


def circle() -> Made:
    end = L.Dense(4), L.UnitNormalization()
    return chain(*end, loss=losses.Circle(), y=classes(3))


def two_kinds_of_loss() -> Made:
    X = keras.Input((5,))
    h = L.Dense(8, "relu")(X)
    model = keras.Model(X, {"a": L.Dense(2, name="a")(h), "b": L.Dense(1, name="b")(h)})
    model.compile("sgd", {"a": losses.MeanSquaredError("sum"), "b": "mse"})
    return model, (numbers(N, 5), {"a": numbers(N, 2), "b": numbers(N, 1)})


def huber() -> Made:
    return chain(L.Dense(2), loss=losses.Huber(), y=numbers(N, 2))


def cosine() -> Made:
    return chain(L.Dense(4), loss="cosine_similarity", y=numbers(N, 4))


def hinge() -> Made:
    y = np.where(numbers(N, 1) > 0, 1.0, -1.0)
    return chain(L.Dense(1, activation="tanh"), loss="hinge", y=y)


def divergence() -> Made:
    y = rng().dirichlet(np.ones(3), N)
    return chain(L.Dense(3, activation="softmax"), loss="kl_divergence", y=y)


# Weights that something else than the gradient changes


def constrained() -> Made:
    most = keras.constraints.MaxNorm(0.5)
    return chain(
        L.Dense(8, "relu", kernel_constraint=most),
        L.Dense(2),
        loss="mse",
        y=numbers(N, 2),
    )


def constrained_bias() -> Made:
    end = L.Dense(2, bias_constraint=keras.constraints.NonNeg())
    return chain(end, loss="mse", y=numbers(N, 2))


def spectral() -> Made:
    ends = L.SpectralNormalization(L.Dense(6)), L.Dense(2)
    return chain(*ends, loss="mse", y=numbers(N, 2))


class Halves(L.Layer):
    """Halves its own trained weight in each call, and multiplies by it."""

    def build(self, shape: tuple) -> None:
        self.scale = self.add_weight((shape[-1],), "ones", name="scale")

    def call(self, h: tf.Tensor) -> tf.Tensor:
        self.scale.assign(0.5 * self.scale)
        return h * self.scale


def assigns_a_trained_weight() -> Made:
    return chain(Halves(), L.Dense(2), loss="mse", y=numbers(N, 2))


class Centres(L.Layer):
    """Keeps a moving average of what comes by, and takes it away."""

    def build(self, shape: tuple) -> None:
        made = {"initializer": "zeros", "trainable": False, "name": "centre"}
        self.centre = self.add_weight(shape=(shape[-1],), **made)

    def call(self, h: tf.Tensor) -> tf.Tensor:
        new = 0.9 * self.centre + 0.1 * tf.reduce_mean(h, axis=0)
        self.centre.assign(new)
        return h - self.centre


def assigns_an_average() -> Made:
    return chain(Centres(), L.Dense(2), loss="mse", y=numbers(N, 2))


class Counts(L.Layer):
    """Counts its calls, and changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, h: tf.Tensor) -> tf.Tensor:
        self.calls.assign_add(1)
        return h


def counts_its_calls() -> Made:
    return chain(Counts(), L.Dense(2), loss="mse", y=numbers(N, 2))


def averaged_optimizer() -> Made:
    made = keras.optimizers.Adam(use_ema=True, weight_decay=0.01, clipnorm=1.0)
    return chain(L.Dense(2), loss="mse", y=numbers(N, 2), optimizer=made)


def normed() -> Made:
    ends = L.BatchNormalization(), L.Dense(2)
    return chain(*ends, loss="mse", y=numbers(N, 2))


def renormed() -> Made:
    ends = L.BatchNormalization(momentum=0.5, renorm=True), L.Dense(2)
    return chain(*ends, loss="mse", y=numbers(N, 2))


# Random numbers


def flipped() -> Made:
    layers = L.RandomFlip("horizontal"), L.Conv2D(4, 3), L.GlobalAveragePooling2D()
    return images(*layers, L.Dense(2), loss="mse", y=numbers(N, 2))


def turned_and_zoomed() -> Made:
    drawn = L.RandomRotation(0.1), L.RandomZoom(0.1), L.RandomContrast(0.1)
    layers = *drawn, L.Conv2D(4, 3), L.GlobalAveragePooling2D(), L.Dense(2)
    return images(*layers, loss="mse", y=numbers(N, 2))


def cropped() -> Made:
    layers = L.RandomCrop(6, 6), L.Conv2D(4, 3), L.Flatten(), L.Dense(2)
    return images(*layers, loss="mse", y=numbers(N, 2))


def noisy() -> Made:
    ends = L.GaussianNoise(0.5), L.Dense(2)
    return chain(*ends, loss="mse", y=numbers(N, 2))


class Noise(L.Layer):
    """Noise by a generator of its own, in training only."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn = keras.random.SeedGenerator(1)

    def call(self, h: tf.Tensor, training: bool = False) -> tf.Tensor:
        if not training:
            return h
        return h + keras.random.normal(keras.ops.shape(h), seed=self.drawn)


def own_noise() -> Made:
    return chain(Noise(), L.Dense(2), loss="mse", y=numbers(N, 2))


class NoiseOfKeras(L.Layer):
    """Noise by the generator that Keras has for all."""

    def call(self, h: tf.Tensor) -> tf.Tensor:
        return h + keras.random.normal(keras.ops.shape(h))


def noise_of_keras() -> Made:
    return chain(NoiseOfKeras(), L.Dense(2), loss="mse", y=numbers(N, 2))


class Always(L.Layer):
    """Noise of TensorFlow's, in training or not."""

    def call(self, h: tf.Tensor) -> tf.Tensor:
        return h + tf.random.normal(tf.shape(h))


def noise_of_tensorflow() -> Made:
    return chain(Always(), L.Dense(2), loss="mse", y=numbers(N, 2))


class Drops(L.Layer):
    """Leaves a sample out of a branch, by tf.random, in training only."""

    def call(self, h: tf.Tensor, training: bool = False) -> tf.Tensor:
        if not training:
            return h
        return h * tf.floor(0.5 + tf.random.uniform((tf.shape(h)[0], 1)))


def stochastic_depth() -> Made:
    X = keras.Input((5,))
    h = L.Dense(8, "relu")(X)
    h = L.Add()([h, Drops()(L.Dense(8, "relu")(h))])
    model = keras.Model(X, L.Dense(2)(h))
    model.compile("sgd", "mse")
    return model, (numbers(N, 5), numbers(N, 2))


def dropped_in_an_lstm() -> Made:
    layers = L.LSTM(4, dropout=0.3, recurrent_dropout=0.3), L.Dense(2)
    model = keras.Sequential([keras.Input((6, 3)), *layers])
    model.compile("sgd", "mse")
    return model, (numbers(N, 6, 3), numbers(N, 2))


# A train_step of their own


class Stepped(keras.Model):
    """Parts that are built, a step of its own, and no call."""

    def __init__(self) -> None:
        super().__init__()
        self.part = keras.Sequential([keras.Input((4,)), L.Dense(4)])

    def train_step(self, data: object) -> dict:
        X = data[0] if isinstance(data, tuple) else data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.part(X) - X) ** 2)
        grads = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(grads, self.trainable_weights, strict=True))
        return {"loss": loss}


def step_without_call() -> Made:
    model = Stepped()
    model.compile("adam")
    return model, (numbers(N, 4), numbers(N, 4))


def step_on_a_data_set_of_one() -> Made:
    model = Stepped()
    model.compile("adam")
    return model, tf.data.Dataset.from_tensor_slices(numbers(32, 4)).batch(N)


class Called(Stepped):
    """The same with a call, and parts that its first batch builds."""

    def __init__(self) -> None:
        super().__init__()
        self.part = L.Dense(4)

    def call(self, X: tf.Tensor) -> tf.Tensor:
        return self.part(X)


def step_with_call() -> Made:
    model = Called()
    model.compile("sgd")
    return model, (numbers(N, 4), numbers(N, 4))


def step_that_builds() -> Made:
    """Nothing is built before its first step, and there is no call."""

    class Builds(Stepped):
        def __init__(self) -> None:
            super().__init__()
            self.part = keras.Sequential([L.Dense(6, "relu"), L.Dense(4)])

    model = Builds()
    model.compile("adam")
    return model, (numbers(N, 4), numbers(N, 4))


def step_uncompiled() -> Made:
    return Stepped(), (numbers(N, 4), numbers(N, 4))


# Batches of a fixed size, and inputs that aren't dense numbers


def stateful() -> Made:
    layers = keras.Input(batch_shape=(8, 5, 2)), L.LSTM(4, stateful=True), L.Dense(2)
    model = keras.Sequential(layers)
    model.compile("sgd", "mse")
    return model, (numbers(8, 5, 2), numbers(8, 2))


def stateful_images() -> Made:
    rows = L.ConvLSTM1D(2, 3, stateful=True, padding="same")
    layers = keras.Input(batch_shape=(8, 3, 6, 1)), rows, L.Flatten(), L.Dense(2)
    model = keras.Sequential(layers)
    model.compile("sgd", "mse")
    return model, (numbers(8, 3, 6, 1), numbers(8, 2))


def fixed_batch() -> Made:
    model = keras.Sequential([keras.Input(batch_shape=(8, 5)), L.Dense(4), L.Dense(2)])
    model.compile("sgd", "mse")
    return model, (numbers(8, 5), numbers(8, 2))


def strings() -> Made:
    f, s = keras.Input((2,)), keras.Input((2,), dtype="string")
    looked_up = L.StringLookup(vocabulary=["a", "b", "c"])(s)
    h = L.Concatenate()([f, L.Flatten()(L.Embedding(6, 3)(looked_up))])
    model = keras.Model([f, s], L.Dense(1)(h))
    model.compile("adam", "mse")
    words = np.array(["a", "b", "c"])[classes(3, N, 2)]
    return model, ([numbers(N, 2), words], numbers(N, 1))


def ragged() -> Made:
    model = keras.Sequential([L.Embedding(20, 4), L.GlobalAveragePooling1D()])
    model.add(L.Dense(2))
    model.compile("sgd", "mse")
    X = tf.ragged.constant([[1, 2, 3], [4], [5, 6], [7, 8, 9, 10]] * 4)
    return model, (X, numbers(N, 2))


def sparse() -> Made:
    model = keras.Sequential([keras.Input((20,), sparse=True), L.Dense(2)])
    model.compile("sgd", "mse")
    X = tf.sparse.from_dense((rng().random((N, 20)) > 0.8).astype("float32"))
    return model, (X, numbers(N, 2))


def unbatched() -> Made:
    model, (X, y) = chain(L.Dense(2), loss="mse", y=numbers(N, 2))
    return model, tf.data.Dataset.from_tensor_slices((X, y[:, 0]))


def streamed() -> Made:
    """A generator's data set, whose shapes nobody knows."""
    model, (X, y) = chain(L.Dense(2), loss="mse", y=numbers(N, 2))

    def batches() -> object:
        yield X, y

    kinds = (tf.TensorSpec(None, tf.float32), tf.TensorSpec(None, tf.float32))
    return model, tf.data.Dataset.from_generator(batches, output_signature=kinds)


def only_inputs() -> Made:
    model, (X, _) = chain(L.Dense(2), loss="mse", y=numbers(N, 2))
    return model, tf.data.Dataset.from_tensor_slices(X).batch(N)


# Losses and scopes that are missing, or too many


def no_loss_sigmoid() -> Made:
    layers = keras.Input((5,)), L.Dense(1, activation="sigmoid")
    return keras.Sequential(layers), (numbers(N, 5), classes(2, N, 1))


def no_loss_whole_targets() -> Made:
    return keras.Sequential([keras.Input((5,)), L.Dense(1)]), (
        numbers(N, 5),
        classes(9),
    )


def no_loss_two_outputs() -> Made:
    X = keras.Input((5,))
    model = keras.Model(X, [L.Dense(2)(X), L.Dense(1)(X)])
    return model, (numbers(N, 5), [numbers(N, 2), numbers(N, 1)])


def compiled_without_loss() -> Made:
    return chain(L.Dense(2), loss=None, y=numbers(N, 2))


def in_a_scope_of_its_own() -> Made:
    with tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]).scope():
        return chain(L.Dense(2), loss="mse", y=numbers(N, 2))


def wrong_labels() -> Made:
    """A class that the last layer doesn't have."""
    return chain(L.Dense(3), loss=SPARSE, y=classes(3) + 2)


def wrong_width() -> Made:
    """A batch with another number of features than the model takes."""
    model, (X, y) = chain(L.Dense(2), loss="mse", y=numbers(N, 2))
    return model, (X[:, :4], y)


def no_call() -> Made:
    """A subclass without anything to run."""

    class Empty(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.part = L.Dense(2)

    model = Empty()
    model.compile("sgd", "mse")
    return model, (numbers(N, 5), numbers(N, 2))


# Usual models that must go on working


def two_inputs() -> Made:
    a, b = keras.Input((5,), name="a"), keras.Input((4,), name="b")
    model = keras.Model({"a": a, "b": b}, L.Dense(1)(L.Concatenate()([a, b])))
    model.compile("sgd", "mse")
    return model, ({"a": numbers(N, 5), "b": numbers(N, 4)}, numbers(N, 1))


def two_outputs() -> Made:
    X = keras.Input((5,))
    h = L.Dense(8, "relu")(X)
    ends = {"kind": L.Dense(3, "softmax", name="kind")(h)}
    ends["size"] = L.Dense(1, name="size")(h)
    model = keras.Model(X, ends)
    weights = {"kind": 1.0, "size": 0.1}
    model.compile("sgd", {"kind": SPARSE, "size": "mse"}, loss_weights=weights)
    return model, (numbers(N, 5), {"kind": classes(3), "size": numbers(N, 1)})


def frozen_base() -> Made:
    base = keras.Sequential([keras.Input((5,)), L.Dense(8), L.BatchNormalization()])
    base.trainable = False
    model = keras.Sequential([keras.Input((5,)), base, L.Dense(3, "softmax")])
    model.compile("sgd", SPARSE)
    return model, (numbers(N, 5), classes(3))


def tied() -> Made:
    X = keras.Input((6,), dtype="int32")
    words = L.Embedding(20, 8)
    h = L.LSTM(8, return_sequences=True)(words(X))
    logits = L.Lambda(lambda h: tf.matmul(h, words.embeddings, transpose_b=True))
    model = keras.Model(X, logits(h))
    model.compile("adam", losses.SparseCategoricalCrossentropy(**LOGITS))
    return model, (classes(20, N, 6), classes(20, N, 6))


def regularized_residual() -> Made:
    X = keras.Input((8, 8, 3))
    decay = {"kernel_regularizer": keras.regularizers.L2(1e-3), "padding": "same"}
    h = start = L.Conv2D(4, 3, **decay)(X)
    h = L.ReLU()(L.BatchNormalization()(h))
    h = L.Add()([L.Conv2D(4, 3, **decay)(h), start])
    model = keras.Model(X, L.Dense(4, "softmax")(L.GlobalAveragePooling2D()(h)))
    model.compile("sgd", SPARSE)
    return model, (numbers(N, 8, 8, 3), classes(4))


def in_16_bits() -> Made:
    dense = L.Dense(16, "relu", dtype="mixed_float16")
    return chain(dense, L.Dense(2, dtype="float32"), loss="mse", y=numbers(N, 2))


def masked_by_a_layer() -> Made:
    layers = L.Masking(), L.GRU(4), L.Dense(2)
    model = keras.Sequential([keras.Input((6, 3)), *layers])
    model.compile("sgd", "mse")
    X = numbers(N, 6, 3)
    X[:, 4:] = 0
    return model, (X, numbers(N, 2))


def odd_batch() -> Made:
    model, (X, y) = chain(L.Dense(2), loss="mse", y=numbers(N, 2))
    return model, (X[:13], y[:13])


def a_single_sample() -> Made:
    model, (X, y) = chain(L.Dense(2), loss="mse", y=numbers(N, 2))
    return model, (X[:1], y[:1])


def run_eagerly() -> Made:
    return chain(L.Dense(2), loss="mse", y=numbers(N, 2), run_eagerly=True)


def many_steps_at_once() -> Made:
    return chain(L.Dense(2), loss="mse", y=numbers(N, 2), steps_per_execution=4)


def with_metrics() -> Made:
    return chain(
        L.Dense(3, "softmax"), loss=SPARSE, y=classes(3), metrics=["accuracy", SPARSE]
    )


def wide_table() -> Made:
    layers = L.Embedding(20_000, 8), L.GlobalAveragePooling1D(), L.Dense(3, "softmax")
    model = keras.Sequential([keras.Input((6,), dtype="int32"), *layers])
    model.compile("adam", SPARSE)
    return model, (classes(20_000, N, 6), classes(3))


def channels() -> Made:
    layers = L.SeparableConv2D(4, 3, activation="relu"), L.DepthwiseConv2D(3)
    ends = L.Flatten(), L.LayerNormalization(), L.Dense(3, "softmax")
    return images(*layers, *ends, loss=SPARSE, y=classes(3))


def both_directions() -> Made:
    layers = L.Bidirectional(L.LSTM(4)), L.Dense(1, activation="sigmoid")
    model = keras.Sequential([keras.Input((6, 3)), *layers])
    model.compile("adam", "binary_crossentropy")
    return model, (numbers(N, 6, 3), classes(2, N, 1).astype("float32"))
