"""The step of the page "Who divides?", on one mesh with all layers, eager and compiled.

Labels have weights, and micro-batches are uneven. Each gradient is summed along the
axes on which its parameter is an R, and divided once, by the sum of all weights.
"""

from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from manygpu.scratch.splitting.program_over_ranks import (
    Backward,
    Mesh,
    Spread,
    joined,
    spread_out,
    summed,
)
from manygpu.scratch.splitting.transformer import hidden, joined_heads, joined_hidden
from manygpu.scratch.splitting.what_a_tensor_means import I, P, R, S
from manygpu.scratch.today.experts import dropless_layer, expert_layer
from manygpu.scratch.today.long_sequences import (
    each_head,
    split_attention,
    token_order,
)
from tests.unit.helpers import EIGHT, in_graph

T, N, D, BOUND = 4, 3, 4, 1e-13  # tokens, sequences, width
HALVES = slice(2), slice(2, N)
COPY, EXPERT = {"layerwise": I}, {"layerwise": I, "expert": S(-3)}
PAIR = [{"layerwise": S(-1)}, {"layerwise": S(-2)}]
LETTERS = [*[COPY] * 4, *PAIR, COPY, EXPERT, EXPERT, COPY]
TOKENS = {"expert": S(-2), "context": S(-3)} | COPY
LABELS = {"expert": S(-1), "context": S(-2)} | COPY
SHAPES = [*[(D, 2, 2)] * 3, (2, 2, D), (D, 6), (6, D), (D, 4), *[(4, D, D)] * 2, (D, 7)]

rng = np.random.default_rng(5)
PARAMS = [tf.constant(rng.normal(size=shape) / 2) for shape in SHAPES]
X, Y = tf.constant(rng.normal(size=(T, N, D))), tf.constant(rng.integers(0, 7, (T, N)))
W = tf.constant([[1, 0, 0.5], [1, 1, 0], [0.5, 1, 1], [1, 0, 1]], tf.float64)


def sum_of_losses(x, head, y, w):
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, x @ head)
    return tf.reduce_sum(w * losses)


def own_sums(mesh, part, layer):
    """Each rank's own weights and gradients of one micro-batch, not yet summed."""
    wholes, letters = (X[:, part], Y[:, part], W[:, part]), (TOKENS, LABELS, LABELS)
    x, y, w = (spread_out(*own, mesh) for own in zip(wholes, letters, strict=True))
    params = [spread_out(*own, mesh) for own in zip(PARAMS, LETTERS, strict=True)]
    Q, K, V, out, up, down, router, A, B, head = params
    where = token_order("contiguous", T, mesh.sizes["context"])
    q, k, v = (x.each(each_head, one) for one in (Q, K, V))
    h = x + split_attention("ring", "context", q, k, v, where).each(joined_heads, out)
    middle = h.move("layerwise", I, R).each(hidden, up)
    h += middle.each(joined_hidden, down).move("layerwise", P, I)
    rows = h.each(lambda h: tf.reshape(h, (-1, D)))
    rows = layer("expert", rows, router, A, B, k=2)
    h = rows.each(lambda rows, h: tf.reshape(rows, tf.shape(h)), h)
    loss = h.each(sum_of_losses, head, y, w)
    ones = [tf.ones_like(one) for one in loss.parts]
    return w.each(tf.reduce_sum), Backward(loss, ones).to(params)


def step(mesh, layer):
    """Each rank's gradients of the weighted mean over all labels."""
    (z, grads), (more_z, more) = (own_sums(mesh, half, layer) for half in HALVES)
    Z = z + more_z
    for axis in ("context", "expert"):
        Z = Z.move(axis, P, I)
    added = [one + other for one, other in zip(grads, more, strict=True)]
    complete = [summed(*own) for own in zip(added, LETTERS, strict=True)]
    return [grad.each(tf.divide, Z).parts for grad in complete]


def on_one_device():
    with tf.GradientTape() as tape:
        tape.watch(PARAMS)
        Q, K, V, out, up, down, router, A, B, head = PARAMS
        q, k, v = (tf.einsum("tnd,dhs->tnhs", X, one) for one in (Q, K, V))
        scores = tf.einsum("tnhs,unhs->nhtu", q, k) / 2**0.5
        looks = tf.nn.softmax(tf.where(np.tri(T, dtype=bool), scores, -np.inf))
        x = X + tf.einsum("nhtu,unhs,hsd->tnd", looks, v, out)
        x += tf.nn.gelu(x @ up) @ down
        scores = x @ router
        second = tf.math.top_k(scores, 2)[0][..., 1:]
        gates = tf.where(scores >= second, tf.exp(scores), 0.0)
        gates /= tf.reduce_sum(gates, -1, keepdims=True)
        inner = tf.nn.gelu(tf.einsum("tnd,edh->tneh", x, A))
        x += tf.einsum("tne,tneh,ehd->tnd", gates, inner, B)
        loss = sum_of_losses(x, head, Y, W) / tf.reduce_sum(W)
    return tape.gradient(loss, PARAMS)


SEATS = partial(expert_layer, capacity=T * N)  # in a graph, rows need seats
WAYS = {
    "eager, dropless": lambda mesh: step(mesh, dropless_layer),
    "eager, with seats": lambda mesh: step(mesh, SEATS),
    "compiled, with seats": lambda mesh: in_graph(lambda: step(mesh, SEATS))(),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_step_divided_once_is_that_of_one_device_on_every_rank(way):
    mesh = Mesh(EIGHT, context=2, expert=2, layerwise=2)
    found = WAYS[way](mesh)
    for parts, letters, right in zip(found, LETTERS, on_one_device(), strict=True):
        placed = []
        for rank, part in enumerate(parts):  # a graph's results lie where it ends
            with tf.device(mesh.device(rank)):
                placed.append(tf.identity(part))
        whole = joined(Spread(mesh, placed), letters, BOUND)
        assert np.abs(whole - right).max() <= BOUND * np.abs(right).max()
