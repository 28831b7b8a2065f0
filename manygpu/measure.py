"""What the book measures with: one distance, one size, one fair share, one timer."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from manygpu import _tensorflow as tf
from manygpu.checks import check_count

Name = TypeVar("Name", bound=Hashable)


def distance(found: Any, reference: Any) -> float:
    """Return how far `found` is from `reference`: norm of the difference over norm.

    All arrays together make one vector in float64, and both norms are Euclidean, so
    1e-12 means the same everywhere in the book. 0 if both are all zeros.

    Args:
        found: an array, a tensor or variable, or a list of them, nested as you like.
        reference: the same number of arrays, of the same shapes.

    Raises:
        TypeError: what holds no numbers, such as a text.
        ValueError: another number of arrays, another shape, or a reference of zeros
            only, which nothing is near to in relative terms.
    """
    found, reference = _arrays("found", found), _arrays("reference", reference)
    shapes = [a.shape for a in found], [a.shape for a in reference]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"found must have the shapes of reference, got {shapes[0]} and {shapes[1]}"
        )
    apart = _norm(a - b for a, b in zip(found, reference, strict=True))
    length = _norm(reference)
    if length == 0 and apart > 0:
        raise ValueError("reference is all zeros: compare with something else")
    return apart / length if apart else 0.0


def _arrays(name: str, values: Any) -> list[np.ndarray]:
    """All arrays of a nest, in float64; TypeError for what holds no numbers."""
    arrays = []
    for v in tf.nest.flatten(values):
        try:
            arrays.append(tf.cast(tf.convert_to_tensor(v), tf.float64).numpy())
        except (TypeError, ValueError, tf.errors.OpError) as error:
            raise TypeError(f"{name} must hold numbers, got {v!r}") from error
    return arrays


def _norm(arrays: Iterable[np.ndarray]) -> float:
    """Euclidean norm of all numbers of all arrays."""
    return float(np.sqrt(sum(np.sum(np.square(a)) for a in arrays)))


def nbytes(values: Any) -> int:
    """Return the bytes of a tensor's or variable's numbers, or of all in a nest.

    Raises:
        ValueError: a shape that is not fully known.
    """
    total = 0
    for t in tf.nest.flatten(values):
        shape, dtype = tf.TensorShape(t.shape), tf.as_dtype(t.dtype)
        if not shape.is_fully_defined():
            raise ValueError(
                f"values must have known shapes, got {shape}: trace with a batch of "
                f"known size"
            )
        total += shape.num_elements() * dtype.size
    return total


def shares(total: int, parts: int) -> list[int]:
    """Return how many of `total` things each of `parts` gets, the larger first.

    They differ by one at most. Raises TypeError or ValueError for a negative or
    broken total, or no parts.
    """
    parts = check_count("parts", parts)
    nothing = isinstance(total, int) and not isinstance(total, bool) and total == 0
    total = 0 if nothing else check_count("total", total)
    return [total // parts + (i < total % parts) for i in range(parts)]


def seconds_of(job: Callable[[], Any]) -> float:
    """Return how many seconds a job takes, until what it returns is there.

    Args:
        job: returns a tensor, which is fetched, since a GPU is done only when somebody
            asks; make it a small one. Or None: it has waited itself.
    """
    start = time.perf_counter()
    np.asarray(job())
    return time.perf_counter() - start


def in_turns(
    jobs: Mapping[Name, Any],
    rounds: int = 7,
    *,
    warm_up: int = 1,
    take: Callable[[Any], Any] = seconds_of,
) -> dict[Name, list[Any]]:
    """Return the seconds of each job, one for each round.

    In a round each job has its turn, so that a busy spell of the machine doesn't fall
    on one of them only; compare what is of one round.

    Args:
        jobs: by name; see `seconds_of`.
        rounds: how many count.
        warm_up: rounds before those, which don't: the first ones trace.
        take: has a job done, and returns what is to be kept of it, if not its seconds.

    Raises:
        TypeError: `jobs` is no mapping, or a number of rounds is not whole.
        ValueError: there are no jobs, or no rounds.
    """
    if not isinstance(jobs, Mapping):
        raise TypeError(f"jobs must map names to jobs, got {type(jobs).__name__}")
    if not jobs:
        raise ValueError("jobs is empty: name at least one")
    first = check_count("warm_up", warm_up) if warm_up else 0
    found: dict[Name, list[Any]] = {name: [] for name in jobs}
    for turn in range(first + check_count("rounds", rounds)):
        for name, job in jobs.items():
            taken = take(job)
            if turn >= first:
                found[name].append(taken)
    return found
