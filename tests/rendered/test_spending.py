"""The cost calculator's script finds what Python finds."""

from __future__ import annotations

import pytest

from manygpu.choosing import formulas
from tests.rendered.calculators import (
    asked,
    assert_same,
    assert_words_are_pythons,
    drawn,
    opened,
)

pytestmark = pytest.mark.rendered


def test_its_numbers_and_words_are_pythons(lone):
    figure, settings = opened(lone, "spending").figure, drawn("spending", 300)
    assert not any(asked(figure, "wrong", settings))
    for values, found in zip(settings, asked(figure, "work", settings), strict=True):
        assert_same(found, formulas.spending(**values), values)
    assert_words_are_pythons(figure, "spending", settings[:60])


def test_of_what_costs_the_same_the_fastest_is_best(lone):
    """Nothing lost, nobody waits: each number costs the same, but for rounding."""
    settings = drawn("spending", 60, seed=1)
    for values in settings:
        values |= {"speedups": "own", "efficiency": 1.0, "waiting": 0.0}
        values["at_once"] = 1
    figure = opened(lone, "spending").figure
    found = asked(figure, "shown", settings)
    assert all(row["chosen"] == len(row["tables"][0]) - 1 for row in found)
    assert_words_are_pythons(figure, "spending", settings)
