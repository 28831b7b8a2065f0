"""The launcher with TensorFlow: a strategy finds its cluster and reduces in it."""

from manygpu.processes.launch import launch

SCRIPT = """
import tensorflow as tf
from manygpu.processes.cluster import cluster_resolver

resolver = cluster_resolver()
strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)

@tf.function
def total():
    context = tf.distribute.get_replica_context()
    return context.all_reduce("sum", tf.constant(2.0 ** resolver.task_id))

print("total", float(strategy.run(total)), "of", strategy.num_replicas_in_sync)
"""


def test_workers_reduce_together(tmp_path, capsys):
    file = tmp_path / "script.py"
    file.write_text(SCRIPT, encoding="utf-8")
    launch(file, workers=2, timeout_s=300, variables={"MANYGPU_DEVICES": "1"})
    shown = sorted(capsys.readouterr().out.splitlines())
    assert shown == [f"[worker {k}] total 3.0 of 2" for k in range(2)]
