"""The job that fails: what a failure changes, and that nothing else does."""

import numpy as np
import pytest

from manygpu.backstage.failing_job import (
    CLASSES,
    FEATURES,
    KINDS,
    ROWS,
    STEPS,
    Failure,
    first_params,
    own_shards,
)
from manygpu.scratch.beyond.step_hangs import CURES


def samples_read(failure: Failure) -> list[list[int]]:
    """Of three ranks, the sample ids of all steps."""
    return [
        list(np.concatenate([*own_shards(rank, 3, failure)]))
        if rank == failure.rank
        else list(np.concatenate([*own_shards(rank, 3, Failure())]))
        for rank in range(3)
    ]


def test_without_a_failure_each_sample_is_read_once():
    read = sorted(sum(samples_read(Failure()), []))
    assert read == list(range(3 * ROWS * STEPS))


def test_a_wrong_shard_is_the_next_ranks_and_short_data_end_early():
    _, own, other = samples_read(Failure("shard"))
    assert own == other
    _, own, _ = samples_read(Failure("short data", step=2))
    assert len(own) == 2 * ROWS


@pytest.mark.parametrize("kind", ["", "shape", "transposed"])
def test_parameters_have_the_shapes_that_the_failure_asks_for(kind):
    W = first_params(Failure(kind))["W"]
    wanted = {"shape": (FEATURES, CLASSES + 1), "transposed": (CLASSES, FEATURES)}
    assert tuple(W.shape) == wanted.get(kind, (FEATURES, CLASSES))


def test_each_failure_has_a_cause_that_can_be_named():
    assert {*KINDS.values()} < {*CURES}
