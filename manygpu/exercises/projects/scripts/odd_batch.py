"""Trains a linear model on all devices; each works on its part of every batch.

python mine.py
"""

import numpy as np
import tensorflow as tf

import manygpu


def make_data(samples, seed=0):
    """Random samples of four features, and what a line makes of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(samples, 4)).astype("float32")
    return X, (X @ [1, -2, 3, 0.5] + 1).astype("float32")


def loss(w, X, y):
    """Mean squared error; w has a weight for each feature, and the bias last."""
    return tf.reduce_mean((tf.linalg.matvec(X, w[:-1]) + w[-1] - y) ** 2)


def gradient(w, X, y):
    """The loss's gradient."""
    with tf.GradientTape() as tape:
        tape.watch(w)
        value = loss(w, X, y)
    return tape.gradient(value, w)


def step(copies, devices, X, y, rate):
    """Take one step on a batch; return each device's new copy of the weights."""
    parts = np.array_split(np.arange(len(X)), len(devices))
    gradients = []
    for w, device, part in zip(copies, devices, parts, strict=True):
        with tf.device(device):
            gradients.append(gradient(w, X[part], y[part]))
    total = tf.add_n(gradients)
    moved = []
    for w, device in zip(copies, devices, strict=True):
        with tf.device(device):
            moved.append(w - rate * total)
    return moved


def train(X, y, devices, batch=63, rate=0.3, epochs=1):
    """Return the weights after some epochs, the same on any number of devices.

    batch: samples of a step, all devices together. rate: a good one on one device.
    """
    rate *= len(devices)  # more devices can take larger steps
    copies = [tf.zeros(X.shape[1] + 1) for _ in devices]
    for _ in range(epochs):
        for i in range(0, len(X), batch):
            copies = step(copies, devices, X[i : i + batch], y[i : i + batch], rate)
    return copies[0].numpy()


if __name__ == "__main__":
    X, y = make_data(630)
    for epochs in (1, 2, 4):
        w = train(X, y, manygpu.devices(2), epochs=epochs)
        print(f"{epochs} epochs: loss {loss(w, X, y).numpy():.4g}")
