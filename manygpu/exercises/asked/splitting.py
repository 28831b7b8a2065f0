"""Exercises of part 4: splitting the model, its passes, its state."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.drawn import arrays
from manygpu.exercises.saying import all_off, off, other, rounding


def _batches(draw: random.Random) -> Iterator[tuple]:
    for sizes in ([2], [2, 2], [3, 1], [4, 0, 2], [draw.randint(1, 9), 5, 1]):
        own = [arrays(draw, n, 2) + 1 for n in sizes]
        yield [len(x) for x in own], [_of(x, 1) for x in own], [_of(x, 2) for x in own]
    far = [arrays(draw, 40, 2) + 1e6, arrays(draw, 20, 2) + 1e6]
    yield [40, 20], [x.mean(0) for x in far], [x.var(0) for x in far]


def _of(x: np.ndarray, moment: int) -> np.ndarray:
    """Mean or variance by column, zeros where there are no rows."""
    if not len(x):
        return np.zeros(x.shape[1])
    return x.mean(0) if moment == 1 else x.var(0)


@exercise(
    "batch-normalization/whole-batch",
    '''
def my_moments(counts, means, variances):
    """Return the mean and the variance of the whole batch.

    Compute them from the mean and variance of each device's share. A variance
    is divided by the number of samples, not by one less.

    counts: for each device, the number of samples in its share. It may be 0.
    means, variances: for each device, an array with one number per channel.
    """
    raise NotImplementedError(
        "The spread between the devices is part of the variance, too."
    )
''',
    _batches,
)
def judge_whole_batch(found, counts, means, variances):
    mean, variance = found
    weights = np.array(counts, float)
    right = np.average(means, axis=0, weights=weights)
    plain = off(mean, right) and not off(mean, np.mean(means, axis=0))
    yield "each sample weighs the same", plain and off(mean, right)
    yield "it is the mean of all", off(mean, right)
    within = np.average(variances, axis=0, weights=weights)
    between = np.average((np.array(means) - right) ** 2, axis=0, weights=weights)
    alone = off(variance, within + between) and not off(variance, within)
    yield (
        "differences between the devices' means add to the variance",
        alone and "only the devices' own variances are in it",
    )
    cancelled = "no digits are lost where the mean is large"
    far = np.abs(right).max() > 1e3 * math.sqrt(float(within.max()))
    yield cancelled, far and off(variance, within + between, 1e-6)
    yield "it is the variance of all", off(variance, within + between, 1e-6)


def _columns(draw: random.Random) -> Iterator[tuple]:
    x, A, a = np.array([[1.0, 2], [3, 1]]), np.array([[1.0, 2], [-1, 1]]), [2.0, -5]
    B, b = np.array([[1.0], [2]]), np.array([10.0])
    yield from ((x, A, np.array(a), B, b, 1), (x, A, np.array(a), B, b, 2))
    for k, n, inner, wide, out in ((2, 2, 3, 4, 2), (3, 2, 4, 5, 3)):
        shapes = (n, inner), (inner, wide), (wide,), (wide, out), (out,)
        yield *(arrays(draw, *shape) for shape in shapes), k


def relu(x: np.ndarray) -> np.ndarray:
    """max(x, 0)"""
    return np.maximum(x, 0)


@exercise(
    "layerwise/pair",
    '''
def my_pair(x, A, a, B, b, k):
    """Return k terms, one per device, whose sum is relu(x @ A + a) @ B + b.

    Each device has some columns of A and of a, and the same rows of B, as
    np.array_split splits them. The devices send nothing before this sum.
    """
    raise NotImplementedError(
        "How must A be split, so that relu can be applied to each slice alone?"
    )
''',
    _columns,
)
def judge_pair(found, x, A, a, B, b, k):
    yield "one term per device", other(len(found), k)
    right, total = relu(x @ A + a) @ B + b, np.sum(found, axis=0)
    biased = off(total, right) and not off(total, right + (k - 1) * b)
    yield "the last bias is added once", biased and f"it is added {k} times"
    yield "the terms add up to one device's output", off(total, right)
    cuts = np.array_split(A, k, 1), np.array_split(a, k), np.array_split(B, k)
    for d, (own, columns, part, rows) in enumerate(zip(found, *cuts)):
        apart = own - relu(x @ columns + part) @ rows
        foreign = np.ptp(apart, axis=0).max(initial=0.0) > rounding(own)
        yield (
            "each device has its own columns and rows",
            foreign and f"device {d} has others",
        )


def _models(draw: random.Random) -> Iterator[tuple]:
    yield from itertools.product((0, 1, 2, 3), (8e9,), (1, 8))
    devices = draw.randint(2, 512)  # which divide the parameters
    yield draw.randint(0, 3), float(devices * draw.randint(10**6, 10**9)), devices


@exercise(
    "sharded-state/bytes",
    '''
def my_bytes(stage, parameters, devices):
    """Return the bytes that a device holds between two steps with ZeRO.

    A parameter has 2 bytes, its gradient 2 bytes, and the optimizer's state 12
    bytes (a float32 copy and Adam's averages). Stage 0 shards nothing, stage 1
    the optimizer's state, stage 2 also the gradients, and stage 3 everything.
    """
    raise NotImplementedError(
        "Which of 2, 2 and 12 are divided by the number of devices?"
    )
''',
    _models,
)
def judge_bytes(found, stage, parameters, devices):
    kept = ((2, 2, 12), (2, 2, 12 / devices), (2, 14 / devices), (16 / devices,))
    whole = devices > 1 and stage and not off(found, 16 * parameters)
    yield "the optimizer's state is split", whole and "all 16 bytes are counted"
    earlier = stage > 1 and not off(found, parameters * sum(kept[stage - 1]))
    yield (
        "each stage splits more",
        devices > 1 and earlier and "one stage less is split",
    )
    yield (
        "it is the amount that a device holds",
        off(found, parameters * sum(kept[stage])),
    )


def _chains(draw: random.Random) -> Iterator[tuple]:
    yield from ((1,), (4,), (9,), (10,), (16,), (30,), (draw.randint(31, 200),))


def peak(layers: int, segment: int) -> int:
    """Activations of a chain in segments: their inputs, and one segment's own."""
    return -(-layers // segment) + min(segment, layers)


@exercise(
    "recomputation/segments",
    '''
def my_segment(layers):
    """Return how many layers per segment keep the fewest activations.

    Two things are kept: the input of each segment, and the activations of all
        layers in one segment, while this segment is run again. All of them are
        equally large. The last segment may be shorter. If several lengths keep
        the fewest, return any of them.
    """
    raise NotImplementedError("Count both for a few lengths.")
''',
    _chains,
)
def judge_segments(found, layers):
    broken = found != int(found) or not 1 <= found <= layers
    yield "it is a number of layers", broken and f"it is {found}"
    least = min(peak(layers, each) for each in range(1, layers + 1))
    kept = peak(layers, int(found))
    yield (
        "no other length keeps less",
        kept > least and f"{kept} are kept, {least} is possible",
    )


def _meshes(draw: random.Random) -> Iterator[tuple]:
    yield from ((1, 1), (2, 1), (1, 2), (2, 2), (2, 4), (4, 2))
    yield draw.randint(2, 6), draw.randint(2, 6)


@exercise(
    "mesh-layout/groups",
    '''
def my_groups(data, model):
    """Return two lists of groups of ranks: along data, and along model.

    The ranks are 0 to data * model - 1. Neighbouring ranks share a node, so
    the ranks of a model group must be consecutive. A group is a list of ranks,
    with the lowest first.
    """
    raise NotImplementedError("In which row and column of the mesh is rank r?")
''',
    _meshes,
)
def judge_groups(found, data, model):
    ranks = np.arange(data * model).reshape(data, model)
    along_data, along_model = found
    for name, own, size in (("data", along_data, data), ("model", along_model, model)):
        flat = sorted(rank for group in own for rank in group)
        yield (
            "each rank is in one group per axis",
            flat != ranks.ravel().tolist() and (f"along {name} they are {flat}"),
        )
        wrong = any(len(group) != size for group in own)
        yield "groups have the axis' size", wrong and f"along {name}: {own}"
    far = sorted(map(list, along_model)) != ranks.tolist()
    yield "model groups stay in a node", far and f"{along_model}"
    meet = sorted(map(list, along_data)) != ranks.T.tolist()
    yield "a data group has the same slice of the model", meet and f"{along_data}"


def _stages(draw: random.Random) -> Iterator[tuple]:
    yield from (([1], 1), ([1, 1], 2), ([3, 1, 1, 1], 2), ([1, 1, 1, 3], 2))
    yield from (([2, 2, 4, 1], 3), ([1, 5, 1, 1, 3], 3), ([1, 2, 3, 6, 1], 3))
    for _ in range(4):
        costs = [draw.randint(1, 9) for _ in range(draw.randint(3, 9))]
        yield costs, draw.randint(1, 3)


def slowest(costs: list[float], cuts: list[int]) -> float:
    """Of the stages that begin at 0 and at each cut."""
    ends = [0, *cuts, len(costs)]
    return max(sum(costs[a:b]) for a, b in zip(ends, ends[1:]))


@exercise(
    "network/cuts",
    '''
def my_cuts(costs, stages):
    """Return the layers before which to cut to get the fastest pipeline.

    The fastest pipeline is the one whose slowest stage takes the least time.
    Make stages - 1 cuts, in rising order, so that each stage has at least one
    layer. If several choices are best, return any of them.

    costs: the seconds of each layer, in order.
    """
    raise NotImplementedError("There are few layers, so you can try all cuts.")
''',
    _stages,
)
def judge_cuts(found, costs, stages):
    found = list(found)
    yield "there is one cut less than stages", other(len(found), stages - 1)
    bounds = [0, *found, len(costs)]
    empty = any(a >= b for a, b in zip(bounds, bounds[1:]))
    yield "each stage has a layer", empty and f"the cuts are {found}"
    inner = range(1, len(costs))
    cuts = itertools.combinations(inner, stages - 1)
    best, own = min(slowest(costs, list(c)) for c in cuts), slowest(costs, found)
    yield (
        "the slowest stage is as fast as can be",
        own > best and (f"it takes {own:g}, not {best:g}"),
    )


def _heads(draw: random.Random) -> Iterator[tuple]:
    for heads, size, k in ((2, 1, 1), (2, 1, 2), (2, 2, 2)):
        yield np.arange(1.0, 1 + 3 * heads * size)[None], heads, k
    for heads, size, k in ((4, 3, 2), (6, 2, 3)):
        yield arrays(draw, 5, 3 * heads * size), heads, k


@exercise(
    "transformer/heads",
    '''
def my_heads(qkv, heads, k):
    """Return each device's columns of `qkv`, which belong to its own heads.

    The columns of `qkv` are the queries of all heads, head by head, then all
    keys, and then all values. k divides heads, and device d gets the d-th of k
    equal runs of heads.

    qkv: an array (inputs, 3 * heads * size).

    The result is a list of k arrays (inputs, 3 * heads / k * size). Each has
    its device's queries, then its keys, and then its values.
    """
    raise NotImplementedError(
        "Split the queries, the keys and the values separately.",
    )
''',
    _heads,
)
def judge_heads(found, qkv, heads, k):
    yield "one piece per device", other(len(found), k)
    parts = qkv.reshape(len(qkv), 3, heads, -1)
    right = [part.reshape(len(qkv), -1) for part in np.split(parts, k, axis=2)]
    plain = np.split(qkv, k, axis=1)
    cut = k > 1 and not all_off(found, plain) and "a device lacks keys or values"
    yield "a device has queries, keys and values of its heads", cut
    yield "all numbers of its heads are present, in order", all_off(found, right)


def _pieces_of(draw: random.Random) -> Iterator[tuple]:
    yield from ((arrays(draw, 2, 2), (1, 1), (None, None)),)
    for spec in ((0, None), (None, 1), (0, 1), (1, 0), (None, None)):
        yield arrays(draw, 4, 4), (2, 2), spec
    for spec in ((0, 1), (1, None), (None, 0)):
        yield arrays(draw, 6, 6), (3, 2), spec


@exercise(
    "dtensor/layout",
    '''
def my_pieces(array, mesh, spec):
    """Return what each device of a mesh holds of an array with two axes.

    Device r * columns + c is in row r and column c of the mesh. All lengths
    are divisible by the numbers of devices.

    mesh: (rows, columns), the numbers of devices.
    spec: for each axis of the array, the mesh axis that splits it, 0 or 1, or
        None. Along a mesh axis that splits nothing, all devices hold the same.
    """
    raise NotImplementedError(
        "Which slice of each axis does a device in row r and column c have?"
    )
''',
    _pieces_of,
)
def judge_layout(found, array, mesh, spec):
    devices = [(r, c) for r in range(mesh[0]) for c in range(mesh[1])]
    right = []
    for place in devices:
        own = array
        for axis, by in enumerate(spec):
            if by is not None:
                own = np.split(own, mesh[by], axis=axis)[place[by]]
        right.append(own)
    yield "one piece per device", other(len(found), len(devices))
    shapes = [(np.shape(a), b.shape) for a, b in zip(found, right)]
    whole = [i for i, (a, b) in enumerate(shapes) if a != b]
    yield (
        "a piece has its axes' lengths",
        whole and (f"device {whole[0]} has {shapes[whole[0]][0]}"),
    )
    yield "each device has its own slice", all_off(found, right)


def _moves(draw: random.Random) -> Iterator[tuple]:
    yield from itertools.product(("R", "S", "P"), ("R", "S"))


@exercise(
    "what-a-tensor-means/move",
    '''
def my_move(have, want):
    """Return the operation that changes a tensor from one meaning to another.

    "R" means that each device has the whole tensor. "S" means that each device
    has a slice of it. "P" means that the tensor is the sum of what the devices
    have.

    have, want: the meanings before and after, "R", "S" or "P".

    The result is "nothing", "slice", "all-gather", "all-reduce" or
    "reduce-scatter".
    """
    raise NotImplementedError(
        "Is anything missing? Is there anything to add up?",
    )
''',
    _moves,
)
def judge_move(found, have, want):
    local = "nothing", "slice"
    five = *local, "all-gather", "all-reduce", "reduce-scatter"
    yield "the answer is one of the five", found not in five and f"it is {found!r}"
    free = have == "R" and found not in local and f"it is {found}"
    yield "a device that has everything needs no message", free
    sums = have == "P" and found in ("all-gather", *local) and f"it is {found}"
    yield "parts of a sum are added", sums
    much = (have, want, found) == ("P", "S", "all-reduce") and "it is all-reduce"
    yield "no device is sent numbers that it doesn't keep", much
    right = {"RR": "nothing", "RS": "slice", "SR": "all-gather", "SS": "nothing"}
    right |= {"PR": "all-reduce", "PS": "reduce-scatter"}
    yield (
        "it is the operation that the meanings ask for",
        other(found, right[have + want]),
    )
