"""In 16 bits, mistakes of a hundredth or two are told from rounding, which is none."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import ml_dtypes
import numpy as np
import pytest

from manygpu.prove import judge, patience, steps
from manygpu.prove.judge import counting
from manygpu.prove.planted import Bug, planted
from manygpu.prove.small import rounded

STEP = "take_step(device_params, reduce(grads), lr, samples)"
SHARD = "found.append(of(*shard, own))"
HUNDREDTHS = {
    "the rate": (STEP, STEP.replace("lr,", "lr * 1.01,"), "mean"),
    "the last parameter": (
        STEP,
        STEP.replace(
            "reduce(grads)", "[[*a[:-1], a[-1] * 1.01] for a in reduce(grads)]"
        ),
        "mean",
    ),
    "the first device": (
        SHARD,
        "loss, mine = of(*shard, own)\n"
        "            more = [g if found else g * 1.02 for g in mine]\n"
        "            found.append((loss, more))",
        "mean",
    ),
}


@pytest.fixture(autouse=True)
def fewer_batches(monkeypatch):
    """Enough for what is planted here."""
    monkeypatch.setattr(patience, "BATCHES", 10)


def in_16_bits(name="data", dtype=ml_dtypes.bfloat16):
    return rounded(steps.BY_NAME[name](name), dtype)


def found(subject):
    """What one step's counts say, and what those of many batches say."""
    return [
        [saw for case in check.cases for saw in check.look(case)]
        for check in counting(subject)
    ]


@pytest.mark.parametrize("what", HUNDREDTHS)
def test_hundredths_show_in_many_batches_and_not_in_one_step(what):
    before, after, broken = HUNDREDTHS[what]
    bug = Bug("data_parallel.many_devices", before, after, broken, "data", "")
    with planted(bug):
        one, many = found(in_16_bits())
    assert one == []
    assert many[0].broken == broken
    assert "in the mean of 10 batches" in many[0].sentence
    assert many[0].smallest == many[0].case


@pytest.mark.parametrize(
    "name, dtype",
    [
        ("layerwise", ml_dtypes.bfloat16),
        ("pipeline", np.float16),
        ("data, micro-batches", ml_dtypes.bfloat16),
    ],
)
def test_rounding_is_none(name, dtype):
    verdict = judge(in_16_bits(name, dtype))
    assert verdict.right, str(verdict)
    assert "no hundredth more or less" in str(verdict).replace("\n    ", " ")


class OfShares:
    """Each device takes the mean of its own share; a batch leaves no share empty."""

    def __init__(self, subject, weighed, weights, devices):
        self.subject, self.weighed = subject, weighed
        self.weights, self.devices = weights, devices

    def take(self, X, y):
        if len(X) < self.devices:
            raise ValueError(
                f"samples must be >= {self.devices}, got {len(X)}: add some"
            )
        total = [np.zeros(w.shape) for w in self.weights]
        for own in np.array_split(np.arange(len(X)), self.devices):
            part = len(own) / len(X) if self.weighed else 1 / self.devices
            _, grads = self.subject.gradient(X[own], y[own], self.weights)
            for t, g in zip(total, grads, strict=True):
                t += part * np.asarray(g).astype(np.float64) / len(own)
        for w, t in zip(self.weights, total, strict=True):
            w -= (self.subject.lr * t).astype(w.dtype)

    def copies(self):
        return [self.weights] * self.devices


@pytest.mark.parametrize("weighed, broken", [(True, None), (False, "shares")])
def test_a_mean_of_means_that_refuses_empty_shares_is_wrong(weighed, broken):
    subject = in_16_bits()
    start = partial(OfShares, subject, weighed)
    verdict = judge(replace(subject, start=start, most_devices=3, on=None))
    named = [finding.broken for finding in verdict.findings[:1]]
    assert named == ([broken] if broken else []), str(verdict)
    assert not verdict.unsure, str(verdict)


def test_who_keeps_more_digits_needs_no_patience():
    assert len(list(counting(in_16_bits(dtype=np.float32)))) == 1
    assert len(list(counting(in_16_bits()))) == 2


def test_adam_that_moves_nothing_is_no_rounding():
    step = "return rate * m / (tf.sqrt(v) + epsilon)"
    bug = Bug("splitting.sharded_state", step, "return 0 * m", "optimizer", "", "")
    with planted(bug):
        assert found(in_16_bits("sharded state 0"))[0]
    assert not found(in_16_bits("sharded state 0"))[0]
