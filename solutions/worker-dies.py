"""The book's answers to exercises of worker-dies."""

import numpy as np


def my_interval(save, failure):
    """Saves cost save / W, failures W / (2 failure): their sum is least where equal."""
    return (2 * save * failure) ** 0.5


def my_begins(taken, every):
    """What a life took beyond its last save is lost; what it saved is not."""
    begins = [0]
    for steps in taken:
        begins.append((begins[-1] + steps) // every * every)
    return begins


def my_resume(files):
    """Silently beginning at 0 would throw a training away: stop instead."""
    whole = [name for name, inside in files if name == inside]
    if files and not whole:
        return None
    return max(whole, default=0)


def my_pieces(stored, n):
    """Pieces know where they begin, so any number of workers can cut the whole."""
    in_order = sorted(stored, key=lambda piece: piece[0])
    return np.array_split(np.concatenate([numbers for _, numbers in in_order]), n)


def my_whole(slices):
    """A rank's matrix has three parts; each part is joined over the ranks alone."""
    parts = zip(*(np.split(own, 3, axis=1) for own in slices))
    return np.concatenate([piece for own in parts for piece in own], axis=1)
