"""Timing kinds of steps in processes of their own: input, deaths, a tiny run."""

from __future__ import annotations

import pytest
import tensorflow as tf

import manygpu
from manygpu import bench, scratch
from manygpu.bench import Case, compare, ratio, strategies
from manygpu.workers import Worker

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

    monkeypatch.setattr(bench, "Worker", refuse)


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
    started = []

    def record(*arguments, **named):
        started.append(Worker(*arguments, **named))
        return started[-1]

    monkeypatch.setattr(bench, "Worker", record)
    cases = {"one": Case("compiled", 1), "two": Case("eager", 2)}
    times = compare(cases, rounds=1, steps=1)
    assert list(times) == ["one", "two"]
    assert all(len(rounds) == 1 and rounds[0] > 0 for rounds in times.values())
    assert len(started) == 2
    assert all(worker.process.exitcode is not None for worker in started)


def test_a_worker_gets_its_own_devices_and_threads(monkeypatch):
    seen = {}

    def look(serve, case, variables, name):
        seen[name] = variables["MANYGPU_DEVICES"], variables["MANYGPU_INTER_OP"]

    monkeypatch.setattr(bench, "Worker", look)
    bench._worker(Case("eager", 3))
    bench._worker(Case("compiled", 1, inter_op=2, batch=8))
    # None takes the reader's own variable away.
    assert seen == {
        "eager on 3 device(s), batch 256": ("3", None),
        "compiled on 1 device(s), batch 8": ("1", "2"),
    }


def test_a_step_that_fails_is_named_and_says_why():
    with (
        bench._worker(Case("compiled", 2, batch=1)) as worker,  # no sample for one
        pytest.raises(RuntimeError, match=r"compiled on 2 device\(s\), batch 1 failed"),
    ):
        worker.ask(1)


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


def test_a_worker_answers_a_number_with_so_many_seconds():
    with bench._worker(Case("compiled", 2, batch=16)) as worker:
        answers = [worker.ask(2), worker.ask(1)]
    assert [len(seconds) for seconds in answers] == [2, 1]
    assert all(s > 0 for seconds in answers for s in seconds)


def test_a_worker_answers_check_with_what_the_first_step_was():
    with bench._worker(Case("apart", 2, batch=12), count_memory=True) as worker:
        found = worker.ask("check")
    assert found["off"] > 0.1  # replicas that never communicate
    assert len(found["held"]) == 2 and len(set(found["held"].values())) == 1
    assert found["peak"] > sum(found["held"].values())  # gradients, at least


def test_memory_that_nobody_counts_is_not_made_up(monkeypatch):
    def refuse(work, device):
        raise ValueError("its allocator doesn't count")

    monkeypatch.setattr(scratch, "peak_bytes", refuse)
    devices = manygpu.devices(8, quiet=True)[:2]
    X, y = tf.ones((4, 28, 28, 1)), tf.zeros(4, tf.int32)
    running = strategies.STRATEGIES["compiled"](devices)
    found = bench._check(running, X, y, devices)
    assert found["peak"] is None and found["off"] <= 1e-5


def test_side_by_side_checks_and_times_each_case():
    cases = {"one": Case("compiled", 1, batch=8), "apart": Case("apart", 2, batch=8)}
    found = bench.side_by_side(cases, rounds=2, steps=1)
    assert list(found) == ["one", "apart"]
    assert all(len(m.times) == 2 and min(m.times) > 0 for m in found.values())
    assert found["one"].off <= 1e-5 < found["apart"].off
    assert len(found["one"].held) == 1 and len(found["apart"].held) == 2
