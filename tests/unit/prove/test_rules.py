"""Rules of optimizers: gradients are told back from changes, as Keras makes them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from manygpu.prove.rules import RULES

LR, STEPS = 0.25, 4
KERAS = {
    "sgd": tf.keras.optimizers.SGD(LR),
    "momentum": tf.keras.optimizers.SGD(LR, 0.9),
    "nesterov": tf.keras.optimizers.SGD(LR, 0.9, nesterov=True),
    "adagrad": tf.keras.optimizers.Adagrad(LR),
    "rmsprop": tf.keras.optimizers.RMSprop(LR),
    "adam": tf.keras.optimizers.Adam(LR),
}


def gradients():
    rng = np.random.default_rng(0)
    return [rng.normal(size=5) for _ in range(STEPS)]


@pytest.mark.parametrize("name", KERAS)
def test_a_rule_changes_weights_as_keras_does(name):
    rule, weights = RULES[name](LR), tf.Variable(tf.zeros(5, tf.float64))
    for g in gradients():
        before = weights.numpy()
        KERAS[name].apply([tf.constant(g)], [weights])
        (change,) = rule.change([g])
        # Keras' own constants are float32.
        np.testing.assert_allclose(before - weights.numpy(), change, rtol=1e-5)
        rule.gradient([change], [g])


@pytest.mark.parametrize("name", RULES)
def test_a_gradient_is_told_back_from_a_change(name):
    rule = RULES[name](LR)
    for g in gradients():
        (found,) = rule.gradient(rule.change([g]), [g])
        np.testing.assert_allclose(found, g, rtol=1e-6)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_remembers_if_a_step_before_changes_the_next(name):
    rule, fresh = RULES[name](0.3), RULES[name](0.3)
    rule.follow([np.array([2.0, -1.0])])
    same = np.array_equal(rule.change([np.ones(2)])[0], fresh.change([np.ones(2)])[0])
    assert rule.remembers is not same
