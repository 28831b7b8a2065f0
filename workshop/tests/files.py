"""The files of the project, as git would keep them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from workshop.pages import ROOT


def kept_files() -> list[Path]:
    """Every file that git keeps or would keep; skips the test where there is no git."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if listed.returncode:
        pytest.skip("this is no git checkout")
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in files if path.is_file()]
