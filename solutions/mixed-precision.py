"""The book's answers to exercises of mixed-precision."""

import math

import numpy as np


def my_scales(finite, start, every):
    """What a step finds changes the scale of the next one."""
    scales, scale, good = [], start, 0
    for fine in finite:
        scales.append(scale)
        good = good + 1 if fine else 0
        if not fine:
            scale /= 2
        elif good == every:
            scale, good = 2 * scale, 0
    return scales


def my_stored(x, exponent, fraction):
    """The spacing follows from the power of two below x, but not below the normals."""
    bias = 2 ** (exponent - 1) - 1
    power = max(math.floor(math.log2(abs(x))), 1 - bias) if x else 0
    spacing = 2.0 ** (power - fraction)
    stored = round(x / spacing) * spacing
    largest = (2 - 2.0**-fraction) * 2.0**bias
    return stored if abs(stored) <= largest else math.copysign(math.inf, x)


def my_step(weights, grads, scale, samples, rate, most):
    """The sum carries every overflow; only the mean's gradient has a length to clip."""
    total = sum(grads)
    if not np.isfinite(total).all():
        return weights
    mean = total / (scale * samples)
    length = np.linalg.norm(mean)
    return weights - rate * mean * min(1, most / length)
