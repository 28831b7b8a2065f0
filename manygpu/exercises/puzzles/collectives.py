"""Puzzles of collectives: broadcasts, an all-gather, all-reduces."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from manygpu.exercises.puzzles import messages
from manygpu.exercises.puzzles.scoring import add

COLLECTIVES = "Collectives"
RING = 4  # devices, and chunks of a gradient
TOLD, PIPED, PIECES, GATHERED = 13, 8, 4, 6
START_UP = 10  # of a round, in times that a chunk takes
MACHINE, WORLD, FAR = 4, 8, 8  # devices; how much longer a round takes across


@add(
    "broadcast",
    "A broadcast in few rounds",
    COLLECTIVES,
    f"""
    There are {TOLD} devices. Device 0 has a message, and at the end all devices must
    have it. `answer` is a list of rounds, and each round is a list of messages
    `(sender, receiver)`. In one round, a device may send at most one message and
    receive at most one.

    Use as few rounds as you can.
    """,
    f"""
    answer = [[(0, device)] for device in range(1, {TOLD})]
    """,
    "rounds",
    math.ceil(math.log2(TOLD)),
)
def broadcast(plan: Any) -> tuple[float, str]:
    """In a round each device that has the message tells one other, so at most twice as
    many have it as before: after r rounds 2^r, and 13 need four rounds. (R. Thakur et
    al., "Optimization of collective communication operations in MPICH", 2005, section
    4.)
    """
    rounds = messages.rounds_of(plan, TOLD, 1)
    messages.spread(rounds, [{0}, *[set()] * (TOLD - 1)], 1)
    label = f"{TOLD} devices in {len(rounds)} rounds: senders and receivers"
    return len(rounds), messages.drawn(rounds, TOLD, label)


@add(
    "relay",
    "A long broadcast, cut into chunks",
    COLLECTIVES,
    f"""
    There are {PIPED} devices. Device 0 has a message that is cut into {PIECES} chunks,
    0 to {PIECES - 1}, and at the end all devices must have all chunks. `answer` is a
    list of rounds, and each round is a list of messages `(sender, receiver, chunk)`.
    In one round, a device may send at most one chunk and receive at most one. It can
    pass on a received chunk from the next round on.

    Use as few rounds as you can.
    """,
    f"""
    rounds = []
    for time in range({PIECES + PIPED - 2}):
        rounds.append([])
        for device in range({PIPED - 1}):
            chunk = time - device
            if 0 <= chunk < {PIECES}:
                rounds[-1].append((device, device + 1, chunk))
    answer = rounds
    """,
    "rounds",
    PIECES - 1 + math.ceil(math.log2(PIPED)),
)
def relay(plan: Any) -> tuple[float, str]:
    """Device 0 sends one chunk a round, so the chunk that leaves it last leaves in
    round 4 or later. From then on those who have it double with each round, and 8
    devices need three: 4 - 1 + 3 = 6. (S. L. Johnsson and C.-T. Ho, "Optimum
    broadcasting and personalized communication in hypercubes", 1989.)
    """
    rounds = messages.rounds_of(plan, PIPED, PIECES)
    first = [set(range(PIECES)), *[set()] * (PIPED - 1)]
    messages.spread(rounds, first, PIECES)
    label = f"{PIECES} chunks to {PIPED} devices in {len(rounds)} rounds"
    return len(rounds), messages.drawn(rounds, PIPED, label)


@add(
    "all-gather",
    "An all-gather in little time",
    COLLECTIVES,
    f"""
    There are {GATHERED} devices, and device i has chunk i. At the end, each device must
    have all chunks. `answer` is a list of rounds, and each round is a list of messages
    `(sender, receiver, chunks)`, where `chunks` is a list. In one round, a device may
    send at most one message and receive at most one.

    A round takes {START_UP} units of time to start, and 1 more for each chunk of its
    longest message. Take as little time as you can.
    """,
    f"""
    rounds = []
    for step in range({GATHERED - 1}):
        messages = []
        for device in range({GATHERED}):
            after = (device + 1) % {GATHERED}
            messages.append((device, after, [(device - step) % {GATHERED}]))
        rounds.append(messages)
    answer = rounds
    """,
    "units of time",
    START_UP * math.ceil(math.log2(GATHERED)) + GATHERED - 1,
)
def all_gather(plan: Any) -> tuple[float, str]:
    """What a device knows at most doubles in a round, so that 6 chunks need three
    rounds, 30; and each device receives the 5 chunks of the others, one after the
    other: 5. Both must be paid: 35. (R. Thakur et al., "Optimization of collective
    communication operations in MPICH", 2005, section 4.1.)
    """
    rounds = messages.rounds_of(plan, GATHERED, GATHERED, many=True)
    messages.spread(rounds, [{device} for device in range(GATHERED)], GATHERED)
    longest = [max((len(hop.carries) for hop in sent), default=0) for sent in rounds]
    label = f"an all-gather of {GATHERED} devices in {len(rounds)} rounds"
    time = START_UP * len(rounds) + sum(longest)
    return time, messages.drawn(rounds, GATHERED, label)


SUMS = """
    `answer` is a list of rounds, and each round is a list of messages `(sender,
    receiver, chunk)`. A message carries the sender's sum of that chunk, as it was
    before the round. The receiver adds it to its own sum. If the message carries the
    complete sum, it replaces the receiver's. In one round, a device may send at most
    one message and receive at most one.
"""


@add(
    "ring",
    "An all-reduce with an even load",
    COLLECTIVES,
    f"""
    Each of {RING} devices has a gradient that is cut into chunks 0 to {RING - 1}. At
    the end, each device must have the sum of all gradients, in all chunks.
    {SUMS}
    For each device, count the chunks that it sends and the chunks that it receives, and
    take the larger number. The score is the largest of these numbers over all devices,
    in units of a whole gradient. Make it small. The number of rounds doesn't matter
    here.
    """,
    f"""
    rounds = []
    for chunk in range({RING}):
        for device in range(1, {RING}):
            rounds.append([(device, 0, chunk)])
        for device in range(1, {RING}):
            rounds.append([(0, device, chunk)])
    answer = rounds
    """,
    "gradients through the busiest device",
    2 * (RING - 1) / RING,
)
def ring(plan: Any) -> tuple[float, str]:
    """Put the messages of one chunk in a row. Until the first device has the sum, each
    of the n - 1 others has sent its part; after that, each of the others still
    receives: 2 (n - 1) messages. So n chunks have 2 n (n - 1), of which the busiest of
    n devices sends 2 (n - 1) or more, each 1/n of a gradient: 2 (n - 1) / n. (P.
    Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
    workstations", 2009.)
    """
    rounds = messages.rounds_of(plan, RING, RING)
    messages.summed(rounds, RING, RING)
    hops = [hop for sent in rounds for hop in sent]
    sent = Counter(hop.source for hop in hops)
    received = Counter(hop.target for hop in hops)
    busiest = max([*sent.values(), *received.values()])
    label = f"an all-reduce of {RING} devices in {len(rounds)} rounds"
    return busiest / RING, messages.drawn(rounds, RING, label)


@add(
    "two-machines",
    "An all-reduce across two machines",
    COLLECTIVES,
    f"""
    Devices 0 to {MACHINE - 1} are in one machine, and devices {MACHINE} to
    {WORLD - 1} are in a second one. Each device has a gradient that is cut into chunks
    0 to {WORLD - 1}. At the end, each device must have the sum of all gradients, in all
    chunks.
    {SUMS}
    A round takes 1 unit of time if all its messages stay inside a machine. If any of
    them goes to the other machine, the round takes {FAR}.

    Take as little time as you can.
    """,
    f"""
    rounds = []
    for step in range({2 * WORLD - 2}):
        messages = []
        for device in range({WORLD}):
            after = (device + 1) % {WORLD}
            messages.append((device, after, (device - step) % {WORLD}))
        rounds.append(messages)
    answer = rounds
    """,
    "units of time",
    2 * (WORLD - 1) + (FAR - 1) * WORLD // MACHINE,
)
def two_machines(plan: Any) -> tuple[float, str]:
    """Each of the 8 chunks must leave the first machine at least once, and its 4
    devices send one message each a round: two rounds, or more, take 8. Each chunk has 2
    (8 - 1) messages, or more (see the puzzle "ring"), and 8 devices send 8 a round: 14
    rounds, or more. So at least 2 times 8 and 12 times 1. (P. Patarasuk and X. Yuan,
    "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.)
    """
    rounds = messages.rounds_of(plan, WORLD, WORLD)
    messages.summed(rounds, WORLD, WORLD)
    leave = [
        any(hop.source // MACHINE != hop.target // MACHINE for hop in sent)
        for sent in rounds
    ]
    label = f"an all-reduce over two machines in {len(rounds)} rounds"
    time = sum(FAR if far else 1 for far in leave)
    return time, messages.drawn(rounds, WORLD, label, far=MACHINE)
