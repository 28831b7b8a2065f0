"""How a case is noted, and what all cases use."""

from collections.abc import Callable

import given
import numpy as np
import tensorflow as tf

import manygpu
from manygpu.scratch.splitting.network import Layer
from manygpu.scratch.start.one_device import gradients
from manygpu.scratch.start.three_ways_to_split import Linear, dense, relu

CASES: dict[tuple[str, int], Callable] = {}
DEVICES = manygpu.devices(8, quiet=True)
LR = 0.05


def case(page: str, number: int) -> Callable:
    """Note a function `ours(found)`; found: arrays of PyTorch by name@rank."""

    def note(ours: Callable) -> Callable:
        CASES[page, number] = ours
        return ours

    return note


def variables(arrays: list[np.ndarray]) -> list[tf.Variable]:
    return [tf.Variable(a) for a in arrays]


def lenet(seed: int = 0) -> list[tf.Variable]:
    """Return LeNet's parameters in float64."""
    return variables(given.params(given.LENET, seed))


def layers(*widths: int, seed: int = 0, last: bool = False) -> list[Layer]:
    """Return a perceptron's layers; last: with a ReLU after the last one, too."""
    found, arrays = [], variables(given.perceptron(*widths, seed=seed))
    for i, own in enumerate(zip(arrays[::2], arrays[1::2], strict=True)):
        bent = last or i + 2 < len(widths)
        work = Linear(tf.matmul, relu) if bent else dense
        ends = {"takes": widths[i : i + 1], "gives": widths[i + 1 : i + 2]}
        found.append(Layer(f"dense {i}", work, own, **ends))
    return found


def flat(tensors: list[tf.Tensor], by: float = 1.0) -> np.ndarray:
    """Return all numbers of tensors, end to end, divided by a number."""
    return np.concatenate([np.ravel(t) for t in tensors]) / by


def mean_gradients(X, y, params: list) -> tuple[float, np.ndarray]:
    """Return LeNet's mean loss and its gradients, on one device."""
    loss, grads = gradients(tf.constant(X), tf.constant(y), params)
    return float(loss) / len(y), flat(grads, len(y))
