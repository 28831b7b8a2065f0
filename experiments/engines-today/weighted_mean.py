"""Keras 3: "mean_with_sample_weight" is a mean of the replicas' means."""

import keras
import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")
two = [tf.config.LogicalDeviceConfiguration() for _ in range(2)]
tf.config.set_logical_device_configuration(cpu[0], two)
X, y = np.ones((2, 1), "float32"), np.array([[1.0], [2.0]], "float32")
weight = np.array([1.0, 3.0])  # a sample a replica: even shares
mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
for strategy in (tf.distribute.get_strategy(), mirrored):
    with strategy.scope():
        dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = keras.Sequential([keras.Input((1,)), dense])
        loss = keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
        model.compile(keras.optimizers.SGD(1.0), loss)
    model.fit(X, y, batch_size=2, sample_weight=weight, verbose=0)
    moved, k = model.get_weights()[0].item(), strategy.num_replicas_in_sync
    print(f"{k} replicas: moved {moved:.3g}, right is {(2 * weight @ y)[0] / 4:.3g}")
