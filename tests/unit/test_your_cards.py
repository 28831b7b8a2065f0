"""What the page about cards calls "tried here"; its printed lines: test_devices.py."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import manygpu
from workshop.pages import ROOT


def per_sample(y, prediction):
    return tf.reduce_mean((y - prediction) ** 2, axis=-1)


def one_number(y, prediction):
    return tf.reduce_mean((y - prediction) ** 2)


def fit_once(loss, count: int) -> tuple[float, float]:
    """The loss that `fit` reports for a step on `count` devices; the bias after it."""
    X = np.linspace(0, 1, 16, dtype=np.float32).reshape(8, 2)
    strategy = tf.distribute.MirroredStrategy(manygpu.devices(count, quiet=True))
    with strategy.scope():
        layers = [
            tf.keras.Input((2,)),
            tf.keras.layers.Dense(1, kernel_initializer="ones"),
        ]
        model = tf.keras.Sequential(layers)
        model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss=loss)
    target = X.sum(axis=1, keepdims=True) + 1
    kept = model.fit(X, target, batch_size=8, shuffle=False, verbose=0)
    return kept.history["loss"][0], float(model.get_weights()[1][0])


@pytest.mark.parametrize(("loss", "times"), [(per_sample, 1), (one_number, 2)])
def test_a_loss_of_one_number_counts_once_per_device_under_fit(loss, times):
    one, two = fit_once(loss, 1), fit_once(loss, 2)
    assert one == pytest.approx((1, 0.2), rel=1e-5)
    assert two == pytest.approx((times * one[0], times * one[1]), rel=1e-5)


TWO_STRATEGIES = """
import json
import sys

import tensorflow as tf

import manygpu

devices = manygpu.devices(4, quiet=True)
kept = {}


def total(first, count, adds):
    if (first, count, adds) not in kept:
        own = devices[first : first + count]
        adding = tf.distribute.ReductionToOneDevice() if adds == "here" else None
        kept[first, count, adds] = tf.distribute.MirroredStrategy(own, adding)
    strategy = kept[first, count, adds]

    def ones():
        return tf.distribute.get_replica_context().all_reduce("sum", tf.ones([]))

    step = tf.function(lambda: strategy.run(ones))
    return [float(x) for x in strategy.experimental_local_results(step())]


for first, count, adds in json.loads(sys.argv[1]):
    try:
        print("Here:", total(first, count, adds))
    except (tf.errors.InternalError, tf.errors.CancelledError) as error:
        print("Here:", type(error).__name__, " ".join(str(error).split()))
"""


def sums(*strategies: tuple[int, int, str]) -> list[str]:
    """What each strategy in turn makes of ones: one process, as groups stay in it."""
    asked = [sys.executable, "-c", TWO_STRATEGIES, json.dumps(strategies)]
    run = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=300)
    return re.findall(r"^Here: (.+)$", run.stdout, flags=re.M)


def test_a_second_strategy_of_another_size_breaks_the_first_too():
    """The words are those of the page; a sum on one device needs no group."""
    asked = [(0, 3, "here"), (0, 2, "here"), (0, 3, ""), (0, 2, ""), (0, 3, "")]
    ours, fewer, three, two, again = sums(*asked)
    assert (ours, fewer, three) == ("[3.0, 3.0, 3.0]", "[2.0, 2.0]", ours)
    page = (ROOT / "book" / "back" / "your-cards.md").read_text(encoding="utf-8")
    quoted = re.search(r"Device \.\.\. (is joining a group.+)\n(.+)\n```", page)
    for said in two, again:  # which device tells of its error first is chance
        assert said.startswith(("InternalError", "CancelledError"))
    assert any(all(words in said for words in quoted.groups()) for said in (two, again))


def test_a_second_strategy_works_only_on_the_same_devices():
    first, same, others = sums((0, 2, ""), (0, 2, "again"), (2, 2, ""))
    assert first == same == "[2.0, 2.0]"
    assert others.startswith("CancelledError") or "that is already full" in others
