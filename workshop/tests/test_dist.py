"""What is published: all of the package, nothing too large, one version."""

from __future__ import annotations

from workshop import dist
from workshop.tests import small_book

ROOT = dist.ROOT


def test_the_wheel_must_have_each_file_but_not_what_python_left(monkeypatch, tmp_path):
    files = {"a.py": "", "b/c.js": "", "__pycache__/a.pyc": ""}
    small_book.write(tmp_path / "manygpu", files)
    ran = []

    def run(words, check, **_):
        ran.append(words if check else None)
        small_book.write(tmp_path / "dist", {"manygpu-1.tar.gz": "", "manygpu-1-x": ""})

    monkeypatch.setattr(dist, "ROOT", tmp_path)
    monkeypatch.setattr(dist, "alone", lambda *needs: [*needs])
    monkeypatch.setattr(dist, "answers_in", lambda archive: [])
    monkeypatch.setattr(dist.subprocess, "run", run)
    dist.main("3.11")
    *_, trial = ran
    assert trial[:3] == ["3.11", "--with", tmp_path / "dist" / "manygpu-1-x"]
    assert {*trial[trial.index(dist.TRIAL) + 1 :]} == {"a.py", "b/c.js"}


def test_the_version_stands_in_one_place():
    project = (dist.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dynamic = ["version"]' in project
    assert 'version = { attr = "manygpu.__version__" }' in project
