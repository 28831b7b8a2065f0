"""What collectives take, in closed form, and two whose plan no chapter builds.

`n` participants, `size` bytes of a whole tensor, and a `Link` between any two: a
message of S bytes takes alpha + S / beta, and keeps its sender busy for S / beta.
Thakur, Rabenseifner and Gropp (2005).
"""

from __future__ import annotations

import numpy as np

from manygpu.hops import Hop
from manygpu.simulate.cluster import Cluster, Link
from manygpu.simulate.works import positive, whole

MOST = 10**6  # participants in closed form, or messages of a plan


def participants(n: int | np.ndarray) -> int | np.ndarray:
    """Return numbers of participants, one or an array, as they are.

    Raises TypeError or ValueError for others than whole numbers from 1 to `MOST`.
    """
    for value in n.flat if isinstance(n, np.ndarray) else [n]:
        whole("n", value, MOST)
    return n


def naive_seconds(n: int, size: float, link: Link) -> float:
    """All to the first participant one after the other, then back.

    While one is on its way the next one is sent, so a latency is paid once each way.
    One participant alone sends nothing.
    """
    if participants(n) == 1:
        return 0.0
    return 2 * link.seconds((n - 1) * size)


def ring_seconds(n: int, size: float, link: Link) -> float:
    """Reduce-scatter and all-gather on a ring: 2(n - 1)(alpha + S / (n beta))."""
    return 2 * (participants(n) - 1) * link.seconds(size / n)


def half_ring_seconds(n: int, size: float, link: Link) -> float:
    """One of the two: (n - 1)(alpha + S / (n beta))."""
    return ring_seconds(n, size, link) / 2


def tree_seconds(n: int, size: float, link: Link) -> float:
    """Up a binomial tree and down again, whole tensors: 2 ceil(log2 n) steps.

    If n is no power of two, some latencies pass while others send.
    """
    return 2 * (int(participants(n)) - 1).bit_length() * link.seconds(size)


def halving_doubling_seconds(n: int, size: float, link: Link) -> float:
    """Recursive halving, then doubling, for n a power of two: 2 log2 n steps.

    Raises ValueError for another n.
    """
    if participants(n) & (n - 1):
        raise ValueError(f"n must be a power of two for this formula, got {n}")
    steps = range(1, n.bit_length())
    return 2 * sum(link.seconds(size / 2**k) for k in steps)


def hierarchical_seconds(cluster: Cluster, size: float) -> float:
    """Reduce-scatter in each node, rings across nodes, all-gather in each node.

    All GPUs of a node send across at once, each its own part; cards are shared.
    """
    g, n = cluster.gpus, cluster.nodes
    positive("size", size, or_zero=True)
    inside = 2 * half_ring_seconds(g, size, cluster.inside)
    shared = cluster.across.bandwidth * cluster.cards / g
    return inside + ring_seconds(n, size / g, Link(cluster.across.latency, shared))


def trees_across_seconds(cluster: Cluster, size: float) -> float:
    """Like `hierarchical_seconds`, with a double tree across nodes, at its best.

    It needs all of a card's bandwidth, as a ring does, and its latency once a level, up
    and down, instead of once a node (Sanders, Speck and Traff, 2009).
    """
    positive("size", size, or_zero=True)
    inside = 2 * half_ring_seconds(cluster.gpus, size, cluster.inside)
    late = 2 * (cluster.nodes - 1).bit_length() * cluster.across.latency
    sent = 2 * size * (cluster.nodes > 1)
    return inside + late + sent / (cluster.across.bandwidth * cluster.cards)


def switch_seconds(size: float, link: Link, pieces: int) -> float:
    """A switch that adds (NVLink SHARP, Quantum SHARP): up and down, in pieces.

    Each GPU sends all of its tensor once and receives all of the sum once, whatever
    their number; the sum of a piece goes down while the next one comes up.
    """
    whole("pieces", pieces, MOST)
    return link.latency + link.seconds((pieces + 1) * size / pieces)


def _check_plan(n: int, size: float, pieces: int) -> None:
    """Refuse a plan of which no list of messages can be made in seconds."""
    positive("size", size, or_zero=True)
    whole("pieces", pieces, MOST // participants(n))


def switch_messages(n: int, size: float, pieces: int) -> list[tuple[Hop, float]]:
    """The messages of n GPUs and of the switch that adds, which has number n.

    The switch has a port for each GPU, so it is written as n participants: port i
    is number n + i. What it adds up inside takes no message.
    """
    _check_plan(n, size, pieces)
    piece = size / pieces
    each = [(k, i) for k in range(pieces) for i in range(n)]
    up = [(Hop(k, i, n + i, carries=k), piece) for k, i in each]
    down = [(Hop(k + 1, n + i, i, carries=k), piece) for k, i in each]
    return up + down


def double_tree_parents(n: int) -> tuple[list[int | None], list[int | None]]:
    """Return who is above whom in two binary trees; who is a leaf in one isn't in both.

    The first is NCCL's: the lowest 1 of a number gives way to the next higher bit, so
    that odd numbers are leaves. The second is the first mirrored, for even n, or moved
    on by one (Sanders, Speck and Traff, 2009; Jeaugey, 2019).
    """
    first = [_above(i, n) for i in range(participants(n))]
    if n % 2 == 0:
        return first, [None if p is None else n - 1 - p for p in reversed(first)]
    moved = [first[(i - 1) % n] for i in range(n)]
    return first, [None if p is None else (p + 1) % n for p in moved]


def _above(i: int, n: int) -> int | None:
    """Who is above i in the first tree; nobody is above 0."""
    if i == 0:
        return None
    low = i & -i
    above = (i ^ low) | (low << 1)
    return above if above < n else i ^ low


def double_tree_messages(
    n: int, size: float, pieces: int, late: int = 0
) -> list[tuple[Hop, float]]:
    """The messages of an all-reduce over two trees, each for half of the tensor.

    Each half travels in so many pieces, up and down again. Each message gets the first
    step in which its sender and its receiver have nothing else to send or to receive,
    and in which what it carries has arrived: `late` steps after the one in which it was
    sent. With a latency of so many messages' seconds, nobody waits for what is on its
    way, but sends something else meanwhile.
    """
    _check_plan(n, size, pieces)
    positive("late", late, or_zero=True)
    trees, size = double_tree_parents(n), size / (2 * pieces)
    sending, receiving, messages = set(), set(), []

    def place(a: int, b: int, from_step: int, tree: int, piece: int) -> int:
        step = from_step
        while (step, a) in sending or (step, b) in receiving:
            step += 1
        sending.add((step, a))
        receiving.add((step, b))
        messages.append((Hop(step, a, b, carries=(tree, piece)), size))
        return step + 1 + late

    for piece in range(pieces):
        for tree, parents in enumerate(trees):
            order = sorted(range(n), key=lambda i: _depth(parents, i))  # noqa: B023
            there = [0] * n  # the first step in which i may send this piece on
            for i in reversed(order[1:]):
                p = parents[i]
                there[p] = max(there[p], place(i, p, there[i], tree, piece))
            for i in order[1:]:
                there[i] = place(parents[i], i, there[parents[i]], tree, piece)
    return messages


def _depth(parents: list[int | None], i: int) -> int:
    """How many are above i."""
    above = parents[i]
    return 0 if above is None else 1 + _depth(parents, above)
