"""Every strategy takes the step of one device; who does not is found out."""

import json
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

import manygpu
from manygpu.bench import strategies
from manygpu.scratch import init_params

FLOAT32 = 1e-5  # relative: a sum of thousands of products, rounded at each
PARAMETERS = sum(4 * int(np.prod(p.shape)) for p in init_params())
# These number their collectives alike, so each needs a process of its own.
ALONE = ("engine", "fit", "dtensor")
HERE = [name for name in strategies.STRATEGIES if name not in (*ALONE, "apart")]


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(0)
    X = tf.constant(rng.random((24, 28, 28, 1)), tf.float32)
    return X, tf.constant(rng.integers(0, 10, 24), tf.int32)


def running(name, k):
    return strategies.STRATEGIES[name](manygpu.devices(8, quiet=True)[:k])


@pytest.mark.parametrize("k", [1, 2, 3, 8])
@pytest.mark.parametrize("name", HERE)
def test_it_takes_the_step_of_one_device(name, k, batch):
    strategy = running(name, k)
    assert strategies.off(strategy, *batch) <= FLOAT32
    assert strategies.off(strategy, *batch) <= FLOAT32  # from where it stands now


ONE_STEP = """
import json, os
import numpy as np, tensorflow as tf, manygpu
from manygpu.bench import strategies

devices = manygpu.devices(quiet=True)
rng = np.random.default_rng(0)
X = tf.constant(rng.random((24, 28, 28, 1)), tf.float32)
y = tf.constant(rng.integers(0, 10, 24), tf.int32)
running = strategies.STRATEGIES[os.environ["NAME"]](devices)
off = [strategies.off(running, X, y) for _ in range(2)]
print(json.dumps({"off": off, "held": running.held()}))
"""


@pytest.mark.parametrize("name", ALONE)
def test_an_engine_takes_the_step_of_one_device(name, run_python):
    answer = run_python(ONE_STEP, MANYGPU_DEVICES="3", NAME=name)
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout.splitlines()[-1])
    assert max(found["off"]) <= FLOAT32
    assert list(found["held"].values()) == [PARAMETERS] * 3


def test_replicas_that_never_communicate_are_found_out(batch):
    assert strategies.off(running("apart", 1), *batch) <= FLOAT32
    assert strategies.off(running("apart", 3), *batch) > 0.1


def test_a_step_that_is_not_taken_is_found_out(batch):
    idle = replace(running("compiled", 2), take=lambda X, y: None)
    assert strategies.off(idle, *batch) == 1


@pytest.mark.parametrize("name", ["network", "pipeline"])
def test_stages_hold_the_parameters_once(name):
    assert sum(running(name, 2).held().values()) == PARAMETERS
    assert len(running(name, 8).held()) == 4  # LeNet has four layers
    assert sum(running("compiled", 3).held().values()) == 3 * PARAMETERS
