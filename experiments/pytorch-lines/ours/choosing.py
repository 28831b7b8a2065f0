"""Blocks of the part `choosing`."""

import given
import tensorflow as tf

from manygpu.scratch.data_parallel.many_devices import allreduce_gradients
from manygpu.scratch.start.one_device import cross_entropy
from ours.cases import DEVICES, LR, case, flat, layers


@case("choosing/who-divides", 1)
def who_divides(found):
    """Sum the gradients and the weights of all micro-batches, and divide once."""
    net, sums = layers(4, 6, 5), []
    params = [p for layer in net for p in layer.params]
    for device, parts in zip(DEVICES[:2], given.weighted_tokens(), strict=True):
        with tf.device(device), tf.GradientTape() as tape:
            total = tf.constant(0.0, tf.float64)
            for X, y, weights in parts:
                h = tf.constant(X)
                for layer in net:
                    h = layer.apply(h, *layer.params)
                total += tf.reduce_sum(weights * cross_entropy(h, y))
            counted = tf.constant(sum(weights.sum() for _, _, weights in parts))
            sums.append([*tape.gradient(total, params), counted])
    *grads, Z = allreduce_gradients(sums)[0]
    grads = [g / Z for g in grads]
    after = [p - LR * g for p, g in zip(params, grads, strict=True)]
    return {"grads": flat(grads), "params": flat(after)}
