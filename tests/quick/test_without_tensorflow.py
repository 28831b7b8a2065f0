"""The tests of this folder get no TensorFlow, and notice if they ask for it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.quick.conftest import runs_alone
from tests.unit import conftest as unit

ROOT = Path(__file__).resolve().parents[2]


def python(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


@pytest.mark.parametrize("name", ["tensorflow", "tensorflow.keras", "manygpu._devices"])
def test_no_test_of_this_folder_can_import_it(name, pytestconfig):
    if not runs_alone(pytestconfig):
        pytest.skip("tests that need TensorFlow share this process")
    with pytest.raises(ImportError):
        importlib.import_module(name)


def test_no_process_that_such_a_test_starts_can_import_it():
    ran = python("-c", "import tensorflow")
    assert ran.returncode == 1
    assert "run without TensorFlow" in ran.stderr


def test_no_file_of_these_folders_imports_it():
    """In each process, the one of `make test` too, whoever shares it."""
    words = ["-q", "--collect-only", "-p", "no:cacheprovider"]
    ran = python("-m", "pytest", *words, "tests/quick", "workshop/tests")
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize(
    "dist, workers, is_worker, no_tests",
    [
        ("no", [], False, False),
        ("load", [], False, False),
        ("load", ["2*popen"], False, True),
        ("load", ["2*popen"], True, False),
    ],
)
def test_who_only_hands_out_the_unit_tests_starts_no_tensorflow(
    dist, workers, is_worker, no_tests, monkeypatch
):
    """Of pytest-xdist's processes, only the workers do: one TensorFlow each."""
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setitem(sys.modules, "manygpu", None)
    options = {"dist": dist, "tx": workers}
    config = SimpleNamespace(getoption=lambda name, default: options[name])
    if is_worker:
        config.workerinput = {}
    with nullcontext() if no_tests else pytest.raises(ImportError):
        unit.pytest_configure(config)
    assert os.environ["MANYGPU_DEVICES"] == "8"


@pytest.mark.parametrize(
    "code",
    [
        "from manygpu.trace.spans import Span; assert Span(0, '', 1, 3).seconds == 2",
        "from manygpu.costs import LayerCost; LayerCost('one', 1, 1, 1, 1)",
        "from manygpu.choosing import tree; from manygpu.simulate import steps",
        "from manygpu.scratch import simulate; assert simulate.__doc__",
        "from manygpu.scratch import bubble, earliest_spans, gpipe, zero_bubble\n"
        "from manygpu.scratch.splitting.pipeline import orders_of\n"
        "assert 0 < bubble(earliest_spans(orders_of(gpipe(2, 2)))) < 1",
        "from manygpu import __main__",
    ],
)
def test_plans_spans_and_costs_need_neither_tensorflow_nor_what_draws(code):
    """They may run in a page, and a command starts at once."""
    left = "{'tensorflow', 'matplotlib', 'IPython'} & {*sys.modules}"
    ran = python("-c", f"{code}\nimport sys; print({left})")
    assert (ran.returncode, ran.stdout) == (0, "set()\n"), ran.stderr


def test_the_package_itself_and_its_launcher_can_be_imported():
    modules = "manygpu, manygpu.processes.launch, manygpu.processes.workers"
    ran = python("-c", f"import {modules}; print(manygpu.__version__)")
    assert ran.returncode == 0, ran.stderr
    ran = python("-c", "import manygpu; manygpu.device")
    assert "has no attribute 'device'" in ran.stderr
