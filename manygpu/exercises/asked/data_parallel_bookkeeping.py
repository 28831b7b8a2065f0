"""Exercises of part 2 about bookkeeping: what is counted, and when all ranks stop."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import in_digits, off, other


def _batch(draw: random.Random, real: int, padded: int = 0) -> list[tuple]:
    """Samples (loss, right, counts), the last ones padding."""
    return [
        (draw.randint(1, 40) / 8, draw.random() < 0.6, i < real)
        for i in range(real + padded)
    ]


def _evaluated(draw: random.Random) -> Iterator[tuple]:
    yield ([[[(0.5, True, True), (1.5, False, True)]]],)
    yield ([[[(0.5, True, True), (1.5, True, True)]], [[(4.0, False, True)]]],)
    yield ([[[(1.0, True, True)] * 2, [(3.0, False, True)]], [[(5.0, False, True)]]],)
    yield ([[[(1.0, False, True)]], [[(2.0, True, True), (8.0, True, False)]]],)
    yield ([[[(2.0, True, True), (3.0, False, True)]], []],)
    for _ in range(4):
        ranks = draw.randint(2, 5)
        sizes = [[draw.randint(1, 6) for _ in range(draw.randint(1, 3))]] * ranks
        parts = [[_batch(draw, size) for size in own] for own in sizes]
        parts[-1].append(_batch(draw, draw.randint(1, 3), draw.randint(1, 3)))
        yield (parts,)


def _means(samples: list[tuple]) -> np.ndarray:
    """The mean loss and the accuracy of some samples."""
    return np.array([[loss, right] for loss, right, _ in samples], float).mean(0)


@exercise(
    "bookkeeping/evaluate",
    '''
def my_evaluation(parts):
    """Return the mean loss and the accuracy over all samples, as a pair.

    The result is that of one device that has every sample once.

    parts: for each rank, a list of its batches. A batch is a list of samples,
        and a sample is (loss, right, counts): a number and two truths. If
        `counts` is False, the sample was only added to fill the batch. A rank
        may have no batches.
    """
    raise NotImplementedError("Which three numbers can be added up?")
''',
    _evaluated,
)
def judge_evaluate(found, parts):
    loss, accuracy = found
    ranks = [[one for batch in own for one in batch] for own in parts]
    batches = [batch for own in parts for batch in own]
    everything = [one for own in ranks for one in own]
    right = _means([one for one in everything if one[2]])
    wrong = off([loss, accuracy], right)
    padded = not off([loss, accuracy], _means(everything))
    yield "padding doesn't count", wrong and padded and wrong
    real = [[one for one in part if one[2]] for part in (*ranks, *batches)]
    for some in (real[: len(ranks)], real[len(ranks) :]):
        mean = np.mean([_means(part) for part in some if part], axis=0)
        alike = wrong and not off([loss, accuracy], mean)
        yield "each sample weighs the same", alike and wrong
    yield "the mean loss is that of one device", off(loss, right[0])
    yield "the accuracy is that of one device", off(accuracy, right[1])


def _two_ranks(evaluation: Callable) -> str:
    three = [(1.0, True, True), (1.0, True, True), (1.0, True, True)]
    loss, accuracy = evaluation([[three], [[(5.0, False, True)]]])
    said = f"{in_digits(loss)} and {in_digits(accuracy)}"
    return (
        "one rank has three samples with a loss of 1, all right, and the other one has "
        f"a sample with a loss of 5, which is wrong. The result is {said}"
    )


def _filled(evaluation: Callable) -> str:
    parts = [[[(1.0, True, True)] * 2], [[(4.0, False, True), (1.0, True, False)]]]
    loss, accuracy = evaluation(parts)
    said = f"{in_digits(loss)} and {in_digits(accuracy)}"
    return (
        "of three samples, two have a loss of 1 and are right, and one has a loss of 4 "
        f"and is wrong. A fourth one is padding. The result is {said}"
    )


flaw(
    "bookkeeping/evaluate",
    """
def my_evaluation(parts):
    results = []
    for own in parts:
        samples = [one for batch in own for one in batch if one[2]]
        if samples:
            n = len(samples)
            loss = sum(loss for loss, _, _ in samples) / n
            results.append((loss, sum(right for _, right, _ in samples) / n))
    losses, accuracies = zip(*results)
    return sum(losses) / len(losses), sum(accuracies) / len(accuracies)
""",
    _two_ranks,
    "each sample weighs the same",
)
flaw(
    "bookkeeping/evaluate",
    """
def my_evaluation(parts):
    loss = right = count = 0
    for own in parts:
        for batch in own:
            loss += sum(one[0] for one in batch)
            right += sum(one[1] for one in batch)
            count += len(batch)
    return loss / count, right / count
""",
    _filled,
    "padding doesn't count",
)


def _decided(losses: list[float], patience: int) -> list[int]:
    """The best epoch, and the last one."""
    best, lowest = 0, float("inf")
    for epoch, loss in enumerate(losses, 1):
        if loss < lowest:
            best, lowest = epoch, loss
        if epoch - best >= patience:
            return [best, epoch]
    return [best, len(losses)]


def _runs(draw: random.Random) -> Iterator[tuple]:
    yield [[3.0], [2.0], [4.0], [1.0]], [5], 1
    yield [[3.0], [2.0], [2.0], [2.0], [2.0], [1.0]], [5], 2
    yield [[3.0], [5.0], [2.0], [5.0], [4.0], [1.0]], [5], 2
    yield [[3.0, 3.0], [4.0, 1.0], [5.0, 4.0], [6.0, 5.0]], [1, 1], 2
    yield [[3.0, 3.0], [4.0, 1.0], [2.0, 6.0], [9.0, 9.0]], [9, 1], 1
    yield [[4.0, 4.0], [3.0, 3.0], [2.0, 2.0]], [2, 3], 2
    for _ in range(6):
        ranks, epochs = draw.randint(2, 5), draw.randint(5, 14)
        counts = [draw.randint(1, 9) for _ in range(ranks)]
        losses, seen = [], set()
        while len(losses) < epochs:  # no two epochs are equal
            drawn = [float(draw.randint(1, 30)) for _ in range(ranks)]
            total = sum(a * n for a, n in zip(drawn, counts, strict=True))
            if total not in seen:
                seen.add(total)
                losses.append(drawn)
        yield losses, counts, draw.randint(1, 3)


@exercise(
    "bookkeeping/stop",
    '''
def my_stop(losses, counts, patience):
    """Return the best epoch and the last epoch, as a pair.

    All ranks stop together, and with the loss over all samples, as on one
    device. Training ends as soon as this loss hasn't been lower than its best
    for `patience` epochs, and otherwise after the last epoch. Epochs are
    counted from 1.

    losses: losses[e][r] is the mean loss of rank r's samples after epoch e + 1.
    counts: the number of samples of each rank.
    """
    raise NotImplementedError("Which loss do all ranks know alike?")
''',
    _runs,
)
def judge_stop(found, losses, counts, patience):
    means = [float(np.average(own, weights=counts)) for own in losses]
    right = _decided(means, patience)
    wrong = other(found, right)
    pair = [*found]
    singles = [
        _decided([own[r] for own in losses], patience) for r in range(len(counts))
    ]
    plain = _decided([float(np.mean(own)) for own in losses], patience)
    one = pair != right and pair != plain and pair in singles
    yield "the loss is that of all ranks", one and wrong
    yield "each sample weighs the same", pair == plain and wrong
    longer = pair == _decided(means, patience + 1)
    yield "it waits no longer than its patience", longer and wrong
    yield "training ends with the last epoch", pair[1] > len(losses) and wrong
    yield "the best epoch is right", other(pair[0], right[0])
    yield "the last epoch is right", other(pair[1], right[1])


def _two_losses(stop: Callable) -> str:
    losses = [[4.0, 4.0], [5.0, 2.0], [6.0, 1.0], [7.0, 0.0]]
    best, last = stop(losses, [6, 7], 2)
    return (
        "two ranks have 6 and 7 samples, and the mean losses "
        f"{', '.join(map(str, losses))}. With a patience of 2, the best epoch is "
        f"{best}, and the last one {last}"
    )


flaw(
    "bookkeeping/stop",
    """
def my_stop(losses, counts, patience):
    best, lowest = 0, float("inf")
    for epoch, of_ranks in enumerate(losses, 1):
        loss = of_ranks[0]
        if loss < lowest:
            best, lowest = epoch, loss
        if epoch - best >= patience:
            break
    return best, epoch
""",
    _two_losses,
    "the loss is that of all ranks",
)


def _share(positive: np.ndarray, negative: np.ndarray, tie: float = 0.5) -> float:
    """The share of pairs whose first score is higher; NaN if there is no pair."""
    below = np.cumsum(negative) - negative
    pairs = positive.sum() * negative.sum()
    share = (positive * (below + tie * negative)).sum()
    return float(share / pairs) if pairs else float("nan")


def _scored(draw: random.Random) -> Iterator[tuple]:
    yield [[0, 1]], [[1, 0]]
    yield [[1, 0, 1]], [[0, 2, 0]]
    yield [[0, 2]], [[1, 1]]
    yield [[0, 0, 1], [1, 0, 0]], [[0, 1, 0], [2, 1, 0]]
    yield [[0, 0, 2], [0, 0, 0]], [[1, 1, 0], [0, 1, 3]]
    for _ in range(4):
        ranks, bins = draw.randint(2, 4), draw.randint(3, 8)
        both = [
            [[draw.randint(0, 5) for _ in range(bins)] for _ in range(ranks)]
            for _ in range(2)
        ]
        both[0][0] = [0] * bins  # a rank without a sample of the class
        both[0][1][-1] += 1
        both[1][0][0] += 1
        yield tuple(both)


@exercise(
    "bookkeeping/auc",
    '''
def my_auc(positive, negative):
    """Return the area under the ROC curve of the samples of all ranks.

    It is the share of pairs, of one sample of the class and one that isn't,
    in which the sample of the class has the higher score. Scores in the same
    bin count as equal, and equal scores count one half. The samples of a pair
    may be on different ranks.

    positive, negative: for each rank, a list with the number of samples of the
        class, or of the other samples, whose score is in each bin. Later bins
        have higher scores. A rank may have no sample of the class.
    """
    raise NotImplementedError("What can you add up before you count pairs?")
''',
    _scored,
)
def judge_auc(found, positive, negative):
    ones, others = (np.array(each) for each in (positive, negative))
    whole = ones.sum(0), others.sum(0)
    right = _share(*whole)
    wrong = off(found, right)
    own = [_share(*each) for each in zip(ones, others, strict=True)]
    known = [share for share in own if not np.isnan(share)]
    mean = known and not off(found, np.mean(known))
    yield "pairs may be on two ranks", wrong and mean and wrong
    ties = [not off(found, _share(*whole, tie=tie)) for tie in (0.0, 1.0)]
    yield "equal scores count one half", wrong and any(ties) and wrong
    turned = wrong and not off(found, 1 - right)
    yield "the class should have the higher score", turned and wrong
    yield "it is a share of all pairs", wrong


def _ranked(auc: Callable) -> str:
    found = auc([[0, 0, 1], [0, 1, 0]], [[0, 2, 0], [2, 0, 1]])
    return (
        "on two ranks, each sample of the class is alone. One of five other samples "
        f"has a score as high as the highest, and the AUC is {in_digits(found)}"
    )


flaw(
    "bookkeeping/auc",
    """
def my_auc(positive, negative):
    shares = []
    for ones, others in zip(positive, negative):
        pairs = sum(ones) * sum(others)
        if pairs:
            below, won = 0, 0
            for a, b in zip(ones, others):
                won += a * (below + b / 2)
                below += b
            shares.append(won / pairs)
    return sum(shares) / len(shares)
""",
    _ranked,
    "pairs may be on two ranks",
)
