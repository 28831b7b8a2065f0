"""LeNet by hand: its parameters, loss, gradients and step."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from manygpu.scratch import (
    cross_entropy,
    gradients,
    he_normal,
    init_params,
    lenet,
    sgd,
)
from tests.unit.helpers import DTYPES, batch, same, values

# init_params


@pytest.mark.parametrize("scale", [None, 0.01])
def test_one_seed_gives_one_model_in_every_dtype(scale):
    double = values(init_params(seed=3, scale=scale, dtype=tf.float64))
    for dtype in (tf.float32, tf.float16, tf.bfloat16):
        params = init_params(seed=3, scale=scale, dtype=dtype)
        right = [tf.cast(d, dtype).numpy() for d in double]
        assert {p.dtype for p in params} == {dtype}
        assert same(values(params), right)


def test_a_model_in_float64_is_drawn_in_float64():
    for p in init_params(dtype=tf.float64)[::2]:
        rounded = p.numpy().astype(np.float32).astype(np.float64)
        assert np.mean(rounded == p.numpy()) < 0.01


def test_another_seed_gives_another_model():
    one, again, other = (values(init_params(seed)) for seed in (0, 0, 1))
    assert same(one, again)
    weights = zip(one[::2], other[::2], strict=True)
    assert not any(np.array_equal(a, b) for a, b in weights)


@pytest.mark.parametrize("shape", [(64, 3), (3, 3, 4, 5)])
def test_he_normal_is_one_float64_draw_over_the_root_of_half_the_fan_in(shape):
    drawn = tf.random.stateless_normal(shape, (2, 7), dtype=tf.float64)
    exact = math.sqrt(2 / math.prod(shape[:-1])) * drawn.numpy()
    for dtype in DTYPES:
        found = he_normal(shape, (2, 7), dtype)
        np.testing.assert_array_equal(found, tf.cast(exact, dtype))


def test_the_parameters_have_lenets_shapes_and_zero_biases():
    params = init_params()
    assert [tuple(p.shape) for p in params] == [
        (3, 3, 1, 20),
        (20,),
        (5, 5, 20, 50),
        (50,),
        (800, 128),
        (128,),
        (128, 10),
        (10,),
    ]
    assert all(not p.numpy().any() for p in params[1::2])
    assert all(isinstance(p, tf.Variable) and p.trainable for p in params)


@pytest.mark.parametrize("scale", [0.01, 1.0, None])
def test_scale_is_the_weights_standard_deviation_and_none_is_hes(scale):
    for p in init_params(scale=scale)[::2]:
        std = scale or math.sqrt(2 / math.prod(p.shape[:-1]))
        spread = 4 / math.sqrt(2 * p.numpy().size)  # four standard errors
        assert np.std(p.numpy()) == pytest.approx(std, rel=spread)
        assert abs(np.mean(p.numpy())) < 4 * std / math.sqrt(p.numpy().size)


# lenet, cross_entropy, gradients, sgd


@pytest.mark.parametrize("dtype", [*DTYPES, tf.bfloat16])
@pytest.mark.parametrize("X_dtype", [tf.float32, tf.float64, tf.uint8])
def test_lenet_computes_in_the_dtype_of_its_parameters(dtype, X_dtype):
    X = tf.zeros((3, 28, 28, 1), X_dtype)
    logits = lenet(X, init_params(dtype=dtype))
    assert logits.dtype == dtype
    assert logits.shape == (3, 10)


@pytest.mark.parametrize("dtype", DTYPES)
def test_loss_and_gradients_stay_in_the_dtype_of_the_parameters(dtype):
    X, y = batch(3)
    params = init_params(dtype=dtype)
    assert cross_entropy(lenet(X, params), y).dtype == dtype
    summed, grads = gradients(X, y, params)
    assert {summed.dtype, *(g.dtype for g in grads)} == {dtype}
    assert [g.shape for g in grads] == [p.shape for p in params]


def test_lenet_is_the_model_that_keras_layers_make():
    """The same network of Keras' layers, given the same weights."""
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Conv2D(20, 3, activation="relu", dtype="float64"),
            layers.AveragePooling2D(2, dtype="float64"),
            layers.Conv2D(50, 5, activation="relu", dtype="float64"),
            layers.AveragePooling2D(2, dtype="float64"),
            layers.Flatten(dtype="float64"),
            layers.Dense(128, activation="relu", dtype="float64"),
            layers.Dense(10, dtype="float64"),
        ]
    )
    X, _ = batch(5)
    params = init_params(dtype=tf.float64)
    for p in params[1::2]:
        p.assign(tf.linspace(tf.constant(-0.1, tf.float64), 0.1, p.shape[0]))
    model.build((None, 28, 28, 1))
    model.set_weights(values(params))
    np.testing.assert_allclose(lenet(X, params), model(X), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_cross_entropy_is_minus_the_log_of_the_right_classs_share(dtype):
    logits = tf.constant([[0.0, 1.0, 3.0], [50.0, 0.0, -50.0]], dtype)
    shares = np.exp(logits.numpy()) / np.exp(logits.numpy()).sum(1, keepdims=True)
    losses = cross_entropy(logits, tf.constant([1, 0]))
    right = [-np.log(shares[0, 1]), -np.log(shares[1, 0])]
    np.testing.assert_allclose(losses, right, rtol=1e-5)
    assert losses.shape == (2,)


def test_the_summed_loss_is_the_sum_of_the_samples_losses():
    X, y = batch(6)
    params = init_params(dtype=tf.float64)
    summed, _ = gradients(X, y, params)
    right = sum(
        float(gradients(X[i : i + 1], y[i : i + 1], params)[0]) for i in range(6)
    )
    assert float(summed) == pytest.approx(right, rel=1e-12)


def test_gradients_agree_with_finite_differences():
    """Central differences along a random direction of each parameter, in float64."""
    X, y = batch(4)
    params = init_params(dtype=tf.float64)
    _, grads = gradients(X, y, params)
    step, rng = 1e-6, np.random.default_rng(1)
    for p, g in zip(params, grads, strict=True):
        direction = tf.constant(rng.standard_normal(p.shape))
        p.assign_add(step * direction)
        above = float(gradients(X, y, params)[0])
        p.assign_sub(2 * step * direction)
        below = float(gradients(X, y, params)[0])
        p.assign_add(step * direction)
        slope = float(tf.reduce_sum(g * direction))
        assert (above - below) / (2 * step) == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sgd_moves_against_the_gradient_in_place(dtype):
    params = [tf.Variable([1.0, 2.0], dtype=dtype), tf.Variable(3.0, dtype=dtype)]
    before = list(params)
    sgd(params, [tf.constant([1.0, -1.0], dtype), tf.constant(2.0, dtype)], 0.5)
    assert all(a is b for a, b in zip(params, before, strict=True))
    assert same(values(params), [np.array([0.5, 2.5]), np.array(2.0)])


def test_sgd_takes_the_rate_in_the_dtype_of_the_parameters():
    """tf.cast(0.1, tf.float64) is float32's 0.1: off by 1.5e-8."""
    params = [tf.Variable(0.0, dtype=tf.float64)]
    sgd(params, [tf.constant(1.0, tf.float64)], 0.1)
    assert params[0].numpy() == -0.1


@pytest.mark.parametrize(
    "lr", [0.1, np.float32(0.1), np.float64(0.1), tf.constant(0.1), tf.Variable(0.1)]
)
@pytest.mark.parametrize("dtype", [*DTYPES, tf.float16])
def test_sgd_takes_a_rate_of_any_kind_of_number(lr, dtype):
    params = [tf.Variable(0.0, dtype=dtype)]
    sgd(params, [tf.constant(1.0, dtype)], lr)
    eps = max(np.finfo(np.float32).eps, np.finfo(dtype.as_numpy_dtype).eps)
    assert float(params[0]) == pytest.approx(-0.1, rel=float(eps))


def test_sgd_takes_a_gradient_of_fewer_bits_in_the_parameters_dtype():
    params = [tf.Variable(1.0, dtype=tf.float64)]
    sgd(params, [tf.constant(0.5, tf.float16)], 0.1)
    assert params[0].numpy() == 1 - 0.1 * 0.5


# What is refused.


@pytest.mark.parametrize("dtype", [tf.uint8, tf.int8, tf.int32, tf.int64])
def test_labels_may_be_whole_numbers_of_any_dtype(dtype):
    logits = tf.constant([[0.0, 1.0, 3.0]])
    found = cross_entropy(logits, tf.constant([2], dtype))
    assert same([found.numpy()], [cross_entropy(logits, tf.constant([2])).numpy()])
