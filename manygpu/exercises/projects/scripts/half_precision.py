"""Trains in float16, each batch in several parts, since all of it doesn't fit.

Small gradients vanish in float16, so the loss is scaled; large ones overflow. A batch
of which anything overflows shall change no weight: only the scale is halved.

python mine.py
"""

import numpy as np


def make_data(samples, seed=0):
    """Random samples of four features; a few are far larger than the others."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(samples, 4))
    X[rng.random(samples) < 0.02] *= 10
    return X, X @ [1, -2, 3, 0.5]


def loss(w, X, y):
    """Mean squared error, in float64."""
    return np.mean((X @ w - y) ** 2)


def gradient(w, X, y, scale):
    """The gradient of `scale` times the mean loss of these samples, in float16."""
    half = np.float16
    with np.errstate(over="ignore", invalid="ignore"):
        X = X.astype(half)
        error = X @ w.astype(half) - y.astype(half)
        return X.T @ (error * half(2 * scale / len(y)))


def step(w, X, y, part, rate, scale):
    """Take one step on a batch, in parts of at most `part` samples.

    Returns the new weights and the scale for the next step.
    """
    total = np.zeros(len(w))
    starts = range(0, len(X), part)
    for i in starts:
        found = gradient(w, X[i : i + part], y[i : i + part], scale)
        if np.isfinite(found).all():
            total += found
        else:
            scale /= 2
    return w - rate * total / (scale * len(starts)), scale


def train(X, y, batch=20, part=8, rate=0.01, epochs=1, scale=2.0**12):
    """Return the weights after some epochs, and the scale."""
    w = np.zeros(X.shape[1])
    for _ in range(epochs):
        for i in range(0, len(X), batch):
            w, scale = step(w, X[i : i + batch], y[i : i + batch], part, rate, scale)
    return w, scale


if __name__ == "__main__":
    X, y = make_data(500)
    for epochs in (1, 2, 4):
        w, scale = train(X, y, epochs=epochs)
        print(f"{epochs} epochs: loss {loss(w, X, y):.4g}, scale {scale:g}")
