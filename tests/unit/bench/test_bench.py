"""Timing kinds of steps in processes of their own: input, turns, deaths, tiny runs."""

from __future__ import annotations

import pytest

from manygpu import bench
from manygpu.bench import Case, chains, compare, ratio, strategies
from manygpu.bench.running import Running
from manygpu.processes.workers import Worker
from tests.unit.helpers import EIGHT

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


@pytest.mark.parametrize("variant", ["eager", "gpipe"])
def test_a_case_has_its_batch_or_that_of_its_kind(variant):
    kinds = {"eager": strategies.BATCH, "gpipe": chains.BATCH}
    assert Case(variant, 1).samples == kinds[variant]
    assert Case(variant, 1, batch=512).samples == 512
    with pytest.raises(ValueError, match="batch"):
        Case(variant, 1, batch=0)


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
        seen[name] = variables

    monkeypatch.setattr(bench, "Worker", look)
    bench._worker(Case("eager", 3))
    bench._worker(Case("compiled", 1, inter_op=2, batch=8))
    # None takes the reader's own variable away.
    assert seen == {
        "eager on 3 device(s), batch 256": {
            "MANYGPU_DEVICES": "3",
            "MANYGPU_INTER_OP": None,
        },
        "compiled on 1 device(s), batch 8": {
            "MANYGPU_DEVICES": "1",
            "MANYGPU_INTER_OP": "2",
        },
    }


def test_a_step_that_fails_is_named_and_says_why():
    with (
        bench._worker(Case("compiled", 2, batch=1)) as worker,  # no sample for one
        pytest.raises(RuntimeError, match=r"compiled on 2 device\(s\), batch 1 failed"),
    ):
        worker.ask(1)


class Clock:
    """A worker that answers with seconds made up, and notes what it is asked."""

    def __init__(self, name: str, notes: list) -> None:
        self.name, self.notes = name, notes

    def ask(self, steps: int) -> list[float]:
        self.notes.append((self.name, steps))
        return [1.0, 2.0, 9.0]


def test_cases_warm_up_then_take_turns_and_the_median_counts():
    notes = []
    workers = {name: Clock(name, notes) for name in "ab"}
    times = bench._take_turns(workers, rounds=2, steps=3)
    assert times == {"a": [2e3, 2e3], "b": [2e3, 2e3]}
    warm, turn = [[(name, steps) for name in "ab"] for steps in (bench.WARMUP, 3)]
    assert notes == warm + turn + turn
    assert bench.WARMUP >= 1


def test_what_is_timed_is_the_step(monkeypatch):
    """By a clock that only the step moves on."""
    now = [5.0]
    monkeypatch.setattr(bench.time, "perf_counter", lambda: now[0])

    def take(X, y):
        now[0] += 3

    running = Running(take, None, None, None, None)
    assert bench._seconds(running, None, None) == 3


# ratio


def test_the_ratio_compares_within_a_round():
    times = {"a": [1.0, 20.0, 3.0], "b": [2.0, 10.0, 3.0]}
    assert ratio(times, "a", "b") == (1.0, 0.5, 2.0)
    assert ratio(times, "b", "a") == (1.0, 0.5, 2.0)
    assert ratio(times, "a", "a") == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ({"a": [1.0], "b": [1.0, 2.0]}, "shorter|longer"),
        ({"a": [1.0]}, r"'b' was not timed: choose from \['a'\]"),
        ({"a": [], "b": []}, "'b' must have times above 0, got"),
        ({"a": [1.0], "b": [0.0]}, "'b' must have times above 0, got"),
    ],
)
def test_times_without_a_ratio_are_refused(times, message):
    with pytest.raises(ValueError, match=message):
        ratio(times, "a", "b")


# What the processes time


def test_a_worker_answers_a_number_with_so_many_seconds():
    with bench._worker(Case("compiled", 2, batch=16)) as worker:
        answers = [worker.ask(2), worker.ask(1)]
    assert [len(seconds) for seconds in answers] == [2, 1]
    assert all(s > 0 for seconds in answers for s in seconds)


def test_a_worker_answers_facts_with_what_the_first_step_was(monkeypatch):
    monkeypatch.setenv("TF_CPU_ALLOCATOR_USE_BFC", "true")
    with bench._worker(Case("apart", 2, batch=12)) as worker:
        found = worker.ask("facts")
    assert found["distance"] > 0.1  # replicas that never communicate
    assert found["memory"] > found["held"] / 2  # a device's part, and its gradients


def test_memory_that_nobody_counts_is_not_made_up(monkeypatch):
    def refuse(work, device):
        raise ValueError("its allocator doesn't count")

    monkeypatch.setattr(bench, "peak_bytes", refuse)
    running = strategies.STRATEGIES["compiled"](EIGHT[:2])
    found = bench.facts_of(running, *running.batch(4), EIGHT[:2])
    assert "memory" not in found and found["distance"] <= 1e-5


def test_a_chain_that_cannot_be_cut_into_micro_batches_says_so():
    with (
        bench._worker(Case("gpipe", 2, batch=3)) as worker,
        pytest.raises(RuntimeError, match="parts is .* for 3 samples"),
    ):
        worker.ask(1)
