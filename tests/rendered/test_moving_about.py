"""Who moves about sees where they are: in the list of chapters, and with a keyboard."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.rendered
LAST, FIRST = "book/choosing/sources-checked", "book/start/devices"
CHAPTER = "book/splitting/pipeline"
BUTTONS = (".primary-toggle", ".dropdown-download-buttons > button")
FOCUSED = (*BUTTONS, "details.hide > summary", ".manygpu-caption a.caption-number")


@pytest.fixture
def desk(browser):
    """A tab of a usual window, in which the theme remembers what it likes."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield context.new_page()
    context.close()


def in_sight(tab, place) -> bool:
    """Whether all of it is seen and nothing lies on top of it."""
    return place.first.evaluate(
        """e => {
            const { x, y, width, height } = e.getBoundingClientRect();
            const on = document.elementFromPoint(x + width / 2, y + height / 2);
            const seen = e.contains(on) || on?.contains(e);
            return y >= 0 && y + height <= innerHeight && seen;
        }"""
    )


@pytest.mark.parametrize("page", [LAST, CHAPTER, FIRST, "book/index"])
def test_name_search_and_place_are_in_sight_wherever_one_comes_from(served, desk, page):
    """The theme scrolls the list to where it was on the page before."""
    for before in (LAST, FIRST):
        desk.goto(f"{served}/{before}.html")
        desk.locator(".bd-sidebar-primary").hover()
        desk.mouse.wheel(0, 5000 if before == LAST else -5000)
        desk.wait_for_timeout(100)
        desk.goto(f"{served}/{page}.html")
        desk.wait_for_timeout(100)
        assert in_sight(desk, desk.locator(".bd-sidebar-primary .logo__title"))
        assert in_sight(desk, desk.locator(".bd-sidebar-primary .search-button-field"))
        here = desk.locator(".bd-sidebar-primary .bd-docs-nav .current > a")
        assert page == "book/index" or in_sight(desk, here)


def test_on_a_phone_the_list_opens_at_the_chapter(html_root, browser):
    context = browser.new_context(viewport={"width": 390, "height": 844})
    tab = context.new_page()
    tab.goto((html_root / f"{LAST}.html").as_uri())
    tab.locator(".primary-toggle").click()
    here = tab.locator("dialog .bd-docs-nav .current > a")
    here.wait_for(state="visible")
    tab.wait_for_timeout(600)  # it slides in
    assert in_sight(tab, here)
    assert in_sight(tab, tab.locator("dialog .logo__title"))
    context.close()


def picture(tab, box: dict) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(tab.screenshot(clip=box))), int)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("place", FOCUSED)
def test_the_focus_is_a_whole_ring(html_root, browser, place, theme):
    """All four sides of a box around it change, in a colour that is told apart."""
    context = browser.new_context(
        color_scheme=theme,
        viewport={"width": 1280, "height": 900},
        reduced_motion="reduce",
    )
    tab = context.new_page()
    tab.goto((html_root / f"{CHAPTER}.html").as_uri())
    tab.wait_for_load_state("networkidle")
    target = tab.locator(place).first
    target.scroll_into_view_if_needed()
    tab.keyboard.press("Shift")  # what is focused from now on is by keyboard
    seen = target.bounding_box()
    wide, high = int(seen["width"]), int(seen["height"])
    box = {
        "x": seen["x"] - 4,
        "y": seen["y"] - 4,
        "width": wide + 8,
        "height": high + 8,
    }
    before = picture(tab, box)
    target.focus()
    tab.wait_for_timeout(300)
    changed = np.abs(picture(tab, box) - before).max(axis=2) > 60
    context.close()
    rows, columns = changed.sum(axis=1), changed.sum(axis=0)
    sides = (
        rows[: high // 2],
        rows[high // 2 :],
        columns[: wide // 2],
        columns[wide // 2 :],
    )
    lengths = (wide, wide, high, high)
    drawn = [side.max() / most for side, most in zip(sides, lengths, strict=True)]
    assert min(drawn) > 0.7, drawn
