"""Exercises of part 1: one device."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.drawn import arrays
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import mistaken, off, other


def _dense(draw: random.Random) -> Iterator[tuple]:
    yield from ((1, [1, 1]), (2, [3, 4]), (2, [3, 4, 5]))
    for _ in range(4):
        yield draw.randint(1, 64), [draw.randint(1, 99) for _ in range(4)]


@exercise(
    "one-device/flops",
    '''
def my_flops(batch, widths):
    """Return the FLOPs of the products of a dense network's training step.

    A product of (a, b) and (b, c) has 2 a b c FLOPs. The gradient of the input
    isn't needed.

    widths: the widths of the input, of each hidden layer, and of the output.
    """
    raise NotImplementedError(
        "Forward, a layer has one product. How many does it have backward?"
    )
''',
    _dense,
)
def judge_flops(found, batch, widths):
    layers = [2 * batch * a * b for a, b in zip(widths, widths[1:])]
    forward = sum(layers)
    yield "the backward pass counts", found == forward and f"it is {found}"
    half = len(layers) > 1 and found == 2 * forward and f"it is {found}"
    yield "a backward pass has two products per layer", half
    unasked = "the first layer needs no gradient of its input"
    yield unasked, found == 3 * forward and f"it is {found}"
    yield "it counts all products", other(found, 3 * forward - layers[0])


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


def _sgd(draw: random.Random) -> Iterator[tuple]:
    for sizes in ([3], [3, 3], [4, 2], [3, 3, 1], [draw.randint(1, 4) for _ in "abcd"]):
        batches = [(arrays(draw, n, 4), arrays(draw, n)) for n in sizes]
        yield arrays(draw, 4), batches


def _trained(w, batches, size=None, keep=0.0, at_start=False):
    """w after a step of rate 0.1 on each batch, right or with a known mistake."""
    start, now, sums = w, w.copy(), 0.0
    for X, y in batches:
        sums = keep * sums + (X @ (start if at_start else now) - y) @ X
        now = now - 0.1 * sums / (size or len(y))
    return now


@exercise(
    "one-device/training",
    '''
def my_training(w, batches):
    """Return w after one step of rate 0.1 on each batch (X, y), in their order.

    The loss of a batch is the mean of (x @ w - y) ** 2 / 2. w: (numbers,). X: (samples,
    numbers). y: (samples,). The last batch may be smaller.
    """
    raise NotImplementedError(
        "Forward, backward, update, and then the next batch.",
    )
''',
    _sgd,
    hunted=True,
)
def judge_training(found, w, batches):
    right, first = _trained(w, batches), len(batches[0][1])
    stale = _trained(w, batches, at_start=True)
    yield "a step begins where the last one ended", mistaken(found, right, stale)
    summed = _trained(w, batches, keep=1.0)
    yield "a step follows its own batch's gradient", mistaken(found, right, summed)
    by_first = _trained(w, batches, size=first)
    yield "a batch is divided by its own size", mistaken(found, right, by_first)
    full = _trained(w, [batch for batch in batches if len(batch[1]) == first])
    yield "the small last batch counts, too", mistaken(found, right, full)
    yield "it is a step on each batch", off(found, right)


def _fitted(training) -> str:
    """How far the weights are after three batches, the last one small."""
    draw = random.Random(1)
    w, sizes = arrays(draw, 4), (8, 8, 2)
    batches = [(arrays(draw, n, 4), arrays(draw, n)) for n in sizes]
    said = []
    for n in (1, 2, 3):
        right = _trained(w, batches[:n])
        apart = training(w.copy(), batches[:n]) - right
        moved = np.linalg.norm(right - w)
        said.append(f"{np.linalg.norm(apart) / moved:.0%} after {n}")
    shown = ", ".join(said)
    return f"batches of {sizes}; relative to how far w should move, it errs by {shown}"


flaw(
    "one-device/training",
    """
def my_training(w, batches):
    size = len(batches[0][1])
    for X, y in batches:
        gradient = (X @ w - y) @ X
        w = w - 0.1 * gradient / size
    return w
""",
    _fitted,
    "a batch is divided by its own size",
)
flaw(
    "one-device/training",
    """
def my_training(w, batches):
    gradient = 0.0
    for X, y in batches:
        gradient += (X @ w - y) @ X
        w = w - 0.1 * gradient / len(y)
    return w
""",
    _fitted,
    "a step follows its own batch's gradient",
)
flaw(
    "one-device/training",
    """
def my_training(w, batches):
    new = w.copy()
    for X, y in batches:
        gradient = (X @ w - y) @ X
        new = new - 0.1 * gradient / len(y)
    return new
""",
    _fitted,
    "a step begins where the last one ended",
)


def _rooms(draw: random.Random) -> Iterator[tuple]:
    yield from ((10, 5, 0, 1000), (10, 5, 2, 1001), (10, 5, 1, 1000), (10, 5, 2, 100))
    yield 10, 5, 2, 1019
    for _ in range(4):
        parameters, copies = draw.randint(100, 10**6), draw.randint(0, 2)
        yield parameters, draw.randint(1, 9999), copies, draw.randint(10**6, 10**8)


@exercise(
    "one-device/batch",
    '''
def my_batch(parameters, activations, copies, memory):
    """Return the largest batch whose step fits. If none fits, return 0.

    All numbers are float32. Leave out the signal, which comes and goes within
    a step.

    parameters: how many numbers are trained.
    activations: how many numbers are kept per sample.
    copies: how many numbers the optimizer keeps per parameter, such as 2 for
        Adam.
    memory: the bytes that the device has.
    """
    raise NotImplementedError(
        "Which bytes are needed before the first sample comes?",
    )
''',
    _rooms,
)
def judge_batch(found, parameters, activations, copies, memory):
    def fits(held, size=4):
        return max(0, (memory - size * held * parameters) // (size * activations))

    right = fits(2 + copies)
    wrong = other(found, right)
    named = {
        "gradients need room, too": fits(1 + copies),
        "the optimizer's copies need room": fits(2),
        "a float32 has four bytes": fits(2 + copies, size=1),
    }
    for name, mistake in named.items():
        yield name, found == mistake and wrong
    yield "no less than 0 samples fit", found < 0 and wrong
    yield "it fits", found > right and wrong
    yield "one more sample wouldn't fit", wrong


def _chains(draw: random.Random) -> Iterator[tuple]:
    yield from ((1.0, [4, 3], 0.5), (1.0, [8, 2, 5], 0.5), (2.0, [2, 3, 4, 5], 1.0))
    for _ in range(4):
        widths = [draw.randint(1, 99) for _ in range(draw.randint(3, 6))]
        yield draw.uniform(0.1, 2), widths, draw.uniform(0.01, 1)


def _squares(size, widths, deviation, relu=0.5, last=1.0, power=2) -> list[float]:
    """Mean squares layer by layer, right or with a known mistake."""
    found = []
    for n in widths[:-1]:
        size *= n * deviation**power * relu
        found.append(size)
    found[-1] *= last / relu
    return found


@exercise(
    "one-device/sizes",
    '''
def my_sizes(size, widths, deviation):
    """Return the mean square of each dense layer's output, as a list.

    A ReLU follows each layer except the last, and the output is then that of
    the ReLU. Suppose that a ReLU halves the mean square. The weights are drawn
    with mean 0 and this deviation, and the biases are 0.

    size: the mean square of the inputs.
    widths: the widths of the input, of each hidden layer, and of the output.
    deviation: the standard deviation of the weights.
    """
    raise NotImplementedError("Of how many products is an output the sum?")
''',
    _chains,
)
def judge_sizes(found, size, widths, deviation):
    given = size, widths, deviation
    right, outputs = _squares(*given), widths[1:]
    yield "one number per layer", other(len(found), len(right))
    named = {
        "a ReLU halves it": _squares(*given, relu=1.0),
        "no ReLU follows the last layer": _squares(*given, last=0.5),
        "the deviation is squared": _squares(*given, power=1),
        "an output sums one product per input": _squares(
            size, [*outputs, 1], deviation
        ),
    }
    for name, mistake in named.items():
        yield name, mistaken(found, right, mistake)
    yield "each layer gets the output of the layer below", off(found, right)
