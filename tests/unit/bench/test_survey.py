"""A survey: who cannot run says why and leaves; the others go on; a tiny real one."""

from __future__ import annotations

import pytest
import tensorflow as tf

from manygpu import comparison as compared
from manygpu.bench import survey as module
from manygpu.bench.running import UnfitError
from manygpu.bench.survey import reason, serve_safely, survey
from manygpu.choosing import presets

ASKED = {"model": "lenet", "source": "", "devices": 2, "batch": 8, "steps": 3}
ASKED |= {"kernels": "0", "strategies": ["one", "data", "engine", "pipeline"]}
ABOUT = {"samples": 8, "bytes": 100, "parameters": 25, "layers": [], "uncut": ""}
FACTS = {"distance": 0.0, "tolerance": 1e-5}


class Group:
    """In place of workers: answers what was made up, and notes whom it is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fail: dict) -> None:
        self.fail, self.turns, self.started = fail, [], []
        monkeypatch.setattr(module, "_worker", lambda _, row: Member(self, row))
        monkeypatch.setattr(module, "_look", lambda _: dict(ABOUT))


class Member:
    def __init__(self, group: Group, row) -> None:
        self.group, self.name = group, row.strategy
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
    group, made = Group(monkeypatch, {}), compared.begin(ASKED)
    kept, told = surveyed(made)
    names = ASKED["strategies"]
    asked = [turn for turn in group.turns if turn[0] != "ended"]
    questions = ["facts", module.WARMUP, 3, 3]
    assert asked == [(question, name) for question in questions for name in names]
    assert made.times == dict.fromkeys(names, [2.0, 2.0])  # the median, in ms
    assert kept == [0, 0, 0, 0, 1, 2]
    assert [done for _, done, _ in told] == [0, *range(16)] and told[-1][2] == 16
    assert [name for what, name in group.turns if what == "ended"] == names[::-1]


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
    monkeypatch.setattr(module, "WARMUP", 7)
    made = compared.begin({**ASKED, "steps": steps})
    surveyed(made, 1)
    assert made.rows["one"].times == pytest.approx([ms])


def test_an_engine_is_said_to_send_what_the_same_sum_does(monkeypatch):
    Group(monkeypatch, {})
    made = compared.begin(ASKED)
    surveyed(made, 1)
    assert made.rows["engine"].facts["sent"] == 2 * 100
    assert "sent" not in made.rows["data"].facts


def test_who_can_not_run_says_why_and_the_others_go_on(monkeypatch):
    fail = {("facts", "data"): "no chain", (3, "engine"): RuntimeError("died\nof it")}
    group, made = Group(monkeypatch, fail), compared.begin(ASKED)
    surveyed(made)
    assert made.rows["data"].cannot == "no chain"
    assert made.rows["engine"].cannot == "died"
    assert made.times == {"one": [2.0, 2.0], "pipeline": [2.0, 2.0]}
    assert (3, "data") not in group.turns and group.turns.count((3, "engine")) == 1


def test_a_second_start_takes_only_the_rounds_that_are_missing(monkeypatch):
    made = compared.begin(ASKED)
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
    group, made = Group(monkeypatch, {}), compared.begin(ASKED)
    monkeypatch.setattr(module, "_look", lambda _: {**ABOUT, "uncut": "no chain"})
    surveyed(made)
    assert made.rows["pipeline"].cannot == "no chain"
    assert "pipeline" not in group.started and made.rounds == 2


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

    answer = serve_safely(make, 6)
    assert answer(3) == (2.0, "")
    assert answer(0) == (None, "ZeroDivisionError: division by zero")
    assert answer(2) == (3.0, "")


def test_cuts_are_where_the_layers_seconds_are_most_even():
    made = compared.begin({**ASKED, "model": "mine:make"})
    layers = [["a", 5.0], ["b", 1.0], ["c", 1.0], ["d", 3.0]]
    made.experiment["about"] = {**ABOUT, "layers": layers}
    case = module._case(made.experiment, made.rows["pipeline"])
    assert case.cuts == (1,) and case.batch == 8 and case.model == "mine:make"
    assert module._case(made.experiment, made.rows["one"]).cuts == ()


def test_the_rule_s_lenet_is_the_one_that_is_timed():
    """What it counts by shapes is what the graph of its layers says."""
    asked, model = module._look_at_lenet(256)["asked"], presets.MODELS["LeNet"]
    assert asked == {name: getattr(model, name) for name in asked}
    assert module._look_at_lenet(256)["parameters"] == model.parameters


def test_threads_are_given_to_one_device():
    made = compared.begin({**ASKED, "strategies": ["one", "threads"]})
    made.experiment["about"] = dict(ABOUT)
    one, threads = (module._case(made.experiment, row) for row in made.rows.values())
    assert one.inter_op is None and threads.inter_op == 2
    assert one.devices == threads.devices == 1 and one.variant == threads.variant


def test_real_processes_fill_a_comparison():
    names = ["one", "accumulation", "pipeline"]
    # Of fewer images the kernels' scratch space is as large as all that is kept.
    made = compared.begin({**ASKED, "batch": 256, "strategies": names})
    survey(made, 1, lambda: None, lambda *_: None)
    about = made.experiment["about"]
    assert about["samples"] == 256 and about["unknown"] == {}
    assert about["asked"]["layers"] == 4 and about["asked"]["flops"] > 1e6
    assert [row.verdict for row in made.rows.values()] == ["yes"] * 3
    assert made.rounds == 1 and min(sum(made.times.values(), [])) > 0
    rows = made.rows
    assert rows["pipeline"].facts["sent"] > 0 == rows["one"].facts["sent"]
    memory = {name: row.facts["memory"] for name, row in rows.items()}
    assert memory["accumulation"] < 0.8 * memory["one"]  # equal ones differ by chance
