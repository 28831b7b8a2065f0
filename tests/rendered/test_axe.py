"""axe finds nothing on any page.

Each page is asked in one of four settings (both themes, a desk and a phone), in turns,
since axe takes seconds a page; AXE=all in the environment asks each page in all four.
"""

from __future__ import annotations

import os
from pathlib import Path

import axe_playwright_python
import pytest

from tests.rendered.test_pages import all_pages
from tests.rendered.test_pipeline_explorer import color, contrast

pytestmark = pytest.mark.rendered
AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
FRAMES = "() => new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))"
STILL = "*, ::before, ::after { transition: none !important }"
RUN = """async ([where, options]) => (await axe.run(where, {
    resultTypes: ["violations"], ...options,
})).violations.map(v => [v.id, v.nodes.length, v.nodes[0].html.slice(0, 200)])"""
# What a theme can change, asked on both. The inks of code are few: see test_weight.py.
INK = ["color-contrast", "link-in-text-block"]
CONTRAST = [{"exclude": ["div.highlight pre"]}, {"runOnly": INK}]
# All else is the same on both; also a rule that axe calls experimental.
OTHERS = {"label-content-name-mismatch": {"enabled": True}}
OTHERS |= {rule: {"enabled": False} for rule in INK}
REST = ["html", {"rules": OTHERS}]
SETTINGS = [(width, theme) for width in (1280, 390) for theme in ("light", "dark")]


def asked(page: str) -> list[tuple[int, str]]:
    """In which widths and themes a page is asked: one, in turns; AXE=all asks all."""
    if os.environ.get("AXE") == "all":
        return SETTINGS
    return [SETTINGS[all_pages().index(page) % len(SETTINGS)]]


@pytest.mark.parametrize("page", all_pages())
def test_axe_finds_nothing(html_root, browser, page):
    context = browser.new_context(reduced_motion="reduce")
    tab = context.new_page()
    tab.goto((html_root / f"{page}.html").as_uri())
    tab.add_style_tag(content=STILL)
    tab.evaluate(AXE.read_text(encoding="utf-8"))
    found = []
    for width, theme in asked(page):
        tab.set_viewport_size({"width": width, "height": 900})
        tab.evaluate("name => document.documentElement.dataset.theme = name", theme)
        tab.evaluate(FRAMES)  # what was resized is looked at in the next one
        for rules in (REST, CONTRAST):
            found += [(width, theme, *wrong) for wrong in tab.evaluate(RUN, rules)]
    context.close()
    assert found == []


# What axe leaves undecided: letters on a part of a drawing or of a table.
UNDER = """found => found.flatMap(text => {
    const { x, y, width, height } = text.getBoundingClientRect();
    const parts = document.elementsFromPoint(x + width / 2, y + height / 2);
    const row = text.closest("tr"); // it has a ground, and is not at any point
    return [...parts, ...(row ? [row] : [])].filter(part => part !== text).map(part => {
        const { fill, backgroundColor, opacity } = getComputedStyle(part);
        const under = /^(path|rect)$/.test(part.tagName) ? fill : backgroundColor;
        return [getComputedStyle(text).color, under, opacity];
    });
})"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ("book/choosing/sources-checked", "figure[data-name=verdicts] svg text"),
        ("py-modindex", "tr.cap strong"),
    ],
)
def test_letters_can_be_read_on_what_lies_under_them(
    html_root, browser, page, texts, scheme
):
    """4.5 to 1, on the paper and on whatever is filled between it and them."""
    context = browser.new_context(color_scheme=scheme)
    tab = context.new_page()
    tab.goto((html_root / f"{page}.html").as_uri())
    tab.locator(texts).first.scroll_into_view_if_needed()
    paper = color(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    ratios = []
    for ink, fill, opacity in tab.locator(texts).evaluate_all(UNDER):
        if fill.startswith("rgb("):
            parts = zip(color(fill), paper, strict=True)
            shown = [float(opacity) * f + (1 - float(opacity)) * p for f, p in parts]
            ratios.append(contrast(color(ink), tuple(shown)))
    context.close()
    assert len(ratios) > 1
    assert min(ratios) >= 4.5
