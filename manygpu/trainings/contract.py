"""The one form of a training at work: who times it, judges it or breaks it asks this.

It needs no TensorFlow: arrays may be tensors, variables, or arrays of NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

Arrays = Sequence[Any]


class Places(NamedTuple):
    """Where a step ran.

    Attributes:
        worked: how many heavy operations, such as products of matrices, each device
            did; all 0 if nobody saw any.
        strays: what lies, ran or was read where it should not, in a few words each.
    """

    worked: Sequence[int]
    strays: Sequence[str] = ()


class Ranks(NamedTuple):
    """Who holds what on a mesh, and what each rank did in a step on a batch.

    A key stands for what a rank keeps as one array: the numbers of its parameters, in
    the order of the unsplit model. `(3,)` is a parameter alone, `(2, 3)` two in one
    flat vector.

    Attributes:
        sizes: how many ranks each axis has. The last axis counts fastest.
        samples: samples[rank], the numbers of the samples that it computes with.
        letters: letters[key][axis]: "S" if the axis cuts the array; "R" if ranks hold
            copies, and each finds a summand of the gradient; "I" if they hold copies,
            and each finds the same.
        part: `part(key, whole, rank)`: what a rank holds of the whole model's arrays.
        moved: moved[rank][key], the gradient that moved what the rank holds, summed
            over the samples.
        own: own[rank][key], what the rank found of it before the last sum; {} where
            that can't be seen.
    """

    sizes: Mapping[str, int]
    samples: Sequence[Sequence[int]]
    letters: Mapping[tuple[int, ...], Mapping[str, str]]
    part: Callable[[tuple[int, ...], Arrays, int], Any]
    moved: Sequence[Mapping[tuple[int, ...], Any]]
    own: Sequence[Mapping[tuple[int, ...], Any]]


class Training(NamedTuple):
    """A training at work on devices: what can be asked of it.

    It must have the first two. Whoever asks for more says what it could not see
    without. A class with methods of these names will do as well.

    Attributes:
        take: `take(X, y)` takes one step on a whole batch; returns the batch's mean
            loss before it, or None.
        copies: returns the whole weights as they are now, once for each copy of them,
            in the order of the unsplit model.
        state: returns what is kept beside the weights, by name: a value for each
            replica, or None for a replica that keeps nothing of it. Optimizer slots,
            counters (whole numbers), moving averages, random state.
        save: returns all that going on needs.
        resume: `resume(saved)` takes a training that has just begun, on as many
            devices or on others, to that place.
        places: returns the `Places` of the last step.
        stored: returns what lies on the devices between steps, as tensors or variables.
        gradients: `gradients(X, y)` returns what each copy is moved by in a step, as
            `copies` returns weights: summed over the samples, before any update.
        ranks: `ranks(X, y)` takes a step as `take` does, and returns the `Ranks`.
        dtypes: `dtypes(X, y)` takes a step as `take` does, and returns the names of the
            dtypes of the floating-point numbers that it made, such as "bfloat16".
        sent: `sent(X, y)` returns how many bytes devices send each other in a step.
        traced: whether `take` can be made one graph.
    """

    take: Callable[[Any, Any], Any]
    copies: Callable[[], Sequence[Arrays]]
    state: Callable[[], Mapping[str, Sequence[Any]]] | None = None
    save: Callable[[], Any] | None = None
    resume: Callable[[Any], None] | None = None
    places: Callable[[], Places] | None = None
    stored: Callable[[], Iterable[Any]] | None = None
    gradients: Callable[[Any, Any], Sequence[Arrays]] | None = None
    ranks: Callable[[Any, Any], Ranks] | None = None
    sent: Callable[[Any, Any], int] | None = None
    dtypes: Callable[[Any, Any], Iterable[str]] | None = None
    traced: bool = True
