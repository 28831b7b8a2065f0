"""Timing in processes of their own: cases, turns, who can't run, and tiny real runs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import tensorflow as tf

from manygpu.bench import Case, compare, ideal, run, serve
from manygpu.bench import result as results
from manygpu.bench.run import survey
from manygpu.bench.serve import reason
from manygpu.trainings.table import SAMPLES, STRATEGIES, UnfitError
from tests import refusals
from tests.refusals import good
from tests.unit.helpers import EIGHT

ASKED = {"model": "lenet", "source": "", "devices": 2, "batch": 8, "steps": 3}
ASKED |= {"kernels": "0", "strategies": ["one", "data", "engine", "pipeline"]}
ABOUT = {"samples": 8, "bytes": 100, "parameters": 25, "layers": [], "uncut": ""}
FACTS = {"distance": 0.0, "tolerance": 1e-5}

# Cases


REFUSED = [
    *good(Case, strategy="eager", devices=1).refuses(
        ("strategy", ["fast"], ValueError, "strategy must be one of", "eager", "{!r}"),
        ("devices", [0], ValueError, "devices must be at least 1, got 0"),
        ("devices", [1.5, True], TypeError, "devices must be a whole number, got {!r}"),
        ("inter_op", [0], ValueError),
        ("inter_op", ["2"], TypeError),
        ("batch", [0], ValueError),
    ),
    # Before any process starts: nobody could start a process of None.
    *good(compare, cases={"one": None}).refuses(
        *((name, [0], ValueError) for name in ("rounds", "steps")),
        *((name, [1.5], TypeError) for name in ("rounds", "steps")),
    ),
    *good(ideal, devices=1).refuses(("micro_batches", [0], ValueError)),
]


@pytest.mark.parametrize("refusal", REFUSED, ids=str)
def test_what_nobody_can_time_is_refused(refusal):
    refusals.is_refused(refusal)


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


# compare


class Noted(AbstractContextManager):
    """In place of a worker: answers what was made up, and notes what it is asked."""

    def __init__(self, serve, case, *more, variables, name) -> None:
        self.case, self.variables, self.name = case, variables, name
        self.started.append(self)

    def __exit__(self, *_):
        self.turns.append(("ended", self.case.strategy))

    def send(self, question):
        self.question = question

    def receive(self, timeout_s=0):
        turn = (self.question, self.case.strategy)
        self.turns.append(turn)
        found = self.failing.get(turn)
        if isinstance(found, BaseException):
            raise found
        if found:
            return None, found
        return (dict(FACTS) if self.question == "facts" else self.seconds), ""

    def ask(self, question, timeout_s=0):
        self.send(question)
        return self.receive()[0]


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> type[Noted]:
    """Workers that note their turns; `failing` says which of these fail, and how."""
    noted = {"started": [], "turns": [], "failing": {}, "seconds": [0.5, 0.001, 0.002]}
    made = type("Workers", (Noted,), noted)
    monkeypatch.setattr(run, "Worker", made)
    monkeypatch.setattr(run, "_look", lambda _: dict(ABOUT))
    return made


def test_a_worker_gets_its_own_devices_and_threads(group):
    run.start(Case("eager", 3))
    run.start(Case("one", 1, inter_op=2, batch=8), TF_CPU="1")
    # None takes the reader's own variable away.
    assert [(one.name, one.variables) for one in group.started] == [
        (
            "eager on 3 devices, batch 256",
            {"MANYGPU_DEVICES": "3", "MANYGPU_INTER_OP": None},
        ),
        (
            "one on 1 device, batch 8",
            {"MANYGPU_DEVICES": "1", "MANYGPU_INTER_OP": "2", "TF_CPU": "1"},
        ),
    ]


def test_cases_warm_up_then_take_turns_and_the_median_counts(group):
    cases = {"a": Case("one", 1), "b": Case("data", 2)}
    assert compare({}, rounds=1, steps=1) == {} and not group.started
    assert compare(cases, rounds=2, steps=3) == {"a": [2.0, 2.0], "b": [2.0, 2.0]}
    warm, turn = [[(steps, n) for n in ("one", "data")] for steps in (run.WARMUP, 3)]
    assert group.turns[:6] == warm + turn + turn and run.WARMUP >= 1
    assert group.turns[6:] == [("ended", "data"), ("ended", "one")]


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
    task = SimpleNamespace(batch=(3, 4))
    step = SimpleNamespace(take=lambda X, y: now.append(now.pop() + X))
    assert serve._seconds(SimpleNamespace(task=task, training=step)) == 3


def test_memory_that_nobody_counts_is_not_made_up(monkeypatch):
    monkeypatch.setattr(serve, "peak_bytes", Mock(side_effect=ValueError))
    task = serve.models.load("lenet", 4)
    found = serve.facts_of(serve.timed(STRATEGIES["data"], task, EIGHT[:2]))
    assert "memory" not in found and found["distance"] <= 1e-5


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (UnfitError("it has one layer"), "it has one layer"),
        (tf.errors.ResourceExhaustedError(None, None, "OOM"), "a device's memory"),
        (TypeError("not so\nand more"), "TypeError: not so"),
        (KeyError(), "KeyError: "),
        (ValueError("Graph error:\n\nat x\nNo feed\n\t [[{{node x}}]]"), "or: No feed"),
        (ValueError("A:\n\nonly supports singleton tf.Variables"), "SeedGenerator"),
    ],
)
def test_a_reason_is_one_line(error, words):
    assert words in reason(error) and "\n" not in reason(error)


# survey


def surveyed(made, rounds=2):
    kept, told = [], []
    survey(made, rounds, lambda: kept.append(made.rounds), told.append)
    return kept, told


def test_all_are_looked_into_then_warmed_up_then_take_turns(group):
    made = results.begin(ASKED)
    kept, told = surveyed(made)
    names = ASKED["strategies"]
    asked = [turn for turn in group.turns if turn[0] != "ended"]
    questions = ["facts", run.WARMUP, 3, 3]
    assert asked == [(question, name) for question in questions for name in names]
    assert made.times == dict.fromkeys(names, [2.0, 2.0])  # the median, in ms
    assert kept == [0, 0, 0, 0, 0, 1, 2]
    assert told[0] == "looks at the model" and told[-1] == "round 2 of 2: pipeline"
    assert [name for what, name in group.turns if what == "ended"] == names[::-1]
    # An engine is said to send what the same sum does.
    assert made.rows["engine"].facts["sent"] == 2 * 100
    assert "sent" not in made.rows["data"].facts


def test_who_can_not_run_says_why_and_the_others_go_on(group, monkeypatch):
    group.failing[("facts", "data")] = "no room"
    group.failing[(3, "engine")] = RuntimeError("died\nof it")
    monkeypatch.setattr(run, "_look", lambda _: {**ABOUT, "uncut": "no chain"})
    made = results.begin(ASKED)
    surveyed(made)
    why = [row.cannot for row in made.rows.values()]
    assert why == ["", "no room", "died", "no chain"]
    assert made.times == {"one": [2.0, 2.0]}
    assert (3, "data") not in group.turns and group.turns.count((3, "engine")) == 1
    assert len(group.started) == 3  # the pipeline needs no process to say so


def test_a_second_start_takes_only_the_rounds_that_are_missing(group):
    made = results.begin(ASKED)
    group.failing[(3, "engine")] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        surveyed(made)
    assert [what for what, _ in group.turns].count("ended") == 4
    assert made.rounds == 0
    group.failing.clear()
    group.turns.clear()
    group.seconds = [1e-3, 9e-3]
    surveyed(made)
    assert all(what != "facts" for what, _ in group.turns)
    # Of two steps, which the command takes if nothing else is said, it is the middle.
    middle = pytest.approx([5.0, 5.0])
    assert made.times == dict.fromkeys(ASKED["strategies"], middle)
    group.turns.clear()
    surveyed(made)
    assert group.turns == [] and len(group.started) == 8  # nothing is left to do


def test_a_row_is_a_case_with_its_model_batch_seconds_and_threads(group, monkeypatch):
    about = {**ABOUT, "layers": [["a", 5.0], ["b", 1.0]]}
    monkeypatch.setattr(run, "_look", lambda _: about)
    asked = {"model": "mine:make", "strategies": ["one", "threads"]}
    surveyed(results.begin({**ASKED, **asked}))
    assert [worker.case for worker in group.started] == [
        Case("one", 1, None, 8, "mine:make", (5.0, 1.0)),
        Case("threads", 1, 2, 8, "mine:make", (5.0, 1.0)),
    ]
    assert all(
        one.variables["TF_CPU_ALLOCATOR_USE_BFC"] == "true" for one in group.started
    )


def test_a_model_that_can_not_be_had_says_why():
    """Its process does; so does one that dies of it."""
    asked = {"model": "manygpu.bench.none:make", "batch": 4}
    with pytest.raises(UnfitError, match="No module named 'manygpu.bench.none'"):
        survey(results.begin({**ASKED, **asked}), 1, lambda: None, lambda _: None)
