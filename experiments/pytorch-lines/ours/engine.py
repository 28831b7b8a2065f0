"""Blocks of the parts `engine` and `in-step`."""

import given
import tensorflow as tf

from manygpu.costs import layer_costs
from manygpu.scratch.data_parallel.parameters_and_devices import get_params
from manygpu.scratch.engine.mixed_precision import (
    LossScale,
    mixed_gradients,
    step_if_finite,
    unscale,
)
from manygpu.scratch.in_step.asynchronous import ParameterServer
from manygpu.scratch.in_step.meeting_seldom import Meeting, local_step
from manygpu.scratch.in_step.sending_less import LowRank
from manygpu.scratch.splitting.network import Model
from manygpu.scratch.start.one_device import sgd
from ours.cases import DEVICES, LR, case, flat, layers, lenet, mean_gradients

TWO = DEVICES[:2]


@case("engine/mirrored-strategy", 1)
def mirrored_strategy(found):
    return {"grads": mean_gradients(*given.images(7), lenet())[1]}


@case("engine/feeding-the-devices", 1)
def feeding_the_devices(found):
    own = {"sizes": [[32, 32, 32, 4]] * 2, "samples": [list(range(100))] * 2}
    return own | {"another order": True}


@case("engine/files-for-many-workers", 1)
def files_for_many_workers(found):
    # 23 // 2 samples per rank and epoch, none of them twice
    return {"samples": 110, "distinct": [22] * 10, "orders": 10}


@case("engine/mixed-precision", 1)
def mixed_precision(found):
    X, y = given.images(8)
    params = [tf.Variable(tf.cast(p, tf.float32)) for p in lenet()]
    X, scale = tf.constant(X, tf.float32), LossScale(2.0**16)
    _, grads = mixed_gradients(X, tf.constant(y), params, scale=float(scale.scale) / 8)
    own = {"grads": flat(unscale(grads, float(scale.scale))), "scale": scale.scale}
    own["scale"] = own["scale"].numpy()
    step_if_finite(scale, tf.constant(False), lambda: None)
    return own | {"moved": False, "scale after": scale.scale.numpy()}


@case("engine/roofline", 1)
def roofline(found):
    first, second = (8 * one.flops for one in layer_costs(layers(6, 8, 4)))
    # The gradient for the first layer's input is asked for by no layer.
    return {"flops": 2 * first + 3 * second}


@case("engine/looking-inside", 1)
def looking_inside(found):
    return {"rows": 5, "are operations": True}


@case("in-step/asynchronous", 1)
def asynchronous(found):
    model = Model(layers(6, 8, 4))
    server = ParameterServer(model.params, TWO[0], 2, 12, lambda age: 0.05)

    def compute(ticket):
        seed = 10 * (ticket.worker + 1) + ticket.number
        X, y = given.features(8, 6, 4, seed=seed)
        values = [tf.Variable(p) for p in ticket.params]
        _, grads = model.gradients(tf.constant(X), tf.constant(y), values)
        return [g / 8 for g in grads]

    server.replay([int(w) - 1 for w in found["for ours: order@0"]], compute)
    return {"params@0": flat(server.params)}


@case("in-step/sending-less", 1)
def sending_less(found):
    X, y = given.features(2, 12, 10)
    model = Model(layers(12, 10))
    replicas = [get_params(model.params, device) for device in TWO]
    grads = []
    for rank, own in enumerate(replicas):
        one = slice(rank, rank + 1)
        grads.append(model.gradients(tf.constant(X[one]), tf.constant(y[one]), own)[1])
    sums, _ = LowRank(replicas, rank=2)(grads)
    # P and Q, 2 (12 + 10) numbers, and the bias' 10 instead of 130, in 3 steps
    return {"grads": flat(sums[0], 2), "numbers sent": 3 * 54}


@case("in-step/meeting-seldom", 1)
def meeting_seldom(found):
    X, y = (tf.constant(a) for a in given.features(8, 6, 4))
    model = Model(layers(6, 8, 4))
    replicas = [get_params(model.params, device) for device in TWO]
    meeting = Meeting(replicas, TWO)
    updates = [lambda grads, own=own: sgd(own, grads, LR) for own in replicas]
    for step in range(8):
        local_step(X, y, replicas, TWO, updates, model.gradients)
        if step % 4 == 3:
            meeting.meet([16, 16])
    return {f"params@{rank}": flat(own) for rank, own in enumerate(replicas)}
