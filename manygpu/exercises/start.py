"""Exercises of part 1: one device, two devices, three ways to split."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import off, other


def arrays(draw: random.Random, *shape: int) -> np.ndarray:
    """Normal numbers of this shape."""
    return np.random.default_rng(draw.getrandbits(32)).normal(size=shape)


def _sums(draw: random.Random) -> Iterator[tuple]:
    for counts in ([1], [2, 2], [2, 1], [3, 0], [4, 3, 3]):
        yield [arrays(draw, 2) * n for n in counts], counts
    for _ in range(4):
        counts = [draw.randint(0, 9) for _ in range(draw.randint(2, 6))] + [1]
        yield [arrays(draw, 3) * n for n in counts], counts


@exercise(
    "two-devices/mean",
    '''
def my_mean(sums, counts):
    """Return the gradient of the mean loss over the whole batch.

    sums: an array for each device: the sum of its own samples' gradients.
    counts: how many samples each device has; some may have none.
    """
    raise NotImplementedError("Add up what all devices found, then divide.")
''',
    _sums,
)
def _(found, sums, counts):
    lengths = [np.zeros_like(s) if n == 0 else s / n for s, n in zip(sums, counts)]
    total, k = np.sum(sums, axis=0), len(counts)
    right = total / sum(counts)
    wrong = off(found, right)
    by_device = "it is divided by the batch, not by the devices"
    yield by_device, wrong and not off(found, total / k) and wrong
    means = np.mean(lengths, axis=0)
    yield "each sample weighs the same", wrong and not off(found, means) and wrong
    yield "it is the gradient of the mean loss", wrong


def _dense(draw: random.Random) -> Iterator[tuple]:
    yield from ((1, [1, 1]), (2, [3, 4]), (2, [3, 4, 5]))
    for _ in range(4):
        yield draw.randint(1, 64), [draw.randint(1, 99) for _ in range(4)]


@exercise(
    "one-device/flops",
    '''
def my_flops(batch, widths):
    """Return the FLOPs of the products of one training step of a dense network.

    widths: of the input, of each hidden layer, of the output. A product of (a, b) and
    (b, c) has 2 a b c FLOPs. Nobody asks for the gradient of the input.
    """
    raise NotImplementedError("One product a layer forward; how many backward?")
''',
    _dense,
)
def _(found, batch, widths):
    layers = [2 * batch * a * b for a, b in zip(widths, widths[1:])]
    forward = sum(layers)
    yield "the backward pass counts", found == forward and f"it is {found}"
    half = len(layers) > 1 and found == 2 * forward and f"it is {found}"
    yield "a backward pass has two products a layer", half
    unasked = "the first layer needs no gradient of its input"
    yield unasked, found == 3 * forward and f"it is {found}"
    yield "it counts all products", other(found, 3 * forward - layers[0])


def _cut(draw: random.Random) -> Iterator[tuple]:
    yield from ((1, 4, 1), (2, 4, 3), (2, 5, 3), (3, 2, 4))
    for _ in range(4):
        yield draw.randint(2, 5), draw.randint(1, 9), draw.randint(1, 9)


def _halves(draw: random.Random) -> Iterator[tuple]:
    for k, inner, outer in _cut(draw):
        yield arrays(draw, 2, inner), arrays(draw, inner, outer), arrays(draw, outer), k


@exercise(
    "three-ways-to-split/inputs",
    '''
def my_cut_inputs(x, W, b, k):
    """Return the k terms whose sum is x @ W + b, each from a slice of W's rows.

    Device d gets rows of W and the same columns of x, and sees no others. Slices
    differ by one row at most, the larger ones first; some may have none.
    """
    raise NotImplementedError("np.array_split cuts both. Who adds the bias?")
''',
    _halves,
)
def _(found, x, W, b, k):
    yield "one term a device", other(len(found), k)
    xs, Ws = np.array_split(x, k, axis=1), np.array_split(W, k)
    right, total = x @ W + b, np.sum(found, axis=0)
    extra = off(total, right) and not off(total, x @ W + k * b)
    yield "the bias is added once", k > 1 and extra and off(total, right)
    yield "the terms add up to one device's output", off(total, right)
    for own, part, rows in zip(found, xs, Ws):
        apart = own - part @ rows
        alone = np.ptp(apart, axis=0).max(initial=0.0) <= 1e-9
        yield "each device computes from its own slice", "" if alone else "one doesn't"


flaw(
    "one-device/flops",
    """
def my_flops(batch, widths):
    flops = 0
    for inner, outer in zip(widths, widths[1:]):
        forward = 2 * batch * inner * outer
        flops += 3 * forward
    return flops
""",
    lambda f: f"a layer of 784 x 10 and a batch of 32: {f(32, [784, 10]):,} FLOPs",
    "the first layer needs no gradient of its input",
)
