"""Rules of optimizers: gradients are told back from changes, as Keras makes them."""

from __future__ import annotations

from functools import partial

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


RATES = (0.125, 0.25, 0.375)
NUMBERS = [
    {"name": "sgd", "rates": RATES, "decay": 0.1, "layers": (2.0,)},
    {"name": "clipped", "clip": 0.5, "decay": 0.1, "decoupled": True},
    {"name": "momentum", "momentum": 0.95, "rates": RATES, "rate_inside": True},
    {"name": "momentum", "dampening": 0.75, "decay": 0.1, "decoupled": True},
    {"name": "momentum", "dampening": 0.75, "dampens_first": True, "decay": 0.1},
    {"name": "nesterov", "momentum": 0.8, "rates": RATES, "clip": 0.5},
    {"name": "adam", "betas": (0.8, 0.95), "epsilon": 1e-3, "before": False},
    {"name": "adam", "epsilon": 1e-3, "inside": True, "decay": 0.1, "clip": 0.5},
    {"name": "adam", "epsilon": 1e-3, "inside": True, "before": False},
    {"name": "adam", "corrected": False, "rates": RATES, "layers": (0.5,)},
    {"name": "adamw", "betas": (0.9, 0.95)},
    {"name": "rmsprop", "rho": 0.99, "epsilon": 1e-3, "inside": False},
    {"name": "adagrad", "start": 0.0, "epsilon": 1e-3, "inside": False},
    *({"name": name} for name in RULES),
]


@pytest.mark.parametrize("numbers", NUMBERS, ids=str)
def test_a_gradient_is_told_back_from_a_change(numbers):
    numbers = dict(numbers)
    make = partial(RULES[numbers.pop("name")], LR, **numbers)
    rule, weights, rng = make(), np.ones(5), np.random.default_rng(1)
    for g in gradients():
        rule.at([weights])
        (change,) = rule.change([g])
        near = g * (1 + rng.normal(size=5) / 100)  # a clip asks for the right one
        near = near if np.isinf(rule.clip) else g
        (found,) = rule.gradient([change], [near])
        np.testing.assert_allclose(found, g, rtol=1e-6)
        weights = weights - change


@pytest.mark.parametrize("numbers", NUMBERS, ids=str)
def test_a_rule_that_follows_knows_what_one_that_tells_back_knows(numbers):
    numbers = dict(numbers)
    make = partial(RULES[numbers.pop("name")], LR, **numbers)
    told, followed = make(), make()
    for g in gradients():
        for rule in (told, followed):
            rule.at([np.ones(5)])
        told.gradient(told.change([g]), [g])
        followed.follow([g])
    (one,), (other,) = told.change([g]), followed.change([g])
    np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_remembers_if_a_step_before_changes_the_next(name):
    rule, fresh = RULES[name](0.3), RULES[name](0.3)
    rule.follow([np.array([2.0, -1.0])])
    same = np.array_equal(rule.change([np.ones(2)])[0], fresh.change([np.ones(2)])[0])
    assert rule.remembers is not same
