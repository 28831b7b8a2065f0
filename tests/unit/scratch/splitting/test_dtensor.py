"""DTensor: one device's step on any mesh, what it can't cut, bad input."""

# DTensor. Its collectives don't share a process with those of MirroredStrategy, so
# what needs messages runs in a process of its own.

STEPS = """
import numpy as np, tensorflow as tf, manygpu
from tensorflow.experimental.dtensor import DVariable, unpack
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

# If this fails, TensorFlow was mended: change the chapter's text.
WHAT_IT_CANNOT_DO = """
mesh = device_mesh({"model": 2}, devices[:2])
def refused(forward, axes):
    params = [DVariable(to_mesh(p, mesh, a)) for p, a in zip(init_params(), axes)]
    try:
        dtensor_step(forward, params, 0.05)(X, y)
    except tf.errors.UnknownError as error:
        return str(error)
assert "AvgPoolGrad" in refused(lenet, [None] * 8)
said = refused(dtensor_lenet, [None, None, 3, 0, None, None, None, None])
assert "Filter for convolution must have fully replicated layout" in said
h, W = tf.ones((4, 6), tf.float64), tf.constant(rng.normal(size=(6, 10)))
loss = tf.function(lambda h, W, y: cross_entropy(h @ W, y))
found = loss(to_mesh(h, mesh), to_mesh(W, mesh, 1), to_mesh(tf.range(4), mesh))
assert not np.allclose(unpack(found)[0], loss(h, W, tf.range(4)))
print("as told")
"""


def test_dtensor_takes_one_devices_step_on_any_mesh_and_cannot_do_what_is_told(
    run_python,
):
    done = run_python(STEPS + ON_ANY_MESH + WHAT_IT_CANNOT_DO)
    assert "as told" in done.stdout, done.stderr[-2000:]
