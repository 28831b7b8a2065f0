"""Answers to exercises of the page on bookkeeping: right ones, and wrong."""

from __future__ import annotations

import numpy as np


def flat(parts):
    return [one for own in parts for batch in own for one in batch]


def evaluated_by_weights(parts):
    table = np.array([[float(x) for x in one] for one in flat(parts)])
    loss, right = np.average(table[:, :2], axis=0, weights=table[:, 2])
    return loss, right


def evaluated_by_counts(parts):
    counts = np.zeros(3)
    for own in parts:
        for batch in own:
            for loss, right, real in batch:
                counts += [real * loss, real and right, real]
    return tuple(counts[:2] / counts[2])


def means(samples):
    return np.mean([[loss, right] for loss, right, real in samples if real], axis=0)


def of_ranks(parts):
    return tuple(np.mean([means(flat([own])) for own in parts if own], axis=0))


def of_batches(parts):
    batches = [batch for own in parts for batch in own]
    return tuple(np.mean([means(batch) for batch in batches], axis=0))


def with_padding(parts):
    samples = flat(parts)
    table = np.mean([[loss, right] for loss, right, _ in samples], axis=0)
    return tuple(table)


def divided_by_all(parts):
    """Padding adds nothing, and is counted."""
    loss, right = evaluated_by_weights(parts)
    real = sum(one[2] for one in flat(parts)) / len(flat(parts))
    return loss * real, right * real


def of_rank_0(parts):
    return tuple(means(flat(parts[:1])))


def of_losses(loss_of):
    """An answer that decides with a loss of its own, and patience as it should be."""

    def stop(losses, counts, patience, later=0, better=np.less):
        best, lowest = 0, np.inf
        for epoch, own in enumerate(losses, 1):
            loss = loss_of(np.array(own), np.array(counts))
            if better(loss, lowest):
                best, lowest = epoch, loss
            if epoch - best >= patience + later:
                break
        return best, epoch

    return stop


stop_by_sums = of_losses(lambda own, counts: own @ counts)  # all have one divisor
stop_by_shares = of_losses(lambda own, counts: own @ (counts / counts.sum()))


def stop_of_any(losses, counts, patience):
    """The first rank that wants to stop, and its best epoch."""
    ends = [
        of_losses(lambda own, _, r=r: own[r])(losses, counts, patience)
        for r in range(len(counts))
    ]
    return min(ends, key=lambda end: end[1])


def auc_by_pairs(positive, negative):
    ones, others = (np.sum(each, axis=0) for each in (positive, negative))
    above = np.sign(np.subtract.outer(np.arange(len(ones)), np.arange(len(others))))
    return ones @ ((above + 1) / 2) @ others / (ones.sum() * others.sum())


def auc_by_scores(positive, negative):
    bins = range(len(positive[0]))
    ones, others = (
        [b for own in each for b in bins for _ in range(own[b])]
        for each in (positive, negative)
    )
    won = sum((a > b) + (a == b) / 2 for a in ones for b in others)
    return won / (len(ones) * len(others))


def own_aucs(positive, negative):
    pairs = zip(positive, negative)
    return [auc_by_pairs([a], [b]) for a, b in pairs if sum(a) and sum(b)]


def auc_with_ties(tie):
    def auc(positive, negative):
        ones, others = (np.sum(each, axis=0) for each in (positive, negative))
        share = sum(
            a * b * ((i > j) + tie * (i == j))
            for i, a in enumerate(ones)
            for j, b in enumerate(others)
        )
        return share / (ones.sum() * others.sum())

    return auc


RIGHT = {
    "bookkeeping/evaluate": [evaluated_by_weights, evaluated_by_counts],
    "bookkeeping/stop": [stop_by_sums, stop_by_shares],
    "bookkeeping/auc": [auc_by_pairs, auc_by_scores],
}
WRONG = {
    "bookkeeping/evaluate": [
        ("each sample weighs the same", of_ranks),
        ("each sample weighs the same", of_batches),
        ("padding doesn't count", with_padding),
        ("the mean loss is that of one device", divided_by_all),
        ("the mean loss is that of one device", of_rank_0),
        (
            "the accuracy is that of one device",
            lambda parts: (evaluated_by_weights(parts)[0], with_padding(parts)[1]),
        ),
    ],
    "bookkeeping/stop": [
        ("the loss is that of all ranks", of_losses(lambda own, counts: own[0])),
        ("the loss is that of all ranks", stop_of_any),
        ("each sample weighs the same", of_losses(lambda own, counts: own.mean())),
        (
            "it waits no longer than its patience",
            lambda *given: stop_by_sums(*given, later=1),
        ),
        (
            "training ends with the last epoch",
            lambda losses, *rest: (stop_by_sums(losses, *rest)[0], len(losses) + 1),
        ),
        (
            "the best epoch is right",
            lambda *given: stop_by_sums(*given, better=np.less_equal),
        ),
        ("the last epoch is right", lambda *given: (stop_by_sums(*given)[0],) * 2),
    ],
    "bookkeeping/auc": [
        ("pairs may be on two ranks", lambda *given: float(np.mean(own_aucs(*given)))),
        ("equal scores count one half", auc_with_ties(0)),
        ("equal scores count one half", auc_with_ties(1)),
        ("the class should have the higher score", lambda p, n: auc_by_pairs(n, p)),
        ("it is a share of all pairs", lambda p, n: auc_by_pairs(p, n) / 2),
    ],
}
