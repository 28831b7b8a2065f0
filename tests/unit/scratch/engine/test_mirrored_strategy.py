"""The engine takes the step that was built by hand, and Keras holds the same model.

MirroredStrategy runs in a process of its own, with just the devices it uses: its
collectives must not meet those of other tests. The page takes fifty steps.
"""

import json

import numpy as np
import tensorflow as tf

from manygpu.scratch import init_params, keras_lenet, lenet
from tests.unit.helpers import batch

# Batches of 23 images and one of 4: always uneven over three devices, and the engine
# gives the third one no row of the last.
SIDE_BY_SIDE = """
import json
import numpy as np, tensorflow as tf, manygpu
from manygpu.data import fashion_mnist
from manygpu.measure import distance
from manygpu.scratch import get_params, init_params, train_batch
from manygpu.scratch.engine.mirrored_strategy import mirrored_step

devices, B, LR = manygpu.devices(quiet=True), 23, 0.1
strategy = tf.distribute.MirroredStrategy(devices)
batches = fashion_mnist(B, 4 * B + 4, shuffle=False, quiet=True)[0]
pairs = list(zip(batches, strategy.experimental_distribute_dataset(batches)))
local = strategy.experimental_local_results
by_hand = tf.function(train_batch, reduce_retracing=True)

with strategy.scope():
    params = init_params(dtype=tf.float64)
replicas = [get_params(init_params(dtype=tf.float64), d) for d in devices]
engine, off = mirrored_step(strategy, params), []
for (X, y), shards in pairs:
    loss = float(by_hand(X, y, replicas, devices, LR))
    off.append(abs(loss - float(engine(*shards, LR))))
copies = [local(p) for p in params]
off.append(float(distance([own[0] for own in copies], replicas[0])))
equal = all(np.array_equal(c, own[0]) for own in copies for c in own)
sizes = [[len(s) for s in local(y)] for _, (_, y) in pairs]
print(json.dumps([sizes, max(off), equal]))
"""


def test_uneven_steps_are_equal(run_python):
    answer = run_python(SIDE_BY_SIDE, MANYGPU_DEVICES="3")
    assert answer.returncode == 0, answer.stderr
    sizes, off, equal = json.loads(answer.stdout.splitlines()[-1])
    assert sizes == [[8, 8, 7]] * 4 + [[2, 2, 0]]
    assert off <= 1e-10 and equal


def test_keras_lenet_gives_the_logits_of_lenet_and_copies_the_values():
    params = init_params(seed=3)
    for p in params[1::2]:
        p.assign(tf.linspace(-0.1, 0.1, p.shape[0]))
    X, _ = batch(5)
    model, expected = keras_lenet(params), lenet(X, params)
    params[0].assign(tf.zeros_like(params[0]))
    np.testing.assert_allclose(model(X), expected, rtol=0, atol=1e-5)  # logits about 1
