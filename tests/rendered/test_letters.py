"""Letters can be read on what lies under them, where axe leaves it undecided."""

from __future__ import annotations

import pytest

from tests.quick.test_colors import contrast
from tests.rendered.test_pipeline_explorer import color

# What axe leaves undecided: letters on a part of a drawing or of a table.
UNDER = """found => found.filter(e => e.checkVisibility()).flatMap(text => {
    const { x, y, width, height } = text.getBoundingClientRect();
    const parts = document.elementsFromPoint(x + width / 2, y + height / 2);
    const row = text.closest("tr"); // it has a ground, and is not at any point
    const own = getComputedStyle(text);
    const ink = text.ownerSVGElement ? own.fill : own.color;
    const all = [...(row ? [row] : []), ...parts].filter(e => e !== text);
    const under = all.map(part => {
        const { fill, backgroundColor, opacity } = getComputedStyle(part);
        const isDrawn = /^(path|rect)$/.test(part.tagName);
        return [ink, isDrawn ? fill : backgroundColor, opacity];
    }).filter(([, ground]) => ground.startsWith("rgb("));
    const solid = under.findIndex(([, , opacity]) => opacity === "1");
    return solid < 0 ? under : under.slice(0, solid + 1); // no more shines through
})"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ("book/choosing/sources-checked", "figure[data-name=verdicts] svg text"),
        ("py-modindex", "tr.cap strong"),
    ],
)
def test_letters_can_be_read_on_what_lies_under_them(visit, page, texts, scheme):
    """4.5 to 1, on the paper and on whatever is filled between it and them."""
    tab = visit(page, color_scheme=scheme)
    tab.locator(texts).first.scroll_into_view_if_needed()
    paper = color(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    ratios = []
    for ink, fill, opacity in tab.locator(texts).evaluate_all(UNDER):
        parts = zip(color(fill), paper, strict=True)
        shown = [float(opacity) * f + (1 - float(opacity)) * p for f, p in parts]
        ratios.append(contrast(color(ink), shown))
    assert ratios
    assert min(ratios) >= 4.5


FILLS = """() => [...document.querySelectorAll(
    "figure[data-name=verdicts] svg path")].filter(e => e.checkVisibility()).map(e => {
        const { fill, fillOpacity, opacity } = getComputedStyle(e);
        return [fill, fillOpacity * opacity];
    }).filter(([fill]) => fill.startsWith("rgb("))"""


def test_a_dark_page_has_full_colours(visit):
    """3 to 1 beside the page, as parts of a picture need: nothing shines through."""
    tab = visit("book/choosing/sources-checked", color_scheme="dark")
    tab.wait_for_load_state("networkidle")
    paper = color(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    fills = tab.evaluate(FILLS)
    assert len(fills) > 4
    for fill, opacity in fills:
        assert opacity == 1 and contrast(color(fill), paper) >= 3
