"""Keras 3: with a mask, the loss is a mean of the replicas' means over their tokens."""

import keras
import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")
two = [tf.config.LogicalDeviceConfiguration() for _ in range(2)]
tf.config.set_logical_device_configuration(cpu[0], two)
X = np.array([[1, 0, 0], [1, 1, 1]])  # 0 is padding: 1 token, 3 tokens
y = np.array([[[1.0], [0], [0]], [[2.0], [2.0], [2.0]]], "float32")
for devices in (["CPU:0"], ["CPU:0", "CPU:1"]):
    with tf.distribute.MirroredStrategy(devices).scope():
        about = {"mask_zero": True, "embeddings_initializer": "zeros"}
        table = keras.layers.Embedding(2, 1, **about)
        model = keras.Sequential([keras.Input((3,), dtype="int32"), table])
        model.compile(keras.optimizers.SGD(1.0), "mse")
    loss = model.fit(X, y, batch_size=2, verbose=0).history["loss"][0]
    moved = model.get_weights()[0][1].item()
    said = f"moved {moved:.3g}, right is {2 * (1 + 2 + 2 + 2) / 4}"
    print(f"{len(devices)} replicas: loss {loss:.3g}, {said}")
