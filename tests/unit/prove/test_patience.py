"""In 16 bits, mistakes of a hundredth or two are told from rounding, which is none."""

from __future__ import annotations

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


def test_who_keeps_more_digits_needs_no_patience():
    assert len(list(counting(in_16_bits(dtype=np.float32)))) == 1
    assert len(list(counting(in_16_bits()))) == 2


def test_adam_that_moves_nothing_is_no_rounding():
    step = "return rate * m / (tf.sqrt(v) + epsilon)"
    bug = Bug("splitting.sharded_state", step, "return 0 * m", "optimizer", "", "")
    with planted(bug):
        assert found(in_16_bits("sharded state 0"))[0]
    assert not found(in_16_bits("sharded state 0"))[0]
