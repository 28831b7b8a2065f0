"""The book's answers to exercises of meeting-seldom."""

import math

import numpy as np


def my_local(gradients, rate, every):
    """Between meetings each goes its own way; at one, all go to the mean place."""
    w = np.zeros((len(gradients), gradients[0].shape[1]))
    for step in range(len(gradients[0])):
        w -= rate * np.array([own[step] for own in gradients])
        if (step + 1) % every == 0:
            w[:] = w.mean(axis=0)
    return w


def my_late(sums, rate, late):
    """The last `late` sums are still under way at the end."""
    w, path = np.zeros_like(sums[0]), []
    for step in range(len(sums)):
        if step >= late:
            w = w - rate * sums[step - late]
        path.append(w)
    return np.array(path)


def my_steps(size, speed, work, n):
    """A device sends 2 (n - 1) / n of the model; the work must last as long."""
    return max(1, math.ceil(2 * (n - 1) / n * size / (speed * work)))
