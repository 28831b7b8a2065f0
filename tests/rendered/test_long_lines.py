"""A phone: what is cut says so; code wraps if a reader likes, and prose always."""

from __future__ import annotations

import pytest

from tests.rendered.conftest import DESK, PHONE
from tests.rendered.test_guesses import faults

PAGE, OTHER = "book/start/how-clusters-run", "book/start/two-devices"
CUT = """() => [...document.querySelectorAll("div.highlight pre")].filter(
    e => e.scrollWidth > e.clientWidth).length"""
# Of a box that scrolls: how many gradients lie behind its text, and which scroll along.
SHADOW = """() => {
    const box = [...document.querySelectorAll("div.highlight pre")].find(
        e => e.scrollWidth > e.clientWidth);
    const style = getComputedStyle(box);
    return [style.backgroundImage.split("linear-gradient").length - 1,
        style.backgroundAttachment];
}"""


@pytest.fixture
def phone(visit, served):
    """Open a page on a phone, from a host, so that the browser keeps what is chosen."""
    return lambda page, theme="light", size=PHONE: visit(
        page, size, root=served, color_scheme=theme
    )


def test_a_shadow_says_that_there_is_more(phone):
    tab = phone(PAGE)
    assert tab.evaluate(CUT) > 0
    gradients, attached = tab.evaluate(SHADOW)
    assert gradients == 4  # as a table's: two shadows, and two that cover them
    assert attached == "local, local, scroll, scroll"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_long_lines_wrap_if_a_reader_likes_on_all_pages(phone, theme):
    tab = phone(PAGE, theme)
    line = tab.locator("p.long-lines")
    assert line.inner_text() == "Long lines scroll sideways. Wrap them"
    assert line.count() == 1  # not one above each block, and not in one
    assert line.evaluate("e => e.parentElement.closest('div.cell, .highlight')") is None
    assert faults(tab) == []
    tab.get_by_role("button", name="Wrap them").press("Enter")
    assert tab.evaluate(CUT) == 0
    assert line.inner_text() == "Long lines are wrapped. Let them scroll"
    assert tab.evaluate("document.activeElement.textContent") == "Let them scroll"
    tab.goto(tab.url.replace(PAGE, OTHER))
    assert tab.evaluate(CUT) == 0
    assert line.evaluate("e => e.parentElement.closest('div.cell, .highlight')") is None
    assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    tab.get_by_role("button", name="Let them scroll").press("Enter")
    assert tab.evaluate(CUT) > 0
    tab.reload()
    assert tab.evaluate(CUT) > 0


def test_on_a_desk_nothing_is_offered_since_all_fits(phone):
    tab = phone(PAGE, size=DESK)
    tab.wait_for_load_state("networkidle")
    assert tab.evaluate(CUT) == 0
    assert tab.locator("p.long-lines").count() == 0


PRINTED = """() => [...document.querySelectorAll("div.cell_output pre")].filter(
    e => e.checkVisibility()).map(e => [!e.matches(".columns"),
    e.scrollWidth > e.clientWidth, getComputedStyle(e).whiteSpace])"""


def test_printed_sentences_wrap_and_printed_columns_do_not(phone):
    printed = phone("book/choosing/sources-checked").evaluate(PRINTED)
    assert {flows for flows, _, _ in printed} == {True, False}
    for flows, is_cut, space in printed:
        assert space == ("pre-wrap" if flows else "pre")
        assert not (flows and is_cut)


# Of a table that scrolls: its hint, and whether its first column stays in sight.
HINTS = """() => [...document.querySelectorAll(
    ".manygpu-table, .pst-scrollable-table-container")].filter(
    e => e.scrollWidth > e.clientWidth && e.checkVisibility()).map(e => {
        const first = e.querySelector("tbody tr > :first-child");
        const { content, display } = getComputedStyle(e, "::before");
        return [content, display, getComputedStyle(first).position];
    })"""


@pytest.mark.parametrize(
    "page", ["start/three-ways-to-split", "splitting/hybrid-meshes"]
)
def test_a_table_that_scrolls_says_so_and_keeps_its_first_column(phone, page):
    tab = phone(f"book/{page}")
    tab.wait_for_selector("[data-scrolls]")
    hints = tab.evaluate(HINTS)
    assert hints
    for content, display, first in hints:
        assert content.startswith('"Scroll sideways')
        assert (display, first) == ("block", "sticky")


def test_a_table_of_sentences_has_its_cells_below_one_another(phone):
    tab = phone("book/back/errata")
    tab.wait_for_load_state("networkidle")
    assert tab.evaluate(HINTS) == []
    row = tab.locator("table.stacks tbody tr").first
    lefts = {cell.bounding_box()["x"] for cell in row.locator("td").all()}
    assert len(lefts) == 1
    heads = row.locator("td").evaluate_all(
        "cells => cells.map(e => getComputedStyle(e, '::before').content)"
    )
    assert heads == ["none", '"it said: "', '"it says now: "']
