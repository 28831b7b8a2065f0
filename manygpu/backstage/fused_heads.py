"""A small attention model with a fused weight, trained by Adam on any mesh.

For the chapter on dying workers, which stops a training run on one layout and resumes
it on others. `trained_alone` takes the same steps on one device, without a mesh.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from manygpu.scratch.splitting.hybrid_meshes import MeshShards, mesh_gradients
from manygpu.scratch.splitting.network import Layer
from manygpu.scratch.splitting.program_over_ranks import WHOLE_LAYER, Cut, Spread
from manygpu.scratch.splitting.sharded_state import adam_change
from manygpu.scratch.splitting.what_a_tensor_means import I, P, R, S

WIDTH, HEADS, SIZE, TOKENS, CLASSES, SAMPLES = 8, 4, 2, 5, 4, 12
FUSED = WIDTH, 3, HEADS, SIZE  # queries, keys and values in one weight
SHAPES = [FUSED, (HEADS, SIZE, WIDTH)] * 2 + [(WIDTH, CLASSES)]
RATE, WARM_UP = 0.02, 10  # the rate grows up to step WARM_UP
KINDS = "param", "mean", "square"  # of the state: parameters, and Adam's two moments


def attention(h: tf.Tensor, fused: tf.Tensor, out: tf.Tensor) -> tf.Tensor:
    """Return self-attention within each sample, summed over the heads given.

    h: (samples, tokens, width). fused: (width, 3, heads, size). out: (heads, size,
    width).
    """
    q, k, v = tf.unstack(tf.einsum("ntd,dchs->cnhts", h, fused))
    weights = tf.nn.softmax(tf.einsum("nhts,nhus->nhtu", q, k))
    return tf.einsum("nhtu,nhus,hsd->ntd", weights, v, out)


def over_heads(axis: str, apply, h: Spread, *params: Spread) -> Spread:
    """Let each rank along an axis compute its heads, and add up their outputs."""
    return h.move(axis, I, R).each(apply, *params).move(axis, P, I)


def head(h: tf.Tensor, W: tf.Tensor) -> tf.Tensor:
    """Return logits (samples, classes) from the mean over the tokens."""
    return tf.reduce_mean(h, 1) @ W


BY_HEADS = Cut((S(-2), S(-3)), over_heads)
CUTS = [BY_HEADS, BY_HEADS, WHOLE_LAYER]


def layers_of(params: Sequence) -> list[Layer]:
    """Return the model's three layers with these five parameters."""
    own = [tf.Variable(p) for p in params]
    blocks = [Layer("attention", attention, tuple(own[i : i + 2])) for i in (0, 2)]
    return [*blocks, Layer("head", head, (own[4],), gives=(CLASSES,))]


def first_params() -> list[np.ndarray]:
    """Return the parameters before the first step, in float64."""
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape) / 2 for shape in SHAPES]


def first_state() -> dict[str, np.ndarray]:
    """Return parameters and moments before the first step, by kind and number."""
    params = list(enumerate(first_params()))
    state = {f"{KINDS[0]}{n}": p for n, p in params}
    return state | {f"{kind}{n}": 0 * p for kind in KINDS[1:] for n, p in params}


def batch_of(step: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the samples of a step, which its number decides, and their labels."""
    X = np.random.default_rng(step).normal(size=(SAMPLES, TOKENS, WIDTH))
    return tf.constant(X), tf.constant(np.argmax(X.mean(1)[:, :CLASSES], -1))


def rate(step: int) -> float:
    """Return the learning rate of a step, from 1."""
    return RATE * min(1, step / WARM_UP)


def step_on(
    run: Sequence[MeshShards], X: tf.Tensor, y: tf.Tensor, t: int
) -> tuple[tf.Tensor, list[list[tf.Tensor]]]:
    """Take one step on a mesh, by Adam, eagerly or in a graph.

    run: the shards of the parameters and of both moments. t: the step's number for Adam
    and the schedule, from 1. Returns the mean loss before the step, and each rank's
    gradients in it.
    """
    params, *_ = run
    loss, grads = mesh_gradients(X, y, params, params.mesh)
    for own in zip(*run, grads, strict=True):
        for p, mean, square, g in zip(*own, strict=True):
            with tf.device(p.device):
                p.assign_sub(adam_change(mean, square, g / SAMPLES, t, rate(t)))
    return loss / SAMPLES, grads


def train_on(
    run: Sequence[MeshShards], first: int, last: int, skipped: int = 0
) -> tuple[float, list[list[tf.Tensor]]]:
    """Take the steps after `first` until `last` on a mesh; see `step_on`.

    skipped: by how many steps Adam and the schedule are behind; 0 is right. Returns the
    mean loss before the first of them, and each rank's gradients in it.
    """
    losses, found = [], []
    for step in range(first + 1, last + 1):
        loss, grads = step_on(run, *batch_of(step), step - skipped)
        losses.append(float(loss))
        found.append(grads)
    return losses[0], found[0]


def trained_alone(last: int) -> tuple[list, list[float], list[list[tf.Tensor]]]:
    """Take the steps until `last` on one device, by the formulas of Adam.

    Returns the parameters after them, and of each step the mean loss before it and the
    gradients of the summed loss.
    """
    params = first_params()
    m, v = ([np.zeros(shape) for shape in SHAPES] for _ in "mv")
    losses, found = [], []
    for step in range(1, last + 1):
        X, y = batch_of(step)
        own = [tf.constant(p) for p in params]
        with tf.GradientTape() as tape:
            tape.watch(own)
            h = attention(attention(X, *own[:2]), *own[2:4])
            z = tf.nn.sparse_softmax_cross_entropy_with_logits(y, head(h, own[4]))
            loss = tf.reduce_sum(z)
        found.append(tape.gradient(loss, own))
        losses.append(float(loss) / SAMPLES)
        scale = rate(step) * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        for n, g in enumerate(found[-1]):
            g = g.numpy() / SAMPLES
            m[n] = 0.9 * m[n] + 0.1 * g
            v[n] = 0.999 * v[n] + 0.001 * g**2
            params[n] = params[n] - scale * m[n] / (np.sqrt(v[n]) + 1e-7)
    return params, losses, found
