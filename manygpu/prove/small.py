"""A small model of dense layers, and how a step on it comes before the judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from manygpu.prove.adapters import Parts, Variables, of_variables
from manygpu.prove.subject import Subject
from manygpu.scratch.data_parallel.gradient_accumulation import accumulate
from manygpu.scratch.data_parallel.many_devices import train_batch
from manygpu.scratch.data_parallel.parameters_and_devices import get_params
from manygpu.scratch.splitting.network import Layer, Model
from manygpu.scratch.start.three_ways_to_split import Linear

WIDTHS, LR = (6, 8, 7, 5), 0.3
dense = Linear(tf.matmul, lambda h, b: tf.tanh(h + b))


def layers_of(params: Variables) -> list[Layer]:
    """Return dense layers with these parameters, a weight and a bias each."""
    pairs = zip(params[::2], params[1::2], strict=True)
    layers = [Layer(f"dense {i}", dense, own) for i, own in enumerate(pairs)]
    layers[0] = layers[0]._replace(takes=(WIDTHS[0],))
    layers[-1] = layers[-1]._replace(gives=(WIDTHS[-1],))
    return layers


def drawn_weights(seed: int = 0) -> list[np.ndarray]:
    """Return weights, and biases that are not 0."""
    rng = np.random.default_rng(seed)
    pairs = [(shape, shape[1:]) for shape in zip(WIDTHS, WIDTHS[1:], strict=False)]
    shapes = [shape for pair in pairs for shape in pair]
    return [rng.normal(size=shape) / 2 for shape in shapes]


def draw(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return samples and labels."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(samples, WIDTHS[0])), rng.integers(0, WIDTHS[-1], samples)


def reference(X: tf.Tensor, y: tf.Tensor, params: Variables) -> tuple:
    """Return the summed loss and its gradients, by TensorFlow's own functions only."""
    with tf.GradientTape() as tape:
        h = X
        for W, b in zip(params[::2], params[1::2], strict=True):
            h = tf.tanh(h @ W + b)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=h)
        loss = tf.reduce_sum(each)
    return loss, tape.gradient(loss, params)


class Started(NamedTuple):
    """A training that begins: a step on the layers it was given, on some devices.

    Attributes:
        take: `take(X, y, lr)` takes a step; returns the batch's mean loss.
        copies: returns each copy of all parameters, whole.
        held: the variables that a step may change.
        state: returns what is kept beside the parameters; None if that is nothing.
    """

    take: Callable[..., tf.Tensor]
    copies: Callable[[], list[Variables]]
    held: Variables
    state: Callable[[], dict[str, list]] | None = None


def replicas_of(layers: list[Layer], devices: list[str]) -> list[Variables]:
    """Return a copy of all parameters on each device."""
    return [get_params(Model(layers).params, device) for device in devices]


def together(layers, devices, reduce=None, pieces=1, of=None) -> Started:
    """`train_batch`, with any sum of the gradients, in micro-batches or not."""
    model = Model(layers)
    of = of or model.gradients
    replicas = replicas_of(layers, devices)
    options = {"reduce": reduce} if reduce else {}
    if pieces > 1:
        of = partial(accumulate, micro_batches=pieces, of=of)

    def take(X, y, lr):
        return train_batch(X, y, replicas, devices, lr, of=of, **options)

    return Started(take, lambda: replicas, sum(replicas, []))


def subject(
    begin: Callable[..., Started],
    name: str,
    dtype: type = np.float64,
    lr: float = LR,
    **about,
) -> Subject:
    """Return a subject of the dense model, whose training `begin` starts."""

    def start(params: Variables, devices: list[str]) -> Parts:
        started = begin(layers_of(params), devices)
        return Parts(partial(started.take, lr=lr), started.copies, started.state)

    names = [f"{kind}{i + 1}" for i in range(len(WIDTHS) - 1) for kind in "Wb"]
    about = {"name": name, "names": names} | about
    weights = [w.astype(dtype) for w in drawn_weights()]

    def drawn(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        X, y = draw(samples, seed)
        return X.astype(dtype), y

    return of_variables(start, reference, weights, drawn, lr, **about)


def rounded(subject: Subject, dtype: type) -> Subject:
    """Return the subject whose numbers are of another dtype."""

    def draw(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        X, y = subject.draw(samples, seed)
        return X.astype(dtype), y

    weights = [w.astype(dtype) for w in subject.weights]
    return replace(subject, weights=weights, draw=draw)
