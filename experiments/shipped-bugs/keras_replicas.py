"""Keras under MirroredStrategy, by `fit`: even shares, and uneven ones, judged."""

import keras
import numpy as np
import tensorflow as tf

from manygpu.prove import Case
from manygpu.prove.adapters import of_fit
from manygpu.prove.judge import trial

FEATURES, CLASSES, LR = 6, 5, 0.5


def build(penalty):
    keras.utils.set_random_seed(0)
    squares = keras.regularizers.L2(penalty) if penalty else None
    dense = keras.layers.Dense(CLASSES, kernel_regularizer=squares)
    model = keras.Sequential([keras.Input((FEATURES,)), dense])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(LR), loss)
    return model


def draw(samples, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(samples, FEATURES)).astype(np.float32)
    return X, rng.integers(0, CLASSES, samples)


for penalty, case, what in (
    (0.0, Case(2, 4), "even shares"),
    (0.1, Case(2, 4), "even shares, L2 of the weights"),
    (0.0, Case(2, 3), "uneven shares"),
):
    subject = of_fit(lambda own=penalty: build(own), draw, LR)
    found = next(trial(subject, case), None)
    said = f"{found.broken}: {found.sentence}" if found else "right"
    versions = f"keras {keras.__version__}, tensorflow {tf.__version__}"
    print(f"fit, {versions}, {what}, {case}: {said}", flush=True)
