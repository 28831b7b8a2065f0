"""Answers to the exercises of experts."""

from __future__ import annotations

from fractions import Fraction

import numpy as np


def seats_by_history(chosen, real, capacity):
    """Each choice counts those before it."""
    flat = [(t, e) for t, experts in enumerate(chosen) for e in experts]
    seats = []
    for i, (token, expert) in enumerate(flat):
        seat = sum(e == expert and real[t] for t, e in flat[:i])
        seats.append(seat if real[token] and seat < capacity else None)
    ends = np.cumsum([0, *map(len, chosen)])
    return [seats[a:b] for a, b in zip(ends, ends[1:], strict=False)]


def seats_by_queues(chosen, real, capacity):
    """The queues first, then the place of each choice in its queue."""
    queues = {}
    for token, experts in enumerate(chosen):
        for i, expert in enumerate(experts):
            if real[token]:
                queues.setdefault(expert, []).append((token, i))
    seats = [[None] * len(experts) for experts in chosen]
    for queue in queues.values():
        for seat, (token, i) in enumerate(queue[:capacity]):
            seats[token][i] = seat
    return seats


def seats_with(change):
    """A right answer, changed."""
    return lambda chosen, real, capacity: change(
        seats_by_queues(chosen, real, capacity), chosen, real, capacity
    )


def swapped(seats, chosen, real, capacity):
    """Each queue backwards."""
    used = {}
    for own, experts in zip(seats, chosen, strict=True):
        for seat, expert in zip(own, experts, strict=True):
            if seat is not None:
                used[expert] = max(seat, used.get(expert, 0))
    return [
        [None if s is None else used[e] - s for s, e in zip(own, experts, strict=True)]
        for own, experts in zip(seats, chosen, strict=True)
    ]


def average_by_loop(grads, is_expert):
    data, expert, numbers = grads.shape
    found = np.zeros((expert, numbers))
    for i in range(expert):
        own = grads[:, i] if is_expert else grads.reshape(-1, numbers)
        found[i] = sum(own) / (data * expert)
    return found


def average_of_sums(grads, is_expert):
    sums = grads.sum(0) if is_expert else grads.sum((0, 1), keepdims=True)[0]
    ranks = grads.shape[0] * grads.shape[1]
    return np.broadcast_to(sums, grads.shape[1:]) / ranks


def counts_by_bins(calls, experts):
    flat = [
        expert
        for call in calls
        if call["why"] == "forward"
        for own, is_real in zip(call["chosen"], call["real"], strict=True)
        if is_real
        for expert in own
    ]
    return np.bincount(np.array(flat, int), minlength=experts).tolist()


def counts_without_others(calls, experts):
    """All runs, minus those that don't count."""
    counts = [0] * experts
    for call in calls:
        sign = {"forward": 1, "recomputation": 0, "evaluation": 0}[call["why"]]
        for own, is_real in zip(call["chosen"], call["real"], strict=True):
            for expert in own:
                counts[expert] += sign if is_real else 0
    return counts


def counts_of(*why, padding=False, first=False):
    def counts(calls, experts):
        chosen = [call for call in calls if call["why"] in why]
        if first:
            chosen = [call for call in chosen if call["rank"] == calls[0]["rank"]]
        if padding:
            chosen = [call | {"real": [True] * len(call["real"])} for call in chosen]
        return counts_by_bins([call | {"why": "forward"} for call in chosen], experts)

    return counts


def placed_by_line(loads, gpus):
    """The pieces of the line that lie in each GPU's interval."""
    mean, ends = sum(loads) // gpus, np.cumsum([0, *loads]).tolist()
    placed = []
    for gpu in range(gpus):
        low, high = gpu * mean, (gpu + 1) * mean
        pieces = {
            e: min(ends[e + 1], high) - max(ends[e], low) for e in range(len(loads))
        }
        placed.append({e: n for e, n in pieces.items() if n > 0})
    return placed


def placed_backwards(loads, gpus):
    """The last GPU first, from the last expert on."""
    found = placed_by_line(loads[::-1], gpus)
    last = len(loads) - 1
    return [{last - e: n for e, n in own.items()} for own in found]


def placed_whole(loads, gpus):
    placed = [{} for _ in range(gpus)]
    for expert, load in enumerate(loads):
        if load:
            placed[expert % gpus][expert] = load
    return placed


def exact_parts(loads, gpus):
    """Each expert in equal parts on each GPU: as many pairs as there can be."""
    return [
        {e: Fraction(n, gpus) for e, n in enumerate(loads) if n} for _ in range(gpus)
    ]


RIGHT = {
    "experts/seats": [seats_by_history, seats_by_queues],
    "experts/average": [average_by_loop, average_of_sums],
    "experts/counts": [counts_by_bins, counts_without_others],
    "experts/placement": [placed_by_line, placed_backwards],
}
WRONG = {
    "experts/seats": [
        ("there is an entry per choice", lambda *given: []),
        (
            "padding takes no seats",
            lambda chosen, real, capacity: seats_by_queues(
                chosen, [True] * len(real), capacity
            ),
        ),
        (
            "a queue has no more seats than its capacity",
            lambda chosen, real, capacity: seats_by_queues(chosen, real, 99),
        ),
        (
            "no two choices share a seat",
            seats_with(
                lambda seats, *given: [
                    [None if s is None else 0 for s in own] for own in seats
                ]
            ),
        ),
        (
            "no choice is dropped while its queue has room",
            lambda chosen, real, capacity: [[None] * len(own) for own in chosen],
        ),
        ("seats are taken in the order of the choices", seats_with(swapped)),
    ],
    "experts/average": [
        (
            "an expert's gradient is divided by all ranks",
            lambda grads, is_expert: (
                grads.mean(0) if is_expert else average_by_loop(grads, is_expert)
            ),
        ),
        (
            "different experts aren't added",
            lambda grads, is_expert: average_by_loop(grads, False),
        ),
        (
            "all copies of the router are summed",
            lambda grads, is_expert: (
                average_by_loop(grads, True) if is_expert else grads.mean(0)
            ),
        ),
        (
            "it is a mean, not a sum",
            lambda grads, is_expert: (
                average_by_loop(grads, is_expert) * grads.shape[0] * grads.shape[1]
            ),
        ),
        (
            "it is the gradient of the mean over all tokens",
            lambda grads, is_expert: 3 * average_by_loop(grads, is_expert),
        ),
    ],
    "experts/counts": [
        ("what is recomputed counts once", counts_of("forward", "recomputation")),
        ("an evaluation doesn't count", counts_of("forward", "evaluation")),
        ("padding doesn't count", counts_of("forward", padding=True)),
        ("the choices of all ranks count", counts_of("forward", first=True)),
        (
            "each choice of a real token counts once",
            lambda calls, experts: [7] * experts,
        ),
    ],
    "experts/placement": [
        ("there is a dictionary per GPU", lambda loads, gpus: []),
        (
            "only experts that exist are named",
            lambda loads, gpus: [
                {e + 99: n for e, n in own.items()}
                for own in placed_by_line(loads, gpus)
            ],
        ),
        (
            "a named expert gets a token",
            lambda loads, gpus: [
                dict.fromkeys(range(len(loads)), 0) | own
                for own in placed_by_line(loads, gpus)
            ],
        ),
        ("each token is on one GPU", lambda loads, gpus: [{} for _ in range(gpus)]),
        ("all GPUs get equally many tokens", placed_whole),
        ("there are at most E + G - 1 pairs", exact_parts),
    ],
}
