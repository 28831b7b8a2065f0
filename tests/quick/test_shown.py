"""The table of indicators names bugs that are planted; its right runs are right."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from manygpu.prove import shown
from manygpu.prove.verdict import PROPERTIES

AGAIN = "run experiments/loss_looks_right.py again"
MOST_ALARMS = 0.02  # of right runs that the same limit calls wrong


def test_each_row_is_the_first_planted_bug_of_its_thread():
    bugs = [(b.thread, b.subject, b.broken) for b in shown.first_of_each_thread()]
    assert sorted(row[:3] for row in shown.rows()) == sorted(bugs), AGAIN


def test_what_the_counts_call_broken_is_a_property():
    said = {row.counts for row in shown.rows()} - {"", shown.NO_COUNTS}
    assert said and said <= {*PROPERTIES}


def test_few_right_runs_are_beyond_the_limit():
    rows = shown.right_rows()
    per_step = Counter(row.subject for row in rows)
    assert len({*per_step.values()}) == 1, AGAIN
    assert {*per_step} <= {row.subject for row in shown.rows()}, AGAIN
    for far in ("loss", "norm"):
        beyond = sum(getattr(row, far) > shown.LIMIT for row in rows)
        assert beyond <= MOST_ALARMS * len(rows)


@pytest.mark.parametrize("name", shown.INDICATORS)
def test_each_indicator_shows_some_bugs_and_misses_some(name):
    said = [shown.INDICATORS[name](row) for row in shown.rows()]
    assert 0 < sum(said) < len(said)


RIGHT = np.array([[1.0, 2.0, 3.0, 4.0], [3.0, 2.5, 3.5, 5.0], [2.0, 3.0, 4.0, 6.0]])
MIDDLE = RIGHT.mean(axis=0)


@pytest.mark.parametrize(
    ("curve", "far"),
    [
        (MIDDLE, 0),
        (MIDDLE + [2, 0, 0, 0], 2),  # one step: its deviation there is 1
        (MIDDLE + [-2, 0, 0, 0], 2),
        (MIDDLE[:3], np.inf),
        ([1, 2, np.nan, 4], np.inf),
    ],
    ids=["middle", "above", "below", "stopped", "not a number"],
)
def test_a_distance_is_in_standard_deviations_of_right_runs(curve, far):
    assert shown.distance(np.array(curve), RIGHT) == pytest.approx(far)


def test_small_differences_in_the_same_direction_add_up_in_the_mean():
    rng = np.random.default_rng(0)
    right = rng.normal(size=(200, 12))
    curve = right.mean(axis=0) + 2 * right.std(axis=0, ddof=1)
    assert shown.distance(curve, right) > 4  # no single step is farther than 2
