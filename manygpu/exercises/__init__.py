"""Exercises that answer back: `check(name, answer)` says which property broke.

from manygpu.exercises import check

check("many-devices/shares", my_shares)

The chapters' exercises are imported when the first of these names is asked for: the
puzzles, which run in a page, need none of what those need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manygpu.exercises.checking import KNOWN as KNOWN
    from manygpu.exercises.checking import Checked as Checked
    from manygpu.exercises.checking import Exercise as Exercise
    from manygpu.exercises.checking import check as check

__all__ = ["KNOWN", "Checked", "Exercise", "check"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from manygpu.exercises import (  # noqa: F401  each adds its own to KNOWN
        beyond,
        checking,
        choosing,
        data_parallel,
        engine,
        splitting,
        start,
    )

    return getattr(checking, name)
