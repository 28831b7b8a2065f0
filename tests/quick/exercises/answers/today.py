"""Answers to the exercises of part 5: right ones, and mistakes with what they break."""

from __future__ import annotations

import functools
import math

import numpy as np


def output_one_by_one(states):
    """Two states become one, again and again."""

    def both(one, other):
        top = max(one[0], other[0])
        a, b = math.exp(one[0] - top), math.exp(other[0] - top)
        return top, a * one[1] + b * other[1], a * one[2] + b * other[2]

    _, total, weighted = functools.reduce(both, states)
    return weighted / total


def output_by_logarithms(states):
    """Each device's own output, weighted by the exponential of its whole sum."""
    seen = [state for state in states if state[1] > 0]
    logs = np.array([state[0] + math.log(state[1]) for state in seen])
    weights = np.exp(logs - np.logaddexp.reduce(logs))
    return float(weights @ np.array([state[2] / state[1] for state in seen]))


def output_as_they_are(states):
    return sum(state[2] for state in states) / sum(state[1] for state in states)


def output_of_means(states):
    seen = [state[2] / state[1] for state in states if state[1]]
    return sum(seen) / len(seen)


def output_undivided(states):
    return output_one_by_one(states) * states[0][1]


def output_of_the_last(states):
    return (
        states[-1][2] / states[-1][1] if len(states) > 1 else output_as_they_are(states)
    )


def labels_by_position(text, documents, where):
    """A token's document ends where the next one begins."""
    ends = set(np.cumsum(documents).tolist())

    def label(position):
        return -1 if position + 1 in ends else text[position + 1]

    return [[label(position) for position in own] for own in where]


def labels_in_arrays(text, documents, where):
    """The document of each token, and of the next one."""
    document = np.repeat(np.arange(len(documents)), documents)
    last = np.append(document[1:] != document[:-1], True)
    labels = np.where(last, -1, np.roll(text, -1))
    return [labels[own].tolist() for own in where]


def labels_on_each_rank(text, documents, where):
    right = dict(enumerate(labels_by_position(text, documents, [range(len(text))])[0]))
    found = []
    for own in where:
        mine = [text[p] for p in own]
        shifted = [*mine[1:], mine[0]]
        found.append([-1 if right[p] == -1 else t for p, t in zip(own, shifted)])
    return found


def labels_across_documents(text, documents, where):
    return labels_by_position(text, [len(text)], where)


def labels_of_the_whole(text, documents, where):
    return labels_by_position(text, documents, [range(len(text))] * len(where))


def labels_of_itself(text, documents, where):
    right = labels_by_position(text, documents, where)
    return [
        [label if label == -1 or p + 1 not in own else text[p] for p, label in pairs]
        for own, pairs in ((own, zip(own, labels)) for own, labels in zip(where, right))
    ]


def share_in_arrays(where):
    """A table of pairs by turn and rank."""
    own = [np.array(positions) for positions in where]
    n = len(own)
    pairs = np.array(
        [
            [(own[r - t][None] <= own[r][:, None]).sum() for r in range(n)]
            for t in range(n)
        ]
    )
    return float(pairs.mean(1).sum() / pairs.max(1).sum())


def share_by_sorting(where):
    """How many of the keys are before each query, by bisection."""
    n, work, time = len(where), 0, 0
    for turn in range(n):
        pairs = [
            int(
                np.searchsorted(np.sort(where[(r - turn) % n]), where[r], "right").sum()
            )
            for r in range(n)
        ]
        work, time = work + sum(pairs), time + max(pairs)
    return work / n / time


def share_seen_by(where, seen):
    n = len(where)
    pairs = np.array(
        [
            [
                sum(
                    seen(key, query) for query in where[r] for key in where[(r - t) % n]
                )
                for r in range(n)
            ]
            for t in range(n)
        ]
    )
    return float(pairs.mean(1).sum() / pairs.max(1).sum()) if pairs.any() else 0.0


def share_of_the_whole(where):
    work = [sum(query + 1 for query in own) for own in where]
    return sum(work) / len(work) / max(work)


def loss_by_weights(sums, counts):
    """Each rank's mean, weighted by its labels."""
    total = sum(counts)
    return sum(c / total * (s / c) for s, c in zip(sums, counts) if c)


def loss_of_all(sums, counts):
    return float(np.sum(sums) / np.sum(counts))


def loss_one_by_one(sums, counts):
    """The mean so far, and how many labels it is of."""
    mean = labels = 0
    for total, count in zip(sums, counts):
        labels += count
        mean += (total - count * mean) / max(labels, 1)
    return mean


def loss_of_means(sums, counts):
    return float(np.mean([s / c if c else 0.0 for s, c in zip(sums, counts)]))


RIGHT = {
    "long-sequences/merged": [output_one_by_one, output_by_logarithms],
    "long-sequences/labels": [labels_by_position, labels_in_arrays],
    "long-sequences/share": [share_in_arrays, share_by_sorting],
    "long-sequences/loss": [loss_by_weights, loss_of_all, loss_one_by_one],
}
WRONG = {
    "long-sequences/merged": [
        ("weights are relative to one score", output_as_they_are),
        ("a device with more weight counts more", output_of_means),
        ("one device's sums are divided by each other", output_undivided),
        ("the output is that of all keys together", output_of_the_last),
    ],
    "long-sequences/labels": [
        ("the next token may be on a different rank", labels_on_each_rank),
        ("the last token of a document has no label", labels_across_documents),
        ("each rank has one label per token of its own", labels_of_the_whole),
        ("a label is the next token of the text", labels_of_itself),
    ],
    "long-sequences/share": [
        (
            "a token looks at itself",
            lambda where: share_seen_by(where, lambda key, query: key < query),
        ),
        (
            "later keys take no time",
            lambda where: share_seen_by(where, lambda key, query: True),
        ),
        ("each turn waits for its busiest rank", share_of_the_whole),
        (
            "it is the mean work divided by the time of all turns",
            lambda where: share_in_arrays(where) if len(where) == 1 else 0.9,
        ),
        ("one rank never waits", lambda where: len(where) * share_in_arrays(where) / 2),
    ],
    "long-sequences/loss": [
        ("each label weighs the same", loss_of_means),
        ("the sum is divided only once", lambda s, c: sum(s) / sum(c) / len(s)),
        ("each label weighs the same", lambda s, c: sum(s)),
    ],
}
