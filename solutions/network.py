"""The book's answers to exercises of network."""

import itertools


def my_cuts(costs, stages):
    """All ways to cut, and the one whose largest stage is least."""

    def slowest(cuts):
        ends = [0, *cuts, len(costs)]
        return max(sum(costs[a:b]) for a, b in zip(ends, ends[1:]))

    ways = itertools.combinations(range(1, len(costs)), stages - 1)
    return list(min(ways, key=slowest))


def my_messages(devices, sizes):
    """An output travels where the next layer is elsewhere; its gradient comes back."""
    there = [
        (source, target, size)
        for source, target, size in zip(devices, devices[1:], sizes)
        if source != target
    ]
    return there + [(target, source, size) for source, target, size in there[::-1]]


def my_cut(parameters, outputs, room):
    """Of the cuts whose two parts fit, the one behind the smallest output."""
    fit = [
        cut
        for cut in range(1, len(parameters))
        if max(sum(parameters[:cut]), sum(parameters[cut:])) <= room
    ]
    return min(fit, key=lambda cut: outputs[cut - 1], default=None)
