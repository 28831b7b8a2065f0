"""Exercises of part 1: three ways to split."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.drawn import arrays
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import mistaken, off, other, rounding


def _cut(draw: random.Random) -> Iterator[tuple]:
    yield from ((2, 5, 3), (3, 2, 4))
    for _ in range(4):
        yield draw.randint(2, 5), draw.randint(1, 9), draw.randint(1, 9)


def _halves(draw: random.Random) -> Iterator[tuple]:
    x, W, b = np.array([[1.0, 2], [3, 5]]), np.array([[1.0], [2]]), np.array([10.0])
    yield from ((x, W, b, 1), (x, W, b, 2))
    for k, inner, outer in _cut(draw):
        yield arrays(draw, 2, inner), arrays(draw, inner, outer), arrays(draw, outer), k


@exercise(
    "three-ways-to-split/inputs",
    '''
def my_cut_inputs(x, W, b, k):
    """Return k terms, one per device, whose sum is x @ W + b.

    Each term comes from a slice of W's rows: device d gets some rows of W, the
    matching columns of x, and nothing else of them. The slices differ by at
    most one row, and the larger ones come first. A slice may be empty.
    """
    raise NotImplementedError(
        "np.array_split cuts both. Which term has the bias?",
    )
''',
    _halves,
)
def judge_inputs(found, x, W, b, k):
    yield "one term per device", other(len(found), k)
    xs, Ws = np.array_split(x, k, axis=1), np.array_split(W, k)
    right, total = x @ W + b, np.sum(found, axis=0)
    extra = off(total, right) and not off(total, x @ W + k * b)
    yield "the bias is added once", k > 1 and extra and off(total, right)
    yield "the terms add up to one device's output", off(total, right)
    for d, (own, part, rows) in enumerate(zip(found, xs, Ws)):
        apart = own - part @ rows
        foreign = not np.ptp(apart, axis=0).max(initial=0.0) <= rounding(own)
        said = foreign and f"device {d} doesn't"
        yield "each device computes from its own slice", said


def _equal(draw: random.Random) -> Iterator[tuple]:
    yield from ((100, 10, 3), (101, 10, 2), (99, 10, 4), (5, 10, 3))
    for _ in range(4):
        yield draw.randint(10**3, 10**6), draw.randint(10, 10**4), draw.randint(2, 64)


@exercise(
    "three-ways-to-split/batch",
    '''
def my_batch(parameters, handed, devices):
    """Return the smallest batch for which data parallelism isn't worse.

    Compare the bytes that a device receives in one step, forward and backward:
    data parallelism must receive no more than layerwise partitioning does.
    There are two or more devices, which share evenly.

    parameters: how many numbers the network has.
    handed: how many numbers its layers hand on per sample, in the forward
        pass.
    """
    raise NotImplementedError("Which fraction of each does a device receive?")
''',
    _equal,
)
def judge_batch(found, parameters, handed, devices):
    kind = not isinstance(found, int | np.integer) and f"it is {found!r}"
    yield "it is a whole number of samples", kind
    right, wrong = -(-parameters // handed), other(found, -(-parameters // handed))
    share = (devices - 1) / devices
    cut = [parameters * share / handed, parameters / (share * handed)]
    cut += [parameters / handed / devices, parameters * devices / handed]
    known = {int(np.ceil(each)) for each in cut}
    yield "the number of devices doesn't matter", found in known and wrong
    twice = found in (-(-2 * parameters // handed), -(-parameters // (2 * handed)))
    yield "both send as much backward as forward", twice and wrong
    yield "data parallelism receives no more", found < right and wrong
    yield "no smaller batch is enough", wrong


def _backwards(draw: random.Random) -> Iterator[tuple]:
    g, W = np.array([[1.0, 2], [3, 5]]), np.array([[1.0, 2], [3, -1], [0, 4]])
    yield from ((g, W, 1), (g, W, 2), (g, W, 3))
    for k, inner, outer in _cut(draw):
        yield arrays(draw, 2, outer), arrays(draw, inner, outer), k


@exercise(
    "three-ways-to-split/backward",
    '''
def my_terms(g, W, k):
    """Return k terms, one per device, whose sum is the gradient of x in x @ W.

    W, of shape (inputs, outputs), is split by its outputs. Device d gets some
    columns of W and the same columns of g, and no others. The shares differ by
    at most one column, and the larger ones come first. A share may be empty.

    g: the gradient of x @ W, of shape (samples, outputs).
    """
    raise NotImplementedError("What is the gradient of x on one device?")
''',
    _backwards,
)
def judge_backward(found, g, W, k):
    yield "one term per device", other(len(found), k)
    shapes = {np.shape(term) for term in found}
    shape = (len(g), len(W))
    yield "a term has the input's shape", shapes != {shape} and f"it is {shapes}"
    total = off(np.sum(found, axis=0), g @ W.T)
    yield "the terms add up to one device's gradient", total
    cuts = zip(np.array_split(g, k, axis=1), np.array_split(W, k, axis=1))
    alone = [off(term, own @ part.T) for term, (own, part) in zip(found, cuts)]
    apart = [f"that of device {d} isn't" for d, wrong in enumerate(alone) if wrong]
    yield "each term is of the device's own columns", apart and apart[0]


def _pieces(draw: random.Random) -> Iterator[tuple]:
    yield ([[1.0, 2.0]],)
    yield ([[2.0, 1.0], [1.0, 2.0]],)
    yield ([[3.0, 1.0, 1.0], [1.0, 1.0, 2.0]],)
    for _ in range(4):
        layers = draw.randint(2, 5)
        devices = range(draw.randint(2, 5))
        yield ([[float(draw.randint(1, 9)) for _ in range(layers)] for _ in devices],)


@exercise(
    "three-ways-to-split/seconds",
    '''
def my_seconds(pieces):
    """Return the seconds of a forward pass, for two of the ways to split.

    The result is a pair: first layerwise, then data parallelism. Sending takes no
    time.

    pieces: for each device, a list with the seconds that it needs for its
        piece of each layer.
    """
    raise NotImplementedError("When do the devices wait for each other?")
''',
    _pieces,
)
def judge_seconds(found, pieces):
    layerwise, data = found
    meeting, alone = sum(map(max, zip(*pieces))), max(map(sum, pieces))
    wrong = off(layerwise, meeting)
    yield (
        "layerwise, all devices wait for each other after every layer",
        wrong and f"layerwise {wrong}",
    )
    waits, wrong = mistaken(data, alone, meeting), off(data, alone)
    said = wrong and f"in data parallelism {wrong}"
    yield "in data parallelism no device waits before the end", waits and said
    yield "the slowest device decides", said


def _nets(draw: random.Random) -> Iterator[tuple]:
    for widths, k in (
        ([3, 4], 1),
        ([3, 4], 2),
        ([3, 5], 2),
        ([4, 4, 4], 2),
        ([3, 5, 6, 3], 3),
        ([2, draw.randint(3, 9), draw.randint(3, 9), 4], 3),
    ):
        weights = [arrays(draw, a, b) for a, b in zip(widths, widths[1:])]
        yield arrays(draw, 3, widths[0]), weights, k


def _logits(x, weights, each=lambda h, W: h @ W):
    """What a network without biases computes, if `each` multiplies."""
    for W in weights[:-1]:
        x = np.maximum(each(x, W), 0)
    return each(x, weights[-1])


@exercise(
    "three-ways-to-split/logits",
    '''
def my_logits(x, weights, k):
    """Return the logits of a network with every layer split over k devices.

    k is at most the number of outputs of any layer. A ReLU follows each layer
    except the last.

    x: (samples, inputs).
    weights: for each layer, an array (inputs, outputs).
    """
    raise NotImplementedError(
        "Split the outputs, and gather what the other devices have."
    )
''',
    _nets,
    hunted=True,
)
def judge_logits(found, x, weights, k):
    right = _logits(x, weights)
    wrong = off(found, right)
    rectified = np.maximum(right, 0)
    yield "logits have no ReLU", mistaken(found, right, rectified)
    empty = [c for c in np.flatnonzero(~np.any(found, axis=0)) if right[:, c].any()]
    yield "no channel is lost", empty and f"channel {empty[0]} is 0"
    moved = wrong and not off(np.sort(found, axis=1), np.sort(right, axis=1)) and wrong
    yield "channels keep their places", moved

    def early(h, W):
        cuts = zip(np.array_split(h, k, axis=1), np.array_split(W, k))
        return sum(np.maximum(own @ rows, 0) for own, rows in cuts)

    *hidden, last = weights
    for W in hidden:
        x = early(x, W)
    yield "parts are added before the ReLU", mistaken(found, right, x @ last)
    yield "they are the logits of one device", wrong


def _logits_off(logits) -> str:
    """How far two networks' logits are off, by devices."""
    draw, said = random.Random(2), []
    x, weights = arrays(draw, 8, 6), [arrays(draw, 6, 6), arrays(draw, 6, 6)]
    for k in (1, 2, 4):
        right = _logits(x, weights)
        apart = np.linalg.norm(logits(x, weights, k) - right) / np.linalg.norm(right)
        said.append(f"{apart:.0%} on {k}")
    return f"two layers of 6 x 6; the logits' error is {', '.join(said)} devices"


flaw(
    "three-ways-to-split/logits",
    """
import numpy as np

def my_logits(x, weights, k):
    for i, W in enumerate(weights):
        size, h = W.shape[1] // k, np.zeros((len(x), W.shape[1]))
        for d in range(k):
            own = slice(d * size, (d + 1) * size)
            h[:, own] = x @ W[:, own]
        x = np.maximum(h, 0) if i < len(weights) - 1 else h
    return x
""",
    _logits_off,
    "no channel is lost",
)
flaw(
    "three-ways-to-split/logits",
    """
import numpy as np

def my_logits(x, weights, k):
    for i, W in enumerate(weights):
        pieces = [x @ W[:, d::k] for d in range(k)]
        h = np.concatenate(pieces, axis=1)
        x = np.maximum(h, 0) if i < len(weights) - 1 else h
    return x
""",
    _logits_off,
    "channels keep their places",
)
flaw(
    "three-ways-to-split/logits",
    """
import numpy as np

def my_logits(x, weights, k):
    *hidden, last = weights
    for W in hidden:
        cuts = zip(np.array_split(x, k, axis=1), np.array_split(W, k))
        x = sum(np.maximum(own @ rows, 0) for own, rows in cuts)
    return x @ last
""",
    _logits_off,
    "parts are added before the ReLU",
)
flaw(
    "three-ways-to-split/logits",
    """
import numpy as np

def my_logits(x, weights, k):
    for W in weights:
        pieces = [x @ part for part in np.array_split(W, k, axis=1)]
        x = np.maximum(np.concatenate(pieces, axis=1), 0)
    return x
""",
    _logits_off,
    "logits have no ReLU",
)
