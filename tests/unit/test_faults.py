"""`make faults`, with a few kills: a real training dies, resumes, and loses nothing."""

from __future__ import annotations

from manygpu.scratch.beyond import worker_dies
from workshop import faults


def test_a_few_kills_lose_nothing(capsys, monkeypatch):
    monkeypatch.setattr(faults, "KILLS", 2)
    assert faults.main(["--count", "2", "--damages", "20"]) == 0
    said = capsys.readouterr().out
    assert f"{faults.KILLS} resumed, 0 steps lost past the last checkpoint" in said
    assert "20 damages, 20 refused by name" in said


def test_the_header_is_as_long_as_it_says():
    assert worker_dies.HEADER.size == faults.HEADER_BYTES
