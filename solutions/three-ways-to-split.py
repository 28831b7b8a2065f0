"""The book's answers to exercises of three-ways-to-split."""

import numpy as np


def my_cut_inputs(x, W, b, k):
    """One term alone has the bias: a sum adds it as often as it is there."""
    terms = zip(np.array_split(x, k, axis=1), np.array_split(W, k))
    return [own @ rows + b * (d == 0) for d, (own, rows) in enumerate(terms)]


def my_batch(parameters, handed, devices):
    """A device receives the same fractions of both, so compare what is sent."""
    return -(-parameters // handed)


def my_terms(g, W, k):
    """Who has some outputs knows what these ask of the input, and nothing else."""
    cuts = zip(np.array_split(g, k, axis=1), np.array_split(W, k, axis=1))
    return [own @ columns.T for own, columns in cuts]


def my_seconds(pieces):
    """A sum of the slowest pieces, against the slowest sum of pieces."""
    return sum(map(max, zip(*pieces))), max(map(sum, pieces))


def my_logits(x, weights, k):
    """All gather the pieces of all before the next layer begins."""
    *hidden, last = weights
    for W in hidden:
        pieces = [np.maximum(x @ own, 0) for own in np.array_split(W, k, axis=1)]
        x = np.concatenate(pieces, axis=1)
    pieces = [x @ own for own in np.array_split(last, k, axis=1)]
    return np.concatenate(pieces, axis=1)
