"""DTensor: one device's step on any mesh; the page has what it can't cut."""

# DTensor. Its collectives don't share a process with those of MirroredStrategy, so
# what needs messages runs in a process of its own.

STEPS = """
import numpy as np, tensorflow as tf, manygpu
from tensorflow.experimental.dtensor import DVariable
from manygpu.scratch.start.one_device import *
from manygpu.scratch.splitting.dtensor import *
from manygpu.scratch.splitting.dtensor import to_mesh
devices = manygpu.devices(8, quiet=True)
rng = np.random.default_rng(0)
X = tf.constant(rng.random((8, 28, 28, 1)), tf.float32)
y = tf.constant(rng.integers(0, 10, 8), tf.int32)

def first_losses(axes, mesh, batch=None):
    params = init_params(dtype=tf.float64)
    placed = [DVariable(to_mesh(p, mesh, a)) for p, a in zip(params, axes)]
    step = dtensor_step(dtensor_lenet, placed, 0.05, batch)
    return [float(step(X, y)) for _ in range(2)]

params, expected = init_params(dtype=tf.float64), []
for _ in range(2):
    loss, grads = gradients(X, y, params)
    expected.append(float(loss) / 8)
    sgd(params, grads, 0.05 / 8)
"""


ON_ANY_MESH = """
for mesh, batch in (({"model": 2}, None), ({"data": 2, "model": 2}, "data"),
                    ({"data": 4}, "data")):
    over, count = "model" in mesh, int(np.prod(list(mesh.values())))
    axes = DTENSOR_AXES if over else [None] * 8
    mesh = device_mesh(mesh, devices[:count])
    losses = first_losses(axes, mesh, batch)
    np.testing.assert_allclose(losses, expected, rtol=1e-12)
"""


def test_dtensor_takes_one_devices_step_on_any_mesh(run_python):
    done = run_python(STEPS + ON_ANY_MESH)
    assert done.returncode == 0, done.stderr[-2000:]
