"""A reader that goes, a closed stream, a full disk: what a command makes of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from manygpu.bench import result
from tests.quick.test_result import filled
from workshop.pages import ROOT

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes of Unix")
ANSWER = ["choose", "llama-3-8b", "--gpu", "h100", "--gpus", "8", "--goal"]
# By name: a command's words, and its exit status when all is read.
COMMANDS = {
    "help": (["--help"], 0),
    "list": (["choose", "--list"], 0),
    "choose": ([*ANSWER, "time"], 0),
    "nothing fits": ([*ANSWER, "time", "--memory", "1e6"], 1),
    "refused": (["choose", "nothing"], 2),
    "prove": (["prove", "nothing:step"], 2),
    "bench": (["bench", "--model", "nothing"], 2),
    "report": (["report", "a.json"], 0),
    "grade": (["grade", "class", "--chapter", "pipeline", "--seconds", "9"], 0),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with what the commands read."""
    result.keep(filled(), tmp_path / "a.json")
    (tmp_path / "class").mkdir()
    for name in ("a", "b"):
        (tmp_path / "class" / f"{name}.ipynb").write_text('{"cells": []}')
    return tmp_path


def ran(name: str, place: Path, end: str) -> tuple[int, str]:
    """The exit status of a command, and its stderr; `end`: a shell's, such as >&-."""
    python = [sys.executable, "-m", "manygpu", *COMMANDS[name][0]]
    done = subprocess.run(
        ["bash", "-c", f'"$@" {end}', "bash", *python],
        cwd=place, capture_output=True, encoding="utf-8", check=False, timeout=100,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ['PYTHONPATH']}"},
    )  # fmt: skip
    return done.returncode, done.stderr


# Nobody reads: `true` ends before the command has begun to print.
GONE = "| true; exit ${PIPESTATUS[0]}"


@pytest.mark.parametrize("end", [GONE, ">&-", "<&- 2>&-"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_stream_that_nobody_reads_changes_nothing(name, end, place):
    status, said = ran(name, place, end)
    assert status == COMMANDS[name][1], said
    assert "Traceback" not in said and "Exception" not in said
    if name == "grade":  # it goes on to the end
        assert (place / "class" / "grades" / "b.html").is_file()
        rows = (place / "class" / "grades" / "grades.csv").read_text()
        assert rows.count(".ipynb") == 2
    if name == "report":
        assert (place / "a.html").is_file()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device")
@pytest.mark.parametrize("name", ["help", "list", "choose", "report"])
def test_a_full_disk_is_told_in_a_line(name, place):
    status, said = ran(name, place, "> /dev/full")
    assert status == 1
    assert said.startswith("manygpu") and said.count("\n") == 1
    assert "No space left on device" in said
