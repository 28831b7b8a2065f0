"""The project works wherever it lies: a path with a space and a letter beyond ASCII,
the plainest locale, and files that nobody else may read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from workshop.tests.files import ROOT, kept_files

NOTEBOOKS = [sys.executable, "-m", "workshop.notebooks"]
OWNER_ONLY = 0o077


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project in such a folder, for its owner alone."""
    folder = tmp_path_factory.mktemp("place") / "many gpus ü"
    before = os.umask(OWNER_ONLY)
    try:
        for path in kept_files():
            copy = folder / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    finally:
        os.umask(before)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def run(command: list[str], place: Path) -> str:
    """Run a command there, in the plainest locale; return what it says."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LC_")}
    for name in ("LANG", "LANGUAGE", "PYTHONUTF8", "PYTHONIOENCODING"):
        environment.pop(name, None)
    environment |= {"LC_ALL": "C", "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(
        command,
        cwd=place,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        umask=OWNER_ONLY if os.name == "posix" else -1,
        check=False,
    )
    said = ran.stdout.decode(errors="replace")
    assert ran.returncode == 0, said
    return said


def test_lint_is_content_and_changes_nothing(place):
    before = contents(place)
    assert len(before) > 100
    run([*NOTEBOOKS, "lint"], place)
    assert contents(place) == before


def test_exporting_writes_the_same_bytes(place):
    before = contents(place)
    modules = sorted((place / "manygpu" / "scratch").rglob("*.py"))
    modules[0].unlink()
    modules[-1].write_text("old = 1\n", encoding="utf-8")
    (modules[-1].parent / "gone.py").touch()
    run([*NOTEBOOKS, "export"], place)
    now = contents(place)
    assert now.keys() == before.keys()
    changed = [name for name in now if now[name] != before[name]]
    assert changed == [], "the notebooks say otherwise: run `make export`"
