"""What is wrong with an answer, in words; nothing where it is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

NEAR = 1e-9  # relative: exercises compute in float64


def other(found: Any, right: Any) -> str:
    """What was found, if it is another number, list or text than the right one."""
    return "" if found == right else f"it is {found!r}"


def off(found: Any, right: Any, tolerance: float = NEAR) -> str:
    """By how much numbers or arrays are off, if they aren't as near as rounding."""
    if _text(found):  # NumPy would read it as the number it shows
        return f"it is text, {found!r:.40}, and no number"
    found, right = np.asarray(found, float), np.asarray(right, float)
    if found.shape != right.shape:
        return f"it has the shape {found.shape}, not {right.shape}"
    scale = max(float(np.max(np.abs(right), initial=0.0)), 1e-300)
    apart = float(np.max(np.abs(found - right), initial=0.0))
    if apart <= tolerance * scale:  # not so for NaN
        return ""
    if found.ndim == 0:
        return f"it is {float(found):.6g}"
    if not np.isfinite(apart):
        return "a number isn't finite"
    if apart > scale:
        times = f"{apart / scale:.3g} times the largest number"
        return f"numbers differ by up to {times}" if right.any() else "it isn't all 0"
    percent = float(f"{100 * apart / scale:.2g}")  # 100, not 1e+02
    return f"numbers differ by up to {percent:g}% of the largest"


def whole_numbers(found: Any) -> list[int]:
    """Its items as whole numbers; TypeError for a text that shows one."""
    for item in found:
        if _text(item):
            raise TypeError(f"items must be numbers, got the text {item!r:.40}")
    return [int(item) for item in found]


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
