"""The book's answers to exercises of mesh-layout."""

import itertools
import math

import numpy as np


def my_groups(data, model):
    """Rows of the array of ranks, and its columns."""
    ranks = np.arange(data * model).reshape(data, model)
    return ranks.T.tolist(), ranks.tolist()


def my_order(sizes, sent, node):
    """Groups along an axis stay in a node if it and all axes within share one."""

    def seconds(order):
        within = [math.prod(sizes[a] for a in order[i:]) for i in range(len(order))]
        return sum(sent[a] * (1 if n <= node else 10) for a, n in zip(order, within))

    return list(min(itertools.permutations(sizes), key=seconds))


def my_mesh(devices, node, memory, room):
    """Few stages and slices leave many copies; slices go before stages."""
    fit = [
        (pipeline, devices // (pipeline * layerwise), layerwise)
        for layerwise in range(1, node + 1)
        for pipeline in range(1, devices + 1)
        if node % layerwise == 0
        and devices % (pipeline * layerwise) == 0
        and memory <= room * pipeline * layerwise
    ]
    return max(fit, key=lambda mesh: (mesh[1], -mesh[0]), default=None)


def my_leaves(sizes, axis, node):
    """All groups are lines of the array of ranks; look at each one's nodes."""
    ranks = np.arange(math.prod(sizes)).reshape(sizes)
    groups = np.moveaxis(ranks, axis, -1).reshape(-1, sizes[axis])
    return any(len({rank // node for rank in group}) > 1 for group in groups)
