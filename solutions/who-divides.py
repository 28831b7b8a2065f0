"""The book's answers to exercises of who-divides."""


def my_divisor(ranks, cutting):
    """Ranks with the same place on the cutting axes have the same labels: take one."""
    own = {}
    for place, weights in ranks:
        key = tuple(place.get(axis, 0) for axis in cutting)
        own[key] = sum(map(sum, weights))
    return sum(own.values())


def my_gradient(means, weights):
    """A mean times its weight is a sum again; then one division for all."""
    total, added = 0, 0
    for own, of_own in zip(means, weights):
        for mean, weight in zip(own, of_own):
            if mean is not None:
                part = [weight * number for number in mean]
                added = [a + b for a, b in zip(added, part)] if total else part
                total += weight
    return [number / total for number in added]


def my_factor(sizes, cutting, pieces):
    """Summands differ along the cutting axes, except where pieces are complete."""
    factor = 1
    for axis, ranks in sizes.items():
        if axis in cutting and axis not in pieces:
            factor *= ranks
    return factor
