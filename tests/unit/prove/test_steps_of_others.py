"""The judge on steps that others wrote: a quick part of experiments/steps-of-others."""

from __future__ import annotations

import csv
import importlib
import sys
from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from manygpu.prove import judge
from manygpu.prove.coarse import unit_found
from workshop import evidence

FOLDER = evidence.ROOT / "experiments" / "steps-of-others"
FILES = ("right", "odd", "wrong", "keras_steps", "torch_cases", "jax_cases")


def listed() -> dict:
    """Return all cases by name; the files of that folder import each other."""
    sys.path.insert(0, str(FOLDER))
    try:
        for name in FILES:
            importlib.import_module(name)
        return {one.name: one for one in importlib.import_module("cases").CASES}
    finally:
        sys.path.remove(str(FOLDER))


CASES = listed()
RIGHT = [
    "accumulation",
    "fast_device",
    "clipped_after_unscaling",
    "masked_counted_globally_known",
    "average_of_weights",
    "samples_seen",
    "dynamic_scale",
    "sent_in_float16",
    "products_bfloat16_plain_reference",
    "rate_in_float32",
    "adam_with_other_betas",
]
WRONG = [
    "four_times",
    "sparse_summed",
    "synced_at_the_first_piece",
    "leftover_dropped",
    "clipped_before_unscaling",
    "clipped_by_mean_of_norms",
    "same_mask_by_numbers_drawn",
    "average_updated_k_times",
    "average_with_wrong_sign",
    "scale_not_halved",
]


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_step_is_right(name):
    verdict = judge(CASES[name].make())
    assert CASES[name].expected == "right" and verdict.right, str(verdict)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_step_is_named(name):
    verdict = judge(CASES[name].make())
    assert not verdict.right and not verdict.unsure, str(verdict)
    assert verdict.findings[0].broken in CASES[name].names, str(verdict)


def test_the_table_has_a_row_for_each_step_and_calls_no_wrong_one_right():
    with (FOLDER / "verdicts.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    own = {name for name, one in CASES.items() if not one.needs}
    assert own <= {*rows} <= {*CASES}
    for name, row in rows.items():
        assert row["kind"] == CASES[name].kind
        assert row["expected"] == CASES[name].expected
        if CASES[name].needs:
            continue  # other engines, at the versions that were there
        assert (row["expected"], row["said"]) not in (
            ("wrong", "right"),
            ("right", "wrong"),
        )


@pytest.mark.parametrize(
    "name, power",
    [
        ("accumulation", 0),
        ("float32", 0),
        ("products_bfloat16_plain_reference", -7),
        ("products_bfloat16_unknown", -7),
        ("sent_in_float16", -10),
        ("tf32_products", -10),
    ],
)
def test_the_narrowest_numbers_of_a_step_are_found(name, power):
    assert unit_found(CASES[name].make()) == (2.0**power if power else 0.0)


def test_a_graph_that_is_made_in_a_step_shows_its_dtypes_too():
    net = importlib.import_module("net")

    @tf.function
    def gradients(X, y, own):
        half = [tf.cast(p, tf.bfloat16) for p in own]
        with tf.GradientTape() as tape:
            tape.watch(half)
            loss = net.total_loss(tf.cast(X, tf.bfloat16), y, half)
        return loss, [tf.cast(g, own[0].dtype) for g in tape.gradient(loss, half)]

    def unknown(X, y, own):
        return gradients(X, y, own)

    params = net.numbers(*net.SHAPES, dtype=np.float32)
    start = partial(net.loop, gradients=unknown)
    subject = net.subject(None, net.draw32, params, start=start)
    assert unit_found(subject) == 2.0**-7
