"""Exercises of part 5: experts' seats, gradients, counts and places."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.drawn import arrays
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import off, other, whole_numbers


def _seats(chosen: list, real: list, capacity: int) -> list[list[int | None]]:
    """The seat of each choice in its expert's queue, or None."""
    before: Counter[int] = Counter()
    seats = []
    for experts, is_real in zip(chosen, real):
        own: list[int | None] = []
        for expert in experts:
            fits = is_real and before[expert] < capacity
            own.append(before[expert] if fits else None)
            before[expert] += bool(is_real)
        seats.append(own)
    return seats


def _queues(draw: random.Random) -> Iterator[tuple]:
    yield from (([[0]], [True], 1), ([[0], [0]], [True, True], 2))
    yield from (([[0], [1]], [True, True], 1), ([[0], [0]], [True, True], 1))
    yield [[0, 1], [1, 0]], [True, True], 1
    yield [[0], [0], [1]], [False, True, True], 1
    yield [[0, 1], [0, 2], [1, 0]], [False, False, True], 1
    for _ in range(6):
        experts, k = draw.randint(2, 5), draw.randint(1, 2)
        tokens = draw.randint(3, 9)
        chosen = [draw.sample(range(experts), k) for _ in range(tokens)]
        real = [draw.random() < 0.6 for _ in range(tokens)]
        yield chosen, real, draw.randint(1, 3)


@exercise(
    "experts/seats",
    '''
def my_seats(chosen, real, capacity):
    """Return the seat of each choice in its expert's queue, or None.

    Each expert has a queue with `capacity` seats, numbered from 0. The choices
    take seats in order: all choices of token 0, then those of token 1, and so
    on. A choice that finds no free seat is dropped: its seat is None. A token
    that is padding takes no seats.

    chosen: for each token, a list with the numbers of its experts.
    real: for each token, False if it is padding.

    The result has a list per token, with a seat or None per choice.
    """
    raise NotImplementedError("How many choices are in this queue already?")
''',
    _queues,
)
def judge_seats(found, chosen, real, capacity):
    found, right = [list(own) for own in found], _seats(chosen, real, capacity)
    shape = [len(own) for own in chosen]
    lengths = [len(own) for own in found]
    yield (
        "there is an entry per choice",
        lengths != shape and f"its lists have {lengths} entries, not {shape}",
    )
    flat = [
        (token, expert, found[token][i], right[token][i])
        for token, experts in enumerate(chosen)
        for i, expert in enumerate(experts)
    ]
    sits = [t for t, _, seat, _ in flat if seat is not None and not real[t]]
    yield (
        "padding takes no seats",
        sits and f"token {sits[0]} is padding and has a seat",
    )
    high = [seat for *_, seat, _ in flat if seat is not None and seat >= capacity]
    yield (
        "a queue has no more seats than its capacity",
        high and f"seat {high[0]} is given, but the capacity is {capacity}",
    )
    taken = Counter((e, seat) for _, e, seat, _ in flat if seat is not None)
    twice = [pair for pair, n in taken.items() if n > 1]
    yield (
        "no two choices share a seat",
        twice and f"seat {twice[0][1]} of expert {twice[0][0]} is taken twice",
    )
    lost = [(t, e) for t, e, seat, due in flat if seat is None and due is not None]
    yield (
        "no choice is dropped while its queue has room",
        lost and f"token {lost[0][0]} is dropped by expert {lost[0][1]}",
    )
    yield "seats are taken in the order of the choices", other(found, right)


flaw(
    "experts/seats",
    """
def my_seats(chosen, real, capacity):
    before, seats = {}, []
    for experts in chosen:
        own = []
        for expert in experts:
            seat = before.get(expert, 0)
            own.append(seat if seat < capacity else None)
            before[expert] = seat + 1
        seats.append(own)
    return [
        own if is_real else [None] * len(own)
        for own, is_real in zip(seats, real)
    ]
""",
    lambda f: (
        "three tokens choose expert 0, and the first two are padding. With a capacity "
        f"of 2, the seats are {f([[0], [0], [0]], [False, False, True], 2)}"
    ),
    "no choice is dropped while its queue has room",
)
flaw(
    "experts/seats",
    """
def my_seats(chosen, real, capacity):
    seats = [[None] * len(experts) for experts in chosen]
    for i in range(len(chosen[0])):
        before = {}
        for token, experts in enumerate(chosen):
            seat = before.get(experts[i], 0)
            if real[token] and seat < capacity:
                seats[token][i] = seat
                before[experts[i]] = seat + 1
    return seats
""",
    lambda f: (
        "tokens 0 and 1 choose experts 0 and 1, in different orders. Their seats are "
        f"{f([[0, 1], [1, 0]], [True, True], 2)}, so one seat has the sum of two tokens"
    ),
    "no two choices share a seat",
)


def _gradients(draw: random.Random) -> Iterator[tuple]:
    for data, expert in ((1, 1), (2, 1), (1, 2), (2, 2), (3, 4)):
        grads = arrays(draw, data, expert, 2)
        yield grads, False
        yield grads, True
    for _ in range(4):
        grads = arrays(draw, draw.randint(1, 4), draw.randint(1, 4), 3)
        yield grads, draw.random() < 0.5


@exercise(
    "experts/average",
    '''
def my_average(grads, is_expert):
    """Return the gradient of the loss, the mean over the tokens of all ranks.

    The ranks form a mesh of data x expert, and all of them have equally many
    tokens. Each rank has taken the mean over its own tokens as its loss. Then
    the backward pass went through both all-to-alls, and nothing was summed.

    grads: an array (data, expert, numbers): the gradient that each rank has
        for the numbers of a parameter it holds.
    is_expert: True if the parameter is part of an expert, so that each index
        along expert has different ones; False if it is the router's, so that
        all ranks have copies.

    The result is an array (expert, numbers): the gradient at each index along
    expert. For a router, its rows are equal.
    """
    raise NotImplementedError("Whose tokens are in one rank's gradient already?")
''',
    _gradients,
)
def judge_average(found, grads, is_expert):
    data, expert, _ = grads.shape
    right = grads.sum(0) / (data * expert)
    if not is_expert:
        right = np.broadcast_to(grads.mean((0, 1)), right.shape)
    wrong = off(found, right)
    mixed = wrong and is_expert and not off(found, grads.sum(0).mean(0) + 0 * right)
    mixed = mixed or (
        wrong and is_expert and not off(found, grads.mean((0, 1)) + 0 * right)
    )
    yield "different experts aren't added", mixed and wrong
    times = wrong and is_expert and not off(found, grads.mean(0))
    said = times and f"it is {expert} times as large"
    yield "an expert's gradient is divided by all ranks", said
    apart = wrong and not is_expert and not off(found, grads.mean(0))
    yield "all copies of the router are summed", apart and wrong
    total = wrong and not off(found, right * data * expert)
    yield "it is a mean, not a sum", total and wrong
    yield "it is the gradient of the mean over all tokens", wrong


flaw(
    "experts/average",
    """
def my_average(grads, is_expert):
    data, expert, numbers = grads.shape
    if is_expert:
        return grads.mean(axis=0)
    mean = grads.mean(axis=(0, 1))
    return mean + 0 * grads[0]
""",
    lambda f: (
        "all 8 tokens of 2 x 4 ranks go to the first index along expert, and each has "
        "the gradient 1. The mean over the tokens is 1, but it says "
        f"{f(_one_expert(2, 4), True)[0, 0]:g}"
    ),
    "an expert's gradient is divided by all ranks",
)
flaw(
    "experts/average",
    """
def my_average(grads, is_expert):
    mean = grads.mean(axis=(0, 1))
    return mean + 0 * grads[0]
""",
    lambda f: (
        "on 1 x 2 ranks, the experts have the gradients 6 and 2. After the mean over "
        f"all tokens, they are {f(np.array([[[6.0], [2.0]]]), True).ravel().tolist()}"
    ),
    "different experts aren't added",
)


def _one_expert(data: int, expert: int) -> np.ndarray:
    """Gradients of a token of 1 per rank, all at the first index along expert."""
    grads = np.zeros((data, expert, 1))
    grads[:, 0] = expert
    return grads


def _records(draw: random.Random) -> Iterator[tuple]:
    one = {"rank": 0, "why": "forward", "chosen": [[0], [1]], "real": [True, True]}
    again = one | {"why": "recomputation"}
    yield from (([one], 2), ([one, one | {"rank": 1}], 2))
    yield from (([one, again], 2), ([one, one | {"why": "evaluation"}], 2))
    yield [one | {"real": [True, False]}], 3
    for _ in range(6):
        experts, k = draw.randint(2, 5), draw.randint(1, 2)
        calls = []
        for rank in range(draw.randint(1, 3)):
            for _ in range(draw.randint(1, 2)):
                tokens = draw.randint(1, 5)
                call = {
                    "rank": rank,
                    "why": draw.choice(["forward", "forward", "evaluation"]),
                    "chosen": [draw.sample(range(experts), k) for _ in range(tokens)],
                    "real": [draw.random() < 0.7 for _ in range(tokens)],
                }
                calls.append(call)
                if call["why"] == "forward" and draw.random() < 0.5:
                    calls.append(call | {"why": "recomputation"})
        yield calls, experts


def _counts(calls: list, experts: int, skip: tuple, padding: bool = False) -> list:
    """Choices per expert, without calls for these reasons."""
    counts = [0] * experts
    for call in calls:
        for own, is_real in zip(call["chosen"], call["real"]):
            for expert in own if call["why"] not in skip else []:
                counts[expert] += is_real or padding
    return counts


@exercise(
    "experts/counts",
    '''
def my_counts(calls, experts):
    """Return how many choices each expert got in a training step, as a list.

    The counts are for the rule that moves the experts' biases. Each choice of
    a real token counts once, over all ranks and all micro-batches. What only
    an evaluation has chosen doesn't count.

    calls: all runs of the layer, in the order in which they happened, each a
        dictionary: "rank"; "why", which is "forward", "recomputation" or
        "evaluation"; "chosen", a list of experts per token; and "real", False
        for each token that is padding.
    """
    raise NotImplementedError("Which runs of the layer count?")
''',
    _records,
    hunted=True,
)
def judge_counts(found, calls, experts):
    found = whole_numbers(found)
    skip = "recomputation", "evaluation"
    right = _counts(calls, experts, skip)
    wrong = found != right and f"it is {found}"

    def so(*skip: str, padding: bool = False) -> str:
        seen = found == _counts(calls, experts, skip, padding)
        return wrong if wrong and seen else ""

    yield "what is recomputed counts once", so("evaluation")
    yield "an evaluation doesn't count", so("recomputation")
    yield "padding doesn't count", so(*skip, padding=True)
    own = [call for call in calls if call["rank"] == calls[0]["rank"]]
    alone = wrong and found == _counts(own, experts, skip) and wrong
    yield "the choices of all ranks count", alone
    yield "each choice of a real token counts once", wrong


_STEP = [
    {"rank": 0, "why": "evaluation", "chosen": [[0], [0], [0]], "real": [True] * 3},
    {"rank": 0, "why": "forward", "chosen": [[0], [1]], "real": [True, True]},
    {"rank": 1, "why": "forward", "chosen": [[1], [0]], "real": [True, False]},
    {"rank": 0, "why": "recomputation", "chosen": [[0], [1]], "real": [True, True]},
]


def _seen(f) -> str:
    return (
        "in a step, two ranks have three real tokens. One of them chose expert 0 and "
        f"two chose expert 1, but the counts are {f(_STEP, 2)}"
    )


flaw(
    "experts/counts",
    """
def my_counts(calls, experts):
    counts = [0] * experts
    for call in calls:
        if call["why"] != "evaluation":
            for own, is_real in zip(call["chosen"], call["real"]):
                for expert in own:
                    counts[expert] += is_real
    return counts
""",
    _seen,
    "what is recomputed counts once",
)
flaw(
    "experts/counts",
    """
def my_counts(calls, experts):
    counts = [0] * experts
    for call in calls:
        if call["why"] != "recomputation":
            for own, is_real in zip(call["chosen"], call["real"]):
                for expert in own:
                    counts[expert] += is_real
    return counts
""",
    _seen,
    "an evaluation doesn't count",
)
flaw(
    "experts/counts",
    """
def my_counts(calls, experts):
    counts = [0] * experts
    for call in calls:
        if call["why"] == "forward" and call["rank"] == calls[0]["rank"]:
            for own, is_real in zip(call["chosen"], call["real"]):
                for expert in own:
                    counts[expert] += is_real
    return counts
""",
    _seen,
    "the choices of all ranks count",
)


def _loads(draw: random.Random) -> Iterator[tuple]:
    yield from (([4], 1), ([2, 2], 2), ([4], 2), ([3, 1], 2), ([1, 1, 4], 3))
    yield from (([5, 1, 1, 1], 4), ([6, 5, 4, 3, 2, 1], 3), ([7, 0, 1], 2))
    for _ in range(5):
        gpus, experts = draw.randint(2, 5), draw.randint(2, 7)
        loads = [draw.randint(0, 20) for _ in range(experts)]
        loads[0] += -sum(loads) % gpus
        yield loads, gpus


@exercise(
    "experts/placement",
    '''
def my_placement(loads, gpus):
    """Return which tokens each GPU gets, so that all get equally many.

    An expert may lie on several GPUs. Each of them gets some of its tokens. The
    mean load is a whole number. E experts on G GPUs need at most E + G - 1
    pairs of an expert and a GPU.

    loads: the number of tokens of each expert.

    The result is a list with one dictionary per GPU, {expert: tokens}. It
    names only experts of which the GPU gets at least one token.
    """
    raise NotImplementedError("Draw all loads on one line. Where do you cut it?")
''',
    _loads,
)
def judge_placement(found, loads, gpus):
    count = len(found) != gpus and f"it has {len(found)} entries for {gpus} GPUs"
    yield "there is a dictionary per GPU", count
    strange = [e for own in found for e in own if e not in range(len(loads))]
    yield "only experts that exist are named", strange and f"it names {strange[0]!r}"
    none = [e for own in found for e, tokens in own.items() if not tokens > 0]
    said = none and f"expert {none[0]} is on a GPU without a token"
    yield "a named expert gets a token", said
    parts = [
        sum(Fraction(own[e]) for own in found if e in own) for e in range(len(loads))
    ]
    lost = [e for e, (got, due) in enumerate(zip(parts, loads)) if got != due]
    said = (
        lost and f"expert {lost[0]} has {loads[lost[0]]} tokens, not {parts[lost[0]]}"
    )
    yield "each token is on one GPU", said
    mean, sums = Fraction(sum(loads), gpus), [sum(own.values()) for own in found]
    uneven = [got for got in sums if got != mean]
    said = uneven and f"a GPU has {uneven[0]} tokens, and the mean is {mean}"
    yield "all GPUs get equally many tokens", said
    pairs, most = sum(map(len, found)), len(loads) + gpus - 1
    said = pairs > most and f"there are {pairs} pairs, and {most} are enough"
    yield "there are at most E + G - 1 pairs", said


flaw(
    "experts/placement",
    """
def my_placement(loads, gpus):
    placed = [{} for _ in range(gpus)]
    for expert in sorted(range(len(loads)), key=lambda e: -loads[e]):
        idle = min(placed, key=lambda own: sum(own.values()))
        if loads[expert]:
            idle[expert] = loads[expert]
    return placed
""",
    lambda f: (
        "experts with 5, 1, 1 and 1 tokens on 4 GPUs: they get "
        f"{[sum(own.values()) for own in f([5, 1, 1, 1], 4)]} tokens, and all wait for "
        "the first"
    ),
    "all GPUs get equally many tokens",
)
