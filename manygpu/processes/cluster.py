"""Who is in a script's cluster, whoever started it.

`manygpu launch` and Kubernetes say it in TF_CONFIG, Slurm in variables of its own. A
script asks `cluster_resolver` and runs unchanged under all of them, and alone.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from manygpu.processes.launch import PORTS, visible_gpus

if TYPE_CHECKING:
    import tensorflow as tf


def cluster_resolver() -> tf.distribute.cluster_resolver.ClusterResolver | None:
    """Return who is in this script's cluster, whoever started it.

    The same script then runs alone, by `manygpu launch`, under Kubernetes (both set
    TF_CONFIG) and under Slurm: `MultiWorkerMirroredStrategy(cluster_resolver())`.

    Its servers have no password, and listen to whoever reaches the machine, not to
    127.0.0.1 alone, whatever TF_CONFIG says.

    Returns:
        ClusterResolver | None: None where the process is alone; the strategy takes it.

    Raises:
        RuntimeError: Slurm's tasks are placed as TensorFlow can't find them.
    """
    if os.environ.get("TF_CONFIG"):
        import tensorflow as tf  # here: a script that is alone needs none

        return tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
        return _slurm_resolver()
    return None


def _slurm_resolver() -> tf.distribute.cluster_resolver.ClusterResolver:
    """The tasks that `srun` started, by their addresses.

    TensorFlow's own resolver divides by the GPUs of a task, which may have none, and
    sorts nodes as text, n10 before n9, where Slurm counts. So it is asked for the
    addresses only; their order and the GPUs are seen to here.
    """
    import tensorflow as tf

    resolvers, slurm = tf.distribute.cluster_resolver, os.environ
    counts = re.findall(r"(\d+)(?:\(|,|$)", slurm["SLURM_STEP_TASKS_PER_NODE"])
    tasks = max(map(int, counts))  # of a node
    found = resolvers.SlurmClusterResolver(
        port_base=PORTS[0] + int(slurm["SLURM_JOB_ID"]) % 10_000,  # jobs share nodes
        gpus_per_node=tasks,
        auto_set_gpu=False,
    )
    workers = sorted(found.cluster_spec().job_tasks("worker"), key=_by_number)
    index, node = int(slurm["SLURM_PROCID"]), slurm["SLURMD_NODENAME"]
    if not workers[index].startswith(f"{node}:"):
        raise RuntimeError(
            f"task {index} should be at {workers[index]}, but runs on {node}: fill the "
            f"nodes one by one, in the order of their numbers (--distribution=block)"
        )
    gpus = visible_gpus()
    if (each := len(gpus) // tasks) and "SLURM_GPUS_PER_TASK" not in slurm:
        first = int(slurm["SLURM_LOCALID"]) * each
        gpus = gpus[first : first + each]
        slurm["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    return resolvers.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": workers}),
        task_type="worker",
        task_id=index,
        num_accelerators={"GPU": len(gpus)},
        rpc_layer="grpc",
    )


def _by_number(address: str) -> list[str | int]:
    """To sort by: the numbers in it as numbers."""
    parts = re.split(r"(\d+)", address)
    return [int(part) if part.isdigit() else part for part in parts]
