"""The book's answers to exercises of is-my-step-right."""

import numpy as np


def my_reading(counts, owners):
    """From all samples to single ones; nothing is compared more sharply than 1e-6."""
    by_device = {}
    for count, device in zip(counts, owners):
        by_device.setdefault(device, []).append(count)
    if max(counts) - min(counts) < 1e-6:
        return "right" if abs(counts[0] - 1) < 1e-6 else "factor"
    if min(map(abs, counts)) < 1e-6:
        return "lost"
    alike = all(max(own) - min(own) < 1e-6 for own in by_device.values())
    return "shares" if alike else "samples"


def my_counts(sizes, extra):
    """Whoever is next to whom: the first samples of each share count twice."""
    return [2 if i < extra else 1 for size in sizes for i in range(size)]


def my_gradients(weights, rate, momentum):
    """What a step moved is its slot; take off what the slot before has left in it."""
    found, before = [], np.zeros_like(weights[0])
    for old, new in zip(weights, weights[1:]):
        slot = (old - new) / rate
        found.append(slot - momentum * before)
        before = slot
    return found


def my_passes(before, copies, gradient, rate):
    """Measure against the step, not against the weights; NaN is below no bound."""
    step = rate * gradient
    bound = 1e-3 * np.linalg.norm(step)
    return all(np.linalg.norm(before - step - own) <= bound for own in copies)
