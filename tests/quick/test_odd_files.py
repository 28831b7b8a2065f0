"""Whatever a path leads to, a command that reads a file says so at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from manygpu import __main__ as command
from manygpu import records
from manygpu.bench import result
from manygpu.exercises import kept
from tests.quick.test_result import filled

SECONDS = 20  # in which each of them must have ended
ODD: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
    "loop": lambda path: path.symlink_to(path.name),
    "nowhere": lambda path: path.symlink_to("away"),
    "deep": lambda path: path.write_text("[" * 10**6 + "]" * 10**6),
    "no text": lambda path: path.write_bytes(b"\xff\xfe"),
    "large": lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_RDWR), 2**40),
}
# The commands that read a file, and their exit statuses.
COMMANDS = {
    "choose": ["choose", "odd.json"],
    "report": ["report", "odd.json"],
    "bench": ["bench", "--json", "odd.json", "--model", "transformer"],
    "grade": ["grade", ".", "--chapter", "pipeline", "--handout", "odd.json"],
    "grade a file": ["grade", "odd.json", "--chapter", "pipeline"],
    "grade into": ["grade", ".", "--chapter", "pipeline", "-o", "odd.json"],
    "launch": ["launch", "--workers", "1", "odd.json"],
}
# What they take: scripts that Python refuses, and a folder without notebooks.
TAKEN = [("launch", odd) for odd in ("deep", "no text", "large")]
TAKEN += [("grade a file", "folder"), ("grade into", "folder")]


@pytest.fixture(autouse=True)
def ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test that waits for a pipe, or for the end of /dev/zero, fails."""

    def late(*_: object) -> None:
        raise AssertionError(f"not done in {SECONDS} s")

    monkeypatch.chdir(tmp_path)
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def status(words: list[str]) -> int:
    try:
        return command.main(words)
    except SystemExit as ended:
        return ended.code


@pytest.mark.parametrize(
    ("name", "odd"),
    [(name, odd) for name in COMMANDS for odd in ODD if (name, odd) not in TAKEN],
)
def test_a_command_refuses_it_by_name(name, odd, tmp_path, capsys):
    (tmp_path / "one.ipynb").write_text('{"cells": []}', encoding="utf-8")
    ODD[odd](tmp_path / "odd.json")
    assert status(COMMANDS[name]) == 2
    said = capsys.readouterr().err
    assert "odd.json" in said and "Traceback" not in said
    assert {path.name for path in tmp_path.iterdir()} == {"odd.json", "one.ipynb"}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("read", [kept.results, kept.read, records.read])
def test_a_function_refuses_it_by_name_and_leaves_it(read, odd, tmp_path):
    file = tmp_path / "odd.json"
    ODD[odd](file)
    before = file.lstat()
    with pytest.raises(ValueError, match="must be .*odd.json"):
        read(file)
    assert file.lstat().st_ino == before.st_ino


@pytest.mark.parametrize("odd", ["pipe", "device", "folder", "loop", "nowhere"])
@pytest.mark.parametrize("words", [[], ["-o", "odd.html"]])
def test_a_report_takes_the_place_of_a_file_only(words, odd, tmp_path, capsys):
    result.keep(filled(), tmp_path / "odd.json")
    ODD[odd](tmp_path / "odd.html")
    before = (tmp_path / "odd.html").lstat()
    assert status(["report", "odd.json", *words]) == 2
    assert "must be a file in a folder that exists, got odd" in capsys.readouterr().err
    assert (tmp_path / "odd.html").lstat().st_ino == before.st_ino


def test_what_is_missing_is_named(capsys):
    assert status(["report", "none.json"]) == 2
    said = "file must be one of JSON, got none.json (no such file or directory)"
    assert said in capsys.readouterr().err
