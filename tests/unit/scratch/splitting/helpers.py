"""What the tests of these chapters share: sound plans, unsplit gradients, a layer."""

from collections import Counter

import numpy as np
import tensorflow as tf
from hypothesis import settings
from hypothesis import strategies as st

from manygpu.scratch.splitting.batch_normalization import batch_norm
from manygpu.scratch.splitting.network import Layer, Stage
from manygpu.scratch.splitting.pipeline import (
    check_plan,
    earliest_spans,
    in_ticks,
    orders_of,
)
from tests.unit.helpers import EIGHT

STAGES, MICRO = st.integers(1, 8), st.integers(1, 32)
BOUND = {"float32": 1e-5, "float64": 1e-12}
many = settings(deadline=None, max_examples=60)


def nowhere(count: int) -> list[Stage]:
    """Stages for checks that run nothing."""
    return [Stage(EIGHT[s % 8], ()) for s in range(count)]


def spans_of(plan, share: float = 1.0):
    """Forward 1, backward 2, in units of a device's share of the network."""
    backward = 1 if any(slot.op.kind == "W" for slot in plan) else 2
    cost = {"F": share, "B": backward * share, "W": share}
    return earliest_spans(orders_of(plan), lambda op: cost[op.kind])


def assert_sound(plan, kinds: str, stages: int, micro_batches: int, devices: int):
    ops = [slot.op for slot in plan]
    wanted = {
        (k, s, m) for k in kinds for s in range(stages) for m in range(micro_batches)
    }
    assert Counter(ops) == Counter(wanted)
    assert max(Counter((slot.device, slot.tick) for slot in plan).values()) == 1
    assert all(slot.device == slot.op.stage % devices for slot in plan)
    at = {slot.op: slot.tick for slot in plan}
    for kind, s, m in ops:  # not by `needs`: that is tested here as well
        if kind == "F" and s > 0:
            assert at["F", s, m] > at["F", s - 1, m]
        if kind == "B":
            assert at["B", s, m] > at["F", s, m]
        if kind == "B" and s < stages - 1:
            assert at["B", s, m] > at["B", s + 1, m]
        if kind == "W":
            assert at["W", s, m] > at["B", s, m]
    assert check_plan(plan, nowhere(stages)) == sorted(plan, key=lambda slot: slot.tick)
    assert in_ticks(orders_of(plan)) == plan


def whole_gradients(X, y, layers):
    """Loss and gradients by one tape over all layers."""
    params = [p for one in layers for p in one.params]
    with tf.GradientTape() as tape:
        h = tf.cast(X, params[0].dtype)
        for one in layers:
            h = one.apply(h, *one.params, *one.state)
        loss = tf.reduce_sum(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=h)
        )
    return loss, tape.gradient(loss, params)


def vectors(samples: int, width: int, classes: int, dtype="float64"):
    """A batch of vectors, and a label for each, drawn."""
    rng = np.random.default_rng(3)
    X = tf.constant(rng.normal(size=(samples, width)), dtype)
    return X, tf.constant(rng.integers(0, classes, samples), tf.int32)


def norm_layer(channels: int, seed: int = 0, dtype: str = "float64") -> Layer:
    drawn = np.random.default_rng(seed).random((4, channels)) + 0.5
    gamma, beta, mean, variance = (tf.Variable(tf.cast(v, dtype)) for v in drawn)
    return Layer("norm", batch_norm, (gamma, beta), (mean, variance))
