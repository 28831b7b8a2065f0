"""Who moves about sees where they are: in the list of chapters, and with a keyboard."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from tests.rendered.conftest import PHONE
from tests.rendered.test_each_page import AXE

LAST, FIRST = "book/choosing/sources-checked", "book/start/two-devices"
CHAPTER = "book/splitting/pipeline"
BUTTONS = (".primary-toggle", ".dropdown-download-buttons > button")
FOCUSED = (*BUTTONS, "details.hide > summary", ".manygpu-caption a.caption-number")
IN_SIGHT = """e => {
    const { x, y, width, height } = e.getBoundingClientRect();
    const on = document.elementFromPoint(x + width / 2, y + height / 2);
    const seen = e.contains(on) || on?.contains(e);
    return y >= 0 && y + height <= innerHeight && seen;
}"""


def in_sight(tab, place: str) -> bool:
    """Whether all of it is seen and nothing lies on top of it."""
    return tab.locator(place).first.evaluate(IN_SIGHT)


@pytest.mark.parametrize("page", [LAST, CHAPTER, FIRST, "book/index"])
def test_name_search_and_place_are_in_sight_wherever_one_comes_from(
    served, visit, page
):
    """The theme scrolls the list to where it was on the page before."""
    for before in (LAST, FIRST):
        desk = visit(before, root=served)
        desk.locator(".bd-sidebar-primary").hover()
        desk.mouse.wheel(0, 5000 if before == LAST else -5000)
        desk.wait_for_timeout(100)
        desk.goto(f"{served}/{page}.html")
        desk.wait_for_timeout(100)
        assert in_sight(desk, ".bd-sidebar-primary .logo__title")
        assert in_sight(desk, ".bd-sidebar-primary .search-button-field")
        here = ".bd-sidebar-primary .bd-docs-nav .current > a"
        assert page == "book/index" or in_sight(desk, here)


# Captions of which the head of the list hides a part.
CUT = """() => {
    const list = document.querySelector(".bd-sidebar-primary");
    const head = list.querySelector(".sidebar-primary-item").getBoundingClientRect();
    return [...list.querySelectorAll(".bd-docs-nav p.caption")].filter(e => {
        const { top, bottom } = e.getBoundingClientRect();
        return top < head.bottom - 1 && bottom > head.bottom + 1;
    }).map(e => e.textContent.trim());
}"""


@pytest.mark.parametrize("page", [LAST, CHAPTER, "book/today/long-sequences"])
def test_no_part_of_a_caption_looks_out_from_below_the_head(visit, page):
    for size in (
        {"width": 1100, "height": 700},
        {"width": 1350, "height": 940},
        {"width": 1280, "height": 820},
    ):
        desk = visit(page, size)
        desk.wait_for_timeout(300)
        assert desk.evaluate(CUT) == []


def test_on_a_phone_the_list_opens_at_the_chapter(visit):
    tab = visit(LAST, PHONE)
    tab.locator(".primary-toggle").click()
    here = "dialog .bd-docs-nav .current > a"
    tab.locator(here).wait_for(state="visible")
    tab.wait_for_timeout(600)  # it slides in
    assert in_sight(tab, here)
    assert in_sight(tab, "dialog .logo__title")


def test_whoever_closes_the_drawer_is_back_at_its_button(visit):
    tab = visit(CHAPTER, PHONE, reduced_motion="reduce")
    tab.locator(".primary-toggle").click()
    tab.locator("dialog .bd-docs-nav").wait_for(state="visible")
    tab.keyboard.press("Escape")
    tab.locator("dialog .bd-docs-nav").wait_for(state="hidden")
    tab.wait_for_timeout(100)
    focused = "document.activeElement.matches('.primary-toggle')"
    assert tab.evaluate(focused)


TARGETS = """async () => (await axe.run("html", {
    runOnly: ["target-size"], resultTypes: ["violations"],
})).violations.flatMap(v => v.nodes.map(n => n.target[0]))"""


@pytest.mark.parametrize("size", [PHONE, {"width": 1350, "height": 940}])
@pytest.mark.parametrize("page", ["book/index", CHAPTER, LAST, "book/back/questions"])
def test_a_finger_hits_each_link_that_is_not_in_a_sentence(visit, page, size):
    """WCAG 2.2, 2.5.8: 24 pixels, of which nothing lies below something else."""
    tab = visit(page, size)
    tab.evaluate(AXE.read_text(encoding="utf-8"))
    for _ in range(20):  # on a busy machine the list takes long to its place
        tab.wait_for_timeout(300)
        if not (missed := tab.evaluate(TARGETS)):
            break
    assert missed == []


def test_links_have_one_colour_in_tables_and_in_prose(visit):
    tab = visit("book/choosing/checklist")
    inks = [
        tab.locator(f"article {place} a:not(.glossary-term)").first.evaluate(
            "e => getComputedStyle(e).color"
        )
        for place in ("td", "section > p")
    ]
    assert inks[0] == inks[1]


def test_a_page_of_long_names_fits_a_small_phone(visit):
    tab = visit("book/back/api-package", {"width": 320, "height": 640})
    assert tab.evaluate("document.documentElement.scrollWidth") == 320


def picture(tab, box: dict) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(tab.screenshot(clip=box))), int)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_focus_is_a_whole_ring(visit, theme):
    """All four sides of a box around it change, in a colour that is told apart."""
    tab = visit(CHAPTER, color_scheme=theme, reduced_motion="reduce")
    tab.wait_for_load_state("networkidle")
    for place in FOCUSED:
        target = tab.locator(place).first
        target.scroll_into_view_if_needed()
        tab.keyboard.press("Shift")  # what is focused from now on is by keyboard
        seen = target.bounding_box()
        wide, high = int(seen["width"]), int(seen["height"])
        box = {"x": seen["x"] - 4, "y": seen["y"] - 4}
        box |= {"width": wide + 8, "height": high + 8}
        before = picture(tab, box)
        target.focus()
        tab.wait_for_timeout(300)
        changed = np.abs(picture(tab, box) - before).max(axis=2) > 60
        rows, columns = changed.sum(axis=1), changed.sum(axis=0)
        level = [rows[: high // 2].max(), rows[high // 2 :].max()]
        upright = [columns[: wide // 2].max(), columns[wide // 2 :].max()]
        assert min(level) > 0.7 * wide and min(upright) > 0.7 * high, place
