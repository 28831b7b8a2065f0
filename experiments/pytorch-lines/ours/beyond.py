"""Blocks of the parts `beyond` and `choosing`."""

import given
import tensorflow as tf

from manygpu.scratch.beyond.step_hangs import Call, FlightLog, diagnose
from manygpu.scratch.engine.mixed_precision import mixed_gradients
from manygpu.scratch.splitting.network import Model
from manygpu.scratch.start.one_device import sgd
from ours.cases import LR, case, flat, layers, lenet, mean_gradients
from ours.data_parallel import trained


@case("beyond/many-workers", 1)
def many_workers(found):
    return {"grads": mean_gradients(*given.images(8), lenet())[1]}


@case("beyond/sixteen-thousand", 1)
def sixteen_thousand(found):
    # ZeRO 3: a part of 16,384; one gathering (a single layer), one reduce-scatter
    return {"held": 32_768 * (4 + 1) // 16_384, "collectives": [1, 1, 0]}


@case("beyond/step-hangs", 1)
def recorder(found):
    return {"collectives": [2, 1]}  # rank 1 doesn't come to the second one


@case("beyond/step-hangs", 2)
def analysis(found):
    first, second = Call(0, 0, "first", left=0.1), Call(1, 0, "second", entered=0.2)
    waits = FlightLog(0, calls=(first, second), at=9.0)
    sleeps = FlightLog(1, calls=(first,), doing="sleep", at=9.0)
    verdict = diagnose([waits, sleeps])
    # PyTorch counts collectives from 1, this book from 0.
    return {"missing": verdict.ranks, "number": second.number + 1}


@case("beyond/worker-dies", 1)
def worker_dies(found):
    X, y = (tf.constant(a) for a in given.features(8, 6, 4))
    model = Model(layers(6, 8, 4))
    speeds = [tf.Variable(tf.zeros_like(p)) for p in model.params]
    for _ in range(3):
        _, grads = model.gradients(X, y, model.params)
        for speed, g in zip(speeds, grads, strict=True):
            speed.assign(0.9 * speed + g / 8)  # as momentum_step of the page does
        sgd(model.params, speeds, LR)
    return {"params": flat(model.params), "place": 16}


@case("choosing/is-my-step-right", 1)
def is_my_step_right(found):
    return {"params": trained([given.images(7)], lenet())}


@case("choosing/which-one", 1)
def which_one(found):
    X, y = given.features(8, 6, 4)
    own = layers(6, 8, 8, last=True) + layers(8, 4, seed=1)
    params = [tf.Variable(tf.cast(p, tf.float32)) for p in Model(own).params]

    def model(X, rounded):
        return Model(own).outputs(tf.cast(X, rounded[0].dtype), rounded)

    batch = tf.constant(X), tf.constant(y)
    _, grads = mixed_gradients(*batch, params, tf.bfloat16, model=model)
    dtypes = ["torch.bfloat16", "torch.float32"]
    return {"grads": flat([tf.cast(g, tf.float32) for g in grads], 8), "dtypes": dtypes}
