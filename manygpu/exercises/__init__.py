"""Exercises that answer back: `check(name, answer)` says which property broke.

from manygpu.exercises import check

check("many-devices/shares", my_shares)

The chapters' exercises are imported when the first of these names is asked for: the
puzzles, which run in a page, need none of what those need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manygpu.exercises.checking import KNOWN as KNOWN
    from manygpu.exercises.checking import Checked as Checked
    from manygpu.exercises.checking import Exercise as Exercise
    from manygpu.exercises.checking import check as check
    from manygpu.exercises.guessing import guess as guess
    from manygpu.exercises.kept import results as results

HOMES = {"guess": "guessing", "results": "kept"}
HOMES |= dict.fromkeys(("KNOWN", "Checked", "Exercise", "check"), "checking")
__all__ = ["KNOWN", "Checked", "Exercise", "check", "guess", "results"]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from manygpu.exercises import asked  # noqa: F401  which fills KNOWN

    return getattr(importlib.import_module(f"{__name__}.{HOMES[name]}"), name)
