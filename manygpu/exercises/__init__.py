"""Exercises that answer back: `check(name, answer)` says which property broke.

from manygpu.exercises import check

check("many-devices/shares", my_shares)
"""

from manygpu.exercises import (
    beyond,
    choosing,
    choosing_right,
    data_parallel,
    data_parallel_batches,
    data_parallel_copies,
    data_parallel_later,
    data_parallel_wires,
    engine,
    engine_files,
    engine_numbers,
    engine_profile,
    hangs,
    in_step,
    processes,
    simulated,
    splitting,
    splitting_layers,
    splitting_layouts,
    splitting_memory,
    splitting_meshes,
    splitting_pipelines,
    splitting_schedules,
    splitting_stages,
    start,
    start_clusters,
    start_network,
    start_ways,
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
    "choosing_right",
    "data_parallel",
    "data_parallel_batches",
    "data_parallel_copies",
    "data_parallel_later",
    "data_parallel_wires",
    "engine",
    "engine_files",
    "engine_numbers",
    "engine_profile",
    "guess",
    "hangs",
    "in_step",
    "processes",
    "results",
    "simulated",
    "splitting",
    "splitting_layers",
    "splitting_layouts",
    "splitting_memory",
    "splitting_meshes",
    "splitting_pipelines",
    "splitting_schedules",
    "splitting_stages",
    "start",
    "start_clusters",
    "start_network",
    "start_ways",
]
