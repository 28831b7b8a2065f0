"""Exercises of part 8 about divisions: what is summed, and who divides by what."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import in_digits, off

CUTTING = ["data", "context", "expert"]


def _places(sizes: dict[str, int]) -> list[dict[str, int]]:
    """Every place of a mesh."""
    every = itertools.product(*map(range, sizes.values()))
    return [dict(zip(sizes, place, strict=True)) for place in every]


def _with_labels(draw: random.Random, sizes: dict[str, int], most: int) -> list[tuple]:
    """Each rank's place, and its weights; ranks with the same tokens have the same."""
    drawn, ranks = {}, []
    for place in _places(sizes):
        tokens = tuple(place.get(axis, 0) for axis in CUTTING)
        if tokens not in drawn:
            lengths = [draw.randint(1, 4) for _ in range(draw.randint(2, most))]
            drawn[tokens] = [
                [draw.choice([0, 0.5, 1, 1]) for _ in range(n)] for n in lengths
            ]
        ranks.append((place, [list(own) for own in drawn[tokens]]))
    return ranks


def _divisors(draw: random.Random) -> Iterator[tuple]:
    yield [({"data": 0}, [[1, 1]])], CUTTING
    yield [({"data": 0}, [[1, 0.5]]), ({"data": 1}, [[1]])], CUTTING
    yield [({"data": 0}, [[1], [1, 1]]), ({"data": 1}, [[0], [1]])], CUTTING
    two = {"data": 0, "layerwise": 0}, {"data": 0, "layerwise": 1}
    yield [(place, [[1, 1, 0.5]]) for place in two], CUTTING
    for axes in (["data", "layerwise"], ["context", "layerwise"], [*CUTTING], ["data"]):
        sizes = {axis: draw.randint(2, 3) for axis in axes}
        yield _with_labels(draw, sizes, 3), CUTTING


def _label_sum(ranks: list[tuple], cutting: list[str], of: Callable = sum) -> float:
    """The sum over all labels, each once."""
    seen = {tuple(place.get(axis, 0) for axis in cutting): own for place, own in ranks}
    return sum(of(weights) for own in seen.values() for weights in own)


@exercise(
    "who-divides/divisor",
    '''
def my_divisor(ranks, cutting):
    """Return the number by which a step divides its summed gradients.

    It is the sum of the weights of all labels, and each label counts once.

    ranks: a pair (place, weights) for each rank. The place is a dictionary,
        {axis: index}, of the rank in the mesh. The weights are a list with one
        list per micro-batch, which has the weight of each label.
    cutting: the names of the axes that cut tokens. Ranks whose places differ
        only on other axes have the same labels.
    """
    raise NotImplementedError("Which ranks have labels that no other rank has?")
''',
    _divisors,
)
def judge_divisor(found, ranks, cutting):
    right = _label_sum(ranks, cutting)
    wrong = off(found, right)

    def if_it_is(value):
        return wrong if wrong and not off(found, value) else ""

    every = sum(sum(weights) for _, own in ranks for weights in own)
    yield "a label that several ranks have counts once", if_it_is(every)
    yield "labels count by their weights", if_it_is(_label_sum(ranks, cutting, len))
    first = [(place, own[:1]) for place, own in ranks]
    last = [(place, own[-1:]) for place, own in ranks]
    some = [if_it_is(_label_sum(part, cutting)) for part in (first, last)]
    yield "the labels of all micro-batches count", max(some, key=len)
    own = [sum(map(sum, weights)) for _, weights in ranks]
    means = if_it_is(own[0]) or if_it_is(np.mean(own))
    yield "the labels of all ranks count", means
    yield "it is the sum of the weights of all labels", wrong


def _four_ranks(divisor: Callable) -> str:
    places = [{"data": d, "layerwise": t} for d in range(2) for t in range(2)]
    ranks = [(place, [[1, 1], [1]] if place["data"] else [[1]]) for place in places]
    return (
        "on 2 x 2 ranks of data and layerwise, the step has four labels with a weight "
        f"of 1, and it divides by {in_digits(divisor(ranks, CUTTING))}"
    )


flaw(
    "who-divides/divisor",
    """
def my_divisor(ranks, cutting):
    total = 0
    for place, weights in ranks:
        for of_micro_batch in weights:
            total += sum(of_micro_batch)
    return total
""",
    _four_ranks,
    "a label that several ranks have counts once",
)


def _steps(draw: random.Random) -> Iterator[tuple]:
    yield [[[2.0, 4.0]]], [[3.0]]
    yield [[[8.0], [2.0]]], [[1.0, 3.0]]
    yield [[[8.0]], [[2.0]]], [[1.0], [3.0]]
    yield [[[4.0], [1.0]], [[2.0], [6.0]]], [[4.0, 1.0], [1.5, 3.0]]
    yield [[[8.0], None], [[2.0], [4.0]]], [[1.0, 0.0], [2.0, 3.0]]
    for _ in range(4):
        ranks, parts = draw.randint(2, 4), draw.randint(2, 3)
        means, weights = [], []
        for _ in range(ranks):
            own = [float(draw.choice([1, 2, 3, 5, 8])) for _ in range(parts)]
            if draw.random() < 0.3:
                own[draw.randrange(1, parts)] = 0.0
            weights.append(own)
            drawn = [[draw.randint(-9, 9) / 4 for _ in range(3)] for _ in own]
            means.append([m if w else None for m, w in zip(drawn, own, strict=True)])
        yield means, weights


def _mean(means: list, weights: list) -> np.ndarray:
    """The weighted mean of some micro-batches' means."""
    pairs = [(m, w) for m, w in zip(means, weights, strict=True) if w]
    kept, of = zip(*pairs, strict=True)
    return np.average(np.array(kept, float), axis=0, weights=of)


@exercise(
    "who-divides/repair",
    '''
def my_gradient(means, weights):
    """Return the gradient of the weighted mean loss over all labels of a step.

    A program has divided too early: each micro-batch took the weighted mean
    over its own labels. Nothing was added up yet.

    means: for each rank, a list with the gradient of each micro-batch's mean,
        a list of numbers. It is None if no label of the micro-batch counts.
    weights: for each rank, a list with the sum of the weights of the labels of
        each micro-batch.
    """
    raise NotImplementedError("How do you undo a division?")
''',
    _steps,
)
def judge_repair(found, means, weights):
    flat = [m for own in means for m in own], [w for own in weights for w in own]
    right = _mean(*flat)
    wrong = off(found, right)

    def if_it_is(value):
        return wrong if wrong and not off(found, value) else ""

    real = [m for m in flat[0] if m is not None]
    per_rank = [_mean(*own) for own in zip(means, weights, strict=True)]
    own_means = [np.mean([m for m in own if m is not None], axis=0) for own in means]
    of_means = if_it_is(np.mean(real, axis=0)) or if_it_is(np.mean(own_means, axis=0))
    yield "ranks count by their weights", if_it_is(np.mean(per_rank, axis=0))
    yield "micro-batches count by their weights", of_means
    yield "it is divided once", if_it_is(right * sum(flat[1]))
    yield "it is the gradient of one device", wrong


def _two_parts(gradient: Callable) -> str:
    found = gradient([[[8.0]], [[2.0]]], [[1.0], [3.0]])
    return (
        "one rank has a single label whose gradient is 8, and another one has three "
        "labels with a mean gradient of 2. The gradients of the four labels add up to "
        f"14, so their mean is 3.5. The result is {in_digits(found[0])}"
    )


flaw(
    "who-divides/repair",
    """
def my_gradient(means, weights):
    of_ranks = []
    for own, of_own in zip(means, weights):
        parts = [(m, w) for m, w in zip(own, of_own) if w > 0]
        length = len(parts[0][0])
        sums = [sum(w * m[i] for m, w in parts) for i in range(length)]
        of_ranks.append([s / sum(of_own) for s in sums])
    return [sum(same) / len(of_ranks) for same in zip(*of_ranks)]
""",
    _two_parts,
    "ranks count by their weights",
)
flaw(
    "who-divides/repair",
    """
def my_gradient(means, weights):
    parts = [m for own in means for m in own if m is not None]
    return [sum(same) / len(parts) for same in zip(*parts)]
""",
    _two_parts,
    "micro-batches count by their weights",
)


def _engines(draw: random.Random) -> Iterator[tuple]:
    yield {"data": 4}, CUTTING, []
    yield {"data": 2, "context": 3}, CUTTING, []
    yield {"data": 2, "layerwise": 3}, CUTTING, []
    yield {"data": 2, "layerwise": 4}, CUTTING, ["layerwise"]
    yield {"data": 2, "expert": 4}, CUTTING, ["expert"]
    yield {"data": 3, "expert": 2}, CUTTING, []
    for _ in range(5):
        axes = ["data", *draw.sample(["context", "expert", "layerwise"], 2)]
        sizes = {axis: draw.choice([2, 3, 4, 5]) for axis in axes}
        cut = draw.choice([[], [axes[1]], [axes[2]]])
        yield sizes, CUTTING, [axis for axis in cut if axis != "context"]


@exercise(
    "who-divides/factor",
    '''
def my_factor(sizes, cutting, pieces):
    """Return the number by which an engine's mean must be multiplied.

    Each rank has divided its own losses by the sum of the weights of all labels
    in the step. The engine takes the mean of a parameter's gradients over all
    ranks that have a copy of it. Times the factor, this mean is the gradient
    of the step.

    sizes: the number of ranks along each axis of the mesh, {axis: ranks}.
    cutting: the names of the axes that cut tokens. Along all others, ranks do
        the same with a copy, so its gradient is complete.
    pieces: the names of the axes along which each rank has a different piece of
        the parameter. (An expert is in pieces along the axis "expert".)
    """
    raise NotImplementedError("Over how many different summands is the mean?")
''',
    _engines,
)
def judge_factor(found, sizes, cutting, pieces):
    def product(axes):
        return math.prod(sizes.get(axis, 1) for axis in axes)

    wrong = off(found, product(axis for axis in cutting if axis not in pieces))

    def if_it_is(value):
        return wrong if wrong and not off(found, value) else ""

    so = "an axis along which the parameter is in pieces doesn't count"
    yield so, if_it_is(product(cutting))
    copies = product(axis for axis in sizes if axis not in pieces)
    so = "the mean of complete gradients needs no factor"
    yield so, if_it_is(copies) or if_it_is(product(sizes))
    some = if_it_is(1) or if_it_is(product(["data"]))
    yield "every axis that cuts tokens counts", some
    yield "it is the number of different summands in the mean", wrong


def _experts(factor: Callable) -> str:
    found = factor({"data": 2, "expert": 4}, CUTTING, ["expert"])
    return (
        "on 2 x 4 ranks of data and expert, an expert has two copies, and all eight "
        "ranks have sent it tokens. The mean over its copies is multiplied by "
        f"{in_digits(found)}"
    )


def _copies(factor: Callable) -> str:
    found = factor({"data": 2, "layerwise": 3}, CUTTING, [])
    return (
        "on 2 x 3 ranks of data and layerwise, the gain of a norm has six copies. The "
        f"mean of their gradients is multiplied by {in_digits(found)}"
    )


flaw(
    "who-divides/factor",
    """
def my_factor(sizes, cutting, pieces):
    factor = 1
    for axis in cutting:
        factor *= sizes.get(axis, 1)
    return factor
""",
    _experts,
    "an axis along which the parameter is in pieces doesn't count",
)
flaw(
    "who-divides/factor",
    """
def my_factor(sizes, cutting, pieces):
    factor = 1
    for axis, ranks in sizes.items():
        if axis not in pieces:
            factor *= ranks
    return factor
""",
    _copies,
    "the mean of complete gradients needs no factor",
)
