"""Formulas as they are seen: in one font, whole, and without a word of prose."""

from __future__ import annotations

import re

import pytest

from tests.rendered.test_pages import notebooks, pages, soup

pytestmark = pytest.mark.rendered
LETTERS = re.compile(r"(?:<mi>[A-Za-z]</mi>\s*){3,}")


@pytest.mark.parametrize("page", pages())
def test_no_formula_holds_a_word_of_prose(html_root, page):
    """Two prices in dollars are no formula: a word in one is letters in a row."""
    found = [str(math) for math in soup(html_root, page).select("article math")]
    runs = [run for math in found for run in LETTERS.findall(math)]
    assert [re.sub(r"<[^>]*>|\s", "", run) for run in runs] == []


@pytest.mark.parametrize("page", pages())
def test_each_glyph_of_a_formula_is_in_the_books_font(html_root, browser, page):
    if not soup(html_root, page).select("article math"):
        pytest.skip("no formula")
    tab = browser.new_page()
    tab.goto((html_root / f"{page}.html").as_uri())
    tab.evaluate("document.fonts.ready")
    tools = tab.context.new_cdp_session(tab)
    for domain in ("DOM", "CSS"):
        tools.send(f"{domain}.enable")
    root = tools.send("DOM.getDocument")["root"]["nodeId"]
    asked = {"nodeId": root, "selector": "article math"}
    others = {}
    for node in tools.send("DOM.querySelectorAll", asked)["nodeIds"]:
        used = tools.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
        for font in used:
            if font["familyName"] != "Book Math":
                text = tools.send("DOM.getOuterHTML", {"nodeId": node})["outerHTML"]
                others[font["familyName"]] = re.sub(r"<[^>]*>|\s", "", text)
    tab.close()
    assert others == {}


@pytest.mark.parametrize("page", notebooks())
def test_no_formula_is_cut_at_its_foot(html_root, browser, page):
    """Its box, which hides what is higher, is as high as all that is drawn."""
    tab = browser.new_page()
    tab.goto((html_root / f"{page}.html").as_uri())
    tab.evaluate("document.fonts.ready")
    heights = tab.locator(".math-block").evaluate_all(
        "found => found.map(e => [e.scrollHeight, e.clientHeight])"
    )
    tab.close()
    assert [(whole, seen) for whole, seen in heights if whole > seen] == []
