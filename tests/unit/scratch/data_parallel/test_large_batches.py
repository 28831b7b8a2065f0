"""The warmup of the chapter on large batches; the page trains with it in Keras."""

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


@pytest.mark.parametrize("step", [0, 3, 8, 100])
def test_a_number_a_tensor_and_a_graph_give_one_rate(step):
    warmup = GradualWarmup(np.float32(0.1), np.float64(0.8), np.int64(8))
    right = 0.1 + 0.7 * min(1, step / 8)
    in_graph = tf.function(lambda t: warmup(t))
    for given_step in (step, np.int64(step), tf.constant(step, tf.int64)):
        assert float(warmup(given_step)) == pytest.approx(right, rel=1e-6)
    assert float(in_graph(tf.constant(step))) == pytest.approx(right, rel=1e-6)
    assert float(in_graph(tf.constant(-3))) == np.float32(0.1)  # as the first


def test_its_config_says_what_it_was_made_of():
    config = GradualWarmup(0.1, 0.8, 8).get_config()
    assert config == {"base_lr": 0.1, "peak_lr": 0.8, "warmup_steps": 8}
