"""Claims of the sources about TensorFlow that no chapter's cell shows."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import manygpu
from manygpu.checks import short_device_name


def test_the_guides_pipeline_cannot_be_imported():
    import tensorflow.python.distribute as there

    assert there is not None
    with pytest.raises(ImportError, match="pipeline"):
        from tensorflow.python.distribute import pipeline  # noqa: F401


def test_keras_has_no_layer_called_batchnorm():
    assert hasattr(tf.keras.layers, "BatchNormalization")
    assert not hasattr(tf.keras.layers, "BatchNorm")


def test_categorical_crossentropy_refuses_whole_number_labels():
    scores, labels = np.eye(4, 10, dtype=np.float32), np.array([0, 1, 2, 3])
    one_hot = tf.one_hot(labels, 10)
    assert tf.keras.losses.CategoricalCrossentropy()(one_hot, scores) < 1e-3
    assert tf.keras.losses.SparseCategoricalCrossentropy()(labels, scores) < 1e-3
    with pytest.raises(ValueError, match="shape|rank"):
        tf.keras.losses.CategoricalCrossentropy()(labels, scores)


@pytest.mark.parametrize("samples", [3, 5, 96])
def test_a_plain_split_refuses_an_uneven_batch(samples):
    assert [len(part) for part in tf.split(tf.ones((4, 5)), 4)] == [1, 1, 1, 1]
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        tf.split(tf.ones((samples, 5)), 4 if samples < 96 else 5)


def test_a_split_places_nothing():
    devices = manygpu.devices(4, quiet=True)
    with tf.device(devices[-1]):
        batch = tf.reshape(tf.range(20.0), (4, 5))
    places = {short_device_name(part.device) for part in tf.split(batch, 4)}
    assert len(places) == 1
