"""`make faults`, with a few kills: a real training dies, resumes, and loses nothing."""

from __future__ import annotations

import json

from manygpu.scratch.beyond import worker_dies
from workshop import faults


def test_a_few_kills_lose_nothing_and_what_was_tried_is_kept(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(faults, "WORKS_MS", (16,))
    monkeypatch.setattr(faults, "KILLS", 2)
    path = tmp_path / "kills.json"
    words = ["--count", "2", "--damages", "20", "--lives", "2", "--to", str(path)]
    assert faults.main(words) == 0
    said = capsys.readouterr().out
    assert f"{faults.KILLS} resumed, 0 steps lost past the last checkpoint" in said
    assert "20 damages, 20 refused by name" in said
    kept = json.loads(path.read_text("utf-8"))
    assert len(kept["deaths"]) == 2 and kept["trainings"] == 1
    assert kept["goodput"]["16"]["lives"] == 2
    assert faults.main(words) == 0
    again = capsys.readouterr().out
    assert "killed at step" not in again
    assert again.splitlines() == said.splitlines()[-5:]


def test_the_header_is_as_long_as_it_says():
    assert worker_dies.HEADER.size == faults.HEADER_BYTES
