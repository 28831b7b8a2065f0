"""Colours mean one thing: they have one home, and each edge can be seen on its page."""

import re
from collections.abc import Sequence

import pytest

from manygpu import figures
from manygpu.trace import gantt
from workshop.evidence import code_cells
from workshop.pages import ROOT, reading_order

HEX = re.compile(r"#[0-9a-fA-F]{6}\b")
STYLE = (ROOT / "workshop" / "static" / "book.css").read_text(encoding="utf-8")
REPORT = (ROOT / "manygpu" / "bench" / "report.py").read_text(encoding="utf-8")
SEEN = 3.0  # WCAG 2.2, 1.4.11: of what tells parts of a picture apart
WHITE, DARK = (255, 255, 255), (18, 18, 18)


def luminance(rgb: Sequence[float]) -> float:
    """WCAG's relative luminance of an sRGB colour with parts from 0 to 255."""
    parts = [c / 255 for c in rgb]
    red, green, blue = (
        c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: Sequence[float], b: Sequence[float]) -> float:
    """WCAG's contrast ratio of two colours, from 1 to 21."""
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def rgb(color: str) -> list[int]:
    """The parts of "#rrggbb"."""
    return [int(color[i : i + 2], 16) for i in (1, 3, 5)]


@pytest.mark.parametrize(
    "fill", sorted({*figures.COLORS, *figures.MEANINGS.values(), figures.GREY})
)
def test_edges_are_seen_on_white_and_on_dark_pages(fill):
    on_white = HEX.search(figures.edge(fill)).group()
    assert contrast(rgb(on_white), WHITE) >= SEEN
    assert contrast(rgb(fill), DARK) >= SEEN


def test_only_pale_colours_have_an_edge_of_their_own():
    pale = {c for c in figures.COLORS if contrast(rgb(c), WHITE) < SEEN}
    assert set(figures.EDGES) == pale


@pytest.mark.parametrize("fill", figures.EDGES)
def test_a_dark_page_draws_pale_edges_in_their_own_colour(fill):
    """The book's style and the report know the same colours as the figures."""
    variable, printed = re.match(
        r"var\((--[\w-]+), (#\w+)", figures.edge(fill)
    ).groups()
    assert f"{variable}: {fill};" in STYLE
    assert f"{variable}: {fill};" in REPORT
    assert f"{variable}: {printed};" in STYLE  # on paper


def test_widgets_and_chapters_name_no_colour_of_their_own():
    """Python gives it to scripts and styles, so that it is the figures'."""
    files = [p for p in (ROOT / "manygpu/widgets").glob("*.*") if p.suffix != ".py"]
    texts = {p.name: p.read_text(encoding="utf-8") for p in files}
    assert "calculator.css" in texts
    for page in reading_order():
        cells = code_cells(ROOT / f"{page}.ipynb").values()
        texts[page] = "".join(cells)
    assert [name for name, text in texts.items() if HEX.search(text)] == []


def test_each_meaning_has_a_colour_that_no_other_has():
    families = (figures.MEANINGS, figures.MEMORY, figures.STRATEGIES)
    for family in families:
        assert len(set(family.values())) == len(family)
    names = [name for family in families for name in family]
    assert len(set(names)) == len(names)  # each means one thing
    assert set(gantt.MEANING_OF.values()) <= set(figures.MEANINGS)
