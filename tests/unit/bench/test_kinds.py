"""The kinds of Keras model that readers brought, each through all commands."""

from __future__ import annotations

import json

import pytest

from manygpu import __main__ as command
from manygpu.bench import result
from manygpu.choosing import measured
from tests.unit.bench import some_models

ROWS = "accumulation data pieces engine fit network pipeline apart layerwise"
FEW = "data fit network layerwise"  # each that runs is a process of its own
BY_FIT = {"one", "fit", "apart"}
NO_CHAIN = {"network": "no chain", "pipeline": "no chain"}
OWN = dict.fromkeys(("accumulation", "data", "pieces", "engine"), "train_step of its")
OWN |= {"network": "train_step of its", "pipeline": "train_step of its"}


@pytest.mark.parametrize(
    ("model", "leaves", "cut", "how", "said"),
    [
        ("lstm", {}, True, "While", ""),
        ("residual", NO_CHAIN, False, "", "SparseCategoricalCrossentropy(from_logits"),
        ("own_step", OWN, False, "train_step", ""),
        ("subclassed", NO_CHAIN, False, "", "the first batch is taken"),
        ("two_outputs", NO_CHAIN, False, "", ""),
        ("mixed", {}, True, "", "SparseCategoricalCrossentropy(from_logits"),
        # Besides: 16 bits whose loss is scaled, and a loss that isn't divided.
        ("float16", {}, True, "", "SparseCategoricalCrossentropy(from_logits"),
        ("own_loss", {**NO_CHAIN, "engine": "compute_loss of its"}, False, "", ""),
    ],
)
def test_a_model_goes_from_bench_to_what_choose_answers(
    model, leaves, cut, how, said, tmp_path, monkeypatch, capsys
):
    file = tmp_path / "mine.json"
    rows = ROWS if model in ("lstm", "own_step", "own_loss") else FEW
    words = f"bench --model {some_models.__name__}:{model} --rounds 1"
    words = [
        *words.split(),
        "--steps",
        "1",
        "--devices",
        "2",
        "--json",
        str(file),
        "--strategy",
        *rows.split(),
    ]
    assert command.main(words) == 0
    printed = capsys.readouterr().out
    made = result.read(file)
    leaves = {**leaves, "layerwise": "for its own LeNet and chain only"}
    leaves = {name: why for name, why in leaves.items() if name in rows}
    gone = {name: row.cannot for name, row in made.rows.items() if row.cannot}
    assert gone.keys() == leaves.keys(), gone
    for name, why in leaves.items():
        assert why in gone[name] and gone[name] in printed
    # Who trains in the reader's way is never called wrong; the limit is there.
    for name, row in made.running.items():
        found = row.verdict
        wanted = "no: it is a limit" if name == "apart" else "yes"
        if model == "own_loss" and name == "fit":
            wanted = "its own: 2 times as long"
        assert found.startswith(wanted), (name, row.facts)
    assert said in printed
    assert command.main(["report", str(file)]) == 0
    page = (tmp_path / "mine.html").read_text(encoding="utf-8")
    assert all(row.title in page for row in made.rows.values())
    asked = json.loads(file.read_text(encoding="utf-8"))["choose"]
    assert asked == json.loads(json.dumps(measured.question(made)))
    assert command.main(["choose", str(file)]) == 0
    plans = capsys.readouterr().out
    assert "1. " in plans and (cut or "pipeline" not in plans)
    assert asked["missing"] == {} and asked["cut"] is cut
    assert ("handed" in asked) is cut
    needed = ("layers", "parameters", "flops", "kept", "memory", "rate", "batch")
    assert all(asked[name] > 0 for name in needed)
    step = sorted(made.times["one"])[0] / 1e3
    found = 3 * asked["flops"] * asked["batch"] / asked["rate"]
    assert found == pytest.approx(step)
    assert ("flops" in asked["how"]) is bool(how)
    assert how in asked["how"].get("flops", "")
