"""The launcher with TensorFlow: a strategy finds its cluster, whoever started it."""

from __future__ import annotations

import os

import pytest

from manygpu.launch import PORTS, cluster_resolver, launch

# One of three nodes' five tasks, as `srun` tells it.
SLURM = {
    "SLURM_JOB_ID": "123456",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_NODELIST": "n[01-02,10]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_PROCID": "3",
    "SLURMD_NODENAME": "n02",
}
SCRIPT = """
import tensorflow as tf
from manygpu.launch import cluster_resolver

resolver = cluster_resolver()
strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)

@tf.function
def total():
    context = tf.distribute.get_replica_context()
    return context.all_reduce("sum", tf.constant(2.0 ** resolver.task_id))

print("total", float(strategy.run(total)), "of", strategy.num_replicas_in_sync)
"""


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_workers_reduce_together(tmp_path, capsys):
    file = tmp_path / "script.py"
    file.write_text(SCRIPT, encoding="utf-8")
    launch(file, workers=2, timeout_s=300, variables={"MANYGPU_DEVICES": "1"})
    shown = sorted(capsys.readouterr().out.splitlines())
    assert shown == [f"[worker {k}] total 3.0 of 2" for k in range(2)]


def test_the_launchers_word_counts_before_slurms(slurm):
    slurm.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1"]}, "task": {}}')
    assert cluster_resolver().cluster_spec().as_dict() == {"worker": ["a:1"]}


def test_a_task_of_slurm_finds_its_place(slurm):
    port = PORTS[0] + 3456  # the last digits of the job's number
    found = cluster_resolver()
    workers = [f"{node}:{port + k}" for node in ("n01", "n02") for k in range(2)]
    assert found.cluster_spec().as_dict() == {"worker": [*workers, f"n10:{port}"]}
    assert (found.task_type, found.task_id) == ("worker", 3)
    assert not found.num_accelerators().get("GPU")


@pytest.mark.parametrize(("visible", "own"), [("0,1", "1"), ("0,1,2,3", "2,3")])
def test_tasks_of_a_node_share_its_gpus_out(slurm, visible, own):
    slurm.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = cluster_resolver()
    assert found.num_accelerators() == {"GPU": len(own.split(","))}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == own


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0"}, "sees 1 of its node's GPUs, but 2 tasks"),
        (
            {"SLURM_STEP_NODELIST": "n[9-11]", "SLURMD_NODENAME": "n10"},
            "task 3 runs on n10, but TensorFlow.* expects it at n9:",
        ),
    ],
)
def test_what_tensorflow_would_mix_up_is_refused(slurm, variables, said):
    for name, value in variables.items():
        slurm.setenv(name, value)
    with pytest.raises(RuntimeError, match=said):
        cluster_resolver()


def test_a_single_task_of_slurm_is_alone(slurm):
    slurm.setenv("SLURM_STEP_NUM_TASKS", "1")
    assert cluster_resolver() is None
