"""Exercises of part 6: nobody waits, few bytes, seldom meetings."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.drawn import arrays
from manygpu.exercises.saying import all_off, in_digits, off, other, whole_numbers


def _messages(draw: random.Random) -> Iterator[tuple]:
    first, again, same = ("a", 0, 1.0), ("a", 1, 2.0), ("a", 1, 1.0)
    yield from (([first],), ([first, again],), ([first, first],), ([first, same],))
    yield from (([first, ("b", 0, 2.0)],), ([first, again, first],))
    for _ in range(4):
        sent, counts = [], dict.fromkeys("abc", 0)
        for _ in range(12):
            name = draw.choice("abc")
            sent.append((name, counts[name], draw.uniform(-1, 1)))
            counts[name] += 1
            if draw.random() < 0.4:
                sent.append(draw.choice(sent))
        yield (sent,)


@exercise(
    "asynchronous/once",
    '''
def my_parameter(messages):
    """Return the parameter after all messages. It starts at 0.

    A worker numbers its changes from 0, and sends a change again if it got no
    answer. Each change must be added only once.

    messages: (worker, number, change), in the order in which they arrive.
    """
    raise NotImplementedError(
        "What identifies a change: its worker, its number, or both?"
    )
''',
    _messages,
)
def judge_once(found, messages):
    wrong = off(found, sum({m[:2]: m[2] for m in messages}.values()))
    everything = sum(m[2] for m in messages)
    yield "no change counts twice", wrong and not off(found, everything) and wrong
    apart = {(worker, change) for worker, _, change in messages}
    by_value = [sum({m[2] for m in messages}), sum(change for _, change in apart)]
    equal = wrong and not all(off(found, total) for total in by_value) and wrong
    yield "equal changes are two changes", equal
    kept: dict[int, float] = {}
    for _, number, change in messages:
        kept.setdefault(number, change)
    last = {number: change for _, number, change in messages}
    mixed = not all(off(found, sum(own.values())) for own in (kept, last))
    yield "each worker has numbers of its own", wrong and mixed and wrong
    yield "no change is lost", wrong


def _walks(draw: random.Random) -> Iterator[tuple]:
    yield from ((["a"], 0.5), (["a", "a"], 0.5), (["a", "b"], 0.5))
    yield ["a", "b", "a", "b"], 0.25
    for names in ("ab", "abc", "abcd"):
        yield [draw.choice(names) for _ in range(10)], draw.uniform(0.1, 0.4)


def _walk(order: list[str], rate: float, pulls: bool = True, stale: bool = True):
    """Where pushes lead; `pulls` or not after each, with `stale` gradients or not."""
    x, held, path = 1.0, {}, []
    for name in order:
        x -= rate * (held.get(name, 1.0) if stale else x)
        if pulls:
            held[name] = x
        path.append(x)
    return path


@exercise(
    "asynchronous/walk",
    '''
def my_walk(order, rate):
    """Return a list of the parameter's values after each push. It starts at 1.

    The loss is x ** 2 / 2, so the gradient is x. Each worker pulls the
    parameter at the start, and again immediately after each of its own pushes.

    order: the names of the workers, in the order in which their gradients
        arrive.
    """
    raise NotImplementedError(
        "At which x did this worker compute its gradient?",
    )
''',
    _walks,
)
def judge_walk(found, order, rate):
    yield "one number per push", other(len(found), len(order))
    wrong = off(found, _walk(order, rate))
    yield (
        "a push goes downhill",
        found[0] > 1 and f"it begins with {in_digits(found[0])}",
    )
    fresh = wrong and not off(found, _walk(order, rate, stale=False)) and wrong
    yield "a gradient belongs to the parameters that its worker pulled", fresh
    never = wrong and not off(found, _walk(order, rate, pulls=False)) and wrong
    yield "a worker pulls after its own push", never
    yield "the path follows from these pushes", wrong


def _sizes(draw: random.Random) -> Iterator[tuple]:
    yield from ((32, 4, 4, 1), (16, 4, 8, 4), (8, 4, 1, 2))
    for _ in range(5):
        n = 2 ** draw.randint(1, 6)
        yield n * draw.randint(50, 500), draw.choice((2, 4, 8)), n, draw.randint(1, 40)


@exercise(
    "sending-less/bytes",
    '''
def my_bytes(numbers, width, n, k):
    """Return the bytes that each of n participants sends in the cheaper way.

    There are two ways. In the first way, a ring sums the whole gradient. In
    the second way, each participant's k largest numbers are all-gathered on a
    ring. Each of these numbers is sent together with its position, which takes
    4 bytes.

    numbers: how many numbers the gradient has. It is divisible by n.
    width: the bytes of each number.
    """
    raise NotImplementedError("Compute both ways. Which one grows with n?")
''',
    _sizes,
)
def judge_bytes(found, numbers, width, n, k):
    ring = 2 * (n - 1) / n * numbers * width
    gather = (n - 1) * (4 + width) * k
    wrong = off(found, min(ring, gather))
    bare = min(ring, (n - 1) * width * k)
    yield "a place travels with each number", wrong and not off(found, bare) and wrong
    one = min(ring, (4 + width) * k)
    yield "all messages are passed on", wrong and not off(found, one) and wrong
    once = min(ring / 2, gather)
    yield "a ring goes round twice", wrong and not off(found, once) and wrong
    larger = wrong and not off(found, max(ring, gather)) and wrong
    yield "the way with fewer bytes is taken", larger
    yield "it is the amount that one participant sends", wrong


def _levels(draw: random.Random) -> Iterator[tuple]:
    yield from (([1],), ([0, 1],), ([1, 2, 3, 0],), ([3, 0, 0, 0, 2],), ([],))
    for _ in range(4):
        yield ([draw.randint(0, 3) for _ in range(draw.randint(6, 30))],)


def _fours(levels: list[int], powers: list[int]) -> list[int]:
    """Four levels a byte, each times its power."""
    fours = [levels[at : at + 4] for at in range(0, len(levels), 4)]
    return [sum(a * b for a, b in zip(four, powers)) for four in fours]


@exercise(
    "sending-less/two-bits",
    '''
def my_packed(levels):
    """Pack four levels into each byte, and return the bytes as a list.

    The first of four levels takes the two lowest bits of its byte, the second
    the next two bits, and so on. Fill the last byte with zeros.

    levels: a list of whole numbers from 0 to 3, which need two bits each.

    The result is a list of whole numbers from 0 to 255.
    """
    raise NotImplementedError(
        "By what do you multiply the second of four levels?",
    )
''',
    _levels,
)
def judge_two_bits(found, levels):
    found, full = whole_numbers(found), len(levels) // 4
    short = len(found) == full < len(levels) / 4 and f"there are {full} bytes"
    yield "the last levels aren't left out", short
    yield "four levels per byte", other(len(found), -(-len(levels) // 4))
    ends = [levels[at : at + 4] for at in range(0, len(levels), 4)]
    as_read = [int("".join(map(str, four)), 4) for four in ends]
    turned = found in (as_read, _fours(levels, [64, 16, 4, 1]))
    right = _fours(levels, [1, 4, 16, 64])
    yield "the first level is in the lowest bits", turned and other(found, right)
    yield "each level has its own two bits", other(found, right)


def _matrices(draw: random.Random) -> Iterator[tuple]:
    first, second = np.array([[1.0, 2], [2, 0], [2, 1]]), np.array([[1.0, 0], [0, 1]])
    yield [first], np.array([[1.0], [0]])
    yield [first[1:], second], np.array([[1.0], [0]])
    for k, m, c, r in ((2, 4, 3, 1), (2, 5, 4, 2), (4, 6, 5, 3)):
        yield [arrays(draw, m, c) for _ in range(k)], arrays(draw, c, r)


@exercise(
    "sending-less/low-rank",
    '''
def my_kept(matrices, Q):
    """Return what each participant keeps of its matrix after one low-rank sum.

    First, the products M @ Q of all participants are summed. P is an
    orthonormal basis of the sum's columns: `np.linalg.qr(...)[0]`. Then each
    participant sends the part of its matrix that lies in the columns of P, and
    keeps the rest.

    matrices: for each participant, its matrix M, of shape (m, c).
    Q: the same array (c, r) on all participants.
    """
    raise NotImplementedError(
        "Is P the same on all participants? Which part of M is sent?"
    )
''',
    _matrices,
)
def judge_low_rank(found, matrices, Q):
    total = np.sum(matrices, axis=0) @ Q

    def kept(of):
        bases = [of(M) for M in matrices]
        return [M - P @ P.T @ M for M, P in zip(matrices, bases)]

    right = kept(lambda M: np.linalg.qr(total)[0])
    yield "one matrix per participant", other(len(found), len(matrices))
    wrong = all_off(found, right, "participant")
    sent = [M - own for M, own in zip(matrices, right)]
    yield (
        "numbers that are sent aren't kept",
        wrong and not all_off(found, sent) and wrong,
    )
    skew = wrong and not all_off(found, kept(lambda M: total)) and wrong
    yield "the columns of P are orthonormal", skew
    alone = kept(lambda M: np.linalg.qr(M @ Q)[0])
    yield (
        "all participants use the same P",
        wrong and not all_off(found, alone) and wrong,
    )
    yield "sent and kept add up to the matrix", wrong


def _delays(draw: random.Random) -> Iterator[tuple]:
    for steps, late in ((1, 0), (3, 1), (2, 3), (5, 2), (9, 4)):
        yield arrays(draw, steps, 2), 0.1, late


@exercise(
    "meeting-seldom/late",
    '''
def my_late(sums, rate, late):
    """Return the weights after each step, if gradients are applied late.

    In each step, the weights take an SGD step with the sum that was computed
    `late` steps before. As long as there is no such sum, they stay as they
    are. The weights start at zeros.

    sums: an array (steps, numbers) with the sum of all gradients of each step.
    late: 0, 1, 2, ...

    The result is an array (steps, numbers).
    """
    raise NotImplementedError(
        "Which sum does step t apply? Which sums never arrive?",
    )
''',
    _delays,
)
def judge_late(found, sums, rate, late):
    moves = np.zeros_like(sums)
    moves[late:] = sums[: max(0, len(sums) - late)]
    right = -rate * np.cumsum(moves, axis=0)
    yield "one row per step", other(np.shape(found), np.shape(sums))
    early = np.any(np.asarray(found)[:late]) and "weights move before that"
    yield "the first sum comes after that many steps", early
    wrong = off(found, right)
    yield "a step goes downhill", wrong and not off(found, -right) and wrong
    yield "each sum is that many steps late", wrong


def _links(draw: random.Random) -> Iterator[tuple]:
    yield from ((8.0, 1.0, 1.0, 2), (1.0, 4.0, 1.0, 2), (18.0, 4.0, 1.0, 2))
    yield from ((8.0, 1.0, 1.0, 4), (8.0, 1.0, 1.0, 1))
    for _ in range(4):
        n, size, speed = draw.randint(2, 16), draw.uniform(1e6, 1e9), 1e8
        times = draw.randint(1, 40) + draw.uniform(0.2, 0.8)  # a meeting, in steps
        yield size, speed, 2 * (n - 1) / n * size / speed / times, n


@exercise(
    "meeting-seldom/steps",
    '''
def my_steps(size, speed, work, n):
    """Return the fewest steps that take at least as long as one meeting.

    The steps are taken alone, between two meetings. A meeting is a ring
    all-reduce of the whole model over n devices. The result is a whole number,
    at least 1.

    size: the bytes of the model.
    speed: how many bytes a device sends per second.
    work: the seconds of one step.
    """
    raise NotImplementedError(
        "How many bytes does one device send in a meeting?",
    )
''',
    _links,
)
def judge_steps(found, size, speed, work, n):
    meeting = 2 * (n - 1) / n * size / speed
    yield (
        "it is a whole number of steps",
        found != int(found) and f"it is {in_digits(found)}",
    )
    yield "there is at least one step between meetings", found < 1 and f"it is {found}"
    shares = {"2 (n - 1)": 2 * (n - 1), "2": 2, "all": 1, "(n - 1) / n": (n - 1) / n}
    for said, share in shares.items():
        own = max(1, math.ceil(share * size / speed / work - 1e-9))
        right = max(1, math.ceil(meeting / work - 1e-9))
        taken = found == own != right and f"it is {found}, as if {said} were sent"
        yield "a device sends 2 (n - 1) / n of the model", taken
    short = found * work < meeting * (1 - 1e-9) and f"it is {found}"
    yield "the work is as long as a meeting", short
    less = found > 1 and (found - 1) * work >= meeting * (1 - 1e-9)
    yield "fewer steps would be too short", less and f"it is {found}"
