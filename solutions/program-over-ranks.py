"""The book's answers to exercises of program-over-ranks."""

import itertools


def my_partners(sizes, letters, rank):
    """Where a parameter is R, gradients are summands; elsewhere places must agree."""
    places = list(itertools.product(*(range(size) for size in sizes)))
    return [
        other
        for other, place in enumerate(places)
        if all(
            letter == "R" or mine == its
            for letter, mine, its in zip(letters, places[rank], place)
        )
    ]


def my_traffic(source, target, size, n):
    """An all-reduce sends each tensor n - 1 times in either half; a gather has one."""
    sent = {"PR": 2, "PI": 2, "PS": 1, "SR": 1, "SI": 1}
    of_gradient = {"R": "P", "P": "R", "I": "I", "S": "S"}
    back = of_gradient[target] + of_gradient[source]
    return (sent.get(source + target, 0) + sent.get(back, 0)) * (n - 1) * size


def my_backward_order(made_of, wanted):
    """A value is made of older ones: from the newest on, each gradient is complete."""
    needed = set(wanted)
    for value, sources in enumerate(made_of):
        if needed & set(sources):
            needed.add(value)
    return sorted(needed, reverse=True)
