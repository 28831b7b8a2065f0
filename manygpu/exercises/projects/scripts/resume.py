"""Trains with momentum, stops, and goes on from a file as if nothing had happened.

python mine.py
"""

import tempfile
from pathlib import Path

import numpy as np


def make_data(samples, seed=0):
    """Random samples of four features, and what a noisy line makes of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(samples, 4))
    return X, X @ [1, -2, 3, 0.5] + rng.normal(size=samples)


def loss(w, X, y):
    """Mean squared error."""
    return np.mean((X @ w - y) ** 2)


def start(features):
    """What a training knows before its first step."""
    return {"w": np.zeros(features), "velocity": np.zeros(features), "epoch": 0}


def batches(samples, size, epoch):
    """The batches of an epoch: each sample once, in an order of the epoch's own."""
    order = np.random.default_rng(epoch).permutation(samples)
    return [order[i : i + size] for i in range(0, samples, size)]


def train(state, X, y, steps, size=8, rate=0.02, momentum=0.9):
    """Take so many steps, from where the state is; return the new state."""
    w, velocity, epoch = state["w"], state["velocity"], state["epoch"]
    while steps:
        todo = batches(len(X), size, epoch)
        for part in todo[:steps]:
            error = X[part] @ w - y[part]
            velocity = momentum * velocity - rate * 2 * X[part].T @ error / len(part)
            w = w + velocity
        if steps >= len(todo):
            epoch += 1
        steps -= min(steps, len(todo))
    return {"w": w, "velocity": velocity, "epoch": epoch}


def save(state, file):
    """Keep a state in a file that ends in .npz."""
    np.savez(file, w=state["w"], epoch=state["epoch"])


def load(file):
    """The state that a file keeps."""
    with np.load(file) as kept:
        state = start(len(kept["w"]))
        return state | {"w": kept["w"], "epoch": int(kept["epoch"])}


if __name__ == "__main__":
    X, y = make_data(100)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.npz"
        save(train(start(4), X, y, 20), file)
        w = train(load(file), X, y, 10)["w"]
    print(f"stopped after 20 steps, loss after 30: {loss(w, X, y):.6g}")
    print(f"not stopped: {loss(train(start(4), X, y, 30)['w'], X, y):.6g}")
