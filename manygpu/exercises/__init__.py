"""Exercises that answer back: `check(name, answer)` says which property broke.

from manygpu.exercises import check

check("many-devices/shares", my_shares)
"""

from manygpu.exercises import (
    beyond,
    choosing,
    data_parallel,
    engine,
    splitting,
    start,
)
from manygpu.exercises.checking import KNOWN, Checked, Exercise, check
from manygpu.exercises.guessing import guess
from manygpu.exercises.kept import results

__all__ = [
    "KNOWN",
    "Checked",
    "Exercise",
    "beyond",
    "check",
    "choosing",
    "data_parallel",
    "engine",
    "guess",
    "results",
    "splitting",
    "start",
]
