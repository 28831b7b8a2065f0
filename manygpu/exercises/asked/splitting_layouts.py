"""Exercises of part 4: how a mesh is laid out on nodes, and of which sizes it is."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.flaws import flaw


def within(sizes: tuple[int, ...], axis: int, node: int) -> list[bool]:
    """For each group along an axis, whether all of its ranks share a node."""
    ranks = np.arange(math.prod(sizes)).reshape(sizes)
    groups = np.moveaxis(ranks, axis, -1).reshape(-1, sizes[axis])
    return [len({rank // node for rank in group}) == 1 for group in groups.tolist()]


def _messages(draw: random.Random) -> Iterator[tuple]:
    yield {"data": 2, "layerwise": 2}, {"data": 1, "layerwise": 9}, 2
    yield {"layerwise": 2, "data": 2}, {"layerwise": 9, "data": 1}, 2
    yield {"layerwise": 4, "data": 2}, {"layerwise": 9, "data": 1}, 2
    yield {"a": 2, "b": 2, "c": 4}, {"a": 5, "b": 4, "c": 6}, 4
    for _ in range(4):
        names = draw.sample(["pipeline", "data", "layerwise"], 3)
        sizes = {name: draw.choice((2, 4, 8)) for name in names}
        yield sizes, {name: draw.randint(1, 99) for name in names}, 8


def _seconds(order: list[str], sizes: dict, sent: dict, node: int) -> float:
    """What an order of the axes costs, if a byte takes 1 in a node and 10 outside."""
    shape, total = tuple(sizes[name] for name in order), 0.0
    for axis, name in enumerate(order):
        total += sent[name] * (1 if all(within(shape, axis, node)) else 10)
    return total


@exercise(
    "mesh-layout/order",
    '''
def my_order(sizes, sent, node):
    """Return the order of a mesh's axes in which messages take the least time.

    The result is a list of the axes' names, with the outermost axis first.
    Ranks are numbered along the last axis first, and each `node` of them, from
    0 on, share a node. A byte takes time 1 along an axis whose groups all lie
    within a node, and otherwise it takes 10. All lengths, and `node`, are
    powers of 2.

    sizes: for each axis, its length.
    sent: for each axis, the bytes that a rank sends along it.
    """
    raise NotImplementedError("With three axes, you can try all orders.")
''',
    _messages,
)
def judge_order(found, sizes, sent, node):
    found = list(found)
    yield "each axis is present once", sorted(found) != sorted(sizes) and f"{found}"
    fits = [name for name in sizes if sizes[name] <= node]
    last = fits and found[-1] not in fits and f"{found[-1]!r} doesn't fit"
    yield "the innermost axis fits into a node", last
    orders = map(list, itertools.permutations(sizes))
    best = min(_seconds(order, sizes, sent, node) for order in orders)
    took = _seconds(found, sizes, sent, node)
    slow = took > best and f"it takes {took:g}, and {best:g} is possible"
    yield "no other order takes less", slow


def _models(draw: random.Random) -> Iterator[tuple]:
    yield from ((1, 1, 9, 10), (2, 2, 15, 10), (2, 1, 15, 10), (8, 4, 35, 10))
    yield from ((8, 8, 99, 10), (8, 4, 79, 10), (8, 4, 10, 10), (10, 4, 25, 10))
    yield from ((12, 4, 30, 10), (12, 6, 30, 10), (24, 4, 60, 10))
    for _ in range(4):
        devices = draw.choice((1, 3)) * 2 ** draw.randint(3, 6)
        yield devices, draw.choice((4, 6, 8)), draw.randint(10, 700), 10


@exercise(
    "mesh-layout/mesh",
    '''
def my_mesh(devices, node, memory, room):
    """Return (stages, copies, slices) of a mesh of all devices, or None.

    Each copy of the model is split over stages * slices devices. `slices` must
    divide `node`, so that groups of slices stay within a node. Take the most
    copies that are possible, and of the meshes with this many copies, the one
    with the fewest stages. If no mesh fits, return None.

    node: how many devices a node has.
    memory: the GB that the model needs.
    room: the GB that each device has.
    """
    raise NotImplementedError("Try all numbers of stages and of slices.")
''',
    _models,
)
def judge_mesh(found, devices, node, memory, room):
    fit = [
        (p, devices // (p * t), t)
        for p in range(1, devices + 1)
        for t in range(1, node + 1)
        if devices % (p * t) == 0 and node % t == 0 and memory <= room * p * t
    ]
    if found is None:
        yield "a mesh that fits is found", fit and f"{fit[0]} fits"
        return
    stages, copies, slices = found
    all_ = stages * copies * slices
    yield "all devices are used", all_ != devices and f"{found} has {all_}"
    yield "groups of slices stay in a node", node % slices and f"it is {found}"
    small = memory <= room * stages * slices
    yield "a device's part fits", not small and f"it is {found}"
    most = max(mesh[1] for mesh in fit)
    yield "no mesh has more copies", copies < most and f"{most} are possible"
    fewest = min(mesh[0] for mesh in fit if mesh[1] == most)
    yield "no mesh has fewer stages", stages > fewest and f"{fewest} would be enough"


def _lines(draw: random.Random) -> Iterator[tuple]:
    yield from (((2,), 0, 2), ((2,), 0, 1), ((2, 2), 1, 2), ((2, 2), 0, 2))
    yield from (((4, 3), 1, 4), ((2, 2, 2), 1, 4), ((2, 2, 2), 0, 4), ((3, 2), 0, 8))
    for _ in range(4):
        sizes = tuple(draw.randint(1, 4) for _ in range(3))
        yield sizes, draw.randrange(3), draw.choice((2, 4, 8))


@exercise(
    "mesh-layout/leaves",
    '''
def my_leaves(sizes, axis, node):
    """Return whether any group along an axis has ranks on several nodes.

    Ranks are numbered along the last axis first, and each `node` of them, from
    0 on, share a node.

    sizes: the lengths of the mesh's axes, outermost first.
    axis: the number of the axis.
    """
    raise NotImplementedError("Which ranks are in a group along this axis?")
''',
    _lines,
    hunted=True,
)
def judge_leaves(found, sizes, axis, node):
    found, inside = bool(found), within(sizes, axis, node)
    wrong = found == all(inside) and f"it is {found}"
    first = wrong and found == (not inside[0]) and f"it is {found}"
    yield "every group counts, not only the group of rank 0", first
    short = wrong and found == (sizes[axis] > node) and f"it is {found}"
    yield "along an outer axis, neighbours are far apart", short
    yield "along the last axis, neighbours have neighbouring ranks", wrong


def _said(f, sizes: tuple[int, ...], node: int) -> str:
    """Which axes leave a node, as a function has it."""
    mesh = " x ".join(map(str, sizes))
    out = [axis for axis in range(len(sizes)) if f(sizes, axis, node)]
    which = ", ".join(map(str, out)) or "none"
    return (
        f"{mesh} ranks in nodes of {node}; the axes that leave a node, counted from "
        f"0: {which}"
    )


flaw(
    "mesh-layout/leaves",
    """
def my_leaves(sizes, axis, node):
    return sizes[axis] > node
""",
    lambda f: _said(f, (8, 8, 8), 8),
    "along an outer axis, neighbours are far apart",
)
flaw(
    "mesh-layout/leaves",
    """
import math


def my_leaves(sizes, axis, node):
    stride = math.prod(sizes[axis + 1 :])
    group = range(0, stride * sizes[axis], stride)
    return len({rank // node for rank in group}) > 1
""",
    lambda f: _said(f, (4, 6), 8),
    "every group counts, not only the group of rank 0",
)
flaw(
    "mesh-layout/leaves",
    """
import numpy as np


def my_leaves(sizes, axis, node):
    ranks = np.arange(np.prod(sizes)).reshape(sizes, order="F")
    groups = np.moveaxis(ranks, axis, -1).reshape(-1, sizes[axis])
    return any(len({rank // node for rank in group}) > 1 for group in groups)
""",
    lambda f: _said(f, (8, 8), 8),
    "along the last axis, neighbours have neighbouring ranks",
)
