"""`experiments/gpu_records.py`, on a stand-in: two CPU devices and small sizes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from manygpu import records
from manygpu.records import gpu

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "experiments" / "gpu_records.py"
# A process in which TensorFlow is there and has not started: it begins in no time.
RUN = """
import runpy, sys
sys.path.insert(0, {0!r})
sys.argv = {1}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_one_run_answers_each_page(tmp_path, monkeypatch):
    words = [sys.executable, SCRIPT, "--stand-in", "--out", tmp_path / "gpu.json"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    told = {"env": environment, "capture_output": True, "text": True}
    done = subprocess.run(words, cwd=ROOT, check=False, **told)
    assert done.returncode == 0, done.stderr
    made = records.read(tmp_path / "gpu.json")  # checked
    wanted = {(q, name) for q, own in gpu.QUESTIONS.items() for name in own}
    assert {(r["question"], r["measure"]) for r in made["runs"]} == wanted
    assert all(len(r["values"]) >= 2 for r in made["runs"])
    assert made["experiment"]["devices"] == 2
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    for question in gpu.QUESTIONS:
        assert made["experiment"]["hardware"] in records.gpu_record(question)


@pytest.mark.skipif(
    bool(tf.config.list_physical_devices("GPU")), reason="there it would measure"
)
def test_without_a_gpu_nothing_is_made(run_python):
    done = run_python(RUN.format(str(SCRIPT.parent), [str(SCRIPT)]))
    assert done.returncode == 0, done.stderr
    assert "No GPU here" in done.stdout and gpu.NAME not in records.names()


def test_a_stand_in_is_not_kept(run_python):
    done = run_python(RUN.format(str(SCRIPT.parent), [str(SCRIPT), "--stand-in"]))
    assert done.returncode == 2 and "give --out" in done.stderr
