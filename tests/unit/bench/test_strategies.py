"""Every strategy takes the step of one device; who does not is found out."""

import json
from dataclasses import replace

import numpy as np
import pytest

from manygpu.bench import strategies
from manygpu.bench.running import step_distance
from manygpu.measure import nbytes
from manygpu.scratch.start.one_device import gradients, init_params
from tests.unit.helpers import EIGHT, distance

FLOAT32 = 1e-5  # relative: a sum of thousands of products, rounded at each
PARAMETERS = nbytes(init_params())
# These number their collectives alike, so each needs a process of its own.
ALONE = ("engine", "fit", "dtensor")
HERE = [name for name in strategies.STRATEGIES if name not in (*ALONE, "apart")]


def running(name, k):
    return strategies.STRATEGIES[name](EIGHT[:k])


# "pieces" is cut twice, so it is traced for long; on uneven shards it is tried below.
@pytest.mark.parametrize("k", [1, 2, 3, 8])
@pytest.mark.parametrize("name", [name for name in HERE if name != "pieces"])
def test_it_takes_the_step_of_one_device(name, k):
    strategy = running(name, k)
    batch = strategy.batch(24)
    assert step_distance(strategy, *batch) <= FLOAT32
    assert step_distance(strategy, *batch) <= FLOAT32  # from where it stands now


@pytest.mark.parametrize("name", [name for name in HERE if name != "pipeline"])
def test_it_takes_the_step_of_one_device_on_uneven_shards(name):
    strategy = running(name, 3)
    assert step_distance(strategy, *strategy.batch(23)) <= FLOAT32


ONE_STEP = """
import json, os, manygpu
from manygpu.bench.running import step_distance
from manygpu.bench.strategies import STRATEGIES

running = STRATEGIES[os.environ["NAME"]](manygpu.devices(quiet=True))
batches = [running.batch(samples) for samples in (24, 24, 48)]
apart = [step_distance(running, *batch) for batch in [batches[0], *batches]]
print(json.dumps({"distance": apart, "held": running.held()}))
"""


@pytest.mark.parametrize("name", ALONE)
def test_an_engine_takes_the_step_of_one_device(name, run_python):
    answer = run_python(ONE_STEP, MANYGPU_DEVICES="3", NAME=name)
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout.splitlines()[-1])
    assert max(found["distance"]) <= FLOAT32
    assert list(found["held"].values()) == [PARAMETERS] * 3


def test_replicas_that_never_communicate_are_found_out():
    for k, bound in ((1, FLOAT32), (3, np.inf)):
        strategy = running("apart", k)
        assert (k > 1) * 0.1 < step_distance(strategy, *strategy.batch(24)) <= bound


def test_replicas_that_never_communicate_step_along_their_share_of_the_mean():
    strategy = running("apart", 3)
    (X, y), before = strategy.batch(24), strategy.result()
    _, grads = gradients(X[:8], y[:8], init_params())
    strategy.take(X, y)
    moved = [a - b for a, b in zip(strategy.result(), before, strict=True)]
    wanted = [-strategies.LR / 24 * g.numpy() for g in grads]
    assert distance(moved, wanted) <= FLOAT32


def test_a_step_that_is_not_taken_is_found_out():
    idle = replace(running("compiled", 2), take=lambda X, y: None)
    assert step_distance(idle, *idle.batch(24)) == 1


def test_a_batch_is_as_large_as_asked_and_always_the_same():
    X, y = running("compiled", 1).batch(7)
    again = running("eager", 2).batch(7)
    assert X.shape == (7, 28, 28, 1) and y.shape == (7,)
    assert distance(again, (X, y)) == 0


def test_a_pipeline_is_cut_where_the_work_is():
    """LeNet's second layer has nine tenths of it: it gets a device of its own."""
    assert strategies.pipeline_cuts(1) == []
    assert strategies.pipeline_cuts(2) == [1]
    assert strategies.pipeline_cuts(3) == [1, 2]
    assert strategies.pipeline_cuts(8) == [1, 2, 3]
    first = min(running("pipeline", 2).held().values())
    assert first == 4 * (3 * 3 * 20 + 20)


@pytest.mark.parametrize("name", ["network", "pipeline"])
def test_stages_hold_the_parameters_once(name):
    assert sum(running(name, 2).held().values()) == PARAMETERS
    assert len(running(name, 8).held()) == 4  # LeNet has four layers
    assert sum(running("compiled", 3).held().values()) == 3 * PARAMETERS
