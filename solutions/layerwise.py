"""The book's answers to exercises of layerwise."""

import numpy as np


def my_pair(x, A, a, B, b, k):
    """Columns complete some hidden numbers, which are the inputs of the same rows."""
    cuts = np.array_split(A, k, axis=1), np.array_split(a, k), np.array_split(B, k)
    terms = [np.maximum(x @ cut + part, 0) @ rows for cut, part, rows in zip(*cuts)]
    return [terms[0] + b, *terms[1:]]


def my_losses(tops, sums, chosen):
    """A device's sum was scaled by its own largest logit: scale it by the largest."""
    top = np.max(tops, axis=0)
    total = np.sum(sums * np.exp(tops - top), axis=0)
    return np.log(total) + top - np.sum(chosen, axis=0)


def my_rows(places, channels, k):
    """A device has its channels at every place."""
    own = channels // k
    return [
        [p * channels + d * own + i for p in range(places) for i in range(own)]
        for d in range(k)
    ]
