"""Words that lead to the glossary, in a real browser: quiet, told apart, in reach."""

from __future__ import annotations

import re

import pytest

LOOKS = """link => {
  const own = getComputedStyle(link), around = getComputedStyle(link.parentElement);
  return [own.textDecorationLine, own.textDecorationStyle, own.color === around.color];
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_term_has_dots_below_it_is_a_link_in_focus_and_leads_to_its_entry(
    visit, theme
):
    tab = visit("book/data-parallel/all-reduce", color_scheme=theme)
    links = tab.locator("article a.glossary-term")
    assert links.count() > 5
    for link in links.all():
        assert link.evaluate(LOOKS) == ["underline", "dotted", True]
        assert link.get_attribute("title").endswith(".")
    link = links.first
    link.focus()
    assert tab.evaluate("document.activeElement.className").startswith("glossary-term")
    link.hover()
    assert link.evaluate(LOOKS) == ["underline", "solid", False]
    name = link.inner_text()
    link.click()
    tab.wait_for_url(re.compile(r"back/glossary\.html#term-"))
    tab.locator(f"[id='{tab.url.partition('#')[2]}']").wait_for()  # until it is seen
    heads = tab.locator("dl.glossary dt").all_inner_texts()
    names = name, name.replace("-", " ")  # such as all-reduce, and data-parallel
    assert any(head.strip("#¶ \n") in names for head in heads)
