"""Ask the types about a step that is written with the book's lists and collectives.

Such a step keeps a list with a tensor a device. `ask_step` hands it lists of `Held`
in their place, which know what they mean and hold no number, and lets it call stand-ins
for the collectives.
"""

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import Any

import tensorflow as tf

from manygpu.scratch.data_parallel import collectives, trees_and_hierarchy
from manygpu.scratch.splitting.what_a_tensor_means import (
    COUNTED,
    Kind,
    MeaningError,
    P,
    R,
    S,
    Typed,
    ask,
)

AXIS = "devices"
# What TensorFlow's functions of two tensors are called, and what they do.
OPERATORS = {"add": operator.add, "multiply": operator.mul, "subtract": operator.sub}


def ask_step(step: Callable, *inputs: Any, count: int = 2) -> str:
    """Return what the types say of a step on lists, or why it is refused.

    Args:
        step: called as `step(*inputs)`, returns a list. It may use `@`, `+`, `*`, the
            book's collectives, and TensorFlow's functions that go elementwise.
            Nothing is computed.
        inputs: what `on_devices` made, or anything else the step takes.
        count: how many devices the step believes in.
    """
    lists = [
        [held(one, i) for i in range(count)] if isinstance(one, Typed) else one
        for one in inputs
    ]

    def program() -> Typed:
        with stand_ins(step):
            return alike(step(*lists))

    return ask(program)


def on_devices(shape: Sequence[int], kind: Kind) -> Typed:
    """Return a tensor without numbers that means this on the list of devices."""
    return Typed(tuple(shape), {AXIS: kind})


class Held(tf.experimental.ExtensionType):
    """What one device holds of a tensor: what it means, and no numbers.

    An `ExtensionType`, so that TensorFlow's own functions may be given one.
    `extra`: whether this device has added a whole copy to its summand.
    """

    lengths: tuple[int, ...]
    letter: str
    dim: int  # of a shard; else 0
    number: int
    extra: bool = False

    @property
    def value(self) -> Typed:
        """Its type."""
        return Typed(tuple(self.lengths), {AXIS: Kind(self.letter, self.dim or None)})

    @property
    def device(self) -> str:
        """Where it lies; nothing ever runs there."""
        return "CPU:0"

    @property
    def shape(self) -> tf.TensorShape:
        """That of the whole tensor."""
        return tf.TensorShape(self.value.shape)

    def __add__(self, other: "Held | Real") -> "Held":
        return self._added(other)

    def __radd__(self, other: "Held | Real") -> "Held":
        return self._added(other)

    def __mul__(self, other: "Held | Real") -> "Held":
        return held(self.value * plain(other), self.number, self.extra)

    __rmul__ = __mul__

    def __sub__(self, other: "Held | Real") -> "Held":
        return self._added(other * -1)

    def __matmul__(self, other: "Held") -> "Held":
        extra = self.extra or other.extra
        return held(self.value @ other.value, self.number, extra)

    def _added(self, other: "Held | Real") -> "Held":
        """The sum; a copy beside a summand is right if one device alone adds it."""
        if not isinstance(other, Held):
            return held(self.value + other, self.number, self.extra)
        one, two = (part.value.meaning[AXIS] for part in (self, other))
        extra = self.extra or other.extra
        if {one, two} == {P, R}:
            summand = self if one == P else other
            return held(summand.value, self.number, True)
        return held(self.value + other.value, self.number, extra)


def held(value: Typed, number: int, extra: bool = False) -> Held:
    """What device `number` holds of a tensor."""
    kind = value.meaning[AXIS]
    return Held(value.shape, kind.letter, kind.dim or 0, number, extra)


def plain(value: Held | Real) -> Typed | Real:
    """The type of what a device holds; a number stays one."""
    return value.value if isinstance(value, Held) else value


def alike(parts: Sequence[Held]) -> Typed:
    """Return what all devices' parts mean together.

    Raises MeaningError where they don't mean the same, or more than one device has
    added a whole copy to its summand.
    """
    values = {str(part.value): part.value for part in parts}
    if len(values) > 1:
        raise MeaningError(f"the devices hold different things: {list(values)}")
    extra = sum(part.extra for part in parts)
    if extra > 1:
        raise MeaningError(f"+ of P and R on {extra} devices: {COUNTED}")
    return parts[0].value


def moved(parts: Sequence[Held], source: Kind, target: Kind) -> list[Held]:
    """The parts after a move that all devices make together."""
    value = alike(parts).move(AXIS, source, target)
    return [held(value, part.number) for part in parts]


def allreduce(parts: Sequence[Held], *_: Any, **__: Any) -> list[Held]:
    """In place of each of the book's all-reduces."""
    return moved(parts, P, R)


def reduce_scatter(
    parts: Sequence[Held], send: Any = None, owners: Any = None, dim: int | None = None
) -> list[Held]:
    """In place of the book's, which gives flat chunks, or cuts along a dimension."""
    if dim is None:
        return moved([flattened(part) for part in parts], P, S(-1))
    return moved(parts, P, S(from_the_end(dim, parts)))


def all_gather(chunks: Sequence[Held], send: Any = None, dim: int = 0) -> list[Held]:
    """In place of the book's, which joins chunks along a dimension."""
    return moved(chunks, S(from_the_end(dim, chunks)), R)


def from_the_end(dim: int, parts: Sequence[Held]) -> int:
    """A dimension of these tensors, counted from the end."""
    return dim if dim < 0 else dim - parts[0].shape.rank


def flattened(part: Held) -> Held:
    """A summand or a copy in one row."""
    shape = (math.prod(part.value.shape),)
    return held(Typed(shape, part.value.meaning), part.number, part.extra)


STAND_INS = (
    (collectives.ring_allreduce, allreduce),
    (collectives.naive_allreduce, allreduce),
    (trees_and_hierarchy.tree_allreduce, allreduce),
    (trees_and_hierarchy.halving_doubling_allreduce, allreduce),
    (trees_and_hierarchy.hierarchical_allreduce, allreduce),
    (collectives.reduce_scatter, reduce_scatter),
    (collectives.all_gather, all_gather),
)


def in_place_of(function: Any) -> Any:
    """The stand-in for a function of the book, or the function itself."""
    return next((new for old, new in STAND_INS if function is old), function)


@contextmanager
def stand_ins(step: Callable) -> Iterator[None]:
    """Let a step's module call stand-ins for the collectives, while this is open."""
    names = step.__globals__
    changed = {
        name: value for name, value in names.items() if in_place_of(value) is not value
    }
    names |= {name: in_place_of(value) for name, value in changed.items()}
    try:
        yield
    finally:
        names |= changed


@tf.experimental.dispatch_for_unary_elementwise_apis(Held)
def _unary(api: Callable, x: Held) -> Held:
    """tf.nn.relu and its like, on what means something and has no numbers."""
    if api is tf.identity:
        return x
    if api is tf.negative:
        return x * -1
    return held(x.value.apply(api), x.number)


@tf.experimental.dispatch_for_binary_elementwise_apis(Held, Held)
def _binary(api: Callable, x: Held, y: Held) -> Held:
    """tf.add and its like; all else is neither a sum nor a product."""
    if api.__name__ not in OPERATORS:
        raise MeaningError(f"{api.__name__} of two tensors: there is no rule for it")
    return OPERATORS[api.__name__](x, y)
