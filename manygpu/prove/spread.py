"""Numbers for what a type promises: a tensor on each rank of a mesh.

A `Spread` has the operations of `Typed`, does what it is told, right or wrong, and goes
back as `back` says. So whatever the types accept can be held against one device.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import tensorflow as tf

from manygpu.scratch.data_parallel.collectives import (
    Hop,
    Send,
    deliver,
    later,
    ring_allreduce,
)
from manygpu.scratch.splitting.transformer import gather_tokens, scatter_tokens
from manygpu.scratch.splitting.what_a_tensor_means import MOVES, Kind, P, V, back

Tensors = Sequence[tf.Tensor]


class Spread:
    """A tensor for each rank of a mesh; nobody checks what they stand for.

    Args:
        mesh: how many ranks there are along each axis.
        parts: the ranks' tensors, row by row, the last axis fastest.
        send: carries each message, by ranks.
    """

    def __init__(
        self, mesh: Mapping[str, int], parts: Tensors, send: Send = deliver
    ) -> None:
        self.mesh, self.parts, self.send = mesh, list(parts), send

    def each(self, work: Callable, *others: Spread | Real) -> Spread:
        """Do `work` on each rank with its part of all; a number is everybody's."""
        made = []
        for rank, part in enumerate(self.parts):
            own = [o.parts[rank] if isinstance(o, Spread) else o for o in others]
            with tf.device(part.device):
                made.append(work(part, *own))
        return Spread(self.mesh, made, self.send)

    def __matmul__(self, other: Spread) -> Spread:
        return self.each(operator.matmul, other)

    def __add__(self, other: Spread | Real) -> Spread:
        return self.each(operator.add, other)

    def __mul__(self, other: Spread | Real) -> Spread:
        return self.each(operator.mul, other)

    def apply(self, f: Callable) -> Spread:
        """f, elementwise."""
        return self.each(f)

    def sum_along(self, dim: int) -> Spread:
        """The sum along a dimension, which stays, with length 1."""
        return self.each(lambda part: tf.reduce_sum(part, dim, keepdims=True))

    def mean_along(self, dim: int) -> Spread:
        """The mean along a dimension, which stays, with length 1."""
        return self.each(lambda part: tf.reduce_mean(part, dim, keepdims=True))

    def transposed(self) -> Spread:
        """The last two dimensions in the other order."""
        return self.each(tf.linalg.matrix_transpose)

    def move(self, axis: str, source: Kind, target: Kind) -> Spread:
        """Move along each row of the axis; the gradient moves as `back` says."""

        @tf.custom_gradient
        def both_ways(*parts):
            def way_back(*upstreams):
                return self._in_rows(axis, upstreams, *back(source, target))

            return self._in_rows(axis, parts, source, target), way_back

        return Spread(self.mesh, both_ways(*self.parts), self.send)

    def _in_rows(self, axis: str, parts: Tensors, source: Kind, target: Kind) -> list:
        """What all ranks hold after a move in each row."""
        made = list(parts)
        for row in rows_along(self.mesh, axis):
            send = later(self.send, 0, row)
            carried = carry([parts[rank] for rank in row], source, target, send)
            for rank, part in zip(row, carried, strict=True):
                made[rank] = part
        return made


def rows_along(mesh: Mapping[str, int], axis: str) -> list[list[int]]:
    """Return the ranks of each row of a mesh along an axis."""
    sizes = list(mesh.values())
    ranks = np.arange(np.prod(sizes)).reshape(sizes)
    last = np.moveaxis(ranks, list(mesh).index(axis), -1)
    return last.reshape(-1, mesh[axis]).tolist()


def carry(parts: Tensors, source: Kind, target: Kind, send: Send) -> list[tf.Tensor]:
    """Make a move among the devices of `parts`, whatever these really mean."""
    what = MOVES[source.letter][target.letter]
    if what == "all-reduce":
        return ring_allreduce(parts, send)
    if what == "reduce-scatter":
        flipped = [dim_first(part, target.dim) for part in parts]
        return [dim_first(p, target.dim) for p in scatter_tokens(flipped, send)]
    if what == "all-gather":
        flipped = [dim_first(part, source.dim) for part in parts]
        return [dim_first(p, source.dim) for p in gather_tokens(flipped, send)]
    if what == "all-to-all":
        return all_to_all(parts, source.dim, target.dim, send)
    n = len(parts)
    return [unsent(what, part, i, n, source, target) for i, part in enumerate(parts)]


def dim_first(part: tf.Tensor, dim: int) -> tf.Tensor:
    """Exchange a dimension with the first one; done twice, nothing has changed."""
    order = list(range(len(part.shape)))
    order[0], order[dim] = order[dim], order[0]
    with tf.device(part.device):
        return tf.transpose(part, order)


def all_to_all(parts: Tensors, old: int, new: int, send: Send) -> list[tf.Tensor]:
    """Cut each piece along `new`, and give every device its part, joined along `old`.

    Sends n - 1 messages a device, in n - 1 steps.
    """
    n, made = len(parts), []
    cut = [tf.split(part, n, new) for part in parts]
    for j, part in enumerate(parts):
        got = []
        for i in range(n):
            hop = Hop((j - i) % n - 1, i, j, part.device)
            got.append(cut[i][j] if i == j else send(cut[i][j], hop))
        with tf.device(part.device):
            made.append(tf.concat(got, old))
    return made


def unsent(
    what: str, part: tf.Tensor, i: int, n: int, source: Kind, target: Kind
) -> tf.Tensor:
    """Return what device i of n makes of its part, in a move that sends nothing."""
    with tf.device(part.device):
        if what == "cut":
            return tf.split(part, n, target.dim)[i]
        if what == "pad with 0":
            padded = [part if j == i else tf.zeros_like(part) for j in range(n)]
            return tf.concat(padded, source.dim)
        if what == "0 but on the first" and i > 0:
            return tf.zeros_like(part)
        return tf.identity(part)


def spread_out(
    whole: tf.Tensor,
    meaning: Mapping[str, Kind],
    mesh: Mapping[str, int],
    devices: Sequence[str],
    send: Send = deliver,
) -> Spread:
    """Give each rank of a mesh what it holds of a tensor that means this.

    `devices`: one a rank. A V takes a dimension in front, with an entry a rank.
    """
    parts = []
    for device, place in zip(devices, np.ndindex(*mesh.values()), strict=True):
        with tf.device(device):
            part = tf.identity(whole)
            for (axis, n), i in zip(mesh.items(), place, strict=True):
                part = part_of(part, meaning[axis], i, n)
            parts.append(tf.identity(part))
    return Spread(mesh, parts, send)


def part_of(whole: tf.Tensor, kind: Kind, i: int, n: int) -> tf.Tensor:
    """Return what device i of n holds of a tensor; summands are drawn."""
    if kind == V:
        return whole[i]
    if kind.letter == "S":
        return tf.split(whole, n, kind.dim)[i]
    if kind != P:
        return whole
    shares = np.random.default_rng(n).normal(size=(n, *whole.shape))
    shares[0] += 1 - shares.sum(0)
    return whole * tf.constant(shares[i], whole.dtype)


def joined(spread: Spread, meaning: Mapping[str, Kind]) -> np.ndarray:
    """Return the whole tensor that the parts on a mesh stand for.

    Raises ValueError if copies differ that should be alike.
    """
    parts = [np.asarray(part) for part in spread.parts]
    for axis, n in reversed(spread.mesh.items()):
        rows = [parts[i : i + n] for i in range(0, len(parts), n)]
        parts = [put_together(row, meaning[axis]) for row in rows]
    return parts[0]


def put_together(parts: Sequence[np.ndarray], kind: Kind) -> np.ndarray:
    """Return the tensor that one row's parts stand for."""
    if kind == P:
        return np.sum(parts, axis=0)
    if kind == V:
        return np.stack(parts)
    if kind.letter == "S":
        return np.concatenate(parts, kind.dim)
    apart = max(np.abs(part - parts[0]).max(initial=0) for part in parts)
    if apart > 1e-6 * np.abs(parts[0]).max(initial=0):
        raise ValueError(f"{kind} says that all are alike, but they are {apart} apart")
    return parts[0]


def gradients_of(
    out: Spread, inputs: Sequence[Spread], tape: Any, seed: Spread
) -> list[Spread]:
    """Return the gradient for each input as a Spread; `seed`: that of `out`."""
    sources = [one.parts for one in inputs]
    zero = tf.UnconnectedGradients.ZERO
    found = tape.gradient(out.parts, sources, seed.parts, unconnected_gradients=zero)
    return [Spread(out.mesh, parts, out.send) for parts in found]
