"""What is published: all of the package, nothing too large, one version."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from workshop import dist

ROOT = dist.ROOT


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small project: code, data, and what Python left behind."""
    for name in ("__init__.py", "static/a.js", "__pycache__/a.pyc"):
        file = tmp_path / "manygpu" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name, encoding="utf-8")
    return tmp_path


def archive(folder: Path, ending: str, names: list[str]) -> Path:
    """A wheel or an sdist that holds these files."""
    path = folder / f"manygpu-1.0{ending}"
    if ending == ".whl":
        with zipfile.ZipFile(path, "w") as opened:
            for name in names:
                opened.writestr(name, "text")
        return path
    with tarfile.open(path, "w:gz") as opened:
        for name in names:
            opened.addfile(tarfile.TarInfo(f"manygpu-1.0/{name}"), io.BytesIO())
    return path


@pytest.mark.parametrize("ending", [".whl", ".tar.gz"])
def test_an_archive_with_all_of_the_package_is_good(root, ending):
    names = ["manygpu/__init__.py", "manygpu/static/a.js", "README.md"]
    assert dist.problems(archive(root, ending, names), root) == []


@pytest.mark.parametrize("ending", [".whl", ".tar.gz"])
def test_a_file_that_is_left_out_is_named(root, ending):
    (wrong,) = dist.problems(archive(root, ending, ["manygpu/__init__.py"]), root)
    assert wrong == f"manygpu-1.0{ending} lacks manygpu/static/a.js"


def test_an_archive_that_is_too_large_is_named(root, monkeypatch):
    monkeypatch.setattr(dist, "MOST_BYTES", 10)
    names = ["manygpu/__init__.py", "manygpu/static/a.js"]
    (wrong,) = dist.problems(archive(root, ".whl", names), root)
    assert "bytes, 10 at most" in wrong


@pytest.mark.parametrize("code", [0, 1])
def test_a_wheel_that_fails_alone_ends_the_build(monkeypatch, capsys, code):
    monkeypatch.setattr(dist, "environment", lambda *asked: Path("python"))
    ran = subprocess.CompletedProcess([], code, "4 devices", "no such module")
    monkeypatch.setattr(dist.subprocess, "run", lambda *a, **options: ran)
    if code:
        with pytest.raises(SystemExit, match="no such module"):
            dist.try_alone(Path("a.whl"), "3.11")
    else:
        dist.try_alone(Path("a.whl"), "3.11")
        assert capsys.readouterr().out.count("a.whl alone: 4 devices") == 2


def test_the_version_stands_in_one_place():
    tree = ast.parse((ROOT / "manygpu" / "__init__.py").read_text(encoding="utf-8"))
    assigned = [n for n in tree.body if isinstance(n, ast.Assign)]
    values = {n.targets[0].id: n.value for n in assigned}
    version = ast.literal_eval(values["__version__"])
    assert metadata.version("manygpu") == version
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dynamic = ["version"]' in project
    assert 'version = { attr = "manygpu.__version__" }' in project
    section = project.partition("\n[project]\n")[2].partition("\n[")[0]
    assert not re.search(r"^version\b", section, flags=re.M)
