"""What pages say of a kept run on GPUs, and what is refused as one."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from manygpu import records
from manygpu.records import gpu, machine

BOOK = Path(__file__).parents[2] / "book"
ALL = [(question, name) for question, own in gpu.QUESTIONS.items() for name in own]


@pytest.fixture
def made() -> dict[str, Any]:
    """A made-up run on two GPUs."""
    runs = [{"question": q, "measure": m, "values": [0.5, 0.6, 0.7]} for q, m in ALL]
    kind = {"format": records.FORMAT, "kind": "gpu", "name": gpu.NAME, "runs": runs}
    where = {"hardware": "2 GPUs, NVIDIA A100", "devices": 2}
    day = {"date": "2026-11-26", "machine": machine.facts()}
    return copy.deepcopy(kind | day | {"experiment": where})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    return tmp_path


@pytest.mark.parametrize("question", gpu.QUESTIONS)
def test_without_a_record_a_page_says_so(question, folder):
    assert records.gpu_record(question) == gpu.NONE


@pytest.mark.parametrize("question", gpu.QUESTIONS)
def test_its_page_asks(question):
    (page,) = BOOK.glob(f"*/{question}.ipynb")
    cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
    asked = [c for c in cells if f'gpu_record("{question}"' in "".join(c["source"])]
    assert [cell["cell_type"] for cell in asked] == ["code"]


@pytest.mark.parametrize(("question", "name"), ALL)
def test_a_kept_run_stands_beside_this_machine_s(question, name, made, folder):
    records.save(made, folder / "gpu.json")
    said = records.gpu_record(question, **{name: [0.1, 0.2, 0.3]})
    assert said.startswith("on 2 GPUs, NVIDIA A100 (2026-11-26): ")
    spec = gpu.QUESTIONS[question][name].spec
    assert f"{0.6:{spec}} ({0.5:{spec}} to {0.7:{spec}})" in said
    assert said.count(", here ") == 1
    assert f", here {0.2:{spec}} ({0.1:{spec}} to {0.3:{spec}})" in said


def test_a_question_that_was_not_measured_says_so(made, folder):
    made["runs"] = made["runs"][:1]
    records.save(made, folder / "gpu.json")
    assert records.gpu_record("how-choose-decides").endswith(": this was not measured")


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (["experiment", "devices"], 0, "experiment.devices must lie in 1"),
        (["experiment", "hardware"], 2, "experiment.hardware must be str"),
        (["runs", 0, "question"], "speed", r"runs\[0\].question must be one of"),
        (["runs", 0, "measure"], "eager", r"runs\[0\].measure must be one of"),
        (["runs", 0, "values"], [], r"runs\[0\].values must be floats"),
        (["runs", 0, "values"], [1], r"runs\[0\].values must be floats"),
        (["runs", 0, "values"], [0.0], r"runs\[0\].values must lie in"),
        (["runs", 0, "values"], [float("nan")], r"runs\[0\].values must lie in"),
        (["runs", 1, "measure"], "large", "a second time"),
        (["runs"], [], "record.runs is empty"),
    ],
)
def test_what_nobody_could_have_measured_is_refused(where, value, message, made):
    records.check(made)
    *path, last = where
    place = made
    for key in path:
        place = place[key]
    place[last] = value
    with pytest.raises(ValueError, match=message):
        records.check(made)


def test_a_page_that_asks_for_what_nobody_measures_is_told():
    with pytest.raises(ValueError, match="question must be one of"):
        records.gpu_record("pipeline")
    with pytest.raises(ValueError, match="own must be one of"):
        records.gpu_record("all-reduce", eager=1.0)
