"""Answers to exercises of program-over-ranks."""

from __future__ import annotations

import numpy as np


def partners_by_slices(sizes, letters, rank):
    """A slice of the array of all ranks: all along an R, one place on each other."""
    ranks = np.arange(np.prod(sizes)).reshape(sizes)
    place = np.unravel_index(rank, sizes)
    pick = tuple(
        slice(None) if letter == "R" else slice(i, i + 1)
        for letter, i in zip(letters, place)
    )
    return sorted(ranks[pick].ravel().tolist())


def partners_by_steps(sizes, letters, rank):
    """From one rank on, axis by axis, all that differ there."""
    found, step = {rank}, 1
    for size, letter in list(zip(sizes, letters))[::-1]:
        if letter == "R":
            bases = {one - one // step % size * step for one in found}
            found = {base + i * step for base in bases for i in range(size)}
        step *= size
    return sorted(found)


def partners_along(sizes, letters, rank, summed):
    return partners_by_slices(sizes, ["R" if x in summed else x for x in letters], rank)


HALVES = {
    ("P", "R"): 2,
    ("P", "I"): 2,
    ("P", "S"): 1,
    ("S", "R"): 1,
    ("S", "I"): 1,
}
GRADIENT = dict(zip("RPIS", "PRIS"))


def there(source, target, size, n):
    return HALVES.get((source, target), 0) * (n - 1) * size


def back(source, target, size, n):
    return there(GRADIENT[target], GRADIENT[source], size, n)


def traffic_by_moves(source, target, size, n):
    return there(source, target, size, n) + back(source, target, size, n)


def traffic_by_table(source, target, size, n):
    both = {"PR": 4, "PI": 2, "PS": 2, "SR": 2, "SI": 1, "SP": 0}
    both |= {"RS": 0, "RP": 0, "RI": 0, "IR": 2, "IS": 1, "IP": 0}
    return both[source + target] * size * (n - 1)


def order_by_users(made_of, wanted):
    """Again and again the values whose users are all done."""
    needed = set(wanted)
    for value in range(len(made_of)):
        if needed.intersection(made_of[value]):
            needed.add(value)
    order = []
    while len(order) < len(needed):
        for value in sorted(needed - set(order)):
            users = [u for u in needed if value in made_of[u]]
            if all(user in order for user in users):
                order.append(value)
                break
    return order


def order_by_depth(made_of, wanted):
    """Post-order of a walk, turned round."""
    seen, order = set(), []

    def visit(value):
        if value in seen:
            return
        seen.add(value)
        for source in made_of[value]:
            visit(source)
        if value in wanted or any(source in order for source in made_of[value]):
            order.append(value)

    visit(len(made_of) - 1)
    return order[::-1]


def as_walked(made_of, wanted):
    """Breadth first: a value comes as soon as one of its users is done."""
    needed, order = set(order_by_depth(made_of, wanted)), []
    waiting = [len(made_of) - 1]
    while waiting:
        value = waiting.pop(0)
        if value in needed and value not in order:
            order.append(value)
            waiting += made_of[value]
    return order


RIGHT = {
    "program-over-ranks/partners": [partners_by_slices, partners_by_steps],
    "program-over-ranks/traffic": [traffic_by_moves, traffic_by_table],
    "program-over-ranks/backward-order": [order_by_users, order_by_depth],
}
WRONG = {
    "program-over-ranks/partners": [
        (
            "ranks with different pieces aren't added",
            lambda *given: partners_along(*given, "RS"),
        ),
        (
            "a tensor that is whole everywhere isn't added",
            lambda *given: partners_along(*given, "RI"),
        ),
        ("all ranks along an R are added", lambda sizes, letters, rank: [rank]),
        (
            "the rank itself is among them",
            lambda *given: [r for r in partners_by_slices(*given) if r != given[2]],
        ),
        (
            "each comes once, in order",
            lambda *given: partners_by_slices(*given)[::-1],
        ),
    ],
    "program-over-ranks/traffic": [
        ("the gradient travels, too", there),
        ("the gradient makes a move of its own", lambda *given: 2 * there(*given)),
        (
            "all ranks are counted",
            lambda *given: traffic_by_moves(*given) / given[-1],
        ),
        (
            "no rank sends to itself",
            lambda *given: traffic_by_moves(*given) * given[-1] / max(given[-1] - 1, 1),
        ),
        ("it is the number of bytes that both moves send", lambda *given: 3 * given[2]),
    ],
    "program-over-ranks/backward-order": [
        (
            "the output's gradient is known first",
            lambda *given: order_by_users(*given)[::-1],
        ),
        (
            "all values on the way are present",
            lambda made_of, wanted: [len(made_of) - 1],
        ),
        (
            "nothing is computed in vain",
            lambda made_of, wanted: list(range(len(made_of)))[::-1],
        ),
        ("a gradient is complete before it is used", as_walked),
        (
            "each comes once",
            lambda *given: [v for v in order_by_users(*given) for _ in range(2)],
        ),
    ],
}
