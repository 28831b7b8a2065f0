"""Collectives as rounds of messages: who sends what to whom, and what arrives.

In a round a device sends one message and receives one, at most, and what it sends it
had when the round began.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from manygpu.exercises.puzzles import drawing
from manygpu.exercises.puzzles.plans import index, listed, row
from manygpu.exercises.puzzles.scoring import FORM, Refused
from manygpu.hops import Hop

PORT = "In a round, a device sends one message to another and receives one, at most"
HAS = "A device sends what it has"
ONCE = "Each gradient is counted once"
ALL = "Every device has everything at the end"


Rounds = list[list[Hop]]  # a hop's step is its round; it carries a tuple of chunks


def rounds_of(plan: Any, devices: int, chunks: int, many: bool = False) -> Rounds:
    """Read a plan: a list of rounds, each a list of messages.

    Args:
        plan: messages are (sender, receiver) if there is one chunk, else (sender,
            receiver, chunk), or with `many` (sender, receiver, list of chunks).
        devices, chunks: how many there are.
        many: see above.

    Raises:
        Refused: it is none, or a device has two messages to send or to receive.
    """
    found = []
    for number, messages in enumerate(listed(plan, "answer")):
        here = f"round {number}"
        read = [_hop(m, devices, chunks, many, number) for m in listed(messages, here)]
        for end, does in (("source", "sends"), ("target", "receives")):
            ends = [getattr(hop, end) for hop in read]
            twice = [device for device in ends if ends.count(device) > 1]
            if twice:
                one = f"in {here} device {twice[0]}"
                raise Refused(PORT, f"{one} {does} more than one message")
        found.append(read)
    return found


def _hop(value: Any, devices: int, chunks: int, many: bool, number: int) -> Hop:
    here = f"round {number}"
    found = row(value, 2 if chunks == 1 else 3, f"a message of {here}")
    sender, receiver = (index(d, devices, f"a device of {here}") for d in found[:2])
    if sender == receiver:
        raise Refused(PORT, f"in {here} device {sender} sends to itself")
    own = found[2:] if chunks > 1 else [0]
    own = listed(own[0], f"the chunks of {here}") if many else own
    named = tuple(index(chunk, chunks, f"a chunk of {here}") for chunk in own)
    if not named:
        raise Refused(
            FORM, f"in {here} device {sender} sends a message without a chunk"
        )
    if len({*named}) != len(named):
        raise Refused(FORM, f"in {here} device {sender} sends a chunk twice")
    return Hop(number, sender, receiver, carries=named)


def spread(rounds: Rounds, first: Sequence[set[int]], chunks: int) -> None:
    """Play rounds in which what arrives is kept.

    Args:
        rounds: of messages.
        first: the chunks that each device has before.
        chunks: how many each must have at the end.

    Raises:
        Refused: a device sends what it hasn't, or lacks something at the end.
    """
    has = [set(own) for own in first]
    for hops in rounds:
        before = [set(own) for own in has]
        for hop in hops:
            lacks = {*hop.carries} - before[hop.source]
            if lacks:
                what = f"chunk {min(lacks)}" if chunks > 1 else "the message"
                sends = f"in round {hop.step} device {hop.source} sends {what}"
                raise Refused(HAS, f"{sends}, which it doesn't have yet")
            has[hop.target] |= {*hop.carries}
    for device, own in enumerate(has):
        if len(own) < chunks:
            lacks = min({*range(chunks)} - own)
            what = f"chunk {lacks}" if chunks > 1 else "the message"
            raise Refused(ALL, f"device {device} never gets {what}")


def summed(rounds: Rounds, devices: int, chunks: int) -> None:
    """Play rounds in which what arrives is added, and a complete sum is taken over.

    Raises:
        Refused: a gradient is counted twice, or a device lacks a sum at the end.
    """
    parts = [[frozenset([device])] * chunks for device in range(devices)]
    for hops in rounds:
        before = [list(own) for own in parts]
        for number, sender, receiver, _, (chunk,) in hops:
            sent, own = before[sender][chunk], before[receiver][chunk]
            twice = sent & own
            if twice and len(sent) < devices:
                where = f"in round {number} device {receiver} receives chunk {chunk}"
                of = f"device {min(twice)}'s gradient in it"
                raise Refused(ONCE, f"{where} with {of}, which its sum has already")
            parts[receiver][chunk] = sent | own
    for device, own in enumerate(parts):
        for chunk, of in enumerate(own):
            if len(of) < devices:
                lacks = min({*range(devices)} - of)
                where = f"device {device}'s sum of chunk {chunk}"
                raise Refused(ALL, f"{where} lacks device {lacks}'s gradient")


def drawn(rounds: Rounds, devices: int, label: str, far: int = 0) -> str:
    """The rounds as a picture: a lane a device, a colour a chunk.

    With `far`, a colour says whether a message stays among so many devices.
    """

    def ink(hop: Hop) -> int:
        if far:
            return 5 * (hop.source // far != hop.target // far)
        return hop.carries[0]

    arrows = [
        drawing.Arrow(*hop[:3], ink(hop), _said(hop)) for hops in rounds for hop in hops
    ]
    names = [f"device {device}" for device in range(devices)]
    return drawing.messages(arrows, names, len(rounds), label)


def _said(hop: Hop) -> str:
    chunks = ", ".join(map(str, hop.carries))
    return f"round {hop.step}: {hop.source} to {hop.target}, chunk {chunks}"
