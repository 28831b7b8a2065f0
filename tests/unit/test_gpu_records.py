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
SCRIPT = [sys.executable, "experiments/gpu_records.py"]


def run(*words: str) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*SCRIPT, *words], cwd=ROOT, env=environment, capture_output=True, text=True
    )


def test_one_run_answers_each_page(tmp_path, monkeypatch):
    done = run("--stand-in", "--out", str(tmp_path / "gpu.json"))
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
def test_without_a_gpu_nothing_is_made():
    done = run()
    assert done.returncode == 0, done.stderr
    assert "No GPU here" in done.stdout and gpu.NAME not in records.names()


def test_a_stand_in_is_not_kept():
    done = run("--stand-in")
    assert done.returncode == 2 and "give --out" in done.stderr
