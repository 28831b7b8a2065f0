"""Timing in processes of their own: cases, turns, who can't run, and tiny real runs."""

from __future__ import annotations

import pytest
import tensorflow as tf

from manygpu.bench import Case, compare, ideal, run, serve, strategies
from manygpu.bench import result as results
from manygpu.bench.run import survey
from manygpu.bench.serve import reason, safely
from manygpu.bench.table import SAMPLES, STRATEGIES, UnfitError
from manygpu.processes.workers import Worker
from tests.unit.helpers import EIGHT

# Cases


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"strategy": "fast"}, ValueError, "strategy must be one of.*eager.*'fast'"),
        ({"devices": 0}, ValueError, "devices must be at least 1, got 0"),
        ({"devices": 1.5}, TypeError, "devices must be a whole number, got 1.5"),
        ({"devices": True}, TypeError, "devices"),
        ({"inter_op": 0}, ValueError, "inter_op"),
        ({"inter_op": "2"}, TypeError, "inter_op"),
        ({"batch": 0}, ValueError, "batch"),
    ],
)
def test_a_case_that_nobody_can_time_is_refused(wrong, error, message):
    with pytest.raises(error, match=message):
        Case(**{"strategy": "eager", "devices": 1, **wrong})


@pytest.mark.parametrize("model", ["lenet", "chain"])
def test_a_case_has_its_batch_or_that_of_its_model(model):
    assert Case("one", 1, model=model).samples == SAMPLES[model]
    assert Case("one", 1, model=model, batch=512).samples == 512
    assert Case("one", 1, model="mine:make").samples is None


@pytest.mark.parametrize(
    ("devices", "micro_batches", "share"),
    [(1, 16, 1), (2, 16, 17 / 32), (4, 1, 1), (4, 4, 7 / 16)],
)
def test_the_ideal_is_that_of_equal_stages(devices, micro_batches, share):
    assert ideal(devices, micro_batches) == pytest.approx(share)
    with pytest.raises(ValueError, match="micro_batches"):
        ideal(devices, 0)


# compare


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Worker]:
    """The processes that were started."""
    workers: list[Worker] = []

    def record(*arguments, **named):
        workers.append(Worker(*arguments, **named))
        return workers[-1]

    monkeypatch.setattr(run, "Worker", record)
    return workers


@pytest.mark.parametrize("name", ["rounds", "steps"])
@pytest.mark.parametrize(("bad", "kind"), [(0, ValueError), (1.5, TypeError)])
def test_a_bad_count_is_refused_before_any_process_starts(name, bad, kind, started):
    with pytest.raises(kind, match=name):
        compare({"one": Case("eager", 1)}, **{name: bad})
    assert compare({}, rounds=1, steps=1) == {} and not started


def test_a_tiny_run_gives_a_positive_number_a_round_and_leaves_no_process(started):
    cases = {"one": Case("one", 1, batch=16), "two": Case("eager", 2, batch=16)}
    times = compare(cases, rounds=1, steps=1)
    assert list(times) == ["one", "two"]
    assert all(len(rounds) == 1 and rounds[0] > 0 for rounds in times.values())
    assert len(started) == 2
    assert all(worker.process.exitcode is not None for worker in started)


def test_a_worker_gets_its_own_devices_and_threads(monkeypatch):
    seen = {}

    def look(serve, *case, variables, name):
        seen[name] = variables

    monkeypatch.setattr(run, "Worker", look)
    run.start(Case("eager", 3))
    run.start(Case("one", 1, inter_op=2, batch=8))
    # None takes the reader's own variable away.
    assert seen == {
        "eager on 3 device(s), batch 256": {
            "MANYGPU_DEVICES": "3",
            "MANYGPU_INTER_OP": None,
        },
        "one on 1 device(s), batch 8": {
            "MANYGPU_DEVICES": "1",
            "MANYGPU_INTER_OP": "2",
        },
    }


def test_a_case_that_fails_is_named_and_says_why():
    with (
        run.start(Case("data", 2, batch=1)) as worker,  # no sample for one
        pytest.raises(RuntimeError, match=r"data on 2 device\(s\), batch 1 failed.*"),
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
    times = run._take_turns(workers, rounds=2, steps=3)
    assert times == {"a": [2e3, 2e3], "b": [2e3, 2e3]}
    warm, turn = [[(name, steps) for name in "ab"] for steps in (run.WARMUP, 3)]
    assert notes == warm + turn + turn
    assert run.WARMUP >= 1


# What the processes do


def test_a_worker_answers_seconds_and_facts(monkeypatch):
    monkeypatch.setenv("TF_CPU_ALLOCATOR_USE_BFC", "true")
    with run.start(Case("apart", 2, batch=12)) as worker:
        found = worker.ask("facts")
        answers = [worker.ask(2), worker.ask(1)]
    assert found["distance"] > 0.1  # replicas that never communicate
    assert found["memory"] > found["held"] / 2  # a device's part, and its gradients
    assert [len(seconds) for seconds in answers] == [2, 1]
    assert all(s > 0 for seconds in answers for s in seconds)


def test_what_is_timed_is_the_step(monkeypatch):
    """By a clock that only the step moves on."""
    now = [5.0]
    monkeypatch.setattr(serve.time, "perf_counter", lambda: now[0])

    class Running:
        class task:  # noqa: N801
            batch = 3, 4

        def take(self, X, y):
            now[0] += X

    assert serve._seconds(Running()) == 3


def test_memory_that_nobody_counts_is_not_made_up(monkeypatch):
    def refuse(work, device):
        raise ValueError("its allocator doesn't count")

    monkeypatch.setattr(serve, "peak_bytes", refuse)
    made = strategies.set_up(
        STRATEGIES["data"], serve.models.load("lenet", 4), EIGHT[:2]
    )
    found = serve.facts_of(made, STRATEGIES["data"], EIGHT[:2])
    assert "memory" not in found and found["distance"] <= 1e-5


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (UnfitError("it has one layer"), "it has one layer"),
        (tf.errors.ResourceExhaustedError(None, None, "OOM"), "a device's memory"),
        (TypeError("not so\nand more"), "TypeError: not so"),
        (KeyError(), "KeyError: "),
    ],
)
def test_a_reason_is_one_line(error, words):
    assert words in reason(error) and "\n" not in reason(error)


def test_a_worker_that_fails_answers_why_and_is_asked_again():
    def make(base):
        return lambda question: base / question

    answer = safely(make, 6)
    assert answer(3) == (2.0, "")
    assert answer(0) == (None, "ZeroDivisionError: division by zero")
    assert answer(2) == (3.0, "")


# survey


ASKED = {"model": "lenet", "source": "", "devices": 2, "batch": 8, "steps": 3}
ASKED |= {"kernels": "0", "strategies": ["one", "data", "engine", "pipeline"]}
ABOUT = {"samples": 8, "bytes": 100, "parameters": 25, "layers": [], "uncut": ""}
FACTS = {"distance": 0.0, "tolerance": 1e-5}


class Group:
    """In place of workers: answers what was made up, and notes whom it is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fail: dict, **about) -> None:
        self.fail, self.turns, self.started = fail, [], []
        monkeypatch.setattr(run, "start", lambda case, *_, **__: Member(self, case))
        monkeypatch.setattr(run, "_look", lambda _: {**ABOUT, **about})


class Member:
    def __init__(self, group: Group, case: Case) -> None:
        self.group, self.name = group, case.strategy
        group.started.append(self.name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.group.turns.append(("ended", self.name))

    def send(self, question):
        self.question = question

    def receive(self):
        return self.ask(self.question)

    def ask(self, question):
        turn = (question, self.name)
        self.group.turns.append(turn)
        found = self.group.fail.get((question, self.name))
        if isinstance(found, BaseException):
            raise found
        if found:
            return None, found
        return (dict(FACTS) if question == "facts" else [0.5, 0.001, 0.002]), ""


def surveyed(made, rounds=2):
    kept, told = [], []
    survey(made, rounds, lambda: kept.append(made.rounds), lambda *w: told.append(w))
    return kept, told


def test_all_are_looked_into_then_warmed_up_then_take_turns(monkeypatch):
    group, made = Group(monkeypatch, {}), results.begin(ASKED)
    kept, told = surveyed(made)
    names = ASKED["strategies"]
    asked = [turn for turn in group.turns if turn[0] != "ended"]
    questions = ["facts", run.WARMUP, 3, 3]
    assert asked == [(question, name) for question in questions for name in names]
    assert made.times == dict.fromkeys(names, [2.0, 2.0])  # the median, in ms
    assert kept == [0, 0, 0, 0, 1, 2]
    assert [done for _, done, _ in told] == [0, *range(16)] and told[-1][2] == 16
    assert [name for what, name in group.turns if what == "ended"] == names[::-1]
    # An engine is said to send what the same sum does.
    assert made.rows["engine"].facts["sent"] == 2 * 100
    assert "sent" not in made.rows["data"].facts


@pytest.mark.parametrize(
    ("seconds", "ms"), [([1e-3, 9e-3], 5.0), ([9e-3, 1e-3, 2e-3], 2.0)]
)
def test_a_turn_is_the_median_of_its_steps(seconds, ms, monkeypatch):
    """Of two steps, which the command takes if nothing else is said, too."""
    Group(monkeypatch, {})
    steps = len(seconds)

    def found(self, question):
        return (seconds if question == steps else dict(FACTS)), ""

    monkeypatch.setattr(Member, "ask", found)
    monkeypatch.setattr(run, "WARMUP", 7)
    made = results.begin({**ASKED, "steps": steps})
    surveyed(made, 1)
    assert made.rows["one"].times == pytest.approx([ms])


def test_who_can_not_run_says_why_and_the_others_go_on(monkeypatch):
    fail = {("facts", "data"): "no room", (3, "engine"): RuntimeError("died\nof it")}
    group, made = Group(monkeypatch, fail), results.begin(ASKED)
    surveyed(made)
    assert made.rows["data"].cannot == "no room"
    assert made.rows["engine"].cannot == "died"
    assert made.times == {"one": [2.0, 2.0], "pipeline": [2.0, 2.0]}
    assert (3, "data") not in group.turns and group.turns.count((3, "engine")) == 1


def test_a_second_start_takes_only_the_rounds_that_are_missing(monkeypatch):
    made = results.begin(ASKED)
    group = Group(monkeypatch, {(3, "engine"): KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        surveyed(made)
    assert [name for what, name in group.turns if what == "ended"]
    assert made.rounds == 0
    group = Group(monkeypatch, {})
    surveyed(made)
    assert all(what != "facts" for what, _ in group.turns)
    assert all(len(times) == 2 for times in made.times.values())
    group = Group(monkeypatch, {})
    surveyed(made)
    assert group.turns == group.started == []  # nothing is left to do


def test_what_has_no_cut_needs_no_process_to_say_so(monkeypatch):
    group, made = Group(monkeypatch, {}, uncut="no chain"), results.begin(ASKED)
    surveyed(made)
    assert made.rows["pipeline"].cannot == "no chain"
    assert "pipeline" not in group.started and made.rounds == 2


def test_a_row_is_a_case_with_its_model_batch_seconds_and_threads():
    asked = {**ASKED, "model": "mine:make", "strategies": ["one", "threads"]}
    made = results.begin(asked)
    layers = [["a", 5.0], ["b", 1.0]]
    made.experiment["about"] = {**ABOUT, "layers": layers}
    one, threads = (run._case(made.experiment, row) for row in made.rows.values())
    assert one == Case("one", 1, None, 8, "mine:make", (5.0, 1.0))
    assert threads == Case("threads", 1, 2, 8, "mine:make", (5.0, 1.0))
    assert STRATEGIES["one"].make == STRATEGIES["threads"].make


def test_real_processes_fill_a_comparison():
    names = ["one", "accumulation", "pipeline"]
    # Of fewer images the kernels' scratch space is as large as all that is kept.
    made = results.begin({**ASKED, "batch": 256, "strategies": names})
    survey(made, 1, lambda: None, lambda *_: None)
    about = made.experiment["about"]
    assert about["samples"] == 256
    assert about["asked"]["layers"] == 4 and about["asked"]["flops"] > 1e6
    assert [row.verdict for row in made.rows.values()] == ["yes"] * 3
    assert made.rounds == 1 and min(sum(made.times.values(), [])) > 0
    rows = made.rows
    assert rows["pipeline"].facts["sent"] > 0 == rows["one"].facts["sent"]
    memory = {name: row.facts["memory"] for name, row in rows.items()}
    assert memory["accumulation"] < 0.8 * memory["one"]  # equal ones differ by chance
