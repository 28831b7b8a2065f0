"""What is wrong with an answer, in words; nothing where it is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

NEAR = 1e-9  # relative: exercises compute in float64
ALL_DIGITS = 1e15  # below this, a large number is written with all of them
NEAR_32 = 1e-5  # of an answer that was computed in float32: 84 of its roundings


def other(found: Any, right: Any) -> str:
    """What was found, if it is another number, list or text than the right one.

    A tuple may stand for a list.
    """
    return "" if _as_lists(found) == _as_lists(right) else f"it is {found!r}"


def _as_lists(value: Any) -> Any:
    """A value with lists for its tuples."""
    if isinstance(value, dict):
        return {key: _as_lists(each) for key, each in value.items()}
    return [*map(_as_lists, value)] if isinstance(value, list | tuple) else value


def off(found: Any, right: Any, tolerance: float = NEAR) -> str:
    """By how much numbers or arrays are off, if they aren't as near as rounding."""
    if _text(found):  # NumPy would read it as the number it shows
        return f"it is text, {found!r:.40}, and no number"
    tolerance = max(tolerance, rounding(found))
    found, right = np.asarray(found, float), np.asarray(right, float)
    if found.shape != right.shape:
        return f"it has the shape {found.shape}, not {right.shape}"
    scale = max(float(np.max(np.abs(right), initial=0.0)), 1e-300)
    apart = float(np.max(np.abs(found - right), initial=0.0))
    if apart <= tolerance * scale:  # not so for NaN
        return ""
    if found.ndim == 0:
        return f"it is {in_digits(found, 6)}"
    if not np.isfinite(apart):
        return "a number isn't finite"
    if apart > scale:
        times = f"{in_digits(apart / scale, 3)} times the largest number"
        return f"numbers differ by up to {times}" if right.any() else "it isn't all 0"
    percent = float(f"{100 * apart / scale:.2g}")  # 100, not 1e+02
    return f"numbers differ by up to {percent:g}% of the largest"


def in_digits(value: float, digits: int = 4) -> str:
    """A number as people write it: "16,000,000" and "1.5e-05", never "1.6e+07"."""
    value = float(value)
    if 10**digits <= abs(value) < ALL_DIGITS:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def whole_numbers(found: Any) -> list[int]:
    """Its items as whole numbers; TypeError for a text, or a number with a fraction."""
    for item in found:
        if _text(item) or item != int(item):
            raise TypeError(f"items must be whole numbers, got {item!r:.40}")
    return [int(item) for item in found]


def rounding(found: Any) -> float:
    """How far an answer may be off, relative: float32 rounds more than float64."""
    return NEAR_32 if in_float32(found) else NEAR


def in_float32(found: Any) -> bool:
    """Whether a number, or one in a list or an array, is float32's.

    Python's own number is, if float32 has it and it isn't whole: `float(tensor)`.
    """
    if isinstance(found, list | tuple):
        return any(map(in_float32, found))
    if type(found) is float:
        with np.errstate(over="ignore"):
            return found == float(np.float32(found)) and found % 1 != 0
    return getattr(found, "dtype", None) == np.float32


def _text(found: Any) -> bool:
    """Whether a text stands where a number should; also in a list, or an array."""
    if isinstance(found, list | tuple):
        return any(map(_text, found))
    kind = getattr(getattr(found, "dtype", None), "kind", "")
    return isinstance(found, str | bytes) or kind in ("U", "S", "T")


def all_off(found: Sequence[Any], right: Sequence[Any], each: str = "device") -> str:
    """The first of several arrays that is off, and by how much; each: whose one is."""
    if len(found) != len(right):
        return f"there are {len(found)}, not {len(right)}"
    for i, (own, wanted) in enumerate(zip(found, right, strict=True)):
        if said := off(own, wanted):
            return f"{each} {i}: {said}"
    return ""


def mistaken(found: Any, right: Any, mistake: Any) -> str:
    """What is wrong, if what was found is what a known mistake gives."""
    wrong = off(found, right)
    return wrong if wrong and not off(found, mistake) else ""
