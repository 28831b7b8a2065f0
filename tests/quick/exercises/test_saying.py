"""What is said of a wrong number or array is short, in units that say something."""

from __future__ import annotations

import math

import pytest

from manygpu.exercises.saying import all_off, in_digits, off


@pytest.mark.parametrize(
    ("found", "right", "said"),
    [
        ([1.0, 2.0], [1.0, 2.0], ""),
        ([0.0, 0.0], [0.0, 0.0], ""),
        (3.0, 2.0, "it is 3"),
        (1.6e10, 2.0, "it is 16,000,000,000"),
        ([1.6e5, 2.0], [1.0, 2.0], "numbers differ by up to 80,000 times the largest"),
        ([1.0], [1.0, 2.0], "it has the shape (1,), not (2,)"),
        ([1.0, 2.5], [1.0, 2.0], "numbers differ by up to 25% of the largest"),
        ([2.0, 4.0], [2.0, 2.0], "numbers differ by up to 100% of the largest"),
        ([1.0, 1.0 + 3e-6], [1.0, 1.0], "numbers differ by up to 0.0003% of the"),
        ([261.0, 2.0], [1.0, 2.0], "numbers differ by up to 130 times the largest"),
        ([0.0, 1.0], [0.0, 0.0], "it isn't all 0"),
        ([math.nan, 1.0], [1.0, 1.0], "a number isn't finite"),
    ],
)
def test_how_far_off_is_said(found, right, said):
    own = off(found, right)
    assert own.startswith(said)
    assert bool(own) == bool(said)


@pytest.mark.parametrize(
    ("value", "said"),
    [(1700, "1700"), (17_000, "17,000"), (-2.8e6, "-2,800,000"), (1.5e-5, "1.5e-05"),
     (0.123456, "0.1235"), (math.nan, "nan"), (-math.inf, "-inf"), (1e300, "1e+300")],
)  # fmt: skip
def test_a_number_is_written_as_people_do(value, said):
    assert in_digits(value) == said


def test_whose_array_is_off_is_said():
    said = "1: numbers differ by up to 50% of the largest"
    assert (
        all_off([[1.0, 1.0], [1.0, 3.0]], [[1.0, 1.0], [1.0, 2.0]]) == f"device {said}"
    )
    assert all_off([[1.0], [3.0, 2.0]], [[1.0], [2.0, 2.0]], "rank") == f"rank {said}"
