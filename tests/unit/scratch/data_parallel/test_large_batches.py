"""The warmup of the chapter on large batches: its shape, in Keras, and refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch import GradualWarmup

RATES = st.floats(1e-6, 1e3)
schedules = tf.keras.optimizers.schedules


@given(base=RATES, factor=st.floats(1, 1e3), steps=st.integers(1, 10_000))
@settings(deadline=None, max_examples=60)
def test_it_rises_from_the_base_to_the_peak_and_stays(base, factor, steps):
    peak = base * factor
    rates = GradualWarmup(base, peak, steps)(tf.range(0, 2 * steps + 2)).numpy()
    assert rates.dtype == np.float32
    assert rates[0] == np.float32(base)
    np.testing.assert_array_equal(rates[steps:], np.float32(peak))
    ramp = base + (peak - base) * np.arange(steps + 1) / steps
    np.testing.assert_allclose(rates[: steps + 1], ramp, rtol=1e-5)
    # Two neighbours of a flat ramp may swap by float32's rounding, no more.
    assert np.all(np.diff(rates) >= -2 * np.finfo(np.float32).eps * peak)


@pytest.mark.parametrize("step", [0, 3, 7, 8, 100])
def test_a_number_a_tensor_and_a_graph_give_one_rate(step):
    warmup = GradualWarmup(0.1, 0.8, 8)
    right = 0.1 + 0.7 * min(1, step / 8)
    in_graph = tf.function(lambda t: warmup(t))
    for given_step in (step, np.int64(step), tf.constant(step, tf.int64)):
        assert float(warmup(given_step)) == pytest.approx(right, rel=1e-6)
    assert float(in_graph(tf.constant(step))) == pytest.approx(right, rel=1e-6)


def test_it_is_the_warmup_that_keras_has_built_in():
    ours = GradualWarmup(0.01, 0.08, 50)
    theirs = schedules.CosineDecay(
        0.01, 1, alpha=1.0, warmup_target=0.08, warmup_steps=50
    )
    for step in (0, 1, 25, 49, 50, 51, 500):
        assert float(ours(step)) == pytest.approx(float(theirs(step)), rel=1e-5)


def test_an_optimizer_takes_steps_of_its_rates():
    warmup = GradualWarmup(0.1, 0.4, 3)
    optimizer, w = tf.keras.optimizers.SGD(warmup), tf.Variable([1.0])
    places = [1.0]
    for _ in range(5):
        optimizer.apply([tf.constant([1.0])], [w])
        places.append(float(w[0]))
    np.testing.assert_allclose(-np.diff(places), [0.1, 0.2, 0.3, 0.4, 0.4], rtol=1e-5)


def test_its_config_makes_it_again():
    warmup = GradualWarmup(0.1, 0.8, 8)
    assert warmup.get_config() == {"base_lr": 0.1, "peak_lr": 0.8, "warmup_steps": 8}
    saved = schedules.serialize(warmup)
    again = schedules.deserialize(saved, {"GradualWarmup": GradualWarmup})
    assert type(again) is GradualWarmup
    assert again.get_config() == warmup.get_config()


def test_numpy_numbers_are_numbers():
    warmup = GradualWarmup(np.float32(0.5), np.float64(1.0), np.int64(4))
    assert [float(warmup(t)) for t in (0, 2, 4)] == [0.5, 0.75, 1.0]


def test_one_device_has_a_flat_warmup():
    rates = GradualWarmup(0.25, 0.25, 10)(tf.range(20)).numpy()
    np.testing.assert_allclose(rates, 0.25, rtol=1e-6)


GOOD = {"base_lr": 0.1, "peak_lr": 0.4, "warmup_steps": 10}


@pytest.mark.parametrize(
    "bad, kind, named",
    [
        ({"base_lr": 0.0}, ValueError, "base_lr"),
        ({"base_lr": -0.1}, ValueError, "base_lr"),
        ({"base_lr": math.nan}, ValueError, "base_lr"),
        ({"base_lr": "0.1"}, TypeError, "base_lr"),
        ({"base_lr": None}, TypeError, "base_lr"),
        ({"base_lr": True}, TypeError, "base_lr"),
        ({"peak_lr": math.inf}, ValueError, "peak_lr"),
        ({"peak_lr": [0.4]}, TypeError, "peak_lr"),
        ({"peak_lr": 0.05}, ValueError, "peak_lr is 0.05, below base_lr 0.1"),
        ({"warmup_steps": 0}, ValueError, "warmup_steps"),
        ({"warmup_steps": -5}, ValueError, "warmup_steps"),
        ({"warmup_steps": 2.5}, TypeError, "warmup_steps"),
        ({"warmup_steps": True}, TypeError, "warmup_steps"),
    ],
)
def test_it_refuses_bad_input_by_name(bad, kind, named):
    with pytest.raises(kind, match=named):
        GradualWarmup(**{**GOOD, **bad})


@pytest.mark.parametrize("step", [-3, np.int64(-1), tf.constant(-3), tf.range(-1, 2)])
def test_a_negative_step_is_refused(step):
    with pytest.raises(ValueError, match="step must not be negative"):
        GradualWarmup(0.1, 0.4, 10)(step)


def test_a_graph_takes_a_negative_step_for_the_first():
    warmup = GradualWarmup(0.1, 0.4, 10)
    assert float(tf.function(lambda t: warmup(t))(tf.constant(-3))) == np.float32(0.1)
