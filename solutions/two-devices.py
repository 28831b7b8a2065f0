"""The book's answers to exercises of two-devices."""

import numpy as np


def my_mean(sums, counts):
    """The sum over all devices, divided once."""
    return np.sum(sums, axis=0) / sum(counts)


def my_weights(counts):
    """A sample weighs 1 / (k n) for 1 / N, so it counts N / (k n) times."""
    return [sum(counts) / (len(counts) * n) for n in counts]


def my_smallest(devices):
    """One sample more than devices is the first batch that doesn't divide."""
    return devices + 1 if devices > 1 else None


def my_step(w, X, y, devices):
    """Sum everywhere, divide once: then uneven shards do no harm."""
    shards = zip(np.array_split(X, devices), np.array_split(y, devices))
    sums = [(X_own @ w - y_own) @ X_own for X_own, y_own in shards]
    return [w - 0.1 * sum(sums) / len(y) for _ in range(devices)]
