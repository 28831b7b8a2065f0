"""The kept experiments: what is stored is whole, plausible, and the source's."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from manygpu import records

ROOT = Path(__file__).resolve().parents[2]
NAME = "source-experiment"
# As the source states them: train(num_gpus, batch_size=256, lr=0.2), ten epochs in
# `train`, `scale = 0.01`, all of Fashion-MNIST.
SOURCE = {"batch_size": 256, "lr": 0.2, "scale": 0.01, "epochs": 10}
SOURCE |= {"train_samples": 60_000, "test_samples": 10_000}


@pytest.fixture
def record() -> dict:
    return records.load(NAME)


@pytest.fixture
def runs(record) -> dict:
    return {(r["devices"], r["step"], r["init"]): r for r in record["runs"]}


def test_the_settings_are_the_sources(record):
    assert {key: record["experiment"][key] for key in SOURCE} == SOURCE


def test_one_and_two_devices_eager_and_compiled_and_mended(runs):
    kinds = {(k, step, "source") for k in (1, 2) for step in ("eager", "compiled")}
    assert set(runs) == kinds | {(1, "compiled", "he"), (2, "compiled", "he")}


def test_accuracies_are_plausible(runs):
    for (_, _, init), run in runs.items():
        accuracy = [epoch["test_accuracy"] for epoch in run["per_epoch"]]
        loss = [epoch["training_loss"] for epoch in run["per_epoch"]]
        assert 0.80 <= accuracy[-1] <= 0.92  # the source prints 0.84
        assert loss[-1] < loss[0]
        # Ten classes: the source's weights learn nothing in the first epoch.
        assert accuracy[0] < 0.3 if init == "source" else accuracy[0] > 0.6


def test_devices_agree_in_the_end(runs):
    for step, init in (("eager", "source"), ("compiled", "source"), ("compiled", "he")):
        ends = [runs[k, step, init]["per_epoch"][-1]["test_accuracy"] for k in (1, 2)]
        assert abs(ends[0] - ends[1]) < 0.03


def test_it_tells_nothing_about_whose_machine_it_was(record):
    assert set(record["machine"]) == set(records.MACHINE)
    text = json.dumps(record)
    assert "/home" not in text and "/root" not in text and str(ROOT) not in text


def test_load_names_what_there_is():
    assert NAME in records.names()
    with pytest.raises(ValueError, match=f"'nothing' is no record.*{NAME}"):
        records.load("nothing")
    with pytest.raises(ValueError, match="is no record"):
        records.load(f"../records/{NAME}")
    with pytest.raises(TypeError, match="name must be a string"):
        records.load(None)


def test_load_refuses_a_file_cut_short(record, tmp_path, monkeypatch):
    text = (records.FOLDER / f"{NAME}.json").read_text(encoding="utf-8")
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    (tmp_path / "half.json").write_text(text[: len(text) // 2], encoding="utf-8")
    with pytest.raises(ValueError, match="'half' is not JSON"):
        records.load("half")


def spoil(record: dict, where: list, value: object) -> dict:
    spoiled = copy.deepcopy(record)
    place = spoiled
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    return spoiled


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (["format"], 2, "record.format must be 1"),
        (["machine", "hostname"], "x", "record.machine must have"),
        (["experiment", "lr"], "0.2", "record.experiment.lr must be float"),
        (["experiment", "epochs"], 9, r"per_epoch has 10 entries for 9"),
        (["runs"], [], "record.runs is empty"),
        (["runs", 0, "devices"], 0, r"runs\[0\].devices must be at least 1"),
        (["runs", 0, "devices"], True, r"runs\[0\].devices must be int"),
        (["runs", 0, "step"], "magic", r"runs\[0\].step must be one of"),
        (["runs", 0, "per_epoch", 3, "seconds"], -1.0, r"per_epoch\[3\].seconds"),
        (["runs", 0, "per_epoch", 3, "test_accuracy"], 1.5, "test_accuracy must lie"),
        (
            ["runs", 0, "per_epoch", 3, "training_loss"],
            float("nan"),
            "training_loss must lie",
        ),
        (["runs", 0, "early", 1, "step"], 26, "a point every 25 steps"),
    ],
)
def test_check_names_what_is_wrong(record, where, value, message):
    with pytest.raises(ValueError, match=message):
        records.check(spoil(record, where, value))


def test_check_refuses_one_kind_of_run_twice(record):
    record["runs"].append(record["runs"][0])
    with pytest.raises(ValueError, match="one kind of run twice"):
        records.check(record)


def test_save_writes_whole_or_not_at_all(record, tmp_path):
    path = tmp_path / "kept.json"
    records.save(record, path)
    assert json.loads(path.read_text(encoding="utf-8")) == record
    before = path.read_bytes()
    with pytest.raises(ValueError, match="record.runs is empty"):
        records.save({**record, "runs": []}, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]  # no half-written file beside it


TOOL = f"""
import runpy, sys
sys.argv = ["records.py", *{{words!r}}]
runpy.run_path({str(ROOT / "tools" / "records.py")!r}, run_name="__main__")
"""


def test_the_tool_refuses_the_subset(run_python, tmp_path):
    target = tmp_path / "never.json"
    words = ["--out", str(target)]
    answer = run_python(TOOL.format(words=words), MANYGPU_DATA="shipped")
    assert answer.returncode == 1
    assert "needs all 60,000 + 10,000 images" in answer.stderr
    assert not target.exists()


def test_the_tool_keeps_short_trials_out_of_the_package(run_python):
    before = (records.FOLDER / f"{NAME}.json").read_bytes()
    answer = run_python(TOOL.format(words=["--epochs", "1"]))
    assert answer.returncode == 2
    assert "give --out" in answer.stderr
    assert (records.FOLDER / f"{NAME}.json").read_bytes() == before
