"""Comparisons that others sent: checked, listed, shown beside one's own.

Nobody has sent one from a GPU yet; a made-up one stands in for it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from manygpu import records
from manygpu.__main__ import main
from manygpu.bench import result
from manygpu.choosing import measured
from tests.quick.test_measured import measured_on

GPU = {"gpu_bytes": 80 * 2**30, "gpu": "NVIDIA A100-SXM4-80GB"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What this machine measured, and what four GPUs might have."""
    result.keep(measured_on(2, 16.0, 9.0), tmp_path / "mine.json")
    made = measured_on(4, 4.0, 1.5, **GPU)
    for row in made.rows.values():
        row.facts |= {"shared": False, "hardware": "4 of 4 GPUs"}
    result.keep(made, tmp_path / "a100.json")
    return tmp_path


def test_each_kept_one_is_whole_and_its_choice_is_what_its_times_say():
    kept = records.machines()
    assert kept and {one.record for one in records.measured()} == {*kept}
    for name in kept:
        made = result.read(records.MACHINES / f"{name}.json")
        assert measured.question(made) == kept[name]["choose"], name
        assert made.experiment["model"] in ("lenet", "transformer"), "others can't ask"
    assert all(one.seconds > 0 and one.rounds >= 5 for one in records.measured())


def test_what_was_measured_is_listed_row_by_row(folder):
    made = measured_on(4, 4.0, 1.5, **GPU)
    found = [*records.measured(records.machines(folder))]
    rows = [(one.record, one.row, one.devices) for one in found]
    assert rows[:3] == [("a100", "one", 1), ("a100", "data", 4), ("a100", "engine", 4)]
    assert [one.seconds for one in found] == [4e-3, 1.5e-3, 1.5e-3, 16e-3, 9e-3, 9e-3]
    assert {(one.rounds, one.spread) for one in found} == {(3, 2.0)}
    assert found[0].asked == measured.question(made)
    assert found[0].asked["memory"] == 80 * 2**30


def test_another_machine_s_is_shown_beside_one_s_own(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert main(["report", "mine.json", "a100.json"]) == 0
    assert capsys.readouterr().out == "mine.html\n"
    page = (folder / "mine.html").read_text(encoding="utf-8")
    table, *own = page.split("</table>")
    assert len(own) == 3  # beside each other, then each by itself
    assert ">yours<" in table and ">a100<" in table
    assert "0.56" in table and "0.38" in table  # data parallel over one device
    assert "NVIDIA A100-SXM4-80GB; " in page
    assert main(["report", "mine.json", "none.json"]) == 2
    assert main(["report", "mine.json", "a100.json", "./a100.json"]) == 2
    assert main(["report", "mine.json", "a100.json", "-o", "a100.json"]) == 2


@pytest.mark.parametrize("spoil", ["choose", "kind", "cut"])
def test_a_file_that_is_no_comparison_is_named(folder, spoil):
    file = folder / "a100.json"
    record = json.loads(file.read_text(encoding="utf-8"))
    if spoil == "choose":
        record["choose"]["rate"] = -1
    text = json.dumps(record)
    if spoil == "kind":
        text = (records.FOLDER / "source-experiment.json").read_text(encoding="utf-8")
    file.write_text(text[:-9] if spoil == "cut" else text, encoding="utf-8")
    with pytest.raises(ValueError, match="a100.json"):
        records.machines(folder)
