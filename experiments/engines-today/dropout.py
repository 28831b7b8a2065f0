"""Keras 3: do all replicas drop the same units?."""

import keras
import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")
two = [tf.config.LogicalDeviceConfiguration() for _ in range(2)]
tf.config.set_logical_device_configuration(cpu[0], two)
mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with mirrored.scope():
    model = keras.Sequential([keras.Input((1000,)), keras.layers.Dropout(0.5)])


@tf.function
def both(X):
    return mirrored.run(lambda own: model(own, training=True), args=(X,))


for step in range(3):
    first, second = mirrored.experimental_local_results(both(tf.ones((1, 1000))))
    print(f"step {step}: {np.mean(first == second):.0%} of the units alike, right: 50%")
