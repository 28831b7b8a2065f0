"""A small model of dense layers, and how a step on it comes before the judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from manygpu.prove.adapters import Variables, of_variables
from manygpu.prove.counts import is_floating
from manygpu.prove.subject import Subject
from manygpu.scratch.splitting.network import Layer, Model
from manygpu.scratch.start.three_ways_to_split import Linear
from manygpu.trainings.contract import Training
from manygpu.trainings.task import Task

WIDTHS, LR = (6, 8, 7, 5), 0.3
dense = Linear(tf.matmul, lambda h, b: tf.tanh(h + b))
without_tanh = Linear(tf.matmul, lambda h, b: h + b)


def layers_of(params: Variables, bounded: bool = True) -> list[Layer]:
    """Return dense layers with these parameters, a weight and a bias each.

    bounded: whether the logits are between -1 and 1, so that no loss can be large.
    """
    pairs = zip(params[::2], params[1::2], strict=True)
    layers = [Layer(f"dense {i}", dense, own) for i, own in enumerate(pairs)]
    if not bounded:
        layers[-1] = layers[-1]._replace(apply=without_tanh)
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


def reference(
    X: tf.Tensor, y: tf.Tensor, params: Variables, bounded: bool = True
) -> tuple:
    """Return the summed loss and its gradients, by TensorFlow's own functions only."""
    with tf.GradientTape() as tape:
        h = X
        for W, b in zip(params[::2], params[1::2], strict=True):
            h = h @ W + b
            h = tf.tanh(h) if bounded or W is not params[-2] else h
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=h)
        loss = tf.reduce_sum(each)
    return loss, tape.gradient(loss, params)


def subject(
    make: Callable[..., Training],
    name: str,
    dtype: Any = np.float64,
    lr: float = LR,
    pieces: int = 1,
    bounded: bool = True,
    **about: Any,
) -> Subject:
    """Return a subject of the dense model, which `make(task, devices)` trains.

    pieces: micro-batches. bounded: see `layers_of`. about: see `Subject`.
    """

    def start(params: Variables, devices: list[str]) -> Training:
        model = Model(layers_of(params, bounded))
        even = [1.0] * len(model.layers)  # seconds, so that nobody counts FLOPs
        task = Task("dense", model, None, lr, pieces, seconds=even)
        return make(task, devices)

    names = [f"{kind}{i + 1}" for i in range(len(WIDTHS) - 1) for kind in "Wb"]
    about = {"name": name, "names": names, "hyperparameters": {}} | about
    weights = [w.astype(dtype) for w in drawn_weights()]

    def drawn(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        X, y = draw(samples, seed)
        return X.astype(dtype), y

    known = partial(reference, bounded=bounded)
    return of_variables(start, known, weights, drawn, lr, **about)


def rounded(subject: Subject, dtype: type) -> Subject:
    """Return the subject whose numbers are of another dtype; whole ones stay so."""

    def draw(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        X, y = subject.draw(samples, seed)
        return X.astype(dtype) if is_floating(X) else X, y

    weights = [w.astype(dtype) for w in subject.weights]
    return replace(subject, weights=weights, draw=draw)
