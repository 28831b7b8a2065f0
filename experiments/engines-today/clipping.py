"""Keras 3: each replica clips its own gradient, and only then are they added."""

import keras
import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")
two = [tf.config.LogicalDeviceConfiguration() for _ in range(2)]
tf.config.set_logical_device_configuration(cpu[0], two)
X = np.array([[3.0], [-1.0]], "float32")  # a sample a replica; y = 1, y = 1
mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
for clip in ({"clipnorm": 1.0}, {"global_clipnorm": 1.0}, {"clipvalue": 1.0}):
    moved = {}
    for strategy in (tf.distribute.get_strategy(), mirrored):
        with strategy.scope():
            dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
            model = keras.Sequential([keras.Input((1,)), dense])
            model.compile(keras.optimizers.SGD(1.0, **clip), "mse")
        model.fit(X, np.ones((2, 1)), batch_size=2, verbose=0)
        moved[strategy.num_replicas_in_sync] = -model.get_weights()[0].item()
    print(f"{clip}: one device follows {moved[1]:.3g}, two replicas {moved[2]:.3g}")
