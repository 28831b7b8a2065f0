"""Arguments and results between a grader and a learner's process, as lines of text.

What comes from there is not trusted, so it is never unpickled: only numbers, texts,
bytes, None, lists, tuples, dicts and arrays of numbers can be sent. A page's `check`
judges what would arrive, too: an object that is equal to everything doesn't.
"""

from __future__ import annotations

import base64
import json
import math
import numbers
from typing import Any

import numpy as np

KINDS = "biuf"  # of arrays: truth values, whole numbers, floats
LONG = 1_000_000  # letters of a line
ITEMS, LETTERS = 5_000, 10_000  # of a result, and of a text in it; right ones: 250


class NoDataError(TypeError):
    """What a function returned can't be sent: it isn't data, or far too much of it."""


def to_line(value: Any) -> str:
    """A value as one line of text.

    Raises:
        NoDataError: something that can't be sent.
        ValueError: it is too long.
    """
    line = json.dumps(_Packer().packed(value), allow_nan=False)
    if len(line) > LONG:
        raise ValueError(
            f"value must fit a line of {LONG:,} letters, got {len(line):,}"
        )
    return line


def from_line(line: str) -> Any:
    """What `to_line` was given; ValueError for any other line."""
    try:
        return _unpacked(json.loads(line), [])
    except (
        KeyError,
        IndexError,
        TypeError,
        AttributeError,
        RecursionError,
        OverflowError,
    ) as wrong:
        raise ValueError(f"line must be of to_line, got {line!r:.80}") from wrong


def result_to_line(found: Any) -> str:
    """What a function returned, as one line of text.

    Raises:
        NoDataError: it can't be sent, or is far more than any exercise asks for.
    """
    packer = _Packer(ITEMS, LETTERS)
    try:
        return json.dumps(packer.packed(found), allow_nan=False)
    except NoDataError:
        raise
    except RecursionError:
        raise NoDataError(
            "result must be data, got lists in lists without end"
        ) from None
    except Exception as wrong:  # of a learner's own object
        kind = type(wrong).__name__
        raise NoDataError(f"result must be data, reading it raises {kind}") from wrong


class _Packer:
    """Turns values into what JSON can hold; arrays that are one array stay one.

    Args:
        items: how many numbers, texts and lists there may be; None: any number.
        letters: how many a text may have; None: any number.
    """

    def __init__(self, items: int | None = None, letters: int | None = None) -> None:
        self.items, self.letters, self.count = items, letters, 0
        self.arrays: dict[tuple, int] = {}  # by where they are in memory
        self.kept: list[np.ndarray] = []  # so that no other array comes to be there

    def packed(self, value: Any) -> Any:
        """A value as JSON can hold it."""
        self._add(1)
        if isinstance(value, str):
            if self.letters is not None and len(value) > self.letters:
                raise NoDataError(
                    f"a text must have at most {self.letters:,} letters, "
                    f"got {len(value):,}"
                )
            return str.__str__(value)
        if isinstance(value, bytes | bytearray):
            self._add(len(value))
            return {"bytes": base64.b64encode(value).decode()}
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return int.__int__(value)
        if isinstance(value, float):
            value = float.__float__(value)
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, list | tuple | range):
            packed = [self.packed(each) for each in value]
            return {"tuple": packed} if isinstance(value, tuple) else packed
        if isinstance(value, dict):
            items = value.items()
            return {"dict": [[self.packed(k), self.packed(v)] for k, v in items]}
        if isinstance(value, numbers.Rational):  # such as a Fraction
            return self.packed(float(value))
        return self._packed_array(value)

    def _packed_array(self, value: Any) -> Any:
        """An array of numbers, or one of its numbers; NoDataError for all else."""
        if hasattr(value, "numpy"):  # a tensor, a variable
            value = value.numpy()
        known = isinstance(value, np.ndarray | np.generic)
        if not known or value.dtype.kind not in KINDS:
            raise NoDataError(
                "result must be numbers, texts or lists of them, "
                f"got {type(value).__name__}: {_repr(value):.80}"
            )
        self._add(value.size)
        if isinstance(value, np.generic):
            return {"scalar": _bits(value)}
        place = _place(value) if value.size else (len(self.kept),)
        if place in self.arrays:
            return {"same": self.arrays[place]}
        self.arrays[place] = len(self.kept)
        self.kept.append(value)
        return {"array": _bits(value)}

    def _add(self, count: int) -> None:
        """Count items, and refuse too many before they are looked at."""
        self.count += count
        if self.items is not None and self.count > self.items:
            raise NoDataError(
                f"result must have at most {self.items:,} items, got more: no exercise "
                f"asks for as many"
            )


def _bits(value: np.ndarray | np.generic) -> list:
    """Kind, shape and bytes of an array."""
    data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
    return [value.dtype.str, list(value.shape), data]


def _place(array: np.ndarray) -> tuple:
    """Where an array's numbers are, and how: two arrays of one place are one array."""
    known = array.__array_interface__
    return known["data"], known["shape"], known["strides"], known["typestr"]


def _repr(value: Any) -> str:
    """A value as it is typed; an object of a learner's may not be able to say it."""
    try:
        return repr(value)
    except Exception as wrong:
        return f"its repr raises {type(wrong).__name__}"


def _unpacked(value: Any, arrays: list[np.ndarray]) -> Any:
    """What was packed; `arrays`: those that came before."""
    if isinstance(value, list):
        return [_unpacked(each, arrays) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, own),) = value.items()
    if kind == "float":
        return float(own)
    if kind == "bytes":
        return base64.b64decode(own)
    if kind == "tuple":
        return tuple(_unpacked(each, arrays) for each in own)
    if kind == "dict":
        return {_unpacked(k, arrays): _unpacked(v, arrays) for k, v in own}
    if kind == "same":
        return arrays[own]
    dtype, shape, data = own
    if np.dtype(dtype).kind not in KINDS:
        raise ValueError(f"arrays must hold numbers, got {dtype!r:.80}")
    made = np.frombuffer(base64.b64decode(data), dtype).reshape(shape).copy()
    if kind == "scalar":
        return made[()]
    arrays.append(made)
    return made
