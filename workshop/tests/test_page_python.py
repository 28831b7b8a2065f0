"""Python for the puzzles' page: fetched once, checked, and said when it is missing."""

from __future__ import annotations

import base64
import hashlib
import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from workshop import page_python
from workshop.page_python import FILE, FILES


def packed() -> bytes:
    """A package as npm has it: the files that are asked for, and others."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as made:
        for name in (*FILES, "console.html"):
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(name)
            made.addfile(info, io.BytesIO(name.encode()))
    return held.getvalue()


@pytest.fixture
def small(monkeypatch, tmp_path) -> bytes:
    """A package that counts as right; nothing is kept yet, and no file is named."""
    content = packed()
    right = base64.b64encode(hashlib.sha512(content).digest()).decode()
    monkeypatch.setattr(page_python, "SHA512", right)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(page_python.OWN_FILE, raising=False)
    return content


def npm(monkeypatch, content: bytes | None, stderr="", ends=None) -> list:
    """Put a client in npm's place; return the list of its calls."""
    calls = []

    def run(words, **told):
        calls.append(words)
        if ends:
            raise ends
        if content is not None:
            (Path(words[-1]) / FILE).write_bytes(content)
        return subprocess.CompletedProcess(words, int(content is None), "", stderr)

    monkeypatch.setattr(page_python.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(page_python.subprocess, "run", run)
    return calls


def test_it_is_fetched_once_by_npm_in_one_version(monkeypatch, small):
    calls = npm(monkeypatch, small)
    assert page_python.found() == page_python.found() == (page_python.kept(), "")
    ((*words, _),) = calls
    asked = f"pyodide@{page_python.VERSION}"
    assert words == ["/bin/npm", "pack", asked, "--pack-destination"]
    assert [file.name for file in page_python.kept().parent.iterdir()] == [FILE]


def test_another_file_is_never_taken(monkeypatch, small):
    calls = npm(monkeypatch, small[:-1])
    file, why = page_python.found()
    assert (file, why) == (None, "npm brought another file")
    assert not page_python.kept().exists()
    page_python.kept().parent.mkdir(parents=True)
    page_python.kept().write_bytes(small[:100])  # one that was broken off
    npm(monkeypatch, small)
    assert page_python.found() == (page_python.kept(), "") and len(calls) == 1
    assert page_python.kept().read_bytes() == small


def test_a_file_that_is_named_is_taken_if_it_is_right(monkeypatch, small, tmp_path):
    own = tmp_path / "own.tgz"
    monkeypatch.setenv(page_python.OWN_FILE, str(own))
    file, why = page_python.found()
    assert file is None and str(own) in why and FILE in why
    own.write_bytes(small)
    assert page_python.found() == (own, "")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"content": None, "stderr": "npm error code\nENOTFOUND"}, "code ENOTFOUND"),
        ({"content": None, "ends": subprocess.TimeoutExpired("npm", 1)}, "no answer"),
    ],
)
def test_without_reach_it_says_what_is_missing(monkeypatch, small, settings, why):
    npm(monkeypatch, **settings)
    monkeypatch.setattr(page_python, "package", page_python.found)
    assert why in page_python.found()[1]
    with pytest.raises(SystemExit, match=why) as stopped:
        page_python.ensure()
    said = str(stopped.value)
    assert page_python.OWN_FILE in said and page_python.VERSION in said
    monkeypatch.setattr(page_python.shutil, "which", lambda name: None)
    assert page_python.found() == (None, "there is no npm")


def test_a_page_gets_its_files_and_no_others(small, tmp_path):
    file = tmp_path / FILE
    file.write_bytes(small)
    page_python.unpack(file, tmp_path / "page")
    there = {each.name: each.read_text() for each in (tmp_path / "page").iterdir()}
    assert there == dict(zip(FILES, FILES, strict=True))
    assert page_python.size(file) == sum(map(len, FILES))
