"""The front page: what its first screen shows, and a map that keyboards can use."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from tests.rendered.test_pages import soup

pytestmark = pytest.mark.rendered


@pytest.fixture
def opened(html_root, browser) -> Iterator[Callable]:
    """Open the front page with a window of this size, with or without scripts."""
    contexts = []

    def open_page(width: int, height: int, **settings):
        size = {"width": width, "height": height}
        contexts.append(browser.new_context(viewport=size, **settings))
        tab = contexts[-1].new_page()
        tab.goto((html_root / "book/index.html").as_uri())
        return tab

    yield open_page
    for context in contexts:
        context.close()


def test_one_screen_has_the_promise_both_ways_in_a_number_and_the_ring(opened):
    tab = opened(1280, 800)
    for part in (
        tab.get_by_role("link", name="Start here"),
        tab.get_by_role("link", name="Find your problem").first,
        tab.locator(".front .from-record"),
        tab.locator(".front .manygpu-stepper"),
    ):
        box = part.bounding_box()
        assert box["y"] + box["height"] <= 800
        assert box["x"] + box["width"] <= 1280


def test_the_ring_steps_and_without_a_script_shows_its_end(opened):
    figure = opened(1280, 800).locator(".front .manygpu-stepper")
    figure.get_by_role("button", name="Next picture").click()
    assert figure.locator(".stepper-messages path").count() == 4
    still = opened(1280, 800, java_script_enabled=False)
    cells = still.locator(".front .stepper-cell text").all_text_contents()
    assert cells == ["1111", "2222", "3333", "4444"] * 4


@pytest.mark.parametrize(("width", "form"), [(1280, "wide"), (390, "narrow")])
def test_the_map_has_a_form_for_each_width_and_lines_for_whom_points(
    opened, width, form
):
    tab = opened(width, 844)
    assert tab.locator("figure.chapter-map svg:visible").count() == 1
    links = tab.locator(f"svg.{form} a")
    last = links.filter(has=tab.locator("path.needs")).last
    line = last.locator("path.needs")
    assert line.evaluate("e => getComputedStyle(e).visibility") == "hidden"
    tab.keyboard.press("Tab")  # from here on, the focus is one of a keyboard
    last.focus()
    assert line.evaluate("e => getComputedStyle(e).visibility") == "visible"
    sizes = tab.locator(f"svg.{form} text").evaluate_all(
        """all => all.map(t => t.getScreenCTM().a
            * parseFloat(getComputedStyle(t).fontSize))"""
    )
    assert min(sizes) > 8.9


def test_the_front_page_and_the_chapter_that_it_links_to_say_the_same(html_root):
    """How much a second device brought: there, ratios of times; here, of speeds."""
    front = soup(html_root, "book/index").select_one(".from-record")
    assert front.select_one("a[href*='why-slower']")
    place = soup(html_root, "book/data-parallel/why-slower").select_one("#table-kept")
    rows = place.find_next("table")("tr")
    rows = [[cell.get_text(strip=True) for cell in row(["th", "td"])] for row in rows]
    taken = {tuple(row[:2]): float(row[2]) for row in rows[1:]}
    said = [float(n) for n in re.findall(r"[\d.]+(?= times)", front.get_text())]
    steps = ("eager", "compiled")
    assert len(said) == len(steps)
    for step, times in zip(steps, said, strict=True):
        # Both are rounded, to a tenth and to a hundredth.
        assert times == pytest.approx(1 / taken[f"{step}, 2", f"{step}, 1"], abs=0.07)
