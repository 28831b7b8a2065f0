"""Steps of Keras models under MirroredStrategy: `fit`, and loops of one's own."""

from __future__ import annotations

from functools import partial

import numpy as np
import tensorflow as tf
from cases import case
from net import CLASSES, FEATURES, draw32, in_order

from manygpu.prove.adapters import of_fit, of_loop

K = tf.keras
RATE = 0.3
EVEN = {"even": True, "most_devices": 2}


def build(optimizer=None, loss=None, policy="float32", l2=0.0, norm=False):
    """A small model, compiled; its weights are the same each time."""
    K.config.set_dtype_policy(policy)
    try:
        regularizer = K.regularizers.L2(l2) if l2 else None
        hidden = K.layers.Dense(8, "tanh", kernel_regularizer=regularizer)
        layers = [hidden, *([K.layers.BatchNormalization()] if norm else [])]
        layers.append(K.layers.Dense(CLASSES))
        model = K.Sequential([K.Input((FEATURES,)), *layers])
    finally:
        K.config.set_dtype_policy("float32")
    rng = np.random.default_rng(0)
    for v in model.trainable_variables:
        v.assign(rng.normal(size=v.shape))
    mean = K.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile((optimizer or sgd)(), loss or mean)
    return model


sgd = partial(K.optimizers.SGD, RATE)


def fit(optimizer=None, reference=True, lr=RATE, about=None, **built):
    """The subject of `fit`, on even shares."""
    subject = of_fit(
        partial(build, optimizer, **built), draw32, lr, **(EVEN | (about or {}))
    )
    if reference:
        return subject
    from dataclasses import replace

    return replace(subject, gradient=None)


@case("right", needs="keras")
def fit_even():
    """Keras' fit on even shares."""
    return fit()


@case("right", needs="keras")
def fit_l2():
    """Keras' fit with an L2 regularizer."""
    return fit(l2=0.02)


@case("right", needs="keras", of_rule=True)
def fit_decay():
    """Keras' fit with the weight decay of its optimizer; no reference."""
    return fit(partial(sgd, weight_decay=0.1), reference=False)


@case("right", needs="keras")
def fit_bfloat16():
    """Keras' fit with the policy mixed_bfloat16."""
    return fit(policy="mixed_bfloat16")


@case("hard", "overflow", needs="keras")
def fit_float16():
    """Keras' fit with mixed_float16: only replica 0 asks if gradients are finite."""
    return fit(policy="mixed_float16")


@case("right", needs="keras")
def fit_average():
    """Keras' fit with an optimizer that averages the weights."""
    return fit(partial(sgd, use_ema=True, ema_momentum=0.9))


def replica_step(model, loss_of, x, t):
    with tf.GradientTape() as tape:
        loss = loss_of(t, model(x, training=True))
    grads = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply_gradients(zip(grads, model.trainable_variables))
    return loss


def custom_loop(loss_of, reduced="SUM", step=replica_step):
    """A loop as TensorFlow's tutorial has it: `loss_of(each, k, n, model)`."""

    def take(strategy, model, X, y):
        k, n = strategy.num_replicas_in_sync, len(y)
        shares = in_order(X, y, k)
        mine = strategy.experimental_distribute_values_from_function(
            lambda context: shares[context.replica_id_in_sync_group]
        )

        def loss(t, z):
            z = tf.cast(z, tf.float32)
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=t, logits=z)
            return loss_of(each, k, n, model)

        run = tf.function(lambda x, t: step(model, loss, x, t))
        return strategy.reduce(reduced, strategy.run(run, args=mine), axis=None)

    return take


@case("right", needs="keras")
def loop_global_batch():
    """TensorFlow's own loop: each replica's sum is divided by the global batch."""
    step = custom_loop(lambda each, k, n, _: tf.reduce_sum(each) / n)
    return of_loop(build, step, draw32, RATE)


def l2_of(model):
    return tf.add_n(model.losses)


@case("right", needs="keras")
def loop_regularization_over_k():
    """A loop of one's own that divides the regularization by the replicas."""

    def loss(each, k, n, model):
        return tf.reduce_sum(each) / n + l2_of(model) / k

    return of_loop(partial(build, l2=0.02), custom_loop(loss), draw32, RATE)


# Odd


@case("odd", needs="keras")
def loop_bfloat16():
    """A loop of one's own on a model of mixed_bfloat16."""
    step = custom_loop(lambda each, k, n, _: tf.reduce_sum(each) / n)
    return of_loop(partial(build, policy="mixed_bfloat16"), step, draw32, RATE)


@case("odd", needs="keras")
def fit_steps_per_execution():
    """Keras' fit with several steps per execution."""

    def built():
        model = build()
        model.compile(sgd(), model.loss, steps_per_execution=2)
        return model

    return of_fit(built, draw32, RATE, **EVEN)


@case("odd", needs="keras", of_rule=True)
def fit_falling_rate():
    """Keras' fit with a rate that falls with the steps; no reference."""
    falls = partial(K.optimizers.schedules.ExponentialDecay, RATE, 1, 0.5)
    return fit(lambda: K.optimizers.SGD(falls()), reference=False)


@case("odd", needs="keras")
def fit_bfloat16_adam():
    """Keras' fit with Adam and the policy mixed_bfloat16."""
    adam = partial(K.optimizers.Adam, 0.01)
    return fit(adam, lr=0.01, policy="mixed_bfloat16", about={"rule": "adam"})


# Wrong


def one_number(y, p):
    """A loss that is one number, so that Keras can't average it itself."""
    each = K.losses.sparse_categorical_crossentropy(y, p, from_logits=True)
    return tf.reduce_mean(each)


@case("wrong", "mean", needs="keras")
def fit_loss_of_one_number():
    """The loss function returns one number: k times (tensorflow #35093)."""
    return fit(loss=one_number)


@case("wrong", "runs", needs="keras")
def fit_accumulation():
    """fit with gradient_accumulation_steps, which stops in a cond (keras #17429)."""
    return fit(partial(sgd, gradient_accumulation_steps=2))


@case("wrong", "runs", needs="keras")
def fit_overwrite():
    """fit with ema_overwrite_frequency, which stops in a cond (keras #21366)."""
    return fit(partial(sgd, use_ema=True, ema_overwrite_frequency=2))


@case("wrong", "clipping", "devices", needs="keras")
def fit_global_norm():
    """fit with global_clipnorm, which each replica applies to its own gradient."""
    return fit(partial(sgd, global_clipnorm=0.1))


@case("wrong", "clipping", "devices", needs="keras")
def fit_global_norm_unknown():
    """The same; no reference."""
    return fit(partial(sgd, global_clipnorm=0.1), reference=False)


@case("wrong", "clipping", "devices", needs="keras")
def fit_norm():
    """fit with clipnorm: each replica clips each parameter; no reference."""
    return fit(partial(sgd, clipnorm=0.1), reference=False)


@case("wrong", "clipping", "devices", needs="keras")
def fit_value():
    """fit with clipvalue: each replica clips each number; no reference."""
    return fit(partial(sgd, clipvalue=0.01), reference=False)


@case("wrong", "mean", "shares", needs="keras")
def loop_mean_per_replica():
    """Each replica's loss is a mean, and the optimizer sums them."""
    step = custom_loop(lambda each, k, n, _: tf.reduce_mean(each))
    return of_loop(build, step, draw32, RATE)


@case("wrong", "shares", needs="keras")
def loop_no_global_batch():
    """Means of the replicas, divided by k: uneven shares weigh more."""
    step = custom_loop(lambda each, k, n, _: tf.reduce_mean(each) / k)
    return of_loop(build, step, draw32, RATE)


@case("wrong", "gradient", needs="keras")
def loop_regularized_k_times():
    """The regularization isn't divided by the replicas."""

    def loss(each, k, n, model):
        return tf.reduce_sum(each) / n + l2_of(model)

    return of_loop(partial(build, l2=0.05), custom_loop(loss), draw32, RATE)


@case("wrong", "gradient", needs="keras")
def loop_regularization_forgotten():
    """The model has a regularization, and the loop doesn't add it."""
    step = custom_loop(lambda each, k, n, _: tf.reduce_sum(each) / n)
    return of_loop(partial(build, l2=0.05), step, draw32, RATE)


@case("wrong", "clipping", "devices", needs="keras")
def loop_clips_per_replica():
    """Each replica clips its own gradient before the optimizer sums; no reference."""
    from dataclasses import replace

    def step(model, loss_of, x, t):
        with tf.GradientTape() as tape:
            loss = loss_of(t, model(x, training=True))
        grads = tape.gradient(loss, model.trainable_variables)
        grads, _ = tf.clip_by_global_norm(grads, 0.1)
        model.optimizer.apply_gradients(zip(grads, model.trainable_variables))
        return loss

    take = custom_loop(lambda each, k, n, _: tf.reduce_sum(each) / n, step=step)
    return replace(of_loop(build, take, draw32, RATE), gradient=None)


@case("wrong", "loss", needs="keras")
def loop_mean_of_scaled_losses():
    """The reported loss is the MEAN of losses that are scaled already: 1/k of it."""
    step = custom_loop(lambda each, k, n, _: tf.reduce_sum(each) / n, reduced="MEAN")
    return of_loop(build, step, draw32, RATE)
