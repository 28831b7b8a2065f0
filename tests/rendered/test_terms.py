"""Words that lead to the glossary, in a real browser: quiet, told apart, in reach."""

from __future__ import annotations

import re

import pytest

PAGE = "book/data-parallel/all-reduce"
pytestmark = pytest.mark.rendered
LOOKS = """link => {
  const own = getComputedStyle(link), around = getComputedStyle(link.parentElement);
  return [own.textDecorationLine, own.textDecorationStyle, own.color === around.color];
}"""


@pytest.fixture(params=["light", "dark"])
def tab(request, browser, html_root):
    """A chapter, opened in a theme."""
    context = browser.new_context(color_scheme=request.param)
    opened = context.new_page()
    opened.goto((html_root / f"{PAGE}.html").as_uri())
    yield opened
    context.close()


def test_a_term_has_the_colour_of_its_text_and_dots_below_it(tab):
    links = tab.locator("article a.glossary-term")
    assert links.count() > 5
    for link in links.all():
        assert link.evaluate(LOOKS) == ["underline", "dotted", True]
        assert link.get_attribute("title").endswith(".")


def test_a_term_can_be_reached_by_keyboard_and_then_looks_like_a_link(tab):
    link = tab.locator("article a.glossary-term").first
    link.focus()
    assert tab.evaluate("document.activeElement.className").startswith("glossary-term")
    link.hover()
    line, style, as_text = link.evaluate(LOOKS)
    assert (line, style, as_text) == ("underline", "solid", False)


def test_a_term_leads_to_its_entry(tab):
    link = tab.locator("article a.glossary-term").first
    name = link.inner_text()
    link.click()
    tab.wait_for_url(re.compile(r"back/glossary\.html#term-"))
    entry = tab.locator(f"[id='{tab.url.partition('#')[2]}']")
    entry.wait_for()  # until it is seen
    heads = tab.locator("dl.glossary dt").all_inner_texts()
    assert any(head.strip("#¶ \n") == name.replace("-", " ") for head in heads)
