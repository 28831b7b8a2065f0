"""The models that can be compared, each a `Task`: the book's own, and a reader's.

LeNet and the chain are the book's layers. A transformer, and what a reader brings, are
made by Keras: a function without arguments returns a built model and a batch, (X, y). A
process makes its model itself, so that its variables are where it wants them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from manygpu.costs import layer_costs, model_costs
from manygpu.measure import nbytes
from manygpu.scratch.engine.mirrored_strategy import keras_lenet
from manygpu.scratch.splitting import network
from manygpu.scratch.splitting.network import Layer, Model
from manygpu.scratch.splitting.pipeline import dense_chain
from manygpu.scratch.start.one_device import gradients, init_params
from manygpu.trainings import table
from manygpu.trainings.keras_batches import own_function
from manygpu.trainings.keras_models import KerasTask
from manygpu.trainings.task import Task, compiled, rows_of, wait_for

L = tf.keras.layers
CHAIN_WIDTH = 256
# The transformer's: samples in a batch, tokens in each, kinds of tokens.
SEQUENCES, TOKENS, KINDS = 64, 32, 64
WIDTH, HEADS, BLOCKS = 64, 4, 4  # its width, attention heads and blocks
TRIES = 3  # of a layer's pass; the fastest counts


def load(name: str, samples: int | None = None, seconds: Sequence[float] = ()) -> Task:
    """Return a model to be trained, the same in every process.

    Args:
        name: "lenet", "chain", "transformer", or `module:function` of the reader's own.
        samples: in the batch; None for as many as the model usually has. A reader's
            batch is cut, or its samples come again.
        seconds: that each layer takes, if that is known.

    Raises:
        UnfitError: the function failed, or didn't return a model and a batch.
    """
    if name in OWN:
        return OWN[name](samples or table.SAMPLES[name])
    make = transformer if name == table.TRANSFORMER else own_function(name)
    return KerasTask(name, make, samples, seconds)


def lenet(samples: int) -> Task:
    """Return the book's LeNet and so many images."""
    params = init_params()

    def by_keras(lr: float) -> tf.keras.Model:
        made = keras_lenet(params)
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        made.compile(tf.keras.optimizers.SGD(lr), loss)
        return made

    model = Model(network.lenet_layers(params))
    return Task(table.LENET, model, images(samples), find=gradients, keras=by_keras)


def images(samples: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return so many random images, and a class for each."""
    rng = np.random.default_rng(0)
    X = tf.constant(rng.random((samples, 28, 28, 1)), tf.float32)
    return X, tf.constant(rng.integers(0, 10, samples), tf.int32)


def chain(samples: int) -> Task:
    """Return equal dense layers, so that every cut is fair, and so many rows."""
    rng = np.random.default_rng(0)
    X = tf.constant(rng.normal(size=(samples, CHAIN_WIDTH)), tf.float32)
    batch = X, tf.constant(rng.integers(0, CHAIN_WIDTH, samples), tf.int32)
    model = Model(dense_chain(table.CHAIN_LAYERS, CHAIN_WIDTH))
    return Task(table.CHAIN, model, batch, pieces=table.CHAIN_PIECES)


OWN = {table.LENET: lenet, table.CHAIN: chain}


def look_at(task: Task, device: str) -> dict[str, Any]:
    """Return what must be known of a model before it is cut and compared.

    Returns:
        dict: parameters, their bytes, samples, what `Task.about` has, and what is
        `said` of it; `uncut` says why there is no cut, if so; `layers`, of a reader's
        the seconds of each layer's forward and backward pass, for a micro-batch, by its
        name; `asked`, what `manygpu choose`
        asks of a model, and in `unknown`, by name, why something of that is not there.
    """
    model = task.model
    found = {"samples": task.samples, "bytes": nbytes(model.params)}
    found["parameters"] = sum(p.shape.num_elements() for p in model.params)
    found |= {"own_step": task.own_step, "own_loss": task.own_loss}
    found |= {"assigns": task.assigns, "fixed": task.fixed}
    found |= {"said": [*task.said], "uncut": task.uncut, "layers": []}
    if model.layers[0].takes is not None:  # shapes tell all
        costs = layer_costs(model.layers)
        handed = [cost.output for cost in costs]
        asked = {"flops": sum(cost.flops for cost in costs)}
        asked["kept"] = sum(cost.activations for cost in costs)
        found |= {"asked": asked, "unknown": {}}
    else:
        found["asked"], found["unknown"] = _counted(task)
        if task.uncut:
            return found
        found["layers"], handed = _measured(task, device)
    inner = handed[:-1] or handed
    found["asked"] |= {"layers": len(model.layers), "handed": sum(inner) / len(inner)}
    return found


def _counted(task: Task) -> tuple[dict[str, float], dict[str, str]]:
    """FLOPs and bytes kept, a sample; and why, where that can't be counted."""
    model = task.model
    if task.own_step and not task.assigns:
        return {}, dict.fromkeys(("flops", "kept"), "its train_step is its own")

    def forward(batch: tuple) -> tf.Tensor:
        return task.summed_loss(*batch, model.params, model.state)[0]

    try:
        found = model_costs(forward, task.batch, task.model.params)
    except (TypeError, ValueError) as why:
        return {}, dict.fromkeys(("flops", "kept"), str(why).partition("\n")[0])
    names = zip(("flops", "kept"), found, strict=True)
    return {name: value / task.samples for name, value in names}, {}


def _measured(task: Task, device: str) -> tuple[list, list[float]]:
    """Each layer's name and seconds, and the bytes a sample that it hands on."""
    layers, handed = [], []
    with tf.device(device):
        h = task.batch[0][: -(-task.samples // task.pieces)]
        for one in task.model.layers:
            h, seconds = _timed(one, h)
            layers.append([one.name, seconds])
            handed.append(nbytes(h) / rows_of(h))
    return layers, handed


def _timed(one: Layer, h: tf.Tensor) -> tuple[tf.Tensor, float]:
    """What a layer makes of its input, and the seconds of both its passes."""

    @compiled
    def passes(h: tf.Tensor) -> tuple:
        kept = network.kept_pass(one.apply, h, one.params, one.state)
        return kept.output, network.gradients_of(kept, tf.ones_like(kept.output))

    times = []
    for _ in range(1 + TRIES):  # the first traces
        start = time.perf_counter()
        output, grads = passes(h)
        made = tf.nest.flatten([output, grads], expand_composites=True)
        wait_for(t for t in made if t is not None)  # whole numbers have no gradient
        times.append(time.perf_counter() - start)
    return output, min(times[1:])


class Places(L.Layer):
    """Adds to each token's numbers those of its place, which are learned."""

    def build(self, shape: tuple) -> None:
        self.where = self.add_weight(shape=shape[1:], initializer="uniform")

    def call(self, h: tf.Tensor) -> tf.Tensor:
        return h + self.where


def block() -> tf.keras.Model:
    """Return attention, then a perceptron, each behind a norm and added to its input.

    (samples, tokens, width) -> (samples, tokens, width)
    """
    h = X = tf.keras.Input((TOKENS, WIDTH))
    read = L.LayerNormalization()(h)
    h += L.MultiHeadAttention(HEADS, WIDTH // HEADS)(read, read, use_causal_mask=True)
    wide = L.Dense(4 * WIDTH, activation="gelu")(L.LayerNormalization()(h))
    return tf.keras.Model(X, h + L.Dense(WIDTH)(wide))


def mnist_of_35095() -> tuple[tf.keras.Model, tuple[np.ndarray, np.ndarray]]:
    """Return the model of TensorFlow's issue 35095, and random images with labels.

    X: (64, 28, 28, 1), y: (64,) whole numbers below 10.
    """
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
    tokens = tf.keras.Sequential([L.Embedding(KINDS, WIDTH), Places()])
    blocks = [block() for _ in range(BLOCKS)]
    model = tf.keras.Sequential(
        [tf.keras.Input((TOKENS,), dtype="int32"), tokens, *blocks]
        + [L.LayerNormalization(), L.Dense(KINDS)]
    )
    drawn = np.random.default_rng(0).integers(0, KINDS, (SEQUENCES, TOKENS + 1))
    return model, (drawn[:, :-1].astype("int32"), drawn[:, 1:].astype("int32"))
