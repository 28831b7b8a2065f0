"""Exercises of part 2 about messages: the ring, trees, and what hides them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from manygpu.exercises.checking import exercise
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import off


def _tensors(draw: random.Random) -> Iterator[tuple]:
    yield from (([8], 2, 1.0, 1.0), ([8, 8], 2, 1.0, 0.0), ([8, 8], 4, 1.0, 1.0))
    for _ in range(4):
        sizes = [draw.randint(1, 10**6) for _ in range(draw.randint(2, 9))]
        yield sizes, draw.randint(2, 64), draw.uniform(1, 50), draw.uniform(0.001, 0.1)


@exercise(
    "collectives/packing",
    '''
def my_packing(sizes, n, alpha, beta):
    """Return by what factor separate tensors are slower than packed ones.

    Either each tensor has its own all-reduce, or all tensors are packed into
    one. Each all-reduce is a ring of n devices, with n at least 2. A message
    of s bytes takes alpha + beta * s, and s need not be a whole number.

    sizes: the bytes of each tensor.
    """
    raise NotImplementedError(
        "How long is one step of a ring? How many steps are there?"
    )
''',
    _tensors,
)
def judge_packing(found, sizes, n, alpha, beta):
    def ratio(chunk: float) -> float:
        return (len(sizes) * alpha + chunk * beta) / (alpha + chunk * beta)

    right = ratio(sum(sizes) / n)
    wrong = off(found, right)
    yield "one tensor gains nothing", len(sizes) == 1 and wrong
    upside_down = wrong and not off(found, 1 / right) and wrong
    yield "more than 1 means that packing pays", upside_down
    yield "each tensor pays for its own steps", wrong and not off(found, 1) and wrong
    whole = wrong and not off(found, ratio(sum(sizes))) and wrong
    yield "a message is a chunk, not a tensor", whole
    yield "it is the ratio of the two times", wrong


def _rings(draw: random.Random) -> Iterator[tuple]:
    yield from ((1,), (2,), (3,), (4,), (draw.randint(5, 9),))


@exercise(
    "collectives/both-ways",
    '''
def my_both_ways(n):
    """Return a plan of an all-gather on a ring whose wires carry both ways.

    Device i begins with chunk i, and in the end each of the n devices must
    have all chunks. A plan is a list of steps, and a step is a list of
    messages (sender, receiver, chunk). In one step, a device may send one
    chunk to its right neighbour, (i + 1) % n, and one chunk to its left
    neighbour. It can send only chunks that it had before the step. Take as few
    steps as possible, and send no chunk that the receiver already has.
    """
    raise NotImplementedError(
        "How far must a chunk travel if it can go both ways?",
    )
''',
    _rings,
)
def judge_both_ways(found, n):
    has = [{i} for i in range(n)]
    for step, messages in enumerate(found):
        far = [(i, j) for i, j, _ in messages if (i - j) % n not in (1, n - 1)]
        yield (
            "all devices send to a neighbour",
            far and f"in step {step} a message goes {far[0]}",
        )
        ways = [(i, j) for i, j, _ in messages]
        twice = len(set(ways)) < len(ways) and f"in step {step} a wire carries two"
        yield "a wire carries one chunk each way", twice
        lacks = [m for m in messages if m[2] not in has[m[0]]]
        without = lacks and f"in step {step}, {lacks[0][0]} hasn't chunk {lacks[0][2]}"
        yield "a sender has the chunk that it sends", without
        for _, j, chunk in messages:
            has[j] = has[j] | {chunk}
    missed = [i for i in range(n) if len(has[i]) < n]
    yield "all devices have all chunks in the end", missed and f"{missed[0]} hasn't"
    slow = len(found) > n // 2 and f"it takes {len(found)}"
    yield "it takes the fewest steps", slow
    sent = sum(map(len, found))
    yield (
        "no chunk is sent to a device that has it",
        sent > n * (n - 1) and f"there are {sent}",
    )


def _halvings(draw: random.Random) -> Iterator[tuple]:
    yield from ((2, 2, [1]), (4, 1, [1, 2]), (4, 2, [1, 2]), (4, 2, [2, 1]))
    yield from ((8, 4, [1, 2, 4]), (8, 4, [4, 2, 1]), (8, 3, [1, 2, 4]))
    for _ in range(3):
        q = draw.randint(3, 6)
        far = draw.sample([2**k for k in range(q)], q)
        yield 2**q, draw.randint(2, 2 ** (q - 1)), far


@exercise(
    "trees-and-hierarchy/leaving",
    '''
def my_leaving(n, size, distances):
    """Return how many tensors leave the groups in recursive halving.

    There are n participants, a power of two, in groups of `size` neighbours: 0
    to size - 1, and so on. Add up the messages of all participants that leave
    a group, and count a whole tensor as 1. Count only the halving, not the
    doubling after it.

    distances: the distances of the steps, in order. In a step, participant i's
        partner is i ^ distance.
    """
    raise NotImplementedError(
        "How long is the message of a step? Which messages leave a group?"
    )
''',
    _halvings,
)
def judge_leaving(found, n, size, distances):
    def leaving(part: float, size: int = size) -> float:
        total, length = 0.0, 0.5
        for far in distances:
            total += length * sum(i // size != (i ^ far) // size for i in range(n))
            length *= part
        return total

    wrong = off(found, leaving(0.5))
    inside = wrong and not off(found, leaving(0.5, 1)) and wrong
    yield "messages inside a group don't count", inside
    alike = not (off(found, leaving(1)) and off(found, 2 * leaving(1)))
    yield "a message is half as long as the one before", wrong and alike and wrong
    back = wrong and not off(found, 2 * leaving(0.5)) and wrong
    yield "half a tensor is sent first, and nothing comes back", back
    once = wrong and not off(found, leaving(0.5) / 2) and wrong
    yield "both partners send", once
    yield "it is the amount that leaves the groups", wrong


def _levels(draw: random.Random) -> Iterator[tuple]:
    fast, slow = (1.0, 0.5), (10.0, 5.0)
    for groups, members in ((1, 2), (2, 1), (2, 2), (3, 4)):
        yield groups, members, 24.0, fast, slow
    for _ in range(4):
        links = [(draw.uniform(1, 9), draw.uniform(0.1, 2)) for _ in range(2)]
        yield draw.randint(2, 9), draw.randint(2, 9), draw.uniform(1, 99), *links


@exercise(
    "trees-and-hierarchy/hierarchy",
    '''
def my_seconds(groups, members, size, inside, outside):
    """Return the seconds of an all-reduce in two levels.

    First, each group of `members` participants reduce-scatters. Then the
    participants with the same number in all `groups` groups all-reduce their
    chunks. Finally, each group all-gathers. Each of these collectives runs on
    a ring. Each participant has a link of its own out of the group.

    size: the bytes of the tensor.
    inside, outside: (alpha, beta) of the links inside a group and between
        groups.
    """
    raise NotImplementedError(
        "How many steps does each part have, and how long are they?"
    )
''',
    _levels,
)
def judge_hierarchy(found, groups, members, size, inside, outside):
    def steps(count: int, chunk: float, link: tuple[float, float]) -> float:
        return count * (link[0] + link[1] * chunk)

    def across(chunk: float, ways: int = 2) -> float:
        return steps(ways * (groups - 1), chunk / groups, outside)

    once = steps(members - 1, size / members, inside)
    right = 2 * once + across(size / members)
    wrong = off(found, right)
    alone = groups == 1 and wrong
    yield "one group reduce-scatters and all-gathers", alone
    whole = members > 1 and not off(found, 2 * once + across(size))
    yield "a member takes its own chunk outside", wrong and whole and wrong
    half = not off(found, 2 * once + across(size / members, 1))
    yield "across groups, it is a whole all-reduce", wrong and half and wrong
    yield "it is the time of the three parts", wrong


def _on_a_row(draw: random.Random) -> Iterator[tuple]:
    for messages in (
        [(0, 1, 8)],
        [(0, 1, 8), (1, 0, 8)],
        [(0, 1, 8), (1, 2, 8)],
        [(0, 2, 8), (1, 3, 4)],
        [(0, 1, 9), (2, 3, 1), (2, 4, 1)],
    ):
        yield (messages,)
    for _ in range(4):
        ends = [draw.sample(range(9), 2) for _ in range(6)]
        yield ([(a, b, draw.randint(1, 99)) for a, b in ends],)


def _busiest(messages: list, way: Callable, size: Callable, last: int = 0) -> int:
    """The most that a wire carries; `way` says which of its two ways is meant."""
    load: dict[tuple, int] = {}
    for a, b, n in messages:
        for wire in range(min(a, b), max(a, b) + last):
            load[wire, way(a, b)] = load.get((wire, way(a, b)), 0) + size(n)
    return max(load.values())


@exercise(
    "trees-and-hierarchy/row",
    '''
def my_busiest(messages):
    """Return the bytes on the busiest wire, in one direction, in one step.

    The participants form a row. Wire w joins participants w and w + 1, and
    carries messages in both directions at the same time. A message passes all
    wires between its two ends.

    messages: all messages of one step, each (sender, receiver, bytes).
    """
    raise NotImplementedError(
        "Which wires does a message pass, and in which direction?"
    )
''',
    _on_a_row,
    hunted=True,
)
def judge_row(found, messages):
    def up(a: int, b: int) -> bool:
        return a < b

    wrong = found != _busiest(messages, up, int) and f"it is {found}"
    both = wrong and found == _busiest(messages, lambda a, b: 0, int) and wrong
    yield "a wire's two directions are counted separately", both
    past = wrong and found == _busiest(messages, up, int, last=1) and wrong
    yield "a message ends at its receiver", past
    ones = _busiest(messages, up, lambda n: 1)
    yield "bytes count, not messages", found == ones and wrong
    alone = wrong and found == max(n for _, _, n in messages) and wrong
    yield "messages on one wire add up", alone
    yield "it is the amount that the busiest wire carries", wrong


def _eight_in_a_row(busiest: Callable) -> str:
    found = [busiest([(i, i ^ far, 64) for i in range(8)]) for far in (1, 2, 4)]
    return (
        f"eight participants swap 64 bytes at distances 1, 2 and 4: the busiest wire "
        f"carries {found} bytes; in a ring, it carries 64"
    )


flaw(
    "trees-and-hierarchy/row",
    """
def my_busiest(messages):
    load = {}
    for sender, receiver, size in messages:
        for wire in range(min(sender, receiver), max(sender, receiver)):
            load[wire] = load.get(wire, 0) + size
    return max(load.values())
""",
    _eight_in_a_row,
    "a wire's two directions are counted separately",
)
flaw(
    "trees-and-hierarchy/row",
    """
def my_busiest(messages):
    load = {}
    for sender, receiver, size in messages:
        low, high = sorted((sender, receiver))
        for wire in range(low, high + 1):
            key = wire, sender < receiver
            load[key] = load.get(key, 0) + size
    return max(load.values())
""",
    _eight_in_a_row,
    "a message ends at its receiver",
)


def _backward(draw: random.Random) -> Iterator[tuple]:
    yield from (([2.0], [2], 1.0, 0.5), ([1.0, 9.0], [2, 2], 1.0, 0.5))
    yield from (([1.0, 2.0], [8, 2], 1.0, 0.5), ([1.0, 2.0, 3.0], [4] * 3, 1.0, 0.5))
    yield [0.1], [1], 0.2, 0.3  # the wire is free from the beginning
    for _ in range(4):
        ready = sorted(draw.uniform(0, 20) for _ in range(draw.randint(2, 8)))
        yield ready, [draw.randint(1, 9) for _ in ready], draw.uniform(0.1, 2), 0.3


def _free(ready: list, took: list) -> float:
    """When the wire has sent them all, one after the other."""
    free = 0.0
    for there, each in zip(ready, took):
        free = max(free, there) + each
    return free


@exercise(
    "hiding-communication/sticks-out",
    '''
def my_sticks_out(ready, sizes, alpha, beta):
    """Return how long messages still run after the end of the backward pass.

    One wire sends the messages in their order, one at a time. A message can
    start when its gradients are ready, and takes alpha + beta * bytes. The
    backward pass ends when the gradients of the last message are ready.

    ready: for each message, the time at which its gradients are ready, in
        order.
    sizes: the bytes of each message.
    """
    raise NotImplementedError("What does each message have to wait for?")
''',
    _backward,
)
def judge_sticks_out(found, ready, sizes, alpha, beta):
    took, bare = ([a + beta * size for size in sizes] for a in (alpha, 0.0))
    free, at_once = _free(ready, took), max(map(sum, zip(ready, took)))
    right, over = free - ready[-1], ready[-1]
    wrong = off(found, right)
    many = len(ready) > 1
    first = _free(ready, [took[0], *bare[1:]])
    unpaid = (first, _free(ready, bare) + alpha) if many else (_free(ready, bare),)
    once = not all(off(found, end - over) for end in unpaid)
    yield "each message pays alpha", wrong and once and wrong
    all_of_it = many and not off(found, sum(took))
    yield "messages during the backward pass are free", wrong and all_of_it and wrong
    from_zero = not off(found, max(0.0, sum(took) - over)) or not off(found, free)
    yield (
        "it is counted from the end of the backward pass",
        wrong and from_zero and wrong,
    )
    together = many and not off(found, at_once - over)
    yield "a message waits for the wire", wrong and together and wrong
    last = many and not off(found, took[-1])
    yield "a message that is late makes the next one late", wrong and last and wrong
    yield "it is the time after the backward pass", wrong


def _waiting(draw: random.Random) -> Iterator[tuple]:
    yield from (([0], 1), ([1, 0], 1), ([2, 1, 0], 9), ([9, 1, 0], 2))
    for _ in range(5):
        ready = draw.sample(range(30), draw.randint(3, 8))
        yield sorted(ready, reverse=True), draw.randint(1, 9)


@exercise(
    "hiding-communication/overtake",
    '''
def my_order(ready, seconds):
    """Return the layers in the order in which their gradients are sent.

    The next forward pass needs the first layer first. So whenever the wire is
    free, it sends the lowest of the layers that are waiting. If no layer is
    waiting, the wire rests until one is ready. A layer that becomes ready at
    the moment at which the wire becomes free counts as waiting.

    ready: for each layer, the time at which its gradients are ready, in whole
        seconds. Layer 0 is ready last.
    seconds: the time that each message takes.
    """
    raise NotImplementedError(
        "Which layers are waiting when the wire is free?",
    )
''',
    _waiting,
)
def judge_overtake(found, ready, seconds):
    left = sorted(range(len(ready)))
    once = sorted(found) != left and f"it is {found}"
    yield "each layer is sent once", once
    now = 0
    for layer in found:
        now = max(now, min(ready[i] for i in left))
        waits = [i for i in left if ready[i] <= now]
        rests = ready[layer] > now and f"at {now} layer {waits[0]} waits: {found}"
        yield "the wire doesn't rest while a layer waits", rests
        lower = layer != waits[0] and f"at {now} layer {waits[0]} waits: {found}"
        yield "the lowest layer that waits goes first", lower
        left.remove(layer)
        now += seconds
