"""The book's answers to exercises of what-a-tensor-means."""

import numpy as np


def my_move(have, want):
    """Summands must be added, slices gathered; of a whole, one takes what one wants."""
    if have == want:
        return "nothing"
    if have == "P":
        return "all-reduce" if want == "R" else "reduce-scatter"
    return "slice" if have == "R" else "all-gather"


def my_way_back(source, target):
    """From what the target's gradient means to what the source's does."""
    of_gradient = {"R": "P", "P": "R", "I": "I", "S": "S"}
    have, need = of_gradient[target], of_gradient[source]
    if have == "P":
        return "reduce-scatter" if need == "S" else "all-reduce"
    if have == "S":
        return "all-gather"
    return "cut" if need == "S" else "nothing"


def my_largest(kind, dim):
    """Each piece has a largest number of its own; of summands, none is the sum's."""
    if kind == "P":
        return None
    return "V" if kind == f"S({dim})" else kind


def my_norm(parts, gains):
    """Sums of squares are summands: add them up, then divide, then take the root."""
    width = sum(x.shape[-1] for x in parts)
    squares = sum((x * x).sum(-1, keepdims=True) for x in parts)
    return [x / np.sqrt(squares / width) * gain for x, gain in zip(parts, gains)]
