"""Exercises of part 4: programs over ranks; who sums, what travels, what goes back."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from manygpu.exercises.checking import exercise
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import off, whole_numbers


def _place(sizes: list[int], rank: int) -> list[int]:
    """A rank's index on each axis, the last one fastest."""
    place = []
    for size in reversed(sizes):
        rank, i = divmod(rank, size)
        place.insert(0, i)
    return place


def _partners(sizes: list[int], letters: list[str], rank: int) -> list[int]:
    """The ranks that differ from `rank` at most on axes of an R."""
    own, found = _place(sizes, rank), []
    for other in range(math.prod(sizes)):
        pairs = zip(letters, own, _place(sizes, other))
        if all(letter == "R" or a == b for letter, a, b in pairs):
            found.append(other)
    return found


def _parameters(draw: random.Random) -> Iterator[tuple]:
    for letter in "RIS":
        yield from (([1], [letter], 0), ([2], [letter], 1))
    yield from (([2, 2], ["R", "S"], 3), ([2, 2], ["S", "R"], 1))
    yield from (([2, 3], ["R", "I"], 2), ([2, 3], ["R", "R"], 4))
    yield [2, 2, 2], ["R", "S", "R"], 5
    for _ in range(5):
        sizes = [draw.randint(1, 3) for _ in range(draw.randint(2, 3))]
        letters = [draw.choice("RRIS") for _ in sizes]
        yield sizes, letters, draw.randrange(math.prod(sizes))


@exercise(
    "program-over-ranks/partners",
    '''
def my_partners(sizes, letters, rank):
    """Return the ranks whose gradients of a parameter are added to `rank`'s.

    Ranks are numbered along the last axis first.

    sizes: the number of ranks along each axis, such as [2, 3].
    letters: the meaning of the parameter on each axis, "R", "I" or "S".

    The result is a list in rising order that includes `rank` itself.
    """
    raise NotImplementedError("On which axes is each gradient a partial sum?")
''',
    _parameters,
)
def judge_partners(found, sizes, letters, rank):
    found, right = whole_numbers(found), _partners(sizes, letters, rank)
    yield "the rank itself is among them", rank not in found and f"it is {found}"

    def differ(letter: str) -> str:
        own = _place(sizes, rank)
        for other in found:
            pairs = zip(letters, own, _place(sizes, other))
            if any(one == letter and a != b for one, a, b in pairs):
                return f"rank {other} differs from rank {rank} on an axis of {letter}"
        return ""

    yield "ranks with different pieces aren't added", differ("S")
    yield "a tensor that is whole everywhere isn't added", differ("I")
    missing = sorted(set(right) - set(found))
    yield "all ranks along an R are added", missing and f"rank {missing[0]} is missing"
    yield "each comes once, in order", found != right and f"it is {found}"


flaw(
    "program-over-ranks/partners",
    """
import itertools


def my_partners(sizes, letters, rank):
    places = list(itertools.product(*(range(size) for size in sizes)))
    own, found = places[rank], []
    for other, place in enumerate(places):
        pairs = zip(letters, own, place)
        if all(letter != "S" or a == b for letter, a, b in pairs):
            found.append(other)
    return found
""",
    lambda f: (
        "a gain is I on an axis of 3 ranks, and its gradient 6 on each of them. Summed "
        f"over ranks {f([3], ['I'], 0)}, it is {6 * len(f([3], ['I'], 0))}"
    ),
    "a tensor that is whole everywhere isn't added",
)
flaw(
    "program-over-ranks/partners",
    """
def my_partners(sizes, letters, rank):
    def place(number):
        found = []
        for size in sizes:
            found.append(number % size)
            number //= size
        return found

    count = 1
    for size in sizes:
        count *= size
    return [
        other
        for other in range(count)
        if all(
            letter == "R" or a == b
            for letter, a, b in zip(letters, place(rank), place(other))
        )
    ]
""",
    lambda f: (
        "on 2 x 3 ranks, a matrix is R on the first axis and cut along the second. "
        f"Ranks {f([2, 3], ['R', 'S'], 0)} add up, but hold different columns"
    ),
    "ranks with different pieces aren't added",
)

# How many tensors all n ranks send together, as a multiple of n - 1.
SENT = {"PR": 2, "PI": 2, "PS": 1, "SR": 1, "SI": 1, "SP": 0, "RS": 0, "RP": 0}
SENT |= {"RI": 0, "IS": 0, "IP": 0, "IR": 0}
SWAPPED = str.maketrans("RP", "PR")


def _moves(draw: random.Random) -> Iterator[tuple]:
    for source, target in SENT:
        yield source, target, 12, 3
    for source, target in SENT:
        yield source, target, 8 * draw.randint(1, 99), draw.randint(1, 8)


@exercise(
    "program-over-ranks/traffic",
    '''
def my_traffic(source, target, size, n):
    """Return the bytes that n ranks send for a move and its gradient's move.

    Add up what all n ranks send. A sum goes round a ring, in chunks.

    source, target: the meanings before and after the move. They are two of
        "R", "I", "P" and "S", and the move is in the page's table.
    size: the bytes of the whole tensor, which are also those of its gradient.
    """
    raise NotImplementedError("Which move does the gradient make?")
''',
    _moves,
)
def judge_traffic(found, source, target, size, n):
    there = SENT[source + target]
    back = SENT[(target + source).translate(SWAPPED)]
    unit = (n - 1) * size
    wrong = off(found, (there + back) * unit)
    only = wrong and not off(found, there * unit)
    yield "the gradient travels, too", only and wrong
    twice = wrong and not off(found, 2 * there * unit)
    yield "the gradient makes a move of its own", twice and wrong
    one = wrong and not off(found * n, (there + back) * unit)
    yield "all ranks are counted", one and wrong
    whole = wrong and not off(found * (n - 1), (there + back) * unit * n)
    yield "no rank sends to itself", whole and wrong
    yield "it is the number of bytes that both moves send", wrong


flaw(
    "program-over-ranks/traffic",
    """
def my_traffic(source, target, size, n):
    sent = {"PR": 2, "PI": 2, "PS": 1, "SR": 1, "SI": 1}
    return sent.get(source + target, 0) * (n - 1) * size
""",
    lambda f: (
        f"a move from I to R of 100 bytes among 4 ranks: it says {f('I', 'R', 100, 4)} "
        "bytes, but the log of a step counts 600"
    ),
    "the gradient travels, too",
)


def _programs(draw: random.Random) -> Iterator[tuple]:
    yield from (([[], [0]], [0]), ([[], [0]], [1]), ([[], [], [0, 1]], [1]))
    yield from (([[], [0], [1]], [0]), ([[], [0], [0], [1, 2]], [0]))
    yield from (([[], [0], [1], [2, 0]], [0]), ([[], [], [0, 1], [2, 1]], [1]))
    yield [[], [], [], [0, 1], [3, 2], [4, 3]], [0, 2]
    for _ in range(5):
        count = draw.randint(4, 8)
        made_of = [
            sorted(draw.sample(range(i), min(i, draw.randint(0, 2))))
            for i in range(count)
        ]
        for i in range(count - 1):  # each one is used
            if not any(i in later for later in made_of[i + 1 :]):
                made_of[-1] = sorted({*made_of[-1], i})
        yield made_of, sorted(draw.sample(range(count), draw.randint(1, 2)))


def _needed(made_of: list[list[int]], wanted: list[int]) -> set[int]:
    """The values that lead to a wanted one, and these."""
    needed = set(wanted)
    for i, sources in enumerate(made_of):
        if needed & set(sources):
            needed.add(i)
    return needed


@exercise(
    "program-over-ranks/backward-order",
    '''
def my_backward_order(made_of, wanted):
    """Return in which order the gradients of a program's values are found.

    The last value is the output, and each other value is used by a later one.
    In the order, each value comes once, after all values that were computed
    from it. A gradient is needed only for a wanted value, and for each value
    that was computed from a wanted value, directly or through other values.
    Leave out all others.

    made_of: for each value, the numbers of the values it was computed from.
        These are all lower than its own number.
    wanted: the numbers of the values whose gradients are asked for.
    """
    raise NotImplementedError("When is the gradient of a value complete?")
''',
    _programs,
)
def judge_backward_order(found, made_of, wanted):
    found, needed = whole_numbers(found), _needed(made_of, wanted)
    last = len(made_of) - 1
    first = found[:1] != [last] and f"it begins with {found[:1]}, not with {last}"
    yield "the output's gradient is known first", first
    missing = sorted(needed - set(found))
    yield (
        "all values on the way are present",
        missing and f"value {missing[0]} is missing",
    )
    vain = [i for i in found if i not in needed]
    yield "nothing is computed in vain", vain and f"value {vain[0]} isn't needed"
    yield "each comes once", len(found) > len(set(found)) and f"it is {found}"
    early = [
        f"value {i} comes before value {user}, which was computed from it"
        for user, sources in enumerate(made_of)
        for i in sources
        if user in found and i in found and found.index(i) < found.index(user)
    ]
    yield "a gradient is complete before it is used", early and early[0]


flaw(
    "program-over-ranks/backward-order",
    """
def my_backward_order(made_of, wanted):
    needed = set(wanted)
    for i, sources in enumerate(made_of):
        if needed & set(sources):
            needed.add(i)
    order, waiting = [], [len(made_of) - 1]
    while waiting:
        value = waiting.pop(0)
        if value in needed and value not in order:
            order.append(value)
            waiting += made_of[value]
    return order
""",
    lambda f: (
        "the backward pass of h = x + f(f(x)) has the order "
        f"{f([[], [0], [1], [0, 2]], [0])}: x is 0, h is 3, and the gradient of x "
        "lacks the part through f"
    ),
    "a gradient is complete before it is used",
)
