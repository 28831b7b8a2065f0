"""The book's steps on models of their own: a norm, a block, batches drawn by a loop."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import manygpu
from manygpu.prove.adapters import Variables, of_variables
from manygpu.prove.adapters.variables import MOST_DEVICES
from manygpu.prove.small import LR, dense, draw
from manygpu.prove.subject import Subject
from manygpu.scratch.beyond import worker_dies
from manygpu.scratch.data_parallel.collectives import dealt
from manygpu.scratch.data_parallel.many_devices import (
    split_batch,
    take_step,
)
from manygpu.scratch.data_parallel.parameters_and_devices import get_params
from manygpu.scratch.splitting.batch_normalization import synced_batch_norm
from manygpu.scratch.splitting.program_over_ranks import (
    Backward,
    Mesh,
    Spread,
    spread_out,
    summed,
)
from manygpu.scratch.splitting.transformer import (
    BLOCK_CUT_TOKENS,
    BlockParams,
    block_gradients,
    transformer_block,
)
from manygpu.scratch.splitting.what_a_tensor_means import I, R
from manygpu.scratch.start.one_device import cross_entropy, gradients, init_params
from manygpu.trainings.contract import Training
from manygpu.trainings.table import MOMENTUM

# A layer that is normalized over the batch, between two dense ones.
NORM_SHAPES = ((6, 8), (8,), (8,), (8,), (8, 5), (5,))


class NormedModel(NamedTuple):
    """Replicas of that model on a mesh; the mean and variance, Spreads of variables."""

    mesh: Mesh
    replicas: list[Variables]
    averages: list[Spread]


def normed_step(model: NormedModel, X: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Take a step whose statistics are those of all shards; return the mean loss."""
    mesh, replicas = model.mesh, model.replicas
    shards = split_batch(X, y, mesh.devices)
    h, labels = (Spread(mesh, dealt(mesh.devices, parts)) for parts in shards)
    params = [Spread(mesh, copies) for copies in zip(*replicas, strict=True)]
    W, b, gamma, beta, V, c = params
    h = synced_batch_norm("data", h.each(dense, W, b), gamma, beta, *model.averages)
    logits = h.each(lambda h, V, c: h @ V + c, V, c)
    losses = logits.each(lambda h, y: tf.reduce_sum(cross_entropy(h, y)), labels)
    ones = [tf.ones_like(own) for own in losses.parts]
    grads = Backward(losses, ones).to(params)
    letters = [R, R, I, I, R, R]
    sums = [summed(g, {"data": c}).parts for g, c in zip(grads, letters, strict=True)]
    take_step(replicas, [list(own) for own in zip(*sums, strict=True)], LR, len(y))
    return tf.add_n(losses.parts) / len(y)


def with_synced_norm(params: Variables, devices: list[str]) -> Training:
    """Start a training of that model; its averages are what it keeps."""
    replicas = [get_params(params, device) for device in devices]
    mesh, zeros = Mesh(devices, data=len(devices)), [tf.zeros_like(params[3])]
    averages = []
    for _ in range(2):
        own = [get_params(zeros, device)[0] for device in devices]
        averages.append(Spread(mesh, own))
    model = NormedModel(mesh, replicas, averages)

    def kept():
        return {"mean": averages[0].parts, "variance": averages[1].parts}

    return Training(partial(normed_step, model), lambda: replicas, kept)


def normed_subject(name: str) -> Subject:
    """Return the subject of the model with a normalization."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=shape) / 2 for shape in NORM_SHAPES]
    about = {"name": name, "rule": "sgd"}
    return of_variables(with_synced_norm, None, weights, draw, LR, **about)


# A transformer's block on sequences of 6 tokens; 3 heads of size 2, 6 hidden numbers.
TOKENS, WIDTH = 6, 4
BLOCK_SHAPES = BlockParams(
    *[(WIDTH,)] * 2,
    *[(WIDTH, 3, 2)] * 3,
    (3, 2, WIDTH),
    *[(WIDTH,)] * 2,
    (WIDTH, 6),
    (6, WIDTH),
)


def asked_of(y: tf.Tensor) -> tf.Tensor:
    """Return by what each output counts in the loss: (tokens, sequences, width)."""
    table = np.random.default_rng(1).normal(size=(TOKENS, 5, WIDTH))
    return tf.gather(tf.constant(table), y, axis=1)


def by_tokens(X: tf.Tensor) -> tf.Tensor:
    """Return (samples, tokens, width) as (tokens, samples, width)."""
    return tf.transpose(X, (1, 0, 2))


def block_reference(X: tf.Tensor, y: tf.Tensor, params: Variables) -> tuple:
    """Return the summed loss of a block on one device, and its gradients."""
    with tf.GradientTape() as tape:
        out = transformer_block(by_tokens(X), *params)
        loss = tf.reduce_sum(out * asked_of(y))
    return loss, tape.gradient(loss, params)


def with_cut_tokens(params: Variables, devices: list[str], lr: float = LR) -> Training:
    """Start a training of a block whose heads and tokens are cut over the devices."""
    mesh, cut = Mesh(devices, layerwise=len(devices)), BLOCK_CUT_TOKENS
    spread = [
        spread_out(p, {"layerwise": kind}, mesh)
        for p, kind in zip(params, cut.letters, strict=True)
    ]
    own = zip(*(one.parts for one in spread), strict=True)
    parts = [get_params(list(p), d) for p, d in zip(own, devices, strict=True)]

    def over_ranks():
        """What the ranks hold of each parameter."""
        return [list(held) for held in zip(*parts, strict=True)]

    def take(X, y):
        given = by_tokens(X), asked_of(y)
        x, asked = (spread_out(t, {"layerwise": cut.takes}, mesh) for t in given)
        held = [Spread(mesh, one) for one in over_ranks()]
        output, _, grads = block_gradients(cut, x, asked, held)
        grads = [list(g) for g in zip(*(one.parts for one in grads), strict=True)]
        take_step(parts, grads, lr, len(y))
        pairs = zip(output.parts, asked.parts, strict=True)
        return tf.add_n([tf.reduce_sum(o * a) for o, a in pairs]) / len(y)

    def copies():
        whole = [
            [tf.concat(one, kind.dim)] * len(devices) if kind.letter == "S" else one
            for one, kind in zip(over_ranks(), cut.letters, strict=True)
        ]
        return [list(of_rank) for of_rank in zip(*whole, strict=True)]

    return Training(take, copies)


def block_subject(name: str, lr: float = LR) -> Subject:
    """Return the subject of the block, trained at this rate."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=shape) / 2 for shape in BLOCK_SHAPES]

    def drawn(samples, seed):
        own = np.random.default_rng(seed)
        X = own.normal(size=(samples, TOKENS, WIDTH))
        return X, own.integers(0, 5, samples)

    about = {"name": name, "names": BlockParams._fields, "most_devices": 3}
    start = partial(with_cut_tokens, lr=lr)
    return of_variables(start, block_reference, weights, drawn, lr, **about)


def with_own_batches(
    params: Variables, devices: list[str], size: int, seed: int = 0
) -> Training:
    """Start a training that draws its batches itself, in its second epoch.

    Of 7 samples, `size` a step, which are not those that the judge draws. seed: of the
    images, and of which comes first.
    """
    X = np.random.default_rng(seed).random((7, 28, 28, 1))
    y = np.roll(np.arange(7), seed)
    training, drawn = worker_dies.TrainingRun(X, y, size), [y[:size]]
    training.params = params
    training.step, training.epoch, training.used = 4, 1, size % 6

    def sums(X, y, params):
        drawn.append(np.array(y))  # of 7 samples with 7 labels, these tell which
        return gradients(X, y, params)

    def take(*ignored):
        return worker_dies.momentum_step(training, sums)

    def kept():
        now = worker_dies.state_of(training)
        own = {name: [a] for name, a in now.items() if "param" not in name}
        return own | {"step": [np.array(training.step)], "drawn": drawn[-1:]}

    def save():
        return drawn[-1], training.step, worker_dies.state_of(training)

    def resume(saved):
        drawn.append(saved[0])
        worker_dies.restore(training, *saved[1:])

    return Training(take, lambda: [training.params], kept, save, resume)


def own_batches(name: str, size: int = 2, seed: int = 0) -> Subject:
    """Return the subject of a training that draws its batches itself."""
    manygpu.devices(MOST_DEVICES, quiet=True)  # before a variable starts TensorFlow
    weights = init_params(dtype=tf.float64)
    about = {"name": name, "rule": MOMENTUM, "most_devices": 1}
    about["apart"] = {"drawn": "each step has its own", "noise": "it goes on"}
    start = partial(with_own_batches, size=size, seed=seed)
    return of_variables(start, None, weights, draw, 0.02, **about)


def own_epochs(name: str) -> Subject:
    """Return that of one whose batch nearly fills an epoch."""
    return own_batches(name, size=6)
