"""The book's answers to exercises of two-devices."""

import numpy as np


def my_mean(sums, counts):
    """The sum over all devices, divided once."""
    return np.sum(sums, axis=0) / sum(counts)
