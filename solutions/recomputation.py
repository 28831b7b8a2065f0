"""The book's answers to exercises of recomputation."""

import itertools


def my_segment(layers):
    """Count inputs and one segment's own for each length."""

    def kept(length):
        return -(-layers // length) + length

    return min(range(1, layers + 1), key=kept)


def my_passes(layers, length):
    """Forward once; then, from the last segment on, forward again and back."""
    passes = [("F", i) for i in range(layers)]
    for first in reversed(range(0, layers, length)):
        own = range(first, min(first + length, layers))
        if own[-1] < layers - 1:
            passes += [("F", i) for i in own]
        passes += [("B", i) for i in reversed(own)]
    return passes


def my_again(sizes, seconds, room):
    """With few results, all choices can be tried."""
    each = range(len(sizes))
    choices = itertools.chain(*(itertools.combinations(each, n) for n in range(9)))
    fit = [
        again for again in choices if sum(sizes) - sum(sizes[i] for i in again) <= room
    ]
    return list(min(fit, key=lambda again: sum(seconds[i] for i in again)))


def my_peak(sizes, starts):
    """Each segment has its moment: inputs as far as it, and its own outputs."""
    most, inputs = 0, 0
    for first, end in zip(starts, [*starts[1:], len(sizes) - 1]):
        inputs += sizes[first]
        most = max(most, inputs + sum(sizes[first + 1 : end + 1]))
    return most
