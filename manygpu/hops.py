"""Who sends a message to whom, and when: the book's one noun for a message.

The collectives send tensors along hops and note them; a simulation plays hops that
nobody has sent; the puzzles read a reader's plan as hops.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple


class Hop(NamedTuple):
    """The way of one message. Participants are numbered from 0, as in the list given.

    In one step a participant sends at most one message and receives at most one.

    Attributes:
        step: when it travels: what needs it comes in a later step.
        source, target: who sends it, and who receives it.
        device: where the target's tensors lie; "" in a plan that moves no tensors.
        carries: which part of a tensor it brings, such as a chunk's number; None if
            messages bring whole tensors, or if nobody asks.
    """

    step: int
    source: int
    target: int
    device: str = ""
    carries: Hashable = None
