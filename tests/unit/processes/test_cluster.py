"""Who is in a script's cluster, with TensorFlow: as TF_CONFIG or Slurm say it."""

import os

import pytest

from manygpu.processes.cluster import cluster_resolver
from manygpu.processes.launch import PORTS

# One of three nodes' five tasks, as `srun` tells it.
SLURM = {
    "SLURM_JOB_ID": "123456",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_NODELIST": "n[8-10]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURMD_NODENAME": "n9",
}


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_the_launchers_word_counts_before_slurms(slurm):
    slurm.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1"]}, "task": {}}')
    assert cluster_resolver().cluster_spec().as_dict() == {"worker": ["a:1"]}


def test_a_task_of_slurm_finds_its_place(slurm):
    """In Slurm's order of nodes, where TensorFlow's would be n10, n8, n9."""
    port = PORTS[0] + 3456  # the last digits of the job's number
    found = cluster_resolver()
    workers = [f"{node}:{port + k}" for node in ("n8", "n9") for k in range(2)]
    assert found.cluster_spec().as_dict() == {"worker": [*workers, f"n10:{port}"]}
    assert (found.task_type, found.task_id) == ("worker", 3)
    assert found.num_accelerators() == {"GPU": 0}


@pytest.mark.parametrize(
    ("visible", "bound", "own"),
    [
        ("0,1", None, "1"),
        ("4,5,6,7", None, "6,7"),
        ("3", None, "3"),  # shared: there are fewer than tasks
        ("0,1", "2", "0,1"),  # Slurm has dealt them out already
    ],
)
def test_tasks_of_a_node_share_its_gpus_out(slurm, visible, bound, own):
    slurm.setenv("CUDA_VISIBLE_DEVICES", visible)
    if bound:
        slurm.setenv("SLURM_GPUS_PER_TASK", bound)
    found = cluster_resolver()
    assert found.num_accelerators() == {"GPU": len(own.split(","))}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == own


@pytest.mark.parametrize(
    ("name", "value"), [("SLURM_PROCID", "1"), ("SLURM_STEP_NODELIST", "n[1-3]")]
)
def test_a_task_that_the_others_would_not_find_is_refused(slurm, name, value):
    slurm.setenv(name, value)
    with pytest.raises(RuntimeError, match=r"should be at n\d:.*, but runs on n9"):
        cluster_resolver()


def test_a_single_task_of_slurm_is_alone(slurm):
    slurm.setenv("SLURM_STEP_NUM_TASKS", "1")
    assert cluster_resolver() is None
