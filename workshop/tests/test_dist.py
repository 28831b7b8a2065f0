"""What is published: all of the package, nothing too large, one version."""

from __future__ import annotations

import ast
import re
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from workshop import dist
from workshop.tests import small_book

ROOT = dist.ROOT


def test_each_file_of_the_package_is_asked_for_but_not_what_python_left(tmp_path):
    small_book.write(tmp_path, {"a.py": "", "b/c.js": "", "__pycache__/a.pyc": ""})
    assert dist.files_of(tmp_path) == {"a.py", "b/c.js"}


@pytest.mark.parametrize("code", [0, 1])
def test_a_wheel_that_fails_alone_ends_the_build(monkeypatch, capsys, code):
    monkeypatch.setattr(dist, "environment", lambda *asked: Path("python"))
    asked, ran = (
        [],
        subprocess.CompletedProcess([], code, "4 devices", "no such module"),
    )
    monkeypatch.setattr(dist.subprocess, "run", lambda c, **_: asked.append(c) or ran)
    if code:
        with pytest.raises(SystemExit, match="no such module"):
            dist.try_alone(Path("a.whl"), "3.11")
    else:
        dist.try_alone(Path("a.whl"), "3.11")
        assert "a.whl alone: 4 devices" in capsys.readouterr().out
    assert {"datasets/sha256.json", "__init__.py"} <= {*asked[0]}


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
