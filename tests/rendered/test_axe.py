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
