"""What the page about cards calls "tried here"; its printed lines: test_devices.py."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import manygpu


def per_sample(y, prediction):
    return tf.reduce_mean((y - prediction) ** 2, axis=-1)


def one_number(y, prediction):
    return tf.reduce_mean((y - prediction) ** 2)


def fit_once(loss, count: int) -> tuple[float, float]:
    """The loss that `fit` reports for a step on `count` devices; the bias after it."""
    X = np.linspace(0, 1, 16, dtype=np.float32).reshape(8, 2)
    strategy = tf.distribute.MirroredStrategy(manygpu.devices(count, quiet=True))
    with strategy.scope():
        layers = [
            tf.keras.Input((2,)),
            tf.keras.layers.Dense(1, kernel_initializer="ones"),
        ]
        model = tf.keras.Sequential(layers)
        model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss=loss)
    target = X.sum(axis=1, keepdims=True) + 1
    kept = model.fit(X, target, batch_size=8, shuffle=False, verbose=0)
    return kept.history["loss"][0], float(model.get_weights()[1][0])


@pytest.mark.parametrize(("loss", "times"), [(per_sample, 1), (one_number, 2)])
def test_a_loss_of_one_number_counts_once_per_device_under_fit(loss, times):
    one, two = fit_once(loss, 1), fit_once(loss, 2)
    assert one == pytest.approx((1, 0.2), rel=1e-5)
    assert two == pytest.approx((times * one[0], times * one[1]), rel=1e-5)
