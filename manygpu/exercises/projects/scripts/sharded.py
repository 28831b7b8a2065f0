"""Trains with momentum; each device keeps its share of the weights and the velocity.

python mine.py
"""

import numpy as np


def make_data(samples, seed=0):
    """Random samples of seven features, and what a line makes of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(samples, 7))
    return X, X @ [8, -2, 3, 0.5, 0, 1, -1]


def gradient(w, X, y):
    """Of the mean squared error."""
    return 2 * X.T @ (X @ w - y) / len(y)


def reduce_scatter(gradients):
    """Give each device its share of what all devices' gradients are together."""
    cut = [np.array_split(each, len(gradients)) for each in gradients]
    return [np.sum(shares, axis=0) for shares in zip(*cut, strict=True)]


def clip(shares, limit):
    """Shorten a gradient that is longer than `limit`; each device has its share."""
    found = []
    for share in shares:
        length = np.linalg.norm(share)
        found.append(share * min(1, limit / length) if length else share)
    return found


def train(X, y, devices, rate=0.01, limit=1.0, momentum=0.9, steps=1):
    """Return the weights after some steps on all samples, the same on any devices.

    devices: how many; the number of samples is a multiple of it.
    """
    shares = np.array_split(np.zeros(X.shape[1]), devices)
    velocities = [np.zeros_like(share) for share in shares]
    Xs, ys = np.split(X, devices), np.split(y, devices)
    for _ in range(steps):
        w = np.concatenate(shares)  # gathered by each device
        gradients = [gradient(w, *own) for own in zip(Xs, ys, strict=True)]
        clipped = clip(reduce_scatter(gradients), limit)
        for i, share in enumerate(clipped):
            velocities[i] = momentum * velocities[i] - rate * share
            shares[i] = shares[i] + velocities[i]
    return np.concatenate(shares)


if __name__ == "__main__":
    X, y = make_data(64)
    for devices in (1, 2, 4):
        w = train(X, y, devices, steps=100)
        print(f"{devices} devices: loss {np.mean((X @ w - y) ** 2):.4g}")
