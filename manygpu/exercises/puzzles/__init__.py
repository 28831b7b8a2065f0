"""Puzzles: write a plan, and see how near it comes to what is possible.

from manygpu.exercises.puzzles import puzzle

print(puzzle("ring"))
puzzle("ring").score(answer)

They run in a page of the book, too, and import nothing but Python's own library.
"""

from __future__ import annotations

from manygpu.exercises.puzzles import collectives, memory, placements, schedules
from manygpu.exercises.puzzles.scoring import KNOWN, Puzzle, Refused, Scored

__all__ = [
    "KNOWN",
    "Puzzle",
    "Refused",
    "Scored",
    "collectives",
    "memory",
    "placements",
    "puzzle",
    "schedules",
]


def puzzle(name: str) -> Puzzle:
    """The puzzle of a name: print it, and score an answer with it.

    Raises:
        ValueError: there is none of this name.
    """
    if name not in KNOWN:
        raise ValueError(f"name must be one of {', '.join(KNOWN)}, got {name!r}")
    return KNOWN[name]
