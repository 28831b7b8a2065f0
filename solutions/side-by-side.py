"""The book's answers to exercises of side-by-side."""

import statistics


def my_speedup(one, many):
    """Divide within a round, then take the middle one."""
    return statistics.median(a / b for a, b in zip(one, many))


def my_ordered(times):
    """A busy machine slows both of a pair, so look at each round by itself."""
    rows = range(len(times))
    return [
        (a, b)
        for a in rows
        for b in rows
        if a != b and all(x < y for x, y in zip(times[a], times[b]))
    ]


def my_flagged(times, beside, least):
    """Divide by the row with the same advantage, round by round; all must be below."""
    flagged = []
    for name, fair in beside.items():
        ratios = [a / b for a, b in zip(times[name], times[fair])]
        if max(ratios) < least[name]:
            flagged.append(name)
    return sorted(flagged)


def my_seconds(turns, warm, steps):
    """The middle turn, of those that do nothing but steps."""
    return statistics.median(turns[warm:]) / steps
