"""The table of strategies: its rows, what they need, and how one more is added."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import tensorflow as tf

from manygpu import __main__ as command
from manygpu import scratch
from manygpu.prove.judge import judge
from manygpu.prove.steps import BY_NAME
from manygpu.trainings.at_work import maker
from manygpu.trainings.contract import Training
from manygpu.trainings.table import (
    ALWAYS,
    JUDGED,
    NAMED,
    STRATEGIES,
    Judged,
    Strategy,
    judged,
    known,
    unfit,
)
from manygpu.trainings.task import Task


def test_each_row_can_be_made_and_names_what_is_there():
    for name, row in STRATEGIES.items():
        assert callable(maker(row.make)) if row.make else row.judged.subject, name
        assert unfit(row, {}, 1) == "", name
        assert all(hasattr(scratch, one) for one in row.built.split()), name
        assert row.beside in {"", *known()}, name
        assert row.when in (ALWAYS, NAMED) or (row.when == JUDGED and row.judged), name
    assert len({row.title for row in STRATEGIES.values()}) == len(STRATEGIES)
    names = [row.judged.name for row in STRATEGIES.values() if row.judged]
    assert len({*names}) == len(names) and list(judged()) == names


def test_the_table_is_read_without_tensorflow():
    program = "import sys, manygpu.trainings.table; print('tensorflow' in sys.modules)"
    words = [sys.executable, "-c", program]
    answer = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert answer.stdout.split() == ["False"], answer.stderr


@pytest.mark.parametrize(
    ("name", "about", "devices", "said"),
    [
        ("layerwise", {"model": "mine:make"}, 2, "the book has it for its own LeNet"),
        ("network", {"uncut": "it is no chain"}, 2, "it is no chain"),
        ("network", {"layers": ["a"]}, 2, "it has one layer, so there is no cut"),
        ("network", {"layers": ["a"]}, 1, ""),
        ("data", {"samples": 2}, 3, "a batch of 2 can't be cut into 3 parts"),
        ("data", {"samples": 3}, 3, ""),
        ("data", {"own_step": True}, 2, "a train_step of its own"),
        ("data", {"own_step": True}, 1, ""),
        ("one", {"own_step": True, "uncut": "no"}, 1, ""),
        ("fit", {"own_step": True}, 2, ""),
        ("apart", {"own_step": True}, 2, ""),
        ("engine", {"own_loss": True}, 2, "compute_loss of its own"),
        ("engine", {"own_loss": True}, 1, ""),
        ("data", {"own_loss": True}, 2, ""),
        ("fit", {"model": "chain"}, 2, "no Keras model"),
        ("data", {"own_step": True, "assigns": "it assigns"}, 2, "it assigns"),
        ("data", {"fixed": True, "samples": 8}, 2, "a batch of 8 and no other"),
        ("data", {"fixed": True, "samples": 8}, 1, ""),
        ("network", {"fixed": True, "samples": 8}, 2, ""),
        ("pipeline", {}, 2, ""),
    ],
)
def test_what_a_strategy_needs_is_asked_of_a_model(name, about, devices, said):
    found = unfit(STRATEGIES[name], about, devices)
    assert said in found and bool(said) == bool(found)


# One more strategy: this function and its row are all that it takes


def half_batches(task: Task, devices: list[str]) -> Training:
    """The step of one device in two halves of the batch, for a test."""
    params = [tf.Variable(p) for p in task.model.params]

    def take(X, y):
        loss, sums = scratch.accumulate(X, y, params, 2, task.gradients)
        scratch.sgd(params, sums, task.lr / y.shape[0])
        return loss / y.shape[0]

    return Training(take, lambda: [params], stored=lambda: params)


@pytest.fixture
def halves(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a row more."""
    judged = Judged("in halves", most_devices=1, least_samples=2)
    title, make = "one device, halves", f"{__name__}:half_batches"
    row = Strategy(title, make, alone=True, judged=judged)
    monkeypatch.setitem(STRATEGIES, "halves", row)
    return "halves"


def test_a_strategy_is_one_function_and_one_row(halves, monkeypatch, tmp_path, capsys):
    """By what `manygpu bench` calls: known, timed, compared, shown, read again."""
    monkeypatch.chdir(tmp_path)
    words = f"--strategy {halves} --batch 8 --rounds 1 --steps 1 --json a.json"
    assert command.main(["bench", *words.split()]) == 0
    shown = [line for line in capsys.readouterr().out.splitlines() if halves in line]
    assert shown[0].startswith("one device, halves") and shown[0].split()[-1] == "yes"
    runs = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["runs"]
    assert [run["strategy"] for run in runs] == ["one", halves]
    assert runs[1]["facts"]["distance"] <= runs[1]["facts"]["tolerance"]
    assert command.main(["report", "a.json"]) == 0
    assert "one device, halves" in (tmp_path / "a.html").read_text(encoding="utf-8")
    with pytest.raises(SystemExit):
        command.main(["bench", "--help"])
    assert halves in capsys.readouterr().out


def test_the_same_row_is_timed_judged_and_compared_with_one_device(halves):
    assert halves in known()
    verdict = judge(BY_NAME["in halves"]("in halves"))
    assert verdict.right, str(verdict)
    # Not above: that asks for eight devices, and a process of `bench` has its own.
    from tests.unit.trainings import test_one_device

    assert halves in test_one_device.rows()
    test_one_device.test_every_step_is_that_of_one_device(halves)
