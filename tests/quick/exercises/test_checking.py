"""Exercises: right answers are accepted, mistakes are refused by the right name."""

from __future__ import annotations

import math

import numpy as np
import pytest

from manygpu.exercises import KNOWN, Checked, check
from manygpu.exercises.checking import KIND, MISSING, NONE, PUBLIC, WRITTEN, exercise
from tests.quick.exercises.answers import RIGHT, WRONG

LEAST = 3  # of right answers, and of mistakes
PAIRS = [(name, answer) for name, answers in RIGHT.items() for answer in answers]
BROKEN = [(name, *each) for name, answers in WRONG.items() for each in answers]


@pytest.mark.parametrize(("name", "answer"), PAIRS)
def test_right_answers_are_accepted(name, answer):
    for seed in (PUBLIC, 1, 2):
        assert check(name, answer, seed), check(name, answer, seed)


@pytest.mark.parametrize(("name", "broken", "answer"), BROKEN)
def test_mistakes_are_refused_by_name(name, broken, answer):
    for seed in (PUBLIC, 1):
        found = check(name, answer, seed)
        assert not found
        assert found.broken == broken, found


def changed(value, number):
    """A result with another number for each of its numbers."""
    if isinstance(value, list | tuple):
        return type(value)(changed(each, number) for each in value)
    if isinstance(value, dict):
        return {key: changed(each, number) for key, each in value.items()}
    if isinstance(value, bool | str) or value is None:
        return value
    return np.vectorize(number)(value) if np.ndim(value) else number(value)


@pytest.mark.parametrize("number", [lambda x: math.nan, str], ids=["NaN", "text"])
@pytest.mark.parametrize("name", KNOWN)
def test_neither_nan_nor_text_is_a_right_number(name, number):
    seen = []

    def answer(*given):
        found = RIGHT[name][0](*given)
        seen.append((repr(found), repr(changed(found, number))))
        return changed(found, number)

    found = check(name, answer)
    assert not found or all(right == other for right, other in seen)


@pytest.mark.parametrize("name", KNOWN)
def test_each_exercise_has_answers(name):
    assert len(RIGHT[name]) >= LEAST
    assert len(WRONG[name]) >= LEAST
    assert len(set(RIGHT[name])) == len(RIGHT[name])


@pytest.mark.parametrize("name", KNOWN)
def test_a_stub_says_that_it_is_not_written(name):
    space = {}
    exec(KNOWN[name].stub, space)
    (stub,) = (value for key, value in space.items() if key.startswith("my_"))
    found = check(name, stub)
    assert found.broken == WRITTEN
    assert str(found).startswith(f"{name}: not written yet. ")


def test_an_answer_may_change_what_it_is_given():
    def spoiled(sums, counts):
        total = sum(sums) / sum(counts)
        counts.clear()
        return total

    assert check("two-devices/mean", spoiled)


def test_the_smallest_case_is_shown():
    found = check("many-devices/shares", lambda n, k: [n // k] * k)
    assert found.passed == 1
    said = "my_shares(5, 2): it is 4"
    assert str(found).endswith(f"no sample is lost or doubled. {said}")


def test_an_error_is_a_broken_property():
    found = check("pipeline/bubble", lambda p, m: 1 / 0)
    assert found.broken == "it runs"
    assert "my_bubble(1, 1) stops with ZeroDivisionError" in found.said


@pytest.mark.parametrize("name", KNOWN)
def test_a_forgotten_return_is_told(name):
    found = check(name, lambda *given: None)
    assert not found
    assert (MISSING in found.said) != KNOWN[name].in_place, found
    assert found.broken == KIND or KNOWN[name].in_place or "None" in KNOWN[name].stub


def test_where_none_is_an_answer_the_property_is_named():
    found = check("many-workers/rounds", lambda first: None)
    assert found.broken == "one rank that does the other first is enough"
    assert found.said.endswith(f"it is None. {NONE}")


def test_an_error_in_what_judges_is_named(monkeypatch):
    def judged(found, stages, micro_batches):
        yield "it is judged", numpy.off(found)  # noqa: F821  # a missing import

    asked = KNOWN["pipeline/bubble"]._replace(properties=judged)
    monkeypatch.setitem(KNOWN, asked.name, asked)
    found = check(asked.name, lambda p, m: 0.5)
    assert found.broken == KIND
    said = "my_bubble(1, 1): it returned 0.5; judging it stopped with NameError: name"
    assert found.said.startswith(said)


def test_what_holds_is_said_and_what_is_graded():
    answer = RIGHT["pipeline/bubble"][0]
    assert "public cases pass; the grader draws as many more" in str(
        check("pipeline/bubble", answer)
    )
    assert str(check("pipeline/bubble", answer, 7)).endswith("all 9 cases pass")


def test_a_page_shows_it_escaped():
    shown = Checked("a/b", 1, "x < y", "f(<1>)")._repr_html_()
    said = "a/b: broken after 1 passed case: x &lt; y. f(&lt;1&gt;)"
    assert shown == f'<p class="manygpu-checked" data-holds="no">{said}</p>'


def test_bad_calls_are_refused():
    with pytest.raises(ValueError, match="name must be one of pipeline/bubble"):
        check("pipeline/bubbles", len)
    with pytest.raises(TypeError, match="answer must be a function, got 3"):
        check("pipeline/bubble", 3)
    with pytest.raises(ValueError, match="name must be new"):
        exercise("pipeline/bubble", "", None)
