"""Guess first: what is asked, what is told, and where each chapter does it."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest

from manygpu import _page
from manygpu.exercises import guess, guessing, kept
from workshop.pages import ROOT, reading_order

# Nothing is measured on these pages.
WITHOUT = {"book/choosing/calculators", "book/choosing/sources-checked"}
CHAPTERS = [page for page in reading_order() if page not in WITHOUT]


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch) -> None:
    """A kernel in which nobody has done anything."""
    monkeypatch.setattr(kept, "HERE", {kind: {} for kind in kept.KINDS})


@pytest.fixture
def shown(monkeypatch) -> list[tuple[str, str]]:
    """What was shown: HTML and text."""
    found = []
    monkeypatch.setattr(_page, "show", lambda *both: found.append(both))
    return found


def test_a_guess_stands_beside_what_was_foreseen_and_measured(shown):
    asked = guess("a-page/gain", "How many times as fast?", "times", yours=1.9)
    asked.told([1.3, 1.43, 1.5], foreseen=2, by="halves & halves")
    (_, question), (page, told) = shown
    assert question == "Guess first: How many times as fast? You said 1.9 times."
    said = "you said 1.9, foreseen 2 (halves & halves), found 1.43 times"
    assert told == f"Guess: {said} (1.3 to 1.5)."
    assert 'data-guess="1.9" data-foreseen="2.0" data-measured="1.43"' in page
    assert '<span class="told-foreseen">foreseen 2 (halves &amp; halves)</span>' in page
    assert kept.HERE["guesses"] == {
        "a-page/gain": {
            "guess": 1.9,
            "foreseen": 2.0,
            "measured": 1.43,
            "unit": "times",
            "page": "a-page",
        }
    }


def test_without_a_guess_the_rest_is_told(shown):
    guess("a-page/share", "Which share?", "%").told(np.float32(38.5))
    (page, question), (line, told) = shown
    assert question == "Guess first: Which share? (In %.)"
    assert told == "Guess: found 38.5%."
    assert "data-yours" not in page
    assert "data-guess" not in line
    assert "data-foreseen" not in line
    assert kept.HERE["guesses"]["a-page/share"]["guess"] is None


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (0, "", "0"),
        (1.987, "times", "1.99 times"),
        (99.96, "%", "100%"),
        (44_426, "bytes", "44,426 bytes"),
        (-1234.5, "", "-1,234"),
        (3e-7, "", "3e-07"),
        (2.5e12, "", "2.5e+12"),
    ],
)
def test_numbers_are_written_with_three_digits(value, unit, said):
    assert guessing.written(value, unit) == said


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"name": "Gain"}, ValueError, "name must be like 'page/its-own-name'"),
        ({"name": "a/b c"}, ValueError, "name must be like"),
        ({"question": "How many."}, ValueError, "question must end with a question"),
        ({"yours": "2"}, TypeError, "yours must be a number, such as 1.5, got '2'"),
        ({"yours": True}, TypeError, "yours must be a number"),
        ({"yours": math.nan}, ValueError, "yours must be a finite number, got nan"),
        ({"yours": math.inf}, ValueError, "yours must be a finite number, got inf"),
        (
            {"yours": -5, "unit": "%"},
            ValueError,
            "yours must be at least 0%, got -5%: guess a number that can be so",
        ),
        (
            {"yours": 1e9, "unit": "%", "most": 100},
            ValueError,
            "yours must be at most 100%, got 1e+09%",
        ),
    ],
)
def test_what_is_no_question_is_refused(shown, given, error, words):
    right = {"name": "a-page/gain", "question": "How many?", "unit": "times"}
    with pytest.raises(error, match=re.escape(words)):
        guess(**right | given)
    assert shown == []


@pytest.mark.parametrize(
    ("ends", "written"),
    [
        ({}, 'data-least="0"'),
        ({"least": None}, ""),
        ({"most": 100}, 'data-least="0" data-most="100"'),
    ],
)
def test_a_page_knows_what_can_be(shown, ends, written):
    guess("a-page/gain", "How many?", **ends)
    ((page, _),) = shown
    assert " ".join(re.findall(r'data-(?:least|most)="\d+"', page)) == written


def test_an_answer_may_be_less_than_nothing_where_the_question_says_so(shown):
    assert guess("a-page/powers", "How many?", yours=-1, least=None).yours == -1


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"measured": []}, ValueError, "measured must hold at least one number"),
        ({"measured": [1, math.nan]}, ValueError, "measured must be a finite number"),
        ({"measured": ["1"]}, TypeError, "measured must be a number"),
        (
            {"measured": 1, "foreseen": math.inf},
            ValueError,
            "foreseen must be a finite",
        ),
        ({"measured": 1, "by": "hand"}, ValueError, "by says what foreseen comes from"),
    ],
)
def test_what_was_not_measured_is_refused(shown, given, error, words):
    asked = guess("a-page/gain", "How many?")
    with pytest.raises(error, match=words):
        asked.told(**given)
    assert len(shown) == 1  # the question
    assert kept.HERE["guesses"] == {}


def cells(page: str) -> list[str]:
    """The code of a chapter's cells, in order."""
    notebook = json.loads((ROOT / f"{page}.ipynb").read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"]]


@pytest.mark.parametrize("page", CHAPTERS)
def test_a_chapter_tells_what_it_asks_with_something_between(page):
    code = cells(page)
    asks = [i for i, source in enumerate(code) if "= guess(" in source]
    tells = [i for i, source in enumerate(code) if "first_guess.told(" in source]
    assert len(asks) == len(tells) > 0
    places = sorted([*asks, *tells])
    assert (places[::2], places[1::2]) == (asks, tells)  # one after the other
    assert all(tell > ask + 1 for ask, tell in zip(asks, tells, strict=True))
    names = [re.search(r'= guess\(\s*"([^"]+)"', code[i])[1] for i in asks]
    assert len({*names}) == len(names)
    assert {name.partition("/")[0] for name in names} == {page.rpartition("/")[2]}
    assert all("yours=None" in code[i] for i in asks)  # nobody's guess is handed out


def test_no_page_without_a_measurement_asks():
    assert not any("guess(" in code for page in WITHOUT for code in cells(page))
