"""Tests that need no TensorFlow, and get none: they take seconds, not minutes.

A process that such a test starts can't import TensorFlow, and where only tests of
these folders run, as in `make quick`, they can't either. So a test that needs it is
noticed, and moves to tests/unit.
"""

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
QUICK = {HERE, HERE.parents[1] / "workshop" / "tests"}
STAND_IN = HERE / "no_tensorflow"


def runs_alone(config: pytest.Config) -> bool:
    """Whether no other folder's tests run in this process."""
    start = config.invocation_params.dir
    asked = [(start / word.split("::")[0]).resolve() for word in config.args]
    return all(QUICK & {path, *path.parents} for path in asked)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse TensorFlow to this process, unless tests run in it that need it."""
    if runs_alone(config):
        sys.modules["tensorflow"] = None


@pytest.fixture(autouse=True)
def no_tensorflow_in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse TensorFlow to the processes that a test of this folder starts."""
    others = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(STAND_IN), *([others] if others else [])])
    monkeypatch.setenv("PYTHONPATH", path)
