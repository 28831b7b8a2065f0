"""The seconds of a training step in closed form: the one home of time's formulas.

`parts` answers for any model that can say what a step is made of (`Pieces`): equal
layers on a cluster (`manygpu.choosing.forecast`), or a transformer as an engine runs
it (`manygpu.simulate.transformer`). What is played, event by event, takes as long:
tests hold `manygpu.simulate.steps` against it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from manygpu.costs.layout import Layout, Number


class Pieces(NamedTuple):
    """What a step is made of, in seconds; each a number, or an array for many layouts.

    Stages are equal, or `turn` is the slowest one's; layers are those of a stage.

    Attributes:
        turns: of a micro-batch on all stages, one after the other: forward and
            backward, with layerwise sums, and with messages that a stage waits for.
        turn: of the slowest stage.
        layers: how many a stage has.
        forward, backward: of one layer and micro-batch, with layerwise sums.
        sums: of one layer's gradients, over the replicas.
        update: of one layer's parameters.
        gather: of one layer's parameters, where they are sharded.
        hop: of a message between stages that only the next stage waits for, while it
            is sent; the next one can't be.
        late: until it has arrived, after that.
        last: of sums that come after all passes, whatever overlaps, such as those of
            an embedding.
        once: what a step costs besides, however it is shared out.
        count: layers of all stages, where these share them out as evenly as they can; 0
            where each turn is that of the slowest stage.
        beside: sums may run beside the last backward pass.
        at_once: a layer is updated as soon as its own sum is there. Who clips by the
            norm of all gradients has to wait for all of them.
    """

    turns: Number
    turn: Number
    layers: Number
    forward: Number
    backward: Number
    sums: Number = 0.0
    update: Number = 0.0
    gather: Number = 0.0
    hop: Number = 0.0
    late: Number = 0.0
    last: Number = 0.0
    once: Number = 0.0
    count: int = 0
    beside: bool | np.ndarray = True
    at_once: bool = True


class Parts(NamedTuple):
    """Seconds of a step, by what they are for; each a number, or an array of them."""

    pipeline: Number  # computing, layerwise sums, messages between stages, waiting
    gradients: Number  # their sums, as far as nothing hides them
    update: Number
    gather: Number  # of parameters that are sharded
    once: Number

    @property
    def seconds(self) -> Number:
        """All of them."""
        return sum(self)


def parts(pieces: Pieces, layout: Layout) -> Parts:
    """The seconds of a step, 1F1B over the stages, interleaved or not.

    With ZeRO 2 and 3 gradients are scattered after each micro-batch, and with 3
    parameters are gathered for each pass; both want a single stage.
    """
    kept, three = _kept(pieces, layout), layout.zero == 3
    if not np.any(three):
        return kept
    pairs = zip(kept, _sharded(pieces, layout.micro_batches), strict=True)
    return Parts(*(np.where(three, b, a)[()] for a, b in pairs))


def pipeline_seconds(pieces: Pieces, layout: Layout) -> Number:
    """All passes of all micro-batches, and the messages between stages.

    The longest chain of 1F1B zigzags between the stages: each way down and up again
    takes `stages` micro-batches' turns, and all hops between the stages twice. Where
    one turn is left over, a message that waits for the one before it may take longer.

    Exact where stages are equal; where they aren't, see `_unequal`.
    """
    m, p = layout.micro_batches, layout.stages
    crossings = (p - 1) + (m - 1) - np.ceil((m - 1) / p)
    waits = np.maximum(pieces.hop - pieces.turn, 0.0)
    queued = np.where((m - 1) % p == 1, waits, 0.0)
    hops = 2 * (pieces.hop + pieces.late) * crossings
    taken = pieces.turns + (m - 1) * pieces.turn + hops + queued
    if pieces.count:
        uneven = (pieces.count % p != 0) & (m > 1)
        if np.any(uneven):
            taken = np.where(uneven, _unequal(pieces, layout), taken)[()]
    if np.any(layout.chunks > 1):
        among = layout.chunks > 1
        taken = np.where(among, _interleaved(pieces, layout), taken)[()]
    return taken


def _unequal(pieces: Pieces, layout: Layout) -> Number:
    """The same, where some stages have a layer more than others.

    A chain may go to and fro between any w neighbours: each time it passes all their
    layers and w - 1 hops twice, and w micro-batches are done. Of w neighbours, the
    fullest have a w-th of `stages` of all layers, rounded up. The longest such chain
    counts, behind one way down and up.
    """
    m, p = layout.micro_batches, layout.stages
    layer, hop = pieces.forward + pieces.backward, pieces.hop + pieces.late

    def passing(w: Number) -> Number:
        """Down and up again through so many neighbours, the fullest ones."""
        there = np.ceil(np.round(w * pieces.count / p, 9)) * layer
        return np.where(w > 0, there + 2 * (w - 1) * hop, 0.0)

    waits = np.maximum(pieces.hop - np.floor(pieces.count / p) * layer, 0.0)
    longest = np.zeros(())
    for w in range(1, int(np.max(p)) + 1):
        often, rest = np.divmod(m - 1, w)
        chain = often * passing(w) + passing(rest) + np.where(rest == 1, waits, 0.0)
        longest = np.where(w <= p, np.maximum(longest, chain), longest)
    return pieces.turns + 2 * (p - 1) * hop + longest


def _interleaved(pieces: Pieces, layout: Layout) -> Number:
    """The same with several chunks a device (Narayanan et al., arXiv:2104.04473).

    Devices wait for a chunk's turn where they would wait for a stage's; but each
    micro-batch passes all devices once a chunk, so there are more hops. The number of
    micro-batches is a multiple of the stages. Exact as long as a message arrives within
    the time of a chunk's forward pass, else later ones wait behind it (`queues`).
    """
    m, p, v = layout.micro_batches, layout.stages, layout.chunks
    passes = (m + (p - 1) / v) * pieces.turn
    return passes + 2 * (pieces.hop + pieces.late) * (p * v - 1)


def queues(pieces: Pieces, layout: Layout) -> bool | np.ndarray:
    """Whether messages between interleaved stages queue: no formula here knows how."""
    forward = pieces.layers * pieces.forward / layout.chunks
    return (layout.chunks > 1) & (pieces.hop + pieces.late > forward)


def _kept(pieces: Pieces, layout: Layout) -> Parts:
    """Where each device keeps the parameters of its stage whole."""
    n, m = pieces.layers, np.where(layout.zero == 2, layout.micro_batches, 1)
    passes, whole = pipeline_seconds(pieces, layout), n * pieces.sums
    before = passes - n * pieces.backward
    # Gradients of all micro-batches, if each has its sums, may be the longest chain.
    early = passes - layout.micro_batches * pieces.turn + n * pieces.forward

    def end(update: Number, gather: Number) -> Number:
        """When it is over, if updates and gathers take so long."""
        tail = before + _tail(pieces, update, gather)
        if not np.any(m > 1):
            return tail
        return np.maximum(tail, early + _queue(pieces, m, update, gather))

    over = end(0.0, 0.0)
    sums = np.where(pieces.beside, over - passes, m * whole) + pieces.last
    update, gather = n * pieces.update, n * pieces.gather
    ahead = np.logical_and(pieces.at_once, pieces.beside)
    if np.any(ahead):
        updated = end(pieces.update, 0.0)
        update = np.where(ahead, updated - over, update)
        ended = end(pieces.update, pieces.gather)
        gather = np.where(ahead, ended - updated, gather)
    return Parts(passes, sums, update, gather, pieces.once)


def _tail(pieces: Pieces, update: Number, gather: Number) -> Number:
    """The last backward pass of a stage, with what may run beside it and after it.

    A layer's sum waits for its pass and for the sum before; its update for the sum,
    for all passes, and for the update before; its gather for the update, for all sums,
    and for the gather before. The longest chain changes over at the first layer or at
    the last one.
    """
    n, b, s = pieces.layers, pieces.backward, pieces.sums
    ends = [b + s + update + n * gather, b + s + n * update + gather]
    ends += [b + n * s + update + gather, b + n * s + n * gather]
    ends += [n * b + s + update + gather, n * b + s + n * gather]
    ends += [n * b + update + n * gather, n * b + n * update + gather]
    return _longest(ends)


def _queue(pieces: Pieces, times: Number, update: Number, gather: Number) -> Number:
    """The same, if sums of so many micro-batches have followed each other all along."""
    n, b, s = pieces.layers, pieces.backward, pieces.sums
    before = b + (times - 1) * n * s
    ends = [s + update + n * gather, s + n * update + gather]
    ends += [n * s + update + gather, n * (s + gather)]
    return before + _longest(ends)


def _longest(chains: list[Number]) -> Number:
    """The longest of some chains, each a number or an array."""
    return np.maximum.reduce(np.broadcast_arrays(*chains))


def _sharded(pieces: Pieces, micro_batches: Number) -> Parts:
    """Parameters are gathered one layer ahead, twice, and gradients scattered.

    All share the network. Five chains may be the longest: all transfers; the same, but
    for the ends of the backward pass; gathers while the forward pass waits for them,
    then the backward passes; the forward pass, then scatters that follow each other,
    with the gathers that are left; or all computing, between one gather and one
    scatter. A micro-batch begins when the one before has been scattered.

    Exact where a scatter takes as long as a gather, else a few percent too short.
    """
    n, f, b = pieces.layers, pieces.forward, pieces.backward
    s, g, rest = pieces.sums, pieces.gather, np.maximum(n - 2, 0)
    computing = n * (f + b)
    chains = [
        2 * n * g + n * s,
        2 * n * g + rest * s + np.minimum(n, 2) * b,
        (n + 1) * g + s + n * b,
        np.maximum(g + n * f, n * g + f) + b + n * s + rest * g,
        g + s + computing,
    ]
    step = _longest(chains)
    update = np.maximum(pieces.update, n * pieces.update - s)
    waiting = micro_batches * (step - computing)
    sent = np.maximum(2 * g + s, 1e-300)
    once = pieces.once + pieces.last
    passes = micro_batches * computing
    return Parts(passes, waiting * s / sent, update, waiting * 2 * g / sent, once)
