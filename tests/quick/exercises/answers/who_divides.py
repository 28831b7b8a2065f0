"""Answers to exercises of the page on divisions: right ones, and wrong."""

from __future__ import annotations

import math

import numpy as np


def labels(ranks):
    return [weight for _, own in ranks for part in own for weight in part]


def divisor_by_first(ranks, cutting):
    """Only ranks at index 0 of all other axes are asked."""
    asked = [
        (place, own)
        for place, own in ranks
        if not any(place[axis] for axis in place if axis not in cutting)
    ]
    return sum(labels(asked))


def divisor_by_shares(ranks, cutting):
    """All ranks are asked, and each gives its share of what it has in common."""
    keys = [tuple(sorted((a, p[a]) for a in p if a in cutting)) for p, _ in ranks]
    return math.fsum(
        sum(labels([rank])) / keys.count(key)
        for rank, key in zip(ranks, keys, strict=True)
    )


def kept(means, weights):
    pairs = [
        (np.array(mean), weight)
        for own, of_own in zip(means, weights, strict=True)
        for mean, weight in zip(own, of_own, strict=True)
        if weight
    ]
    return zip(*pairs, strict=True)


def repair_by_average(means, weights):
    numbers, of = kept(means, weights)
    return np.average(numbers, axis=0, weights=of)


def repair_by_shares(means, weights):
    numbers, of = kept(means, weights)
    return sum(weight / sum(of) * mean for mean, weight in zip(numbers, of))


def rank_by_rank(means, weights):
    pairs = zip(means, weights, strict=True)
    return np.mean([repair_by_average([m], [w]) for m, w in pairs], axis=0)


def mean_of_means(means, weights):
    return np.mean([*kept(means, weights)][0], axis=0)


def mean_of_mean_of_means(means, weights):
    pairs = zip(means, weights, strict=True)
    return np.mean([mean_of_means([m], [w]) for m, w in pairs], axis=0)


def factor_by_sets(sizes, cutting, pieces):
    return math.prod(sizes[axis] for axis in {*sizes} & ({*cutting} - {*pieces}))


def factor_by_division(sizes, cutting, pieces):
    ranks = math.prod(sizes.values())
    others = [n for axis, n in sizes.items() if axis not in cutting or axis in pieces]
    return ranks // math.prod(others)


RIGHT = {
    "who-divides/divisor": [divisor_by_first, divisor_by_shares],
    "who-divides/repair": [repair_by_average, repair_by_shares],
    "who-divides/factor": [factor_by_sets, factor_by_division],
}
WRONG = {
    "who-divides/divisor": [
        (
            "a label that several ranks have counts once",
            lambda ranks, cutting: sum(labels(ranks)),
        ),
        (
            "labels count by their weights",
            lambda ranks, cutting: divisor_by_first(
                [(p, [[1] * len(part) for part in own]) for p, own in ranks], cutting
            ),
        ),
        (
            "the labels of all micro-batches count",
            lambda ranks, cutting: divisor_by_first(
                [(place, own[:1]) for place, own in ranks], cutting
            ),
        ),
        (
            "the labels of all ranks count",
            lambda ranks, cutting: sum(labels(ranks[:1])),
        ),
        (
            "it is the sum of the weights of all labels",
            lambda *given: divisor_by_first(*given) + 1,
        ),
    ],
    "who-divides/repair": [
        ("micro-batches count by their weights", mean_of_means),
        ("micro-batches count by their weights", mean_of_mean_of_means),
        ("ranks count by their weights", rank_by_rank),
        (
            "it is divided once",
            lambda means, weights: repair_by_average(means, weights) * np.sum(weights),
        ),
        (
            "it is the gradient of one device",
            lambda *given: repair_by_average(*given) / 2,
        ),
    ],
    "who-divides/factor": [
        (
            "an axis along which the parameter is in pieces doesn't count",
            lambda sizes, cutting, pieces: factor_by_sets(sizes, cutting, []),
        ),
        (
            "the mean of complete gradients needs no factor",
            lambda sizes, cutting, pieces: factor_by_sets(sizes, sizes, pieces),
        ),
        (
            "the mean of complete gradients needs no factor",
            lambda sizes, cutting, pieces: math.prod(sizes.values()),
        ),
        ("every axis that cuts tokens counts", lambda *given: 1),
        (
            "it is the number of different summands in the mean",
            lambda *given: 1 / factor_by_sets(*given),
        ),
    ],
}
