"""The book's answers to exercises of float32-parts-ways."""

import numpy as np


def my_sum(numbers):
    """In pairs, so that only numbers of one size are added."""
    while len(numbers) > 1:
        half = len(numbers) // 2
        pairs = numbers[:half] + numbers[half : 2 * half]
        numbers = np.concatenate([pairs, numbers[2 * half :]])
    return numbers[0]


def my_same_step(start, one, other):
    """The step's own length is the measure: weights are far longer."""
    flat = [np.concatenate([np.ravel(p) for p in each]) for each in (start, one, other)]
    start, one, other = flat
    return np.linalg.norm(one - other) <= 1e-5 * np.linalg.norm(other - start)


def my_leaper(leapt):
    """Of the pairs that part first, the run that is in all: with its every other."""
    first = min((s for s in leapt.values() if s is not None), default=None)
    names = {name for pair in leapt for name in pair}
    parted = [pair for pair, step in leapt.items() if step == first is not None]
    alone = [n for n in names if sum(n in pair for pair in parted) == len(names) - 1]
    return alone[0] if len(alone) == 1 else None


def my_distance(found, right):
    """One vector each: then every number counts once, and in float64 none is lost."""
    a, b = (
        np.concatenate([np.ravel(part).astype(np.float64) for part in parts])
        for parts in (found, right)
    )
    return np.linalg.norm(a - b) / np.linalg.norm(b)
