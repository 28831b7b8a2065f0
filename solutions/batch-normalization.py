"""The book's answers to exercises of batch-normalization."""

import numpy as np


def my_moments(counts, means, variances):
    """Each share's own spread, and how far its mean lies off the common one."""
    mean = np.average(means, axis=0, weights=counts)
    spread = np.array(variances) + (np.array(means) - mean) ** 2
    return mean, np.average(spread, axis=0, weights=counts)


def my_input_gradients(gs, units, scale):
    """An input moves the mean and the spread of all: both sums are over all devices."""
    samples = sum(map(len, gs))
    of_mean = sum(g.sum(0) for g in gs) / samples
    of_spread = sum((g * u).sum(0) for g, u in zip(gs, units)) / samples
    return [scale * (g - of_mean - u * of_spread) for g, u in zip(gs, units)]


def my_totals(grads, summed):
    """What its layer has summed is there on every device: take it once."""
    return {
        name: grads[0][name] if name in summed else sum(own[name] for own in grads)
        for name in grads[0]
    }
