"""What many of these tests need: devices, a batch of images, a distance."""

from collections import Counter
from collections.abc import Sequence
from functools import partial

import numpy as np
import tensorflow as tf

import manygpu
from manygpu.checks import short_device_name
from manygpu.measure import distance

__all__ = ["distance"]  # the one of the package, for all tests

# What the package does needs no AutoGraph, which would cost a test seconds. Readers
# have it: the tests of single steps keep it, and so do the notebooks.
in_graph = partial(tf.function, autograph=False)
EIGHT = manygpu.devices(8, quiet=True)
DTYPES = [tf.float32, tf.float64]


def batch(samples: int, seed: int = 0) -> tuple[tf.Tensor, tf.Tensor]:
    """Images and labels of LeNet's form, drawn."""
    rng = np.random.default_rng(seed)
    X = tf.constant(rng.random((samples, 28, 28, 1)), tf.float32)
    return X, tf.constant(rng.integers(0, 10, samples), tf.int32)


def numbers(tensors: Sequence) -> np.ndarray:
    """All numbers of some tensors in one row, in float64."""
    return np.concatenate([np.ravel(tf.cast(t, tf.float64)) for t in tensors])


def values(params: Sequence) -> list[np.ndarray]:
    return [p.numpy() for p in params]


def same(one: Sequence, other: Sequence) -> bool:
    """Equal in every bit."""
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def runs_on(value: tf.Tensor | tf.Variable, device: str) -> bool:
    return value.device.endswith(device)


def close(one: list, other: list, within: float) -> bool:
    """Each tensor within a share of the norm of its counterpart."""
    return max(distance(a, b) for a, b in zip(one, other, strict=True)) <= within


def upstream(op: tf.Operation) -> set:
    """Every operation that must run before `op`."""
    found, todo = set(), [op]
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo += [t.op for t in one.inputs] + list(one.control_inputs)
    return found


def places(graph: tf.Graph, kind: str) -> Counter:
    """How many operations of a kind each device has."""
    ops = [op for op in graph.get_operations() if op.type == kind]
    return Counter(short_device_name(op.device) for op in ops)
