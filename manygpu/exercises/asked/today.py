"""Exercises of part 5: sequences whose tokens are split."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import off, other, whole_numbers

MASKED = -1e30  # the largest score of keys that are all masked


def _state(scores: list[float], values: list[float]) -> tuple[float, float, float]:
    """What one query keeps of some keys."""
    top = max(scores)
    weights = [math.exp(score - top) for score in scores]
    return top, sum(weights), sum(w * v for w, v in zip(weights, values, strict=True))


def _states(draw: random.Random) -> Iterator[tuple]:
    yield from (([(0.5, 2.0, 6.0)],), ([(1.0, 1.0, 8.0), (1.0, 3.0, 4.0)],))
    yield ([(0.0, 1.0, 8.0), (1.0, 1.0, 4.0)],)
    yield ([(2.0, 1.5, 3.0), (-1.0, 2.0, -4.0), (0.5, 1.0, 1.0)],)
    yield ([(MASKED, 0.0, 0.0), (3.0, 2.0, 5.0)],)
    yield ([(1000.0, 1.0, 2.0), (1001.0, 1.0, 7.0)],)
    for _ in range(6):
        states = []
        for _ in range(draw.randint(2, 4)):
            n = draw.randint(1, 5)
            scores = [draw.uniform(-4, 4) for _ in range(n)]
            states.append(_state(scores, [draw.uniform(-9, 9) for _ in range(n)]))
        yield (states,)


def _merged(states: list) -> float:
    """The output of a query that has met all keys."""
    top = max(state[0] for state in states)
    shrunk = [math.exp(state[0] - top) for state in states]
    total = sum(s * state[1] for s, state in zip(shrunk, states, strict=True))
    return sum(s * state[2] for s, state in zip(shrunk, states, strict=True)) / total


@exercise(
    "long-sequences/merged",
    '''
def my_output(states):
    """Return a query's output, after it has met the keys of several devices.

    states: for each device, what the query has kept of its keys: the largest
        score, the sum of the weights, and the weighted sum of the values (one
        number per value). A weight is the exponential of the score minus this
        device's largest score. If a device's keys are all masked, its state
        is (-1e30, 0.0, 0.0).
    """
    raise NotImplementedError("Relative to which score is each sum?")
''',
    _states,
)
def judge_merged(found, states):
    wrong = off(found, _merged(states))
    yield "one device's sums are divided by each other", len(states) == 1 and wrong
    plain = sum(s[2] for s in states) / sum(s[1] for s in states)
    yield "weights are relative to one score", wrong and not off(found, plain) and wrong
    seen = [s[2] / s[1] for s in states if s[1]]
    mean = sum(seen) / len(seen)
    yield "a device with more weight counts more", wrong and not off(found, mean)
    yield "the output is that of all keys together", wrong


flaw(
    "long-sequences/merged",
    """
import math


def my_output(states):
    top, total, weighted = states[0]
    for other_top, other_total, other_weighted in states[1:]:
        new = max(top, other_top)
        total = total * math.exp(top - new) + other_total * math.exp(other_top - new)
        weighted = weighted + other_weighted * math.exp(other_top - new)
        top = new
    return weighted / total
""",
    lambda f: (
        "all values are 5, so each output must be 5. With the states (0, 1, 5) and "
        f"(2, 1, 5), it is {f([(0.0, 1.0, 5.0), (2.0, 1.0, 5.0)]):.2f}, and in the "
        f"other order {f([(2.0, 1.0, 5.0), (0.0, 1.0, 5.0)]):.2f}"
    ),
    "the output is that of all keys together",
)


def _positions(draw: random.Random, tokens: int, ranks: int) -> list[list[int]]:
    """A zigzag, striped or contiguous order of the tokens."""
    every = list(range(tokens))
    kind = draw.randrange(3)
    if kind == 0:
        return [every[rank::ranks] for rank in range(ranks)]
    pieces = ranks if kind == 1 else 2 * ranks
    cut = [piece.tolist() for piece in np.array_split(every, pieces)]
    return cut if kind == 1 else [cut[r] + cut[-1 - r] for r in range(ranks)]


def _texts(draw: random.Random) -> Iterator[tuple]:
    yield [7, 8, 9], [3], [[0, 1, 2]]
    yield [7, 8, 9, 5], [4], [[0, 1], [2, 3]]
    yield [7, 8, 9, 5], [2, 2], [[0, 1], [2, 3]]
    yield [7, 8, 9, 5, 6, 4], [6], [[0, 1, 5], [2, 3, 4]]
    yield [7, 8, 9, 5, 6, 4], [1, 5], [[0, 2, 4], [1, 3, 5]]
    for _ in range(5):
        tokens = draw.randint(8, 14)
        ends = sorted(draw.sample(range(1, tokens), draw.randint(1, 2)))
        documents = np.diff([0, *ends, tokens]).tolist()
        text = draw.sample(range(10, 60), tokens)  # all different
        yield text, documents, _positions(draw, tokens, draw.randint(2, 3))


def _labels(text: list[int], documents: list[int]) -> list[int]:
    """The label of each token; -1 if it has none."""
    labels = [*text[1:], -1]
    for end in np.cumsum(documents).tolist():
        labels[end - 1] = -1
    return labels


@exercise(
    "long-sequences/labels",
    '''
def my_labels(text, documents, where):
    """Return, for each rank, the labels of its own tokens, in their order.

    The label of a token is the next token of the text. The last token of a
    document has no label; write -1 instead.

    text: the tokens of the whole sequence, as whole numbers.
    documents: the lengths of the documents that make up the sequence.
    where: for each rank, the positions of its tokens in the sequence.

    The result is a list of lists.
    """
    raise NotImplementedError("On which rank is the next token?")
''',
    _texts,
)
def judge_labels(found, text, documents, where):
    found = [whole_numbers(own) for own in found]
    right = _labels(text, documents)
    counts = [len(own) for own in where]
    said = other([len(own) for own in found], counts)
    yield "each rank has one label per token of its own", said
    pairs = [
        (position, label)
        for own, labels in zip(where, found, strict=False)
        for position, label in zip(own, labels, strict=False)
    ]
    ends = [p for p, label in pairs if right[p] == -1 and label != -1]
    no_label = ends and f"the token at position {ends[0]} has one"
    yield "the last token of a document has no label", no_label
    last = {own[i] for own in where for i in range(len(own)) if own[i] + 1 not in own}
    off_rank = [p for p, label in pairs if p in last and label != right[p]]
    away = off_rank and f"the label of the token at {off_rank[0]} isn't the next token"
    yield "the next token may be on a different rank", away
    wrong = [p for p, label in pairs if label != right[p]]
    said = wrong and f"the label of the token at {wrong[0]} isn't the next token"
    yield "a label is the next token of the text", said


flaw(
    "long-sequences/labels",
    """
def my_labels(text, documents, where):
    ends, total = set(), 0
    for length in documents:
        total += length
        ends.add(total - 1)
    labels = []
    for own in where:
        tokens = [text[p] for p in own]
        shifted = tokens[1:] + tokens[:1]
        labels.append([-1 if p in ends else t for p, t in zip(own, shifted)])
    return labels
""",
    lambda f: (
        "32 tokens, whose numbers are their positions, on 2 ranks in zigzag order. "
        f"{_misses(f, 32, 2)} of the 31 labels are wrong, and the loss looks as usual "
        "(NVIDIA-NeMo/Automodel, pull request 3544)"
    ),
    "the next token may be on a different rank",
)
flaw(
    "long-sequences/labels",
    """
def my_labels(text, documents, where):
    following = text[1:] + [-1]
    return [[following[p] for p in own] for own in where]
""",
    lambda f: (
        "two documents, [1, 2, 3] and [4, 5], on one rank: the labels are "
        f"{f([1, 2, 3, 4, 5], [3, 2], [[0, 1, 2, 3, 4]])[0]}, so the first document "
        "has to guess how the second one begins"
    ),
    "the last token of a document has no label",
)


def _misses(labels_of, tokens: int, ranks: int) -> int:
    """How many labels of a zigzag order aren't the next token."""
    cut = [piece.tolist() for piece in np.array_split(np.arange(tokens), 2 * ranks)]
    where = [cut[r] + cut[-1 - r] for r in range(ranks)]
    found = labels_of(list(range(tokens)), [tokens], where)
    right = _labels(list(range(tokens)), [tokens])
    return sum(
        label != right[p]
        for own, labels in zip(where, found, strict=True)
        for p, label in zip(own, labels, strict=True)
    )


def _orders(draw: random.Random) -> Iterator[tuple]:
    yield ([[0, 1, 2]],)
    yield ([[0], [1]],)
    yield ([[0, 1], [2, 3]],)
    yield ([[0, 3], [1, 2]],)
    yield ([[0, 2], [1, 3]],)
    yield ([[0, 1], [2, 5], [3, 4]],)
    for _ in range(6):
        ranks, tokens = draw.randint(3, 4), draw.randint(7, 12)
        mixed = draw.sample(range(tokens), tokens)
        yield ([sorted(mixed[rank::ranks]) for rank in range(ranks)],)


def _turns(where: list[list[int]], seen=lambda key, query: key <= query) -> np.ndarray:
    """Pairs by turn and rank: in turn t, rank r meets the keys of rank r - t."""
    ranks = len(where)
    return np.array(
        [
            [
                sum(seen(key, q) for q in where[r] for key in where[(r - t) % ranks])
                for r in range(ranks)
            ]
            for t in range(ranks)
        ]
    )


def _share(pairs: np.ndarray) -> float:
    """The mean of the ranks' work over the time of all turns."""
    return float(pairs.sum() / pairs.shape[1] / pairs.max(axis=1).sum())


@exercise(
    "long-sequences/share",
    '''
def my_share(where):
    """Return which share of the time an average rank works, in a causal ring.

    In turn t, the queries of rank r meet the keys of rank r - t (and of the
    last ranks, if r - t is negative). There are as many turns as ranks. A pair
    of a query and a key takes time 1 if the key isn't later than the query, and
    no time otherwise. A turn is over when all ranks are done with it.

    where: for each rank, the positions of its tokens in the sequence.
    """
    raise NotImplementedError("Which rank does each turn wait for?")
''',
    _orders,
)
def judge_share(found, where):
    right, pairs = _share(_turns(where)), _turns(where)
    wrong = off(found, right)
    yield "one rank never waits", len(where) == 1 and wrong
    strict = _turns(where, lambda key, query: key < query)
    without = _share(strict) if strict.any() else 0.0
    yield "a token looks at itself", wrong and not off(found, without) and wrong
    every = _share(_turns(where, lambda key, query: True))
    yield "later keys take no time", wrong and not off(found, every) and wrong
    at_end = float(pairs.sum() / len(where) / pairs.sum(axis=0).max())
    alone = wrong and not off(found, at_end) and wrong
    yield "each turn waits for its busiest rank", alone
    yield "it is the mean work divided by the time of all turns", wrong


flaw(
    "long-sequences/share",
    """
def my_share(where):
    ranks, work = len(where), []
    for own in where:
        work.append(sum(query + 1 for query in own))
    return sum(work) / ranks / max(work)
""",
    lambda f: (
        "three ranks have the tokens 0, 1 | 2, 5 | 3, 4. It says "
        f"{f([[0, 1], [2, 5], [3, 4]]):.0%}, but the three turns take 3, 4 and 4, and "
        "a rank works for 7 of these 11 on average, which is 64%"
    ),
    "each turn waits for its busiest rank",
)


def _losses(draw: random.Random) -> Iterator[tuple]:
    yield [6.0], [3]
    yield [6.0, 3.0], [3, 1]
    yield [6.0, 0.0], [3, 0]
    yield [4.0, 4.0], [2, 2]
    for _ in range(5):
        counts = [draw.randint(0, 6) for _ in range(draw.randint(2, 4))]
        counts[0] += 1
        yield [count * draw.uniform(1, 3) for count in counts], counts


@exercise(
    "long-sequences/loss",
    '''
def my_loss(sums, counts):
    """Return the mean loss over all labels of a sequence.

    sums: for each rank, the sum of the losses of its own labels.
    counts: for each rank, how many labels it has; at least one rank has some.
    """
    raise NotImplementedError("How much does each label weigh?")
''',
    _losses,
    hunted=True,
)
def judge_loss(found, sums, counts):
    wrong = off(found, sum(sums) / sum(counts))
    again = wrong and not off(found, sum(sums) / sum(counts) / len(sums)) and wrong
    yield "the sum is divided only once", again
    yield "each label weighs the same", wrong


flaw(
    "long-sequences/loss",
    """
def my_loss(sums, counts):
    total = sum(counts)
    shares = [own / total for own in sums]
    return sum(shares) / len(shares)
""",
    lambda f: (
        "8 ranks have 100 labels each, and each label has the loss 1. The loss of the "
        f"step is {f([100.0] * 8, [100] * 8):.3f} (ByteDance-Seed/VeOmni, pull request "
        "338)"
    ),
    "the sum is divided only once",
)
