"""The table of strategies: its rows, what they need, and how one more is added."""

from __future__ import annotations

import json

import pytest
import tensorflow as tf

from manygpu import __main__ as command
from manygpu import scratch
from manygpu.bench import strategies
from manygpu.bench.contract import Running, Task
from manygpu.bench.table import STRATEGIES, Strategy, known, unfit


def test_each_row_can_be_made_and_names_what_is_there():
    for name, row in STRATEGIES.items():
        assert callable(getattr(strategies, row.make)), name
        assert unfit(row, {}, 1) == "", name
        assert all(hasattr(scratch, one) for one in row.built.split()), name
        assert row.beside in {"", *known()}, name
    assert len({row.title for row in STRATEGIES.values()}) == len(STRATEGIES)


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
        ("pipeline", {}, 2, ""),
    ],
)
def test_what_a_strategy_needs_is_asked_of_a_model(name, about, devices, said):
    found = unfit(STRATEGIES[name], about, devices)
    assert said in found and bool(said) == bool(found)


# One more strategy: this function and its row are all that it takes


def make_half_batches(task: Task, devices: list[str]) -> Running:
    """The step of one device in two halves of the batch, for a test."""
    params = [tf.Variable(p) for p in task.model.params]

    def take(X, y):
        _, sums = scratch.accumulate(X, y, params, 2, task.gradients)
        scratch.sgd(params, sums, task.lr / len(y))

    return Running(task, take, lambda: [p.numpy() for p in params], lambda: params)


def test_a_strategy_is_one_function_and_one_row(monkeypatch, tmp_path, capsys):
    """By what `manygpu bench` calls: known, timed, compared, shown, read again."""
    row = Strategy("one device, halves", f"{__name__}:make_half_batches", alone=True)
    monkeypatch.setitem(STRATEGIES, "halves", row)
    monkeypatch.chdir(tmp_path)
    words = "--strategy halves --batch 8 --rounds 1 --steps 1 --json a.json"
    assert command.main(["bench", *words.split()]) == 0
    shown = [line for line in capsys.readouterr().out.splitlines() if "halves" in line]
    assert shown[0].startswith("one device, halves") and shown[0].split()[-1] == "yes"
    runs = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["runs"]
    assert [run["strategy"] for run in runs] == ["one", "halves"]
    assert runs[1]["facts"]["distance"] <= runs[1]["facts"]["tolerance"]
    assert command.main(["report", "a.json"]) == 0
    assert "one device, halves" in (tmp_path / "a.html").read_text(encoding="utf-8")
    with pytest.raises(SystemExit):
        command.main(["bench", "--help"])
    assert "halves" in capsys.readouterr().out
