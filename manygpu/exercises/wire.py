"""Arguments and results between a grader and a learner's process, as lines of text.

What comes from there is not trusted, so it is never unpickled: only numbers, texts,
None, lists, tuples, dicts and arrays of numbers can be sent.
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np

KINDS = "biuf"  # of arrays: truth values, whole numbers, floats
LONG = 1_000_000  # letters of a line


def to_line(value: Any) -> str:
    """A value as one line of text.

    Raises:
        TypeError: something that can't be sent.
        ValueError: it is too long.
    """
    line = json.dumps(_packed(value), allow_nan=False)
    if len(line) > LONG:
        raise ValueError(
            f"value must fit a line of {LONG:,} letters, got {len(line):,}"
        )
    return line


def from_line(line: str) -> Any:
    """What `to_line` was given; ValueError for any other line."""
    try:
        return _unpacked(json.loads(line))
    except (KeyError, TypeError, AttributeError, RecursionError) as wrong:
        raise ValueError(f"line must be of to_line, got {line!r:.80}") from wrong


def _packed(value: Any) -> Any:
    """A value as JSON can hold it."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, list):
        return [_packed(each) for each in value]
    if isinstance(value, tuple):
        return {"tuple": [_packed(each) for each in value]}
    if isinstance(value, dict):
        return {"dict": [[_packed(k), _packed(v)] for k, v in value.items()]}
    if hasattr(value, "numpy"):  # a tensor, a variable
        value = value.numpy()
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in KINDS:
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        return {kind: [value.dtype.str, list(value.shape), data]}
    raise TypeError(f"value must be numbers, texts or lists of them, got {value!r:.80}")


def _unpacked(value: Any) -> Any:
    """What was packed."""
    if isinstance(value, list):
        return [_unpacked(each) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, own),) = value.items()
    if kind == "float":
        return float(own)
    if kind == "tuple":
        return tuple(_unpacked(each) for each in own)
    if kind == "dict":
        return {_unpacked(k): _unpacked(v) for k, v in own}
    dtype, shape, data = own
    if np.dtype(dtype).kind not in KINDS:
        raise ValueError(f"arrays must hold numbers, got {dtype!r:.80}")
    made = np.frombuffer(base64.b64decode(data), dtype).reshape(shape).copy()
    return made if kind == "array" else made[()]
