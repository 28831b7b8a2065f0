"""Keras 3 under MirroredStrategy: an optimizer's options that stop `fit`."""

import keras
import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")
two = [tf.config.LogicalDeviceConfiguration() for _ in range(2)]
tf.config.set_logical_device_configuration(cpu[0], two)
mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
often = {"use_ema": True, "ema_overwrite_frequency": 1}
for option in ({"gradient_accumulation_steps": 2}, {"use_ema": True}, often):
    with mirrored.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(1.0, **option), "mse")
    try:
        model.fit(np.ones((4, 1)), np.ones((4, 1)), batch_size=2, verbose=0)
        print(f"{option}: trains")
    except RuntimeError as error:
        print(f"{option}: {' '.join(str(error).split())[:90]}")
