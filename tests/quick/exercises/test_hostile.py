"""Notebooks that mean harm; all of them: experiments/hostile.py."""

from __future__ import annotations

import sys

import pytest

from experiments import hostile

SOME = (
    "removes a tree, Path",
    "C renames",
    "forks and stays",
    "raises SystemExit",
    "writes to its pipe",
    "itself",
)


@pytest.mark.skipif(sys.platform != "linux", reason="walls are those of Linux")
def test_each_has_a_row_and_nothing_is_hurt(tmp_path):
    faults, rows = hostile.graded([*SOME], tmp_path)
    assert not faults
    assert rows["C renames.ipynb"]["pipeline/bubble"] == "yes"
    assert rows["itself.ipynb"]["pipeline/bubble"].startswith("broken: it returns")
