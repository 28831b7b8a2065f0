"""Exercises of part 3: formats of numbers, and the roof over a layer."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.drawn import arrays
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import off, other, rounding


def _overflows(draw: random.Random) -> Iterator[tuple]:
    yield from (([True], 8.0, 2), ([False], 8.0, 2), ([True] * 4, 8.0, 2))
    yield [True, False, True, True], 8.0, 2
    for _ in range(4):
        yield [draw.random() < 0.8 for _ in range(12)], 1024.0, draw.randint(1, 4)


@exercise(
    "mixed-precision/scale",
    '''
def my_scales(finite, start, every):
    """Return the loss scale of each step, as a list.

    After a step with gradients that aren't finite, the scale is halved. After
    `every` finite steps in a row, the scale is doubled. In both cases, the
    count of finite steps starts again from 0.

    finite: for each step, whether its gradients were finite.
    start: the loss scale of the first step.
    """
    raise NotImplementedError(
        "The result of a step changes the scale of the next one.",
    )
''',
    _overflows,
)
def judge_scale(found, finite, start, every):
    right, scale, good = [], start, 0
    for fine in finite:
        right.append(scale)
        good = good + 1 if fine else 0
        if not fine:
            scale /= 2
        elif good == every:
            scale, good = 2 * scale, 0
    yield "one scale per step", other(len(found), len(finite))
    yield "the first step has the scale `start`", off(found[0], start)
    wrong = [i for i, (a, b) in enumerate(zip(found, right)) if a != b]
    step = wrong[0] if wrong else 0
    halved = wrong and not finite[step - 1] and f"in step {step} it is {found[step]}"
    yield "it is halved after an overflow", halved
    yield (
        "it is doubled after enough finite steps",
        wrong and (f"in step {step} it is {found[step]}"),
    )


def _formats(draw: random.Random) -> Iterator[tuple]:
    half, brain = (5, 10), (8, 7)
    for x in (1.0, 0.0, -1.0, 0.1, 2049.0, 2051.0, 1e-3, 65504.0, -1e6, 1e-8, 3e-7):
        yield x, *half
    for x in (65510.0, 65519.9, 65520.0, -65520.0):  # the largest is 65504
        yield x, *half
    for x in (0.1, 257.0, 259.0, 1e6, -1e-8, 1e39, 1e-40):
        yield x, *brain
    for x in (247.0, 250.0):  # the largest is 240
        yield x, 4, 3
    for _ in range(4):
        yield draw.choice((-1, 1)) * 2.0 ** draw.uniform(-30, 18), *half
    yield draw.uniform(-9, 9), 4, 3


def _rounded(x: float, exponent: int, fraction: int, cut: bool = False) -> float:
    """x in this format, digits rounded to even or cut off."""
    bias = 2 ** (exponent - 1) - 1
    where = max(math.frexp(x)[1] - 1, 1 - bias) if x else 1 - bias
    step = 2.0 ** (where - fraction)
    kept = (math.trunc(x / step) if cut else round(x / step)) * step
    largest = (2 - 2.0**-fraction) * 2.0**bias
    return math.copysign(math.inf, x) if abs(kept) > largest else kept


@exercise(
    "mixed-precision/stored",
    '''
def my_stored(x, exponent, fraction):
    """Return the value of the float x after it is stored in a smaller format.

    Round to the nearest number of the format. If two numbers are equally near,
    choose the even one, as Python's round does. 0.0 stays 0.0. Below the
    smallest normal number, the spacing stays the same. If the rounded number
    is beyond the format's largest number, the result is infinity with the sign
    of x.

    exponent, fraction: the numbers of bits, such as 5 and 10 for float16.
    """
    raise NotImplementedError("How far apart are the format's numbers near x?")
''',
    _formats,
    infinite=True,
)
def judge_stored(found, x, exponent, fraction):
    bias = 2 ** (exponent - 1) - 1
    right = _rounded(x, exponent, fraction)
    wrong = found != right and f"it is {found!r}"
    huge = math.isinf(right) and wrong
    yield "a number that is too large becomes infinite", huge
    endless = wrong and isinstance(found, float) and math.isinf(found) and wrong
    yield "a number that isn't too large stays finite", endless
    small = 0 < abs(x) < 2.0 ** (1 - bias) and wrong
    yield "below the normal numbers the spacing stays", small
    cut = wrong and found == _rounded(x, exponent, fraction, cut=True) and wrong
    yield "digits are rounded, not cut off", cut
    between = x / 2.0 ** (math.frexp(x)[1] - 1 - fraction) % 1 == 0.5 and wrong
    yield "of two equally near numbers, it is the even one", between
    yield "it is the nearest number of the format", wrong


def _scaled(draw: random.Random) -> Iterator[tuple]:
    def given(size: float, scale: float, most: float, devices: int = 2) -> tuple:
        grads = [scale * size * arrays(draw, 3) for _ in range(devices)]
        return arrays(draw, 3), grads, scale, 4 * devices, 0.1, most

    yield from (given(1, 1.0, 99.0, 1), given(1, 8.0, 99.0), given(100, 8.0, 1.0))
    for where in (0, 1):
        weights, grads, *rest = given(1, 8.0, 99.0)
        grads[where][1] = math.inf
        yield weights, grads, *rest
    weights, grads, *rest = given(1, 1.0, 99.0)
    for own in grads:
        own[1] = 1.5e308  # twice as much is beyond float64
    yield weights, grads, *rest
    for _ in range(4):
        scale, most = 2.0 ** draw.randint(1, 12), draw.uniform(0.1, 2)
        yield given(9, scale, most, draw.randint(1, 4))


@exercise(
    "mixed-precision/step",
    '''
def my_step(weights, grads, scale, samples, rate, most):
    """Return the weights after a step of SGD with loss scaling and clipping.

    The step is that of the mean loss over all samples, and this mean's
    gradient is clipped to the length `most`. If a device's gradient or the sum
    of all gradients isn't finite, the weights stay as they are.

    grads: for each device, an array, the gradient of its *summed* loss times
        `scale`.
    samples: the number of samples on all devices.
    """
    raise NotImplementedError(
        "Sum, check, unscale, divide, clip: in which order?",
    )
''',
    _scaled,
)
def judge_step(found, weights, grads, scale, samples, rate, most):
    with np.errstate(over="ignore"):
        total = np.sum(grads, axis=0)
    if not np.all(np.isfinite(total)):
        moved = off(found, weights, 1e-12) and f"they are {found}"
        of_sum = np.all(np.isfinite(grads)) and moved
        yield "a sum that overflows stops the step, too", of_sum
        yield "an overflow on any device stops the step", moved
        return

    def clipped(g: np.ndarray) -> np.ndarray:
        return g * min(1, most / np.linalg.norm(g))

    mean = total / scale / samples
    moved = (np.asarray(weights) - found) / rate
    near = 1e3 * rounding(found)  # a small change of weights that aren't small
    wrong = off(moved, clipped(mean), near)
    still = scale > 1 and not off(moved, clipped(total / samples), near)
    yield "the scale doesn't change the step", wrong and still and wrong
    free = wrong and not off(moved, mean, near) and wrong
    yield "a gradient that is too long is clipped", free
    early = [clipped(total) / scale / samples, clipped(total / samples) / scale]
    early.append(clipped(total / scale) / samples)
    before = wrong and not all(off(moved, each, near) for each in early) and wrong
    yield "it is clipped when it is the mean's gradient", before
    up = wrong and not off(-moved, clipped(mean), near) and wrong
    yield "a step goes downhill", up
    sums = [clipped(mean * samples), clipped(mean * samples / len(grads))]
    undivided = wrong and not all(off(moved, each, near) for each in sums) and wrong
    yield "it is divided by all samples", undivided
    yield "it is the step of one device", wrong


def _layers(draw: random.Random) -> Iterator[tuple]:
    yield from (([(100, 1)], 10.0, 5.0), ([(1, 100)], 10.0, 5.0))
    yield [(100, 1), (1, 100)], 10.0, 5.0
    for _ in range(4):
        layers = [(draw.randint(1, 999), draw.randint(1, 999)) for _ in range(6)]
        yield layers, draw.uniform(1, 99), draw.uniform(1, 99)


@exercise(
    "roofline/seconds",
    '''
def my_seconds(layers, peak, bandwidth):
    """Return the shortest time that layers can take, one after the other.

    Within a layer, the device computes and moves bytes at the same time.

    layers: a pair (FLOPs, bytes) for each layer.
    peak: how many FLOPs the device computes per second.
    bandwidth: how many bytes it moves per second.
    """
    raise NotImplementedError("What does a single layer wait for?")
''',
    _layers,
)
def judge_seconds(found, layers, peak, bandwidth):
    computing = [flops / peak for flops, _ in layers]
    moving = [size / bandwidth for _, size in layers]
    right = sum(map(max, computing, moving))
    wrong = off(found, right)
    joined = len(layers) > 1 and not off(found, max(sum(computing), sum(moving)))
    yield "each layer has its own bound", wrong and joined and wrong
    blind = wrong and not off(found, sum(computing)) and wrong
    yield "bytes take time", blind
    slow = wrong and not off(found, sum(moving)) and wrong
    yield "FLOPs take time", slow
    both = wrong and not off(found, sum(computing) + sum(moving)) and wrong
    yield "a layer moves while it computes", both
    yield "it is the least time", wrong


def _dense(draw: random.Random) -> Iterator[tuple]:
    yield from ((800, 128, 10), (128, 10, 10), (2, 2, 1), (4, 4, 1), (16, 16, 2))
    yield 401, 401, 100  # 80,200 samples: too many for a short search
    for _ in range(5):
        yield draw.randint(10, 999), draw.randint(10, 999), draw.randint(1, 60)


@exercise(
    "roofline/batch",
    '''
def my_batch(inputs, outputs, ridge):
    """Return the smallest batch with which a dense layer can reach the peak.

    The layer multiplies (batch, inputs) by (inputs, outputs) in float32. The
    input, the kernel and the output are each moved once. If no batch is large
    enough, return None.

    ridge: the peak divided by the bandwidth, in FLOPs per byte, a whole
        number.
    """
    raise NotImplementedError(
        "Write FLOPs and bytes for a batch b. Which b is large enough?"
    )
''',
    _dense,
)
def judge_batch(found, inputs, outputs, ridge):
    def reaches(b: float) -> bool:
        moved = 4 * (b * inputs + inputs * outputs + b * outputs)
        return 2 * b * inputs * outputs >= ridge * moved

    room = inputs * outputs - 2 * ridge * (inputs + outputs)
    right = -(-2 * ridge * inputs * outputs // room) if room > 0 else None
    said = f"it is {found}"
    yield "it is None if no batch is large enough", right is None != found and said
    yield "if a batch is large enough, it isn't None", found is None != right and said
    kernel = found != right and found == 2 * ridge
    yield "input and output are moved, too", kernel and said
    broken = found is not None and (found != int(found) or found < 1)
    yield "it is a number of samples", broken and said
    yield "it reaches the peak", found is not None and not reaches(found) and said
    smaller = found is not None and found > 1 and reaches(found - 1)
    yield (
        "no smaller batch reaches it",
        smaller and f"{said}, {found - 1} would be enough",
    )


def _convolutions(draw: random.Random) -> Iterator[tuple]:
    yield from (
        (1, 1, 1, 1, 1, False),
        (1, 3, 3, 1, 1, False),
        (4, 28, 3, 1, 20, False),
    )
    yield 2, 13, 5, 20, 50, True
    yield from ((1, 4, 2, 1, 1, False), (2, 9, 4, 3, 5, False), (1, 4, 2, 1, 1, True))
    for _ in range(4):
        kernel, size = draw.randint(1, 5), draw.randint(6, 40)
        padded = draw.random() < 0.5
        yield draw.randint(1, 64), size, kernel, draw.randint(1, 9), 7, padded


@exercise(
    "roofline/convolution",
    '''
def my_flops(batch, size, kernel, channels, filters, padded):
    """Return the FLOPs of a convolution's forward pass.

    Images are size x size pixels with `channels` channels. Each of the filters
    is kernel x kernel pixels, and moves by one pixel at a time. Each number of
    the output is a sum of products, at 2 FLOPs per product.

    batch: the number of images.
    padded: if true, the output is as large as the images. If false, a filter
        stays inside the image.
    """
    raise NotImplementedError(
        "How many numbers does the output have? Each is a sum of what?"
    )
''',
    _convolutions,
)
def judge_convolution(found, batch, size, kernel, channels, filters, padded):
    side = size if padded else size - kernel + 1
    one = 2 * batch * kernel**2 * channels * filters
    right = one * side**2
    wrong = off(found, right)
    half = wrong and not off(found, right / 2) and wrong
    yield "a product counts 2 FLOPs, with its sum", half
    whole = not padded and not off(found, one * size**2)
    yield "without padding the output is smaller", wrong and whole and wrong
    inside = padded and not off(found, one * (size - kernel + 1) ** 2)
    yield "with padding the output is as large", wrong and inside and wrong
    centred = not padded and not off(found, one * (size - kernel // 2 * 2) ** 2)
    yield "a kernel may have an even size, too", wrong and centred and wrong
    flat = [right / channels, right / filters, right / kernel, right / kernel**2]
    short = wrong and not all(off(found, each) for each in flat) and wrong
    yield "each filter sees all channels, and makes an output channel", short
    yield "it counts all products", wrong


def _products(draw: random.Random) -> Iterator[tuple]:
    yield from ((1, 1, 1, 4), (2, 3, 4, 4), (2, 3, 4, 8), (256, 800, 128, 4))
    for _ in range(4):
        numbers = (draw.randint(1, 999) for _ in range(3))
        yield *numbers, draw.choice((1, 4, 8))


@exercise(
    "roofline/intensity",
    '''
def my_intensity(batch, inputs, outputs, width):
    """Return the FLOPs per byte of a dense layer.

    The layer multiplies (batch, inputs) by (inputs, outputs). The input, the
    kernel and the output are each moved once. A product and its addition are 2
    FLOPs.

    width: the bytes of one number.
    """
    raise NotImplementedError("How many FLOPs are there, and how many bytes?")
''',
    _products,
    hunted=True,
)
def judge_intensity(found, batch, inputs, outputs, width):
    flops = 2 * batch * inputs * outputs
    signal, kernel = batch * (inputs + outputs), inputs * outputs
    right = flops / width / (signal + kernel)
    wrong = off(found, right)
    numbers = wrong and not off(found, width * right) and wrong
    yield "it is FLOPs per byte, not FLOPs per number", numbers
    half = wrong and not off(found, right / 2) and wrong
    yield "a product is 2 FLOPs, with its sum", half
    without = wrong and not off(found, flops / width / signal) and wrong
    yield "the kernel is moved, too", without
    only = wrong and not off(found, flops / width / kernel) and wrong
    yield "the signals are moved, too", only
    wide = wrong and not off(found, right * width / 4) and wrong
    yield "a number has as many bytes as its dtype", wide
    yield "it is FLOPs divided by bytes", wrong


def _of_layer(intensity: Callable) -> str:
    found = [f"{intensity(b, 800, 128, 4):.1f}" for b in (1, 32, 1024)]
    layer = "a layer of 800 x 128 in float32, with batches of 1, 32 and 1,024"
    return f"{layer}: {', '.join(found)} FLOPs per byte"


def _in_half(intensity: Callable) -> str:
    found = [f"{intensity(32, 800, 128, width):.2f}" for width in (4, 2)]
    layer = "a layer of 800 x 128, with a batch of 32, in float32 and in float16"
    return f"{layer}: {' and '.join(found)} FLOPs per byte"


flaw(
    "roofline/intensity",
    """
def my_intensity(batch, inputs, outputs, width):
    flops = 2 * batch * inputs * outputs
    moved = batch * inputs + batch * outputs
    return flops / (width * moved)
""",
    _of_layer,
    "the kernel is moved, too",
)
flaw(
    "roofline/intensity",
    """
def my_intensity(batch, inputs, outputs, width):
    flops = 2 * batch * inputs * outputs
    moved = batch * inputs + inputs * outputs + batch * outputs
    return flops / (4 * moved)
""",
    _in_half,
    "a number has as many bytes as its dtype",
)
flaw(
    "roofline/intensity",
    """
def my_intensity(batch, inputs, outputs, width):
    flops = batch * inputs * outputs
    moved = batch * inputs + inputs * outputs + batch * outputs
    return flops / (width * moved)
""",
    _of_layer,
    "a product is 2 FLOPs, with its sum",
)
