"""Exercises that answer back: `check(name, answer)` says which property broke.

from manygpu.exercises import check

check("many-devices/shares", my_shares)
"""

from manygpu.exercises import (
    beyond,
    choosing,
    choosing_right,
    data_parallel,
    data_parallel_copies,
    engine,
    splitting,
    start,
    start_clusters,
    start_network,
    start_ways,
)
from manygpu.exercises.checking import KNOWN, Checked, Exercise, check

__all__ = [
    "KNOWN",
    "Checked",
    "Exercise",
    "beyond",
    "check",
    "choosing",
    "choosing_right",
    "data_parallel",
    "data_parallel_copies",
    "engine",
    "splitting",
    "start",
    "start_clusters",
    "start_network",
    "start_ways",
]
