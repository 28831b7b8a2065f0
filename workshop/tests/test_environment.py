"""The environment: made from a lock once, anew when the lock changes, never half."""

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
    environment.make(lock, folder, list(others))
    return len(commands) - before


def test_uv_is_taken_from_the_lock_and_installs_the_rest(commands, tmp_path):
    made(commands, tmp_path / "e")
    venv, uv, lock, package = commands
    assert venv[1:4] == ["-m", "venv", "--clear"]
    assert uv[1:4] == ["-m", "pip", "install"] and "--require-hashes" in uv
    assert lock[1:5] == ["-m", "uv", "pip", "install"]
    assert {"--no-deps", "--require-hashes", str(LOCK)} <= set(lock)
    assert package[-2:] == ["--editable", str(environment.ROOT)]
    assert (tmp_path / "e" / environment.NOTE).is_file()


def test_it_is_made_once(commands, tmp_path):
    assert made(commands, tmp_path / "e") == 4
    assert made(commands, tmp_path / "e") == 0
    # Another version of one package is another environment.
    assert made(commands, tmp_path / "e", "keras==3.12.0") == 5
    assert made(commands, tmp_path / "e") == 4


def test_another_lock_makes_it_anew_another_project_installs_that(
    commands, tmp_path, monkeypatch
):
    lock = tmp_path / "lock.txt"
    lock.write_bytes(LOCK.read_bytes())
    assert made(commands, tmp_path / "e", lock=lock) == 4
    lock.write_bytes(LOCK.read_bytes() + b"# changed\n")
    assert made(commands, tmp_path / "e", lock=lock) == 4
    note = tmp_path / "e" / environment.NOTE
    *locked, _ = note.read_text(encoding="utf-8").splitlines()
    note.write_text("\n".join([*locked, "an older pyproject"]), encoding="utf-8")
    assert made(commands, tmp_path / "e", lock=lock) == 1
    assert "--editable" in commands[-1]


@pytest.mark.parametrize("step", range(4))
def test_one_that_broke_off_is_made_anew(tmp_path, monkeypatch, step):
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
            environment.make(LOCK, folder, [])
    assert not (folder / environment.NOTE).exists()
    whole: list[object] = []
    monkeypatch.setattr(environment, "run", lambda *words: whole.append(words))
    environment.make(LOCK, folder, [])
    assert len(whole) == 4
    assert (folder / environment.NOTE).exists()


def test_where_uv_can_not_pip_tries(tmp_path, monkeypatch, capsys):
    ran: list[tuple] = []

    def no_uv(*words: object) -> None:
        if "uv" in words:
            raise subprocess.CalledProcessError(2, words)
        ran.append(words)

    monkeypatch.setattr(environment, "run", no_uv)
    environment.install(Path("python"), [["a"], ["b"]])
    assert [words[-1] for words in ran] == ["a", "b"]
    assert all(words[1:3] == ("-m", "pip") for words in ran)
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


def test_without_a_place_for_a_cache_none_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    assert environment.cache() == []
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert environment.cache() == ["--no-cache"]
