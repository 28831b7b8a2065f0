"""LeNet by hand: parameters, loss, dtypes; the page has finite differences, steps."""

import math
from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from manygpu import scratch
from manygpu.scratch.splitting.batch_normalization import guide_cnn_layers
from manygpu.scratch.splitting.pipeline import dense_layers
from manygpu.scratch.start.one_device import stages
from tests.unit.helpers import DTYPES, same, values

# init_params


def of_layers(layers: list) -> list:
    return [p for layer in layers for p in layer.params]


MODELS = {
    "init_params": scratch.init_params,
    "a scale": partial(scratch.init_params, scale=0.01),
    "dense_layers": lambda *kind, dtype: of_layers(
        dense_layers([9, 8, 7], *kind, dtype=dtype)
    ),
    "guide_cnn_layers": lambda *kind, dtype: of_layers(
        guide_cnn_layers(*kind, dtype=dtype)
    ),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_one_seed_gives_one_model_in_every_dtype_and_another_another(make):
    double, other = (values(make(seed, dtype=tf.float64)) for seed in (3, 4))
    assert np.mean(double[0] == double[0].astype(np.float32)) < 0.1  # drawn as such
    for dtype in (tf.float32, tf.float16, tf.bfloat16):
        params = make(3, dtype=dtype)
        assert {p.dtype for p in params} == {dtype}
        assert same(values(params), [tf.cast(d, dtype).numpy() for d in double])
    drawn = [pair for pair in zip(double, other, strict=True) if pair[0].std()]
    assert drawn and not any(np.array_equal(a, b) for a, b in drawn)


@pytest.mark.parametrize("shape", [(64, 3), (3, 3, 4, 5)])
def test_he_normal_is_one_float64_draw_over_the_root_of_half_the_fan_in(shape):
    drawn = tf.random.stateless_normal(shape, (2, 7), dtype=tf.float64)
    exact = math.sqrt(2 / math.prod(shape[:-1])) * drawn.numpy()
    for dtype in DTYPES:
        found = scratch.he_normal(shape, (2, 7), dtype)
        np.testing.assert_array_equal(found, tf.cast(exact, dtype))


def test_the_parameters_have_lenets_shapes_and_zero_biases():
    params = scratch.init_params()
    weights = [(3, 3, 1, 20), (5, 5, 20, 50), (800, 128), (128, 10)]
    assert [p.shape for p in params[::2]] == weights
    assert same(values(params[1::2]), [np.zeros(shape[-1]) for shape in weights])
    assert all(isinstance(p, tf.Variable) and p.trainable for p in params)


@pytest.mark.parametrize("scale", [0.01, None])
def test_scale_is_the_weights_standard_deviation_and_none_is_hes(scale):
    for p in scratch.init_params(scale=scale)[::2]:
        std = scale or math.sqrt(2 / math.prod(p.shape[:-1]))
        spread = 4 / math.sqrt(2 * p.numpy().size)  # four standard errors
        assert np.std(p.numpy()) == pytest.approx(std, rel=spread)
        assert abs(np.mean(p.numpy())) < 4 * std / math.sqrt(p.numpy().size)


@pytest.mark.parametrize("dtype", [*DTYPES, tf.bfloat16])
@pytest.mark.parametrize("X_dtype", [tf.float32, tf.float64, tf.uint8])
def test_lenet_loss_and_gradients_are_in_the_dtype_of_the_parameters(dtype, X_dtype):
    X, y = tf.zeros((3, 28, 28, 1), X_dtype), tf.constant([0, 1, 2])
    params = scratch.init_params(dtype=dtype)
    logits = scratch.lenet(X, params)
    summed, grads = scratch.gradients(X, y, params)
    found = {logits.dtype, scratch.cross_entropy(logits, y).dtype, summed.dtype}
    assert found | {g.dtype for g in grads} == {dtype}
    assert logits.shape == (3, 10)
    assert [g.shape for g in grads] == [p.shape for p in params]


@pytest.mark.parametrize("dtype", DTYPES)
def test_cross_entropy_is_minus_the_log_of_the_right_classs_share(dtype):
    logits = tf.constant([[0.0, 1.0, 3.0], [50.0, 0.0, -50.0]], dtype)
    shares = np.exp(logits.numpy()) / np.exp(logits.numpy()).sum(1, keepdims=True)
    losses = scratch.cross_entropy(logits, tf.constant([1, 0]))
    right = [-np.log(shares[0, 1]), -np.log(shares[1, 0])]
    np.testing.assert_allclose(losses, right, rtol=1e-5)
    assert losses.shape == (2,)


@pytest.mark.parametrize(
    "lr", [0.1, np.float32(0.1), np.float64(0.1), tf.constant(0.1), tf.Variable(0.1)]
)
@pytest.mark.parametrize("dtype", [*DTYPES, tf.float16])
def test_sgd_takes_a_rate_of_any_kind_of_number(lr, dtype):
    params = [tf.Variable(0.0, dtype=dtype)]
    scratch.sgd(params, [tf.constant(1.0, dtype)], lr)
    eps = max(np.finfo(np.float32).eps, np.finfo(dtype.as_numpy_dtype).eps)
    assert float(params[0]) == pytest.approx(-0.1, rel=float(eps))


@pytest.mark.parametrize("of", [tf.float64, tf.float16])
def test_sgd_takes_rate_and_gradient_in_the_dtype_of_the_parameters(of):
    """tf.cast(0.1, tf.float64) is float32's 0.1: off by 1.5e-8."""
    params = [tf.Variable(1.0, dtype=tf.float64)]
    scratch.sgd(params, [tf.constant(0.5, of)], 0.1)
    assert params[0].numpy() == 1 - 0.1 * 0.5


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_stages_end_with_lenets_logits_and_keep_what_leads_there(dtype):
    params = scratch.init_params(seed=5, dtype=dtype)
    X = np.random.default_rng(0).random((3, 28, 28, 1))
    found = stages(X, params)
    assert np.array_equal(found["dense 2"], scratch.lenet(X, params))
    shapes = [
        (28, 28, 1),
        (26, 26, 20),
        (13, 13, 20),
        (9, 9, 50),
        (800,),
        (128,),
        (10,),
    ]
    assert [tuple(h.shape[1:]) for h in found.values()] == shapes
