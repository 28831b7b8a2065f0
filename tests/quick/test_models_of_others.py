"""What came out when `manygpu bench` trained models of others is kept, and whole."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[2] / "experiments" / "models-of-others"
MADE = re.compile(r"^def (\w+)\(\) -> Made:", re.MULTILINE)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    with (HERE / "results.csv").open(newline="", encoding="utf-8") as file:
        return [*csv.DictReader(file)]


@pytest.mark.parametrize("module", ["kinds", "examples"])
def test_each_model_has_been_tried(module, rows):
    """Else run `experiments/models-of-others/run.py MODULE:NAME`."""
    made = MADE.findall((HERE / f"{module}.py").read_text(encoding="utf-8"))
    tried = {(row["model"], row["row"]) for row in rows}
    under = ("one", "data", "engine", "fit", "pipeline")
    assert {(f"{module}:{name}", row) for name in made for row in under} <= tried


def test_no_row_ended_with_an_error_that_says_nothing_to_a_reader(rows):
    bad = [row for row in rows if row["outcome"] in ("raw error", "no, bare")]
    assert bad == []


def test_one_device_takes_keras_own_step_or_says_why_not(rows):
    alone = {row["outcome"] for row in rows if row["row"] == "one"}
    assert alone <= {"equal", "refused", "can't tell"}
