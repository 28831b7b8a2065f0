"""Steps whose tokens are split, or that have experts: right ones raise no alarm."""

from __future__ import annotations

import numpy as np
import pytest

from manygpu.prove import todays_steps
from manygpu.prove.judge import trial_on_ranks
from manygpu.prove.planted import BUGS, planted
from manygpu.prove.small import rounded
from manygpu.prove.subject import Case
from manygpu.prove.todays_steps import WAYS
from manygpu.prove.verdict import Finding

# The way, whether texts are packed, whether logits are put in order, and the case.
LONG = [
    ("ring", False, False, Case(2, 5)),
    ("ring", True, False, Case(3, 5)),
    ("zigzag", False, True, Case(4, 7)),
    ("striped", True, False, Case(3, 7)),
    ("all-gather", True, True, Case(2, 7)),
    ("all-to-all", False, False, Case(4, 6)),
]
# Experts per token, seats, the balance, experts, and the case.
EXPERTS = [
    (1, 0, "", 3, Case(2, 5)),
    (2, 0, "loss", 4, Case(4, 7)),
    (3, 0, "bias", 8, Case(3, 4, 2)),
    (2, 2, "bias", 5, Case(4, 7, 2)),
    (1, 1, "loss", 3, Case(4, 9)),
]


def alarms(subject, case):
    return [saw for saw in trial_on_ranks(subject, case) if isinstance(saw, Finding)]


@pytest.mark.parametrize(("way", "packed", "gathered", "case"), LONG, ids=str)
def test_split_tokens_raise_no_alarm(way, packed, gathered, case):
    subject = todays_steps.long_subject(way, way, packed, gathered)
    assert alarms(subject, case) == []


@pytest.mark.parametrize(("k", "capacity", "balance", "experts", "case"), EXPERTS)
def test_experts_raise_no_alarm(k, capacity, balance, experts, case):
    subject = todays_steps.experts_subject("experts", k, capacity, balance, experts)
    assert alarms(subject, case) == []


def test_a_step_in_float32_raises_no_alarm():
    subject = rounded(todays_steps.in_zigzag("context"), np.float32)
    assert alarms(subject, Case(2, 7)) == []


def test_all_ways_are_tried():
    assert {way for way, *_ in LONG} == {*WAYS}


def test_a_missing_sum_is_named_with_its_axis():
    (bug,) = (b for b in BUGS if b.thread == "NVIDIA-NeMo/Automodel #3135")
    subject = todays_steps.without_drops("experts")
    with planted(bug):
        found = alarms(subject, Case(4, 8))
    assert [one.broken for one in found] == ["copies", "ranks"]
    assert "data 1 counted 0 times, due 1" in found[1].sentence


def test_a_text_may_come_in_rows_of_any_order_and_beside_another():
    subject = todays_steps.in_zigzag("context")
    first, second = (subject.draw(4, seed) for seed in (0, 1))
    X, y = (np.concatenate(two) for two in zip(first, second, strict=True))
    order = np.random.default_rng(0).permutation(len(X))
    whole = subject.start(subject.weights, 2)
    loss = whole.take(X[order], y[order])
    sums = [subject.gradient(*one, subject.weights)[0] for one in (first, second)]
    assert loss == pytest.approx(sum(sums) / len(X), rel=1e-12)
