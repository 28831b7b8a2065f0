"""Guess first, and the page of results, as a reader without a kernel meets them."""

from __future__ import annotations

import functools
import json
import re

import pytest

from manygpu.exercises import guessing
from tests.rendered.conftest import DESK, PHONE
from tests.rendered.test_each_page import AXE, FRAMES, RULES, RUN, STILL
from tests.rendered.test_pages import soup

CHAPTER, RESULTS = "book/start/two-devices", "book/back/results"
KEY = "manygpu:guess:two-devices/mean-of-means"
KEPT = f"JSON.parse(localStorage.getItem('{KEY}'))"
LOOKS = [(size, theme) for size in (DESK, PHONE) for theme in ("light", "dark")]


@pytest.fixture
def visit(visit, served):
    """Open a page of a host: among files Chromium may forget what was just kept."""
    return functools.partial(visit, root=served)


def waits(tab) -> list[bool]:
    """Of the measurement and of the answer: whether it is hidden."""
    found = "the mean of means differs from the right gradient"
    cell = tab.locator("div.cell_output").filter(has_text=found)
    told = tab.locator("div.cell_output").filter(has=tab.locator("p.manygpu-told"))
    own = [output.locator("> :not(.guess-stand-in)").first for output in (cell, told)]
    return [not each.is_visible() for each in own]


def faults(tab) -> list:
    """What axe finds."""
    tab.add_style_tag(content=STILL)
    tab.evaluate(AXE.read_text(encoding="utf-8"))
    tab.evaluate(FRAMES)
    return tab.evaluate(RUN, RULES)


@pytest.mark.parametrize(("size", "theme"), LOOKS)
def test_the_keyboard_guesses_and_the_page_remembers(visit, html_root, size, theme):
    told = soup(html_root, CHAPTER).select_one("p.manygpu-told")
    measured = float(told["data-measured"])
    tab = visit(CHAPTER, size, color_scheme=theme)
    number = tab.get_by_role("spinbutton", name=re.compile("Guess first: Two devices"))
    assert waits(tab) == [True, True]
    assert faults(tab) == []

    number.focus()
    tab.keyboard.press("Enter")  # without a number
    assert "Type a number" in tab.locator(".guess-form [role=alert]").inner_text()
    assert number.get_attribute("aria-invalid") == "true"
    assert waits(tab) == [True, True]
    assert tab.evaluate(KEPT.replace("JSON.parse", "")) is None

    tab.keyboard.type("4.5")
    tab.keyboard.press("Enter")
    assert waits(tab) == [False, False]
    three = tab.locator(".guess-three > div").all_inner_texts()
    assert [text.split() for text in three] == [
        ["You", "said", "4.5%"],
        ["Found", f"{measured:.3g}%"],
    ]
    kept = {"guess": 4.5, "foreseen": None, "measured": measured}
    assert tab.evaluate(KEPT) == kept | {"unit": "%", "page": "two-devices"}
    said = tab.locator(".guess-answer [role=status]").inner_text()
    assert said == "You said 4.5%. What was found is below."
    focused = "document.activeElement.className"
    assert tab.evaluate(focused) == "guess-answer"
    assert tab.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert faults(tab) == []

    tab.reload()
    assert waits(tab) == [False, False]
    assert tab.locator(".guess-form").is_hidden()
    tab.get_by_role("button", name="Forget it").press("Enter")
    assert waits(tab) == [True, True]
    assert tab.evaluate(KEPT) is None
    assert number.input_value() == ""
    tab.reload()
    assert waits(tab) == [True, True]


def test_who_would_rather_see_it_does(visit):
    tab = visit(CHAPTER)
    tab.get_by_role("button", name="I’d rather see it").click()
    assert waits(tab) == [False, False]
    assert tab.evaluate(KEPT)["guess"] is None
    assert "no guess" in tab.locator(".guess-three").inner_text()
    tab.reload()
    assert waits(tab) == [False, False]


@pytest.mark.parametrize("kept", ["{", '"4"', '{"guess": "<b>4</b>"}', "[]"])
def test_what_somebody_else_has_kept_is_no_guess(visit, kept):
    tab = visit(CHAPTER)
    tab.evaluate(f"kept => localStorage.setItem('{KEY}', kept)", kept)
    tab.reload()
    assert waits(tab) == [True, True]


def test_without_scripts_and_on_paper_all_is_shown(visit):
    plain = visit(CHAPTER, java_script_enabled=False)
    assert waits(plain) == [False, False]
    assert plain.locator("p.manygpu-told").is_visible()
    assert plain.locator("form.guess-form").count() == 0
    tab = visit(CHAPTER)
    assert waits(tab) == [True, True]
    tab.emulate_media(media="print")
    assert waits(tab) == [False, False]
    assert tab.locator(".guess-form").is_hidden()
    assert tab.locator("p.manygpu-guess").is_visible()


HEIGHTS = """() => [...document.querySelectorAll(".guess-waits")].map(
    output => output.getBoundingClientRect().height)"""
# What has no room in its stand-in, and what of the output can be seen.
CUT = """() => [...document.querySelectorAll(".guess-stand-in")].filter(
    e => e.scrollHeight > e.clientHeight || e.scrollWidth > e.clientWidth
      || [...e.parentElement.children].some(
          other => other !== e && other.checkVisibility({ checkVisibilityCSS: true }))
    ).map(e => e.textContent)"""


@pytest.mark.parametrize("size", [DESK, PHONE])
def test_a_low_stand_in_says_what_waits(visit, size):
    tab = visit(CHAPTER, size)
    outputs = tab.locator(".guess-waits")
    said = tab.locator(".guess-stand-in p").all_inner_texts()
    assert len(said) == outputs.count() > 1
    assert said[-1] == "The answer and the text below wait for your guess."
    captions = outputs.locator("a.caption-number").all_text_contents()
    assert all(any(caption in words for words in said) for caption in captions)
    assert all(40 < height < 130 for height in tab.evaluate(HEIGHTS))
    assert tab.evaluate(CUT) == []


def test_the_text_below_an_answer_waits_with_it(visit):
    tab = visit(CHAPTER)
    end = tab.locator("div.cell").filter(has=tab.locator("p.manygpu-told"))
    text = end.locator("+ p")
    assert text.is_hidden()
    assert end.locator("xpath=preceding-sibling::p").last.is_visible()
    text.evaluate("e => { e.id = 'hidden-text' }")
    tab.evaluate("location.hash = 'hidden-text'")
    tab.wait_for_function("document.activeElement.matches('.guess-stand-in')")
    button = end.get_by_role("button", name="Show the answer and the text below")
    button.scroll_into_view_if_needed()
    place = "e => e.getBoundingClientRect().top"
    before = end.evaluate(place)
    button.press("Enter")
    assert text.is_visible()
    tab.wait_for_timeout(100)
    assert abs(end.evaluate(place) - before) < 2  # the outputs above have come, too


def test_a_link_to_what_is_hidden_leads_to_its_stand_in(visit):
    tab = visit(CHAPTER)
    output = tab.locator("div.cell_output.guess-waits").first
    output.evaluate("e => { e.lastElementChild.id = 'hidden-place' }")
    tab.evaluate("location.hash = 'hidden-place'")
    stand_in = output.locator(".guess-stand-in")
    is_here = "e => document.activeElement === e && e.getBoundingClientRect().top > 0"
    tab.wait_for_function(is_here, arg=stand_in.element_handle())
    assert "hidden-place" in tab.url

    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")  # your guess: back to the question
    question = tab.locator("p.manygpu-guess")
    assert tab.url.endswith("#" + question.get_attribute("id"))
    assert waits(tab) == [True, True]

    stand_in.get_by_role("button", name="Show").press("Enter")
    assert waits(tab) == [False, False]
    assert tab.locator(".guess-stand-in").count() == 0
    assert output.count() == 0  # it waits no more
    assert "cell_output" in tab.evaluate("document.activeElement.className")
    assert tab.evaluate(KEPT)["guess"] is None


OTHER = "book/engine/roofline"


def test_who_wants_no_questions_is_asked_on_no_page(visit):
    tab = visit(CHAPTER)
    tab.get_by_role("button", name="Show all, on every page").press("Enter")
    assert waits(tab) == [False, False]
    assert tab.evaluate(KEPT.replace("JSON.parse", "")) is None  # that is no guess
    assert tab.evaluate("document.activeElement.className") == "guess-answer"
    for page in (CHAPTER, OTHER):
        tab.goto(re.sub(r"book/.*", f"{page}.html", tab.url))
        assert tab.locator(".guess-waits, .guess-form").count() == 0
        said = tab.locator(".guess-answer [role=status]").inner_text()
        assert said == "Every page shows everything."
        assert tab.locator("p.manygpu-told").is_visible()
    tab.get_by_role("button", name="Ask me first").press("Enter")
    assert tab.locator(".guess-waits").count() > 1
    assert tab.evaluate("document.activeElement.type") == "number"
    tab.goto(re.sub(r"book/.*", f"{CHAPTER}.html", tab.url))
    assert waits(tab) == [True, True]


def test_a_guess_outlives_that_nothing_is_asked(visit):
    tab = visit(CHAPTER)
    tab.locator(".guess-form input").fill("4.5")
    tab.get_by_role("button", name="Show", exact=True).click()
    tab.evaluate("localStorage.setItem('manygpu:guess-first', '\"off\"')")
    tab.reload()
    assert "You said 4.5%" in tab.locator(".guess-answer").inner_text()
    tab.get_by_role("button", name="Forget it").press("Enter")
    assert waits(tab) == [False, False]  # still, all is shown
    assert tab.evaluate(KEPT) is None


@pytest.mark.parametrize(
    ("typed", "most", "said"),
    [
        ("-5", None, "It can’t be -5%: type a number, 0 or more."),
        ("-5", "100", "It can’t be -5%: type a number, from 0 to 100."),
        ("1e9", "100", "It can’t be 1e+09%: type a number, from 0 to 100."),
        ("100", "100", ""),
        ("0", None, ""),
    ],
)
def test_a_guess_that_cannot_be_so_hears_why(visit, typed, most, said):
    tab = visit(CHAPTER)
    if most:  # as another chapter's question says
        tab.route("**/*.html", lambda route: with_most(route, most))
        tab.reload()
    tab.locator(".guess-form input").fill(typed)
    tab.get_by_role("button", name="Show", exact=True).click()
    wrong = tab.locator(".guess-form [role=alert]")
    assert (wrong.inner_text() if said else "") == said
    assert waits(tab) == [bool(said)] * 2
    tab.unroute_all()


def with_most(route, most: str) -> None:
    """Answer with the page, whose question has an upper end."""
    answer = route.fetch()
    body = answer.text().replace('data-least="0"', f'data-least="0" data-most="{most}"')
    route.fulfill(response=answer, body=body)


NUMBERS = [0.5625, -0.5625, 0.5635, 2.675, 1.005, 0.0001234, 9.995, 99.95, 99.96, 0]
NUMBERS += [3e-7, 2.5e12, 44_426, 100.5, 101.5, -1234.5, 999_999_999.5, 0.1 + 0.2]
NUMBERS += [1e-9 * 7**k for k in range(24)]


def test_a_browser_rounds_as_python_does(visit):
    tab = visit(RESULTS)
    assert tab.evaluate("all => all.map(written)", NUMBERS) == [
        guessing.written(number) for number in NUMBERS
    ]
    assert tab.evaluate("all => all.map(n => general(n, 4))", NUMBERS) == [
        f"{number:.4g}" for number in NUMBERS
    ]


def rows(tab, kind: str) -> list[list[str]]:
    """The cells of a table of the page of results."""
    lines = tab.locator(f"#results-{kind} tbody tr").all()
    return [line.locator("th, td").all_inner_texts() for line in lines]


def taken(tab, content: str, name="mine.json") -> None:
    """Take in a file with this content."""
    file = {"name": name, "mimeType": "application/json", "buffer": content.encode()}
    tab.locator("#results-import").set_input_files([file])


MINE = {
    "manygpu": "results",
    "format": 1,
    "guesses": {"two-devices/mean-of-means": {"guess": 9, "measured": 2, "unit": "%"}},
    "puzzles": {"ring": {"score": 14, "bound": 12.5, "solved": True}},
    "exercises": {"two-devices/mean": {"cases": 9}},
}


@pytest.mark.parametrize(("size", "theme"), LOOKS)
def test_results_are_shown_kept_taken_in_and_forgotten(visit, tmp_path, size, theme):
    tab = visit(CHAPTER, size, color_scheme=theme)
    tab.locator(".guess-form input").fill("4.5")
    tab.get_by_role("button", name="Show", exact=True).click()
    tab.get_by_role("link", name="Your results").last.click()
    tab.wait_for_url(f"**/{RESULTS}.html")
    ((_, own, foreseen, measured, unit),) = rows(tab, "guesses")
    assert (own, foreseen, unit) == ("4.5", "–", "%")
    assert float(measured) > 0
    assert rows(tab, "puzzles") == rows(tab, "exercises") == []

    taken(tab, json.dumps(MINE))
    tab.get_by_text("Loaded: 2 from mine.json.").wait_for()
    assert rows(tab, "guesses")[0][1] == "4.5"  # what is here stays
    assert rows(tab, "puzzles")[0][1:] == ["ring", "14", "12.5", "yes"]
    assert rows(tab, "exercises")[0][1:] == ["mean", "9"]
    assert tab.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert faults(tab) == []

    with tab.expect_download() as written:
        tab.get_by_role("button", name="Save all results as one file").press("Enter")
    written.value.save_as(tmp_path / "all.json")
    found = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))
    assert found["guesses"]["two-devices/mean-of-means"]["guess"] == 4.5
    assert {k: found[k] for k in ("puzzles", "exercises")} == {
        k: MINE[k] for k in ("puzzles", "exercises")
    }

    forget = tab.get_by_role("button", name="Delete all results")
    forget.press("Enter")
    tab.get_by_role("button", name="No", exact=True).press("Enter")
    assert len(rows(tab, "guesses")) == 1
    forget.press("Enter")
    tab.keyboard.press("Enter")  # yes has the focus
    tab.get_by_text("Deleted: 3.").wait_for()
    assert tab.evaluate("localStorage.length") == tab.evaluate(
        "Object.keys(localStorage).filter(k => !/^manygpu:/.test(k)).length"
    )
    assert rows(tab, "guesses") == []
    taken(tab, (tmp_path / "all.json").read_text(encoding="utf-8"))
    tab.get_by_text("Loaded: 3").wait_for()
    assert rows(tab, "guesses")[0][1] == "4.5"


def test_results_stand_in_the_order_of_the_pages_and_as_chapters_write_them(visit):
    tab = visit(RESULTS)
    pages = "another-book", "of-no-page", "one-device", "roofline", "two-devices"
    guesses = {f"{page}/x": {"guess": 0.5625, "measured": 100.5} for page in pages}
    puzzles = {name: {"score": 1.0833333, "bound": 12} for name in ("ring", "mesh")}
    tab.evaluate("localStorage.clear()")
    taken(tab, json.dumps(MINE | {"guesses": guesses, "puzzles": puzzles}))
    tab.get_by_text("Loaded: 8").wait_for()
    found = rows(tab, "guesses")
    order = [row[0].split()[0] for row in found]
    assert order == ["1.1", "1.3", "3.5", "another-book", "of-no-page"]
    assert {(own, measured) for _, own, _, measured, _ in found} == {("0.562", "100")}
    assert {tuple(row[2:4]) for row in rows(tab, "puzzles")} == {("1.083", "12")}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "isn’t a file of results"),
        ("[1]", 'lacks "manygpu": "results"'),
        (json.dumps(MINE | {"format": 2}), "its format is 2, not 1"),
        (json.dumps(MINE | {"guesses": []}), "it has no guesses"),
        (json.dumps(MINE | {"puzzles": {"a/b": 3}}), 'puzzles: "a/b" has no values'),
        (" " * 1_000_001, "larger than a megabyte"),
    ],
)
def test_a_file_that_is_none_is_refused_with_a_reason(visit, content, why):
    tab = visit(RESULTS)
    taken(tab, content, "photo.json")
    wrong = tab.locator("#results-wrong")
    wrong.filter(has_text=why).wait_for()
    assert "photo.json" in wrong.inner_text()
    assert (
        tab.evaluate("localStorage.getItem('manygpu:exercise:two-devices/mean')")
        is None
    )


def test_names_in_a_file_are_words_and_never_markup(visit):
    tab = visit(RESULTS)
    name = "<img src=x onerror=alert(1)>/x"
    taken(tab, json.dumps(MINE | {"exercises": {name: {"cases": "<b>1</b>"}}}))
    tab.get_by_text("Loaded: 3").wait_for()
    assert tab.locator("#results-exercises :is(img, b)").count() == 0
    assert rows(tab, "exercises")[0][0] == "<img src=x onerror=alert(1)>"
