"""Exercises: right answers are accepted, mistakes are refused by the right name."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from manygpu.exercises import KNOWN, Checked, check, checking
from manygpu.exercises.checking import (
    AS_MANY,
    KIND,
    MISSING,
    NO_OTHERS,
    NONE,
    PUBLIC,
    SOME,
    WRITTEN,
    cases_of,
    exercise,
    others,
)
from tests.quick.exercises.answers import RIGHT, WRONG

BITS = ("mixed-precision/stored", "parameters-and-devices/states")  # all of float64's
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
    if not np.ndim(value):
        return number(value)
    return np.vectorize(number)(value) if value.size else value


def low(x):
    """A number as float32 has it; whole ones stay."""
    return x if np.asarray(x).dtype.kind in "iub" else np.float32(x)


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


def seen(name, odd):
    """The result of a check of a right answer whose results are made odd."""
    return check(name, lambda *given: odd(RIGHT[name][0](*given)))


class Equal:
    """What is equal to everything, and neither less nor more."""

    __eq__ = __le__ = __ge__ = lambda self, other: True
    __ne__ = __lt__ = __gt__ = lambda self, other: False
    __hash__ = None


class EqualNumber(float):
    """A number that is equal to every other one."""

    __eq__ = __le__ = __ge__ = lambda self, other: True
    __ne__ = __lt__ = __gt__ = lambda self, other: False
    __sub__ = __rsub__ = __abs__ = lambda self, *other: self
    __hash__ = float.__hash__


class NeverSaid:
    def __repr__(self):
        raise ValueError("no")


ODD = {
    "equal": lambda x: Equal(),
    "equal number": lambda x: EqualNumber(2 * x + 1),
    "infinity": lambda x: math.inf,
    "minus infinity": lambda x: -math.inf,
    "complex": lambda x: x + 1j,
    "a bit more": lambda x: x * 1.001 + 1e-3,
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", [*KNOWN][::4])
def test_an_odd_number_is_no_right_one(name, odd):
    """All of them, and more: experiments/odd_values.py."""
    right = RIGHT[name][0]
    has_numbers = []

    def look(x):
        has_numbers.append(x)
        return x

    def answer(*given):
        found = right(*given)
        changed(found, look)
        return changed(found, ODD[odd])

    found = check(name, answer)
    assert not found or all(isinstance(x, np.bool_) for x in has_numbers)


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (Equal(), "must be numbers, texts or lists of them, got Equal"),
        ([NeverSaid()], "got NeverSaid: its repr raises ValueError"),
        ({1}, "got set: {1}"),
        ("x" * 900_000, "a text must have at most 10,000 letters, got 900,000"),
        ([0] * 100_000, "result must have at most 5,000 items"),
        (range(10**9), "result must have at most 5,000 items"),
        (np.zeros((90, 90)), "result must have at most 5,000 items"),
        (np.array([Equal()]), "got ndarray"),
    ],
)
def test_what_is_no_data_is_no_result(odd, said):
    found = seen("pipeline/bubble", lambda right: odd)
    assert found.broken == KIND and said in found.said


def test_lists_without_an_end_are_no_result():
    endless = []
    endless.append(endless)
    found = seen("pipeline/bubble", lambda right: endless)
    assert found.broken == KIND and "lists in lists without end" in found.said


def test_a_number_may_be_infinite_only_where_an_exercise_says_so():
    assert KNOWN["mixed-precision/stored"].infinite
    assert check("mixed-precision/stored", RIGHT["mixed-precision/stored"][0])
    found = seen("transformer/heads", lambda right: changed(right, lambda x: -math.inf))
    assert not found


@pytest.mark.parametrize("name", KNOWN)
def test_a_tuple_may_stand_for_a_list(name):
    def tuples(value):
        if isinstance(value, dict):
            return {key: tuples(each) for key, each in value.items()}
        return tuple(map(tuples, value)) if isinstance(value, list | tuple) else value

    assert seen(name, tuples)


@pytest.mark.parametrize("name", KNOWN)
def test_float32_answers_are_taken(name):
    if name not in BITS:
        assert seen(name, lambda right: changed(right, low))


@pytest.mark.parametrize(("name", "broken", "answer"), BROKEN)
def test_float32_hides_no_mistake(name, broken, answer):
    if broken != "it is a float32":
        assert not check(name, lambda *given: changed(answer(*given), low))


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_said_of_the_graders_cases_is_so(name):
    asked = KNOWN[name]
    public = {repr(given) for given in asked.cases(random.Random(PUBLIC))}
    said = others(asked)
    for seed in (5, 6, 7):
        new = {repr(given) for given in cases_of(asked, seed)} - public
        assert {AS_MANY: len(new) >= len(public), SOME: new, NO_OTHERS: not new}[said]


def test_a_table_of_the_public_cases_is_found_out():
    """One draw of a seed was often the page's own: nothing new among its cases."""
    table = {}
    for name in ("all-reduce/chain", "mesh-layout/groups", "recomputation/segments"):
        for given in KNOWN[name].cases(random.Random(PUBLIC)):
            table[name, repr(given)] = RIGHT[name][0](*given)
        by_heart = lambda *given, name=name: table[name, repr(given)]  # noqa: E731
        assert check(name, by_heart)
        assert not any(check(name, by_heart, seed) for seed in range(1, 20))


def test_judging_ends(monkeypatch):
    def judged(found, stages, micro_batches):
        while True:
            yield "it is a share", ""
            while found:
                pass

    monkeypatch.setattr(checking, "JUDGING", 1)
    asked = KNOWN["pipeline/bubble"]._replace(properties=judged)
    monkeypatch.setitem(KNOWN, asked.name, asked)
    found = check(asked.name, lambda p, m: 0.5)
    assert found.broken == KIND and "TimeoutError: more than 1 s" in found.said


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
    assert str(check("pipeline/bubble", answer, 7)).endswith("all 14 cases pass")


def test_a_page_shows_it_escaped():
    shown = Checked("a/b", 1, "x < y", "f(<1>)")._repr_html_()
    said = "a/b: broken after 1 passed case: x &lt; y. f(&lt;1&gt;)"
    assert shown == f'<p class="manygpu-checked" data-holds="no">{said}</p>'


def test_bad_calls_are_refused():
    with pytest.raises(ValueError, match="name must be one of pipeline/bubble"):
        check("pipeline/bubbles", len)
    with pytest.raises(ValueError, match="name must be one of .*, got 5"):
        check(5, len)
    for seed in ("x", math.nan, True):
        with pytest.raises(TypeError, match="seed must be a whole number, got"):
            check("pipeline/bubble", len, seed)
    with pytest.raises(TypeError, match="answer must be a function, got 3"):
        check("pipeline/bubble", 3)
    with pytest.raises(ValueError, match="name must be new"):
        exercise("pipeline/bubble", "", None)
