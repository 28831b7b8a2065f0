"""A small book of a test's own: its notebooks, its pages rendered by Sphinx."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import nbformat
from bs4 import BeautifulSoup


def write(root: Path, files: Mapping[str, str]) -> None:
    """Write files below `root`, named by their paths from there."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


def notebook(path: Path, *cells: str) -> Path:
    """Write a notebook of these code cells; return its path."""
    made = nbformat.v4.new_notebook()
    made.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    nbformat.write(made, path)
    return path


def rendered(root: Path) -> subprocess.CompletedProcess:
    """What Sphinx said when it rendered `root` to root/html; warnings are errors."""
    return subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", ".", "html"],
        cwd=root,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def pages(root: Path) -> dict[str, BeautifulSoup]:
    """The rendered pages of `root`, by name; a warning is an error."""
    ran = rendered(root)
    assert ran.returncode == 0, ran.stderr
    files = {p.relative_to(root / "html"): p for p in (root / "html").rglob("*.html")}
    return {
        name.with_suffix("").as_posix(): BeautifulSoup(
            file.read_text(encoding="utf-8"), "html.parser"
        )
        for name, file in files.items()
    }
