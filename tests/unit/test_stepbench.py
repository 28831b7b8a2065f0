"""Timing kinds of steps in processes of their own: input, deaths, a tiny run."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
import tensorflow as tf

import manygpu
from manygpu import stepbench
from manygpu.stepbench import Case, compare, ratio

# Cases


def test_a_case_of_no_known_kind_is_refused_and_says_which_there_are():
    with pytest.raises(ValueError, match="variant must be one of.*eager.*'fast'"):
        Case("fast", 1)


@pytest.mark.parametrize("bad", [0, -1])
def test_a_case_needs_a_device_and_a_thread(bad):
    with pytest.raises(ValueError, match="devices"):
        Case("eager", bad)
    with pytest.raises(ValueError, match="inter_op"):
        Case("eager", 1, inter_op=bad)


@pytest.mark.parametrize("bad", [1.5, "2", True])
def test_a_count_in_a_case_must_be_whole(bad):
    with pytest.raises(TypeError, match="devices"):
        Case("eager", bad)
    with pytest.raises(TypeError, match="inter_op"):
        Case("eager", 1, inter_op=bad)


# compare


@pytest.fixture
def no_process(monkeypatch):
    """Fail where a process is started."""

    def refuse(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)


@pytest.mark.parametrize("name", ["rounds", "steps"])
@pytest.mark.parametrize(
    ("bad", "kind"), [(0, ValueError), (-1, ValueError), (1.5, TypeError)]
)
def test_a_bad_count_is_refused_before_any_process_starts(name, bad, kind, no_process):
    with pytest.raises(kind, match=name):
        compare({"one": Case("eager", 1)}, **{name: bad})


def test_no_cases_give_no_times(no_process):
    assert compare({}, rounds=1, steps=1) == {}


def test_a_tiny_run_gives_a_positive_number_a_round_and_leaves_no_process(monkeypatch):
    started, popen = [], subprocess.Popen

    def record(*arguments, **named):
        started.append(popen(*arguments, **named))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", record)
    cases = {"one": Case("compiled", 1), "two": Case("eager", 2)}
    times = compare(cases, rounds=1, steps=1)
    assert list(times) == ["one", "two"]
    assert all(len(rounds) == 1 and rounds[0] > 0 for rounds in times.values())
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)


def test_a_worker_gets_its_own_devices_and_threads(monkeypatch):
    seen = {}

    def look(command, env, **_):
        seen[command[-1]] = (env["MANYGPU_DEVICES"], env.get("MANYGPU_INTER_OP"))

    monkeypatch.setattr(subprocess, "Popen", look)
    monkeypatch.setenv("MANYGPU_INTER_OP", "7")  # the reader's own must not leak in
    stepbench._Worker(Case("eager", 3))
    stepbench._Worker(Case("compiled", 1, inter_op=2))
    assert seen == {"eager": ("3", None), "compiled": ("1", "2")}


def test_a_worker_that_dies_is_named_and_says_how_to_look(monkeypatch):
    # A length that is no number ends the worker before it has answered.
    monkeypatch.setenv("MANYGPU_DEVICES", "1")
    with (
        stepbench._Worker(Case("compiled", 1)) as worker,
        pytest.raises(
            RuntimeError, match=r"manygpu\.stepbench compiled stopped; run it by hand"
        ),
    ):
        worker.turn("many")
    assert worker.process.poll() is not None


def test_a_worker_that_is_dead_already_says_the_same():
    with stepbench._Worker(Case("eager", 1)) as worker:
        worker.process.kill()
        worker.process.wait()
        with pytest.raises(RuntimeError, match=r"eager stopped.*it said ''"):
            worker.turn(1)


# ratio


def test_the_ratio_compares_within_a_round():
    times = {"a": [1.0, 20.0, 3.0], "b": [2.0, 10.0, 3.0]}
    assert ratio(times, "a", "b") == (1.0, 0.5, 2.0)
    assert ratio(times, "b", "a") == (1.0, 0.5, 2.0)
    assert ratio(times, "a", "a") == (1.0, 1.0, 1.0)


def test_rounds_of_different_number_are_refused():
    with pytest.raises(ValueError):
        ratio({"a": [1.0], "b": [1.0, 2.0]}, "a", "b")


# What the processes time


def test_main_answers_each_number_with_so_many_seconds(run_python):
    code = (
        "import io, sys; sys.argv = ['stepbench', 'compiled'];"
        "sys.stdin = io.StringIO('2\\n1\\n');"
        "from manygpu import stepbench; stepbench.main()"
    )
    answer = run_python(code, MANYGPU_DEVICES="2")
    assert answer.returncode == 0, answer.stderr
    lines = [stepbench.json.loads(line) for line in answer.stdout.splitlines()]
    assert [len(seconds) for seconds in lines] == [2, 1]
    assert all(s > 0 for seconds in lines for s in seconds)


@pytest.fixture
def after_a_step(monkeypatch):
    """The parameters of every replica after one step of a variant."""
    from manygpu import scratch

    get_params = scratch.get_params
    devices = manygpu.devices(8, quiet=True)[:3]
    rng = np.random.default_rng(0)
    X = tf.constant(rng.random((9, 28, 28, 1)), tf.float32)
    y = tf.constant(rng.integers(0, 10, 9), tf.int32)

    def run(variant):
        made = []

        def keep(*arguments):
            made.append(get_params(*arguments))
            return made[-1]

        monkeypatch.setattr(scratch, "get_params", keep)
        stepbench.VARIANTS[variant](devices)(X, y)
        return [np.concatenate([np.ravel(p) for p in replica]) for replica in made]

    return run


def test_compiled_takes_the_eager_step(after_a_step):
    # float32, one step: rounding of values about 1, a few of them
    for eager, compiled in zip(
        after_a_step("eager"), after_a_step("compiled"), strict=True
    ):
        np.testing.assert_allclose(compiled, eager, rtol=0, atol=1e-6)


def test_replicas_agree_except_apart(after_a_step):
    for variant in ("eager", "compiled"):
        first, *others = after_a_step(variant)
        assert all(np.array_equal(first, other) for other in others)
    first, *others = after_a_step("apart")
    assert all(not np.array_equal(first, other) for other in others)


# Parameters after steps on 9 samples and 3 devices. "fit" takes one before its first,
# to build the model. Two strategies in one process number their collectives alike and
# stop each other, so each variant has a process of its own.
ENGINE = """
import json
import os
import numpy as np, tensorflow as tf, manygpu
from manygpu import scratch, stepbench

devices = manygpu.devices(quiet=True)
rng = np.random.default_rng(0)
X = tf.constant(rng.random((9, 28, 28, 1)), tf.float32)
y = tf.constant(rng.integers(0, 10, 9), tf.int32)
made = []


def kept(make):
    def keep(*arguments):
        made.append(make(*arguments))
        return made[-1]

    return keep


for name in ("get_params", "init_params", "keras_lenet"):
    setattr(scratch, name, kept(getattr(scratch, name)))


def after(variant, steps=1):
    made.clear()
    take = stepbench.VARIANTS[variant](devices)
    for _ in range(steps):
        take(X, y)
    weights = made[-1].weights if variant == "fit" else made[-1]
    return np.concatenate([np.ravel(tf.convert_to_tensor(w)) for w in weights])


variant, steps = os.environ["VARIANT"], int(os.environ["STEPS"])
expected = after("compiled", steps)
start = np.concatenate([np.ravel(p) for p in scratch.init_params()])
print(json.dumps({
    "moved": float(np.abs(expected - start).max()),
    "off": float(np.abs(after(variant) - expected).max()),
}))
"""


@pytest.mark.parametrize(("variant", "steps"), [("engine", 1), ("fit", 2)])
def test_engine_and_fit_take_the_compiled_step(variant, steps, run_python):
    answer = run_python(ENGINE, MANYGPU_DEVICES="3", VARIANT=variant, STEPS=str(steps))
    assert answer.returncode == 0, answer.stderr
    found = stepbench.json.loads(answer.stdout.splitlines()[-1])
    assert found["off"] <= 1e-6  # float32: rounding of values about 1, a few of them
    assert found["moved"] > 1e-3  # a step forgotten would be seen
