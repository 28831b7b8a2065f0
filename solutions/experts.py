"""The book's answers to exercises of experts."""

from collections import Counter

import numpy as np


def my_seats(chosen, real, capacity):
    """The next seat of a queue is the number of real choices before this one."""
    before, seats = Counter(), []
    for experts, is_real in zip(chosen, real, strict=True):
        own = []
        for expert in experts:
            seat = before[expert]
            own.append(seat if is_real and seat < capacity else None)
            before[expert] += is_real
        seats.append(own)
    return seats


def my_average(grads, is_expert):
    """An expert's gradient has the tokens of all ranks along expert already."""
    data, expert, _ = grads.shape
    if is_expert:
        return grads.sum(axis=0) / (data * expert)
    return np.tile(grads.mean(axis=(0, 1)), (expert, 1))


def my_counts(calls, experts):
    """Only the forward pass of training counts, and only real tokens."""
    counts = [0] * experts
    for call in calls:
        if call["why"] == "forward":
            for own, is_real in zip(call["chosen"], call["real"], strict=True):
                for expert in own:
                    counts[expert] += is_real
    return counts


def my_placement(loads, gpus):
    """Fill one GPU after the other up to the mean; each cut makes one more pair."""
    mean, placed = sum(loads) // gpus, [{} for _ in range(gpus)]
    gpu, room = 0, mean
    for expert, left in enumerate(loads):
        while left:
            if not room:
                gpu, room = gpu + 1, mean
            moved = min(left, room)
            placed[gpu][expert] = moved
            left, room = left - moved, room - moved
    return placed
