"""The environment: made from a lock once, brought up to date with it, never half."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from workshop import environment

LOCK = environment.ROOT / "requirements.txt"


@pytest.fixture
def commands(monkeypatch) -> list[list[str]]:
    """What would be run."""
    ran: list[list[str]] = []
    monkeypatch.setattr(
        environment, "run", lambda *words: ran.append([str(w) for w in words])
    )
    return ran


def made(commands, folder: Path, *others: str, lock: Path = LOCK) -> int:
    """Make an environment; return how many commands that took."""
    folder.mkdir(exist_ok=True)
    before = len(commands)
    environment.make(lock, folder, *others)
    return len(commands) - before


def test_uv_is_taken_from_the_lock_and_installs_the_rest(commands, tmp_path):
    made(commands, tmp_path / "e")
    venv, uv, lock, package = commands
    assert venv[1:4] == ["-m", "venv", "--clear"]
    assert uv[1:4] == ["-m", "pip", "install"] and "--require-hashes" in uv
    assert lock[1:5] == ["-m", "uv", "pip", "sync"]
    assert {"--require-hashes", str(LOCK)} <= set(lock)
    assert package[-2:] == ["--editable", str(environment.ROOT)]
    assert (tmp_path / "e" / environment.NOTE).is_file()


def test_it_is_made_once_and_then_brought_up_to_date(commands, tmp_path):
    lock = tmp_path / "lock.txt"
    lock.write_bytes(LOCK.read_bytes())
    assert made(commands, tmp_path / "e", lock=lock) == 4
    assert made(commands, tmp_path / "e", lock=lock) == 0
    lock.write_bytes(LOCK.read_bytes() + b"# changed\n")
    assert made(commands, tmp_path / "e", lock=lock) == 2
    # Another version of one package is another environment; so is another Python.
    assert made(commands, tmp_path / "e", "keras==3.12.0", lock=lock) == 3
    assert commands[-2][-2:] == ["--no-deps", "keras==3.12.0"]
    note = tmp_path / "e" / environment.NOTE
    note.write_text(note.read_text("utf-8").replace("Python 3", "Python 2"), "utf-8")
    assert made(commands, tmp_path / "e", lock=lock) == 4


@pytest.mark.parametrize("step", range(4))
def test_one_that_broke_off_is_made_anew(commands, tmp_path, monkeypatch, step):
    """Whichever step it was, and with pip no luckier than uv."""
    done: list[object] = []

    def breaks(*words: object) -> None:
        done.append(words)
        if len(done) > step:
            raise subprocess.CalledProcessError(1, words)

    folder = tmp_path / "e"
    folder.mkdir()
    (folder / environment.NOTE).write_text("of an older lock", encoding="utf-8")
    with monkeypatch.context() as broken:
        broken.setattr(environment, "run", breaks)
        with pytest.raises(subprocess.CalledProcessError):
            environment.make(LOCK, folder)
    assert not (folder / environment.NOTE).exists()
    assert made(commands, folder) == 4


def test_where_uv_can_not_pip_tries(tmp_path, monkeypatch, capsys):
    ran: list[tuple] = []

    def no_uv(*words: object) -> None:
        if "uv" in words:
            raise subprocess.CalledProcessError(2, words)
        ran.append(words)

    monkeypatch.setattr(environment, "run", no_uv)
    environment.make(LOCK, tmp_path)
    assert {*environment.EXACT, LOCK} <= set(ran[2])
    assert all(words[1:3] == ("-m", "pip") for words in ran[1:])
    assert "pip tries" in capsys.readouterr().out


@pytest.mark.parametrize("version", [(3, 9), (3, 14), (2, 7)])
def test_another_python_is_refused(version):
    with pytest.raises(SystemExit, match=r"3\.10 to 3\.13.*PYTHON="):
        environment.check_python(version)


def test_uvs_line_has_its_version_and_its_hashes():
    line = environment.uv_line(LOCK)
    assert line.startswith("uv==")
    assert line.count("--hash=sha256:") > 5
    assert line.count("\n") == 1
