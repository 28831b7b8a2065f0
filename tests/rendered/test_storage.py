"""A browser that keeps nothing loses what it would have kept, and no tool of a page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.rendered.conftest import DESK, PHONE
from workshop.browser import QUIET, find

CHAPTER, RESULTS = "book/start/two-devices", "book/back/results"
# Chromium's own setting "block all cookies", which refuses storage as well.
BLOCKED = {"profile": {"default_content_setting_values": {"cookies": 2}}}
# A frame of the same origin has a storage that no page has put anything before.
REFUSED = """() => {
    const frame = document.body.appendChild(document.createElement("iframe"));
    try {
        frame.contentWindow.localStorage.setItem("a", "a".repeat(1000));
        return false;
    } catch { return true; } finally { frame.remove(); }
}"""
FILL = """guess => {
    localStorage.clear();
    localStorage.setItem("manygpu:guess:a/b", guess);
    for (let size = 2 ** 22, k = 0; size >= 1; size /= 2) {
        try { for (;;) localStorage.setItem(`full${k++}`, "a".repeat(size)); }
        catch { /* smaller pieces may still fit */ }
    }
}"""
PATIENCE_MS = 10_000
THEME = "document.documentElement.dataset.mode"


@pytest.fixture(scope="module")
def blocked(browser, served, tmp_path_factory) -> Iterator[Any]:
    """A browser whose reader has blocked all cookies."""
    folder = tmp_path_factory.mktemp("profile")
    (folder / "Default").mkdir()
    (folder / "Default" / "Preferences").write_text(json.dumps(BLOCKED), "utf-8")
    context = browser.browser_type.launch_persistent_context(
        folder, executable_path=find(), args=QUIET, viewport=DESK
    )
    yield context
    context.close()


@pytest.fixture(scope="module")
def full(browser, served) -> Iterator[Any]:
    """A browser that has no room left for this book, and a guess from before."""
    context = browser.new_context(viewport=DESK)
    tab = context.new_page()
    tab.goto(f"{served}/{CHAPTER}.html")
    guess = {"guess": 3, "foreseen": 1, "measured": 2, "unit": "s", "page": "a"}
    tab.evaluate(FILL, json.dumps(guess))  # stays open: it may not be written yet
    yield context
    context.close()


@pytest.fixture(params=["blocked", "full"])
def visit(request, served) -> Iterator:
    """Open a page there: `visit("book/index", PHONE)`. No page may complain."""
    context, tabs, errors = request.getfixturevalue(request.param), [], []

    def open_page(page: str, size=DESK, query=""):
        tabs.append(context.new_page())
        tabs[-1].set_default_timeout(PATIENCE_MS)
        tabs[-1].on("pageerror", lambda error: errors.append(str(error)))
        tabs[-1].set_viewport_size(size)
        tabs[-1].goto(f"{served}/{page}.html{query}")
        return tabs[-1]

    yield open_page
    for tab in tabs:
        tab.close()
    assert errors == []


def test_these_browsers_refuse(visit):
    """Else the tests below would test nothing."""
    assert visit(CHAPTER).evaluate(REFUSED)


def test_search_finds(visit):
    tab = visit("search", query="?q=bubble")
    tab.wait_for_selector("#search-results a[href*=pipeline]")


def test_the_keyboard_opens_the_search(visit):
    tab = visit(CHAPTER)
    tab.keyboard.press("Control+k")
    tab.locator("dialog input[name=q]").first.wait_for(state="visible")


def test_the_theme_changes(visit):
    tab = visit(CHAPTER)
    first = tab.evaluate(THEME)
    tab.locator(".theme-switch-button:visible").first.click()
    assert tab.evaluate(THEME) != first


def test_the_phones_menu_opens(visit):
    tab = visit(CHAPTER, PHONE)
    tab.locator(".primary-toggle").click()
    tab.locator("dialog .bd-docs-nav").wait_for(state="visible")


def test_the_downloads_menu_opens(visit):
    tab = visit(CHAPTER)
    tab.locator(".dropdown-download-buttons button.dropdown-toggle").click()
    tab.wait_for_selector(".dropdown-download-buttons [aria-expanded=true]")


def test_copy_buttons_are_there(visit):
    assert visit(CHAPTER).locator("button.copybtn").count()


def test_results_say_that_nothing_is_kept(visit):
    tab = visit(RESULTS)
    tools = tab.locator("#results-tools")
    tools.wait_for(state="visible")
    told = tab.locator("#results-unkept").inner_text()
    assert "keeps nothing" in told or "no more" in told


def test_what_was_kept_before_the_storage_was_full_is_there(request, served):
    tab = request.getfixturevalue("full").new_page()
    tab.goto(f"{served}/{RESULTS}.html")
    assert tab.locator("#results-guesses tbody tr").count() == 1
    tab.close()


def test_a_guess_is_answered(visit):
    tab = visit(CHAPTER)
    if not tab.locator("p.manygpu-guess").count():
        pytest.skip("a page that has not run asks for nothing")
    tab.locator(".guess-form input").first.fill("1")
    tab.locator(".guess-form button").first.click()
    assert tab.locator(".guess-answer").first.is_visible()
    assert tab.locator(".guess-three").first.is_visible()
