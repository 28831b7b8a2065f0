"""A real training is killed at drawn moments, resumes, and loses nothing.

`make faults` does it with more kills, and damages more checkpoints (FAULTS, see
scratch/beyond/test_worker_dies.py): so many kills, and five times as many damages.
"""

import os
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest

from manygpu.processes.deaths import end_when, has_noted, noted
from manygpu.processes.workers import Worker
from manygpu.scratch.beyond import worker_dies

STEPS, EVERY, SAMPLES = 24, 5, 64
KILLS = 2  # of one training
TRAININGS = -(-int(os.environ.get("FAULTS", KILLS)) // KILLS)


def slow_trainer(*job: object) -> Callable[[int], dict]:
    """In a new process: the chapter's training, so slow at writing that a kill hits."""
    write = os.write

    def slowly(file: int, data: bytes) -> int:
        time.sleep(0.002)
        return write(file, data)

    worker_dies.PIECE, os.write = 2**16, slowly
    return worker_dies.trainer(*job)


def training(folder: Path) -> Worker:
    """A process that trains on drawn images, the same each time, and saves there."""
    rng = np.random.default_rng(0)
    X = rng.random((SAMPLES, 28, 28, 1)).astype(np.float32)
    job = X, rng.integers(0, 10, SAMPLES).astype(np.int32), folder, EVERY
    variables = {"MANYGPU_DEVICES": "1"}
    return Worker(slow_trainer, *job, variables=variables, name="it")


def bits(state: dict[str, np.ndarray]) -> list[tuple]:
    return [(n, a.shape, a.dtype, a.tobytes()) for n, a in state.items()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> list[tuple]:
    with training(tmp_path_factory.mktemp("undisturbed")) as worker:
        return bits(worker.ask(STEPS))


@pytest.mark.parametrize("seed", range(TRAININGS))
def test_killed_at_any_moment_a_training_loses_nothing(seed, tmp_path, undisturbed):
    """No step up to the last save that had returned, and no bit of its end."""
    rng, goes_on = random.Random(seed), []
    steps = tmp_path / "steps"
    for life in range(KILLS):  # the first may die before a save, the next does not
        so_far = len(noted(steps)) + life * EVERY + rng.randint(0, EVERY)
        with training(tmp_path) as worker:
            worker.send(STEPS)
            pause_s = 0.1 * rng.random()  # longer than a write
            assert end_when(worker, partial(has_noted, steps, so_far), pause_s)
            worker.process.join()
        assert worker.process.exitcode < 0
        assert not psutil.pid_exists(worker.process.pid)
        newest = worker_dies.newest_checkpoint(tmp_path, lambda said: None)
        step = newest.step if newest else 0
        assert step >= max(noted(tmp_path / "saves"), default=0)
        goes_on.append((len(noted(steps)), step + 1))
    with training(tmp_path) as worker:
        assert bits(worker.ask(STEPS)) == undisturbed
    # The next step that anyone took is the one after the newest checkpoint.
    assert all(noted(steps)[place] == step for place, step in goes_on)
