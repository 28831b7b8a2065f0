"""Meeting seldom: meetings, late sums in a graph, Adam.

Steps that end in a meeting are those of one device: trainings/test_one_device.py.

In float64, where an error of weighting or of order leaves far more than 1e-12.
"""

import keras
import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu import scratch
from manygpu.scratch import Delayed, LocalAdam, Meeting, train_batch
from tests.unit.helpers import EIGHT, distance, in_graph, same, values

LR, INPUTS, CLASSES = 0.3, 5, 4
quick = settings(deadline=None, max_examples=15)


def batch(samples: int, seed: int = 0) -> tuple[tf.Tensor, tf.Tensor]:
    rng = np.random.default_rng(seed)
    X = tf.constant(rng.normal(size=(samples, INPUTS)))
    return X, tf.constant(rng.integers(0, CLASSES, samples), tf.int32)


def first() -> list[tf.Tensor]:
    rng = np.random.default_rng(9)
    return [tf.constant(rng.normal(size=s)) for s in ((INPUTS, CLASSES), (CLASSES,))]


def of(X, y, params):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(scratch.cross_entropy(X @ params[0] + params[1], y))
    return loss, tape.gradient(loss, params)


def replicas_on(n: int) -> list[list[tf.Variable]]:
    return [scratch.get_params(first(), device) for device in EIGHT[:n]]


def moved(params) -> list[np.ndarray]:
    return [p - s.numpy() for p, s in zip(values(params), first(), strict=True)]


@given(
    n=st.integers(1, 4),
    lr=st.floats(0.1, 2),
    momentum=st.floats(0, 0.95),
    samples=st.lists(st.integers(1, 9), min_size=4, max_size=4),
)
@quick
def test_a_meeting_is_a_step_with_nesterovs_momentum(n, lr, momentum, samples):
    replicas = replicas_on(n)
    meeting, weights = Meeting(replicas, EIGHT[:n], lr, momentum), samples[:n]
    place, speed = [p.numpy() for p in first()], [0.0, 0.0]
    rng = np.random.default_rng(n)
    for _ in range(3):
        ends = [[p + rng.normal(size=p.shape) for p in place] for _ in range(n)]
        for own, end in zip(replicas, ends, strict=True):
            for p, e in zip(own, end, strict=True):
                p.assign(e)
        mean = [np.average(e, axis=0, weights=weights) for e in zip(*ends, strict=True)]
        ways = [p - m for p, m in zip(place, mean, strict=True)]
        speed = [momentum * v + w for v, w in zip(speed, ways, strict=True)]
        steps = [w + momentum * v for w, v in zip(ways, speed, strict=True)]
        place = [p - lr * s for p, s in zip(place, steps, strict=True)]
        meeting.meet(weights)
    assert distance(values(replicas[-1]), place) <= 1e-12
    assert all(same(values(own), values(replicas[0])) for own in replicas)


def test_what_a_device_keeps_lies_on_it():
    meeting = Meeting(replicas_on(3), EIGHT[:3])
    for device, *kept in zip(EIGHT[:3], meeting.start, meeting.speeds, strict=True):
        assert all(v.device.endswith(device) for own in kept for v in own)


def test_a_delay_composes_with_a_ring_and_runs_in_a_graph():
    eager, graph = replicas_on(3), replicas_on(3)
    late = [
        Delayed(r, 2, scratch.allreduce_with(scratch.ring_allreduce))
        for r in (eager, graph)
    ]
    step = in_graph(lambda X, y: train_batch(X, y, graph, EIGHT[:3], LR, late[1], of))
    for seed in range(5):
        train_batch(*batch(7, seed), eager, EIGHT[:3], LR, late[0], of)
        step(*batch(7, seed))
    assert distance(moved(graph[1]), moved(eager[0])) <= 1e-12
    assert distance(values(eager[0]), first()) > 1e-3


def test_local_adam_is_keras_adam():
    [own] = replicas_on(1)
    theirs = [keras.Variable(p, dtype="float64") for p in first()]
    adam, engine = LocalAdam(own, 0.01), keras.optimizers.Adam(0.01)
    for seed in range(4):
        _, grads = of(*batch(6, seed), own)
        adam(grads)
        engine.apply(grads, theirs)
    # Keras computes 1 - 0.999^t in float32, which leaves it four or five digits.
    assert distance(moved(own), moved([t.value for t in theirs])) <= 1e-4
