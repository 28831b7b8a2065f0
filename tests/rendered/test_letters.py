"""Letters can be read on what lies under them, where axe leaves it undecided."""

from __future__ import annotations

import pytest

from tests.quick.test_colors import contrast
from tests.rendered.test_pipeline_explorer import color

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
def test_letters_can_be_read_on_what_lies_under_them(visit, page, texts, scheme):
    """4.5 to 1, on the paper and on whatever is filled between it and them."""
    tab = visit(page, color_scheme=scheme)
    tab.locator(texts).first.scroll_into_view_if_needed()
    paper = color(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    ratios = []
    for ink, fill, opacity in tab.locator(texts).evaluate_all(UNDER):
        if fill.startswith("rgb("):
            parts = zip(color(fill), paper, strict=True)
            shown = [float(opacity) * f + (1 - float(opacity)) * p for f, p in parts]
            ratios.append(contrast(color(ink), shown))
    assert len(ratios) > 1
    assert min(ratios) >= 4.5
