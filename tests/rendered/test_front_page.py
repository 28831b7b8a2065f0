"""The front page: what its first screen shows, and a map that keyboards can use."""

from __future__ import annotations

import re

import pytest

from tests.rendered.conftest import PHONE
from tests.rendered.test_pages import soup


def test_one_screen_has_the_promise_both_ways_in_a_number_and_the_ring(visit):
    tab = visit("book/index", {"width": 1280, "height": 800})
    for part in (
        tab.get_by_role("link", name="Start here"),
        tab.get_by_role("link", name="Find your problem").first,
        tab.locator(".front .from-record"),
        tab.locator(".front .manygpu-stepper"),
    ):
        box = part.bounding_box()
        assert box["y"] + box["height"] <= 800
        assert box["x"] + box["width"] <= 1280


def test_the_ring_steps_and_without_a_script_shows_its_end(visit):
    figure = visit("book/index").locator(".front .manygpu-stepper")
    figure.get_by_role("button", name="Next picture").click()
    assert figure.locator(".stepper-messages path").count() == 4
    still = visit("book/index", java_script_enabled=False)
    cells = still.locator(".front .stepper-cell text").all_text_contents()
    assert cells == ["1111", "2222", "3333", "4444"] * 4


def test_on_a_phone_the_map_can_be_read(visit):
    tab = visit("book/index", PHONE)
    boxes = tab.locator(".chapter-map li, .chapter-map li span")
    sizes = "all => all.map(e => parseFloat(getComputedStyle(e).fontSize))"
    assert boxes.count() > 80
    assert min(boxes.evaluate_all(sizes)) >= 11


def test_the_front_page_and_the_chapter_that_it_links_to_say_the_same(html_root):
    """How much a second device brought: there, ratios of times; here, of speeds."""
    front = soup(html_root, "book/index").select_one(".from-record")
    assert front.select_one("a[href*='why-slower']")
    place = soup(html_root, "book/data-parallel/why-slower").select_one("#table-kept")
    rows = [row(["th", "td"]) for row in place.find_next("table")("tr")[1:]]
    cells = [[cell.get_text(strip=True) for cell in row] for row in rows]
    taken = {(step, devices): float(ratio) for step, devices, ratio, *_ in cells}
    said = [float(n) for n in re.findall(r"[\d.]+(?= times)", front.get_text())]
    for step, times in zip(("eager", "compiled"), said, strict=True):
        # Both are rounded, to a tenth and to a hundredth.
        assert times == pytest.approx(1 / taken[f"{step}, 2", f"{step}, 1"], abs=0.07)
