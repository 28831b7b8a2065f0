"""Weights that begin at 0 are like the moments of Adam, and yet another thing."""

import numpy as np

from manygpu.prove import Subject, Training, judge

BETAS, EPSILON, RATE = (0.9, 0.999), 1e-8, 0.01


def batch(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    drawn = np.random.default_rng(seed)
    return drawn.normal(size=(n, 4)), drawn.normal(size=(n, 2))


def gradient(X, y, weights):
    W, b = weights
    off = X @ W + b - y
    return float((off**2).sum() / 2), [X.T @ off, off.sum(0)]


class Adam:
    """Adam over the whole batch; its moments are what is kept beside the weights."""

    def __init__(self, weights, devices: int) -> None:
        self.weights = [np.array(w) for w in weights]
        self.first = [np.zeros_like(w) for w in weights]
        self.second = [np.zeros_like(w) for w in weights]
        self.steps, self.devices = 0, devices

    def take(self, X, y):
        loss, grads = gradient(X, y, self.weights)
        self.steps += 1
        for i, g in enumerate(grads):
            g = g / len(X)
            self.first[i] = BETAS[0] * self.first[i] + (1 - BETAS[0]) * g
            self.second[i] = BETAS[1] * self.second[i] + (1 - BETAS[1]) * g * g
            mean = self.first[i] / (1 - BETAS[0] ** self.steps)
            root = np.sqrt(self.second[i] / (1 - BETAS[1] ** self.steps))
            self.weights[i] = self.weights[i] - RATE * mean / (root + EPSILON)
        return loss / len(X)

    def copies(self):
        return [self.weights] * self.devices

    def state(self):
        return {f"moment {i}": [m] * self.devices for i, m in enumerate(self.first)}


def test_a_moment_that_begins_at_0_is_no_copy_of_a_bias_of_0():
    def start(weights, devices):
        adam = Adam(weights, devices)
        return Training(adam.take, adam.copies, state=adam.state, traced=False)

    weights = [np.random.default_rng(0).normal(size=(4, 2)), np.zeros(2)]
    assert judge(Subject(start, gradient, batch, weights, RATE)).right
