"""The stepper of the all-reduce chapter, used as a reader uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.rendered
PAGE = "book/data-parallel/all-reduce.html"


@pytest.fixture
def opened(html_root, browser) -> Iterator[Callable]:
    """Open the page with the given browser settings; return its tab and stepper.

    Whatever the test does there must not make the page complain.
    """
    contexts, said = [], []

    def open_page(**settings) -> SimpleNamespace:
        context = browser.new_context(**settings)
        contexts.append(context)
        tab = context.new_page()
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("console", lambda m: said.append(m.text) if m.type == "error" else None)
        tab.goto((html_root / PAGE).as_uri())
        return SimpleNamespace(tab=tab, stepper=tab.locator(".manygpu-stepper").first)

    yield open_page
    for context in contexts:
        context.close()
    assert said == []


def values(stepper) -> list[str]:
    """What the cells show, column by column."""
    return stepper.locator(".stepper-cell text").all_text_contents()


def caption(stepper) -> str:
    return stepper.locator(".stepper-caption").text_content()


def pictures(stepper) -> int:
    return stepper.locator(".stepper-steps li").count()


def sums(start: list[str], rows: int) -> list[str]:
    """What all columns must hold in the end: row by row, the sum of the columns."""
    total = [f"{sum(map(float, start[row::rows])):g}" for row in range(rows)]
    return total * (len(start) // rows)


def rows(stepper) -> int:
    """Cells in a column: those that stand at the left edge."""
    places = stepper.locator(".stepper-cell rect").evaluate_all(
        "all => all.map(r => r.getAttribute('x'))"
    )
    return places.count(places[0])


def test_it_starts_at_the_first_step_with_its_buttons(opened):
    stepper = opened().stepper
    assert caption(stepper).startswith(f"Picture 1 of {pictures(stepper)}. ")
    assert stepper.locator("button:visible").count() == 3
    assert not stepper.locator(".stepper-steps").is_visible()
    assert stepper.locator(".stepper-messages path").count() == 0


def test_next_leads_to_the_sums_one_message_a_step(opened):
    stepper = opened().stepper
    start = values(stepper)
    for k in range(2, pictures(stepper) + 1):
        before = values(stepper)
        stepper.get_by_role("button", name="Next picture").click()
        assert caption(stepper).startswith(f"Picture {k} of ")
        assert stepper.locator(".stepper-messages path").count() == 1
        differ = [i for i, v in enumerate(values(stepper)) if v != before[i]]
        marked = stepper.locator(".stepper-cell").evaluate_all(
            "all => all.flatMap((c, i) => c.classList.contains('changed') ? [i] : [])"
        )
        assert differ
        assert differ == marked
    assert values(stepper) == sums(start, rows(stepper)) != start


def test_buttons_stop_at_the_ends(opened):
    stepper = opened().stepper
    previous = stepper.get_by_role("button", name="Previous picture")
    following = stepper.get_by_role("button", name="Next picture")
    assert previous.get_attribute("aria-disabled") == "true"
    start = values(stepper)
    previous.click(force=True)  # aria-disabled: it keeps the focus and does nothing
    assert values(stepper) == start
    stepper.press("End")
    assert previous.get_attribute("aria-disabled") == "false"
    assert following.get_attribute("aria-disabled") == "true"
    end = values(stepper)
    following.click(force=True)
    assert values(stepper) == end
    previous.click()
    assert caption(stepper).startswith(f"Picture {pictures(stepper) - 1} of ")


def test_keys_move_it_and_not_the_page(opened):
    page = opened(viewport={"width": 900, "height": 500})
    stepper, last = page.stepper, pictures(page.stepper)
    stepper.scroll_into_view_if_needed()
    start = values(stepper)
    place = page.tab.evaluate("scrollY")
    for key, at in (
        ("ArrowRight", 2),
        ("ArrowRight", 3),
        ("ArrowLeft", 2),
        ("End", last),
        ("ArrowRight", last),
        ("ArrowLeft", last - 1),
        ("Home", 1),
        ("ArrowLeft", 1),
    ):
        stepper.press(key)
        assert caption(stepper).startswith(f"Picture {at} of {last}. "), key
    assert values(stepper) == start
    assert page.tab.evaluate("scrollY") == place
    stepper.get_by_role("button", name="Next picture").press("End")  # on a button too
    assert values(stepper) == sums(start, rows(stepper))


def test_keys_elsewhere_leave_it_alone(opened):
    page = opened()
    page.tab.locator("article h1").click()
    page.tab.keyboard.press("ArrowRight")
    assert caption(page.stepper).startswith("Picture 1 of ")


def test_play_runs_to_the_end_and_pause_stops_it(opened):
    page = opened()
    page.tab.clock.install()
    stepper, last = page.stepper, pictures(page.stepper)
    stepper.get_by_role("button", name="Play all pictures").click()
    page.tab.clock.run_for(1500)
    assert caption(stepper).startswith("Picture 2 of ")
    stepper.get_by_role("button", name="Pause").click()
    page.tab.clock.run_for(10_000)
    assert caption(stepper).startswith("Picture 2 of ")
    stepper.get_by_role("button", name="Play all pictures").click()
    page.tab.clock.run_for(1500 * last)
    assert caption(stepper).startswith(f"Picture {last} of ")
    play = stepper.get_by_role("button", name="Play all pictures")  # not "Pause" now
    play.click()
    assert caption(stepper).startswith("Picture 1 of ")


def test_without_javascript_the_end_and_all_steps_are_seen(opened):
    script = opened().stepper
    start, number = values(script), rows(script)
    stepper = opened(java_script_enabled=False).stepper
    # Locators that evaluate would need JavaScript: read the texts alone.
    assert values(stepper) == sums(start, number)
    assert stepper.locator("svg").is_visible()
    listed = stepper.locator(".stepper-steps li")
    assert listed.count() == pictures(script)
    assert all(listed.nth(i).is_visible() for i in range(listed.count()))
    assert stepper.locator("button:visible").count() == 0
    assert listed.last.text_content() in caption(stepper)


def test_two_on_a_page_keep_apart_and_start_once(opened):
    """Also when the script runs long after the page has loaded."""
    page = opened()
    page.stepper.press("ArrowRight")
    page.tab.evaluate("""() => {
        const first = document.querySelector(".manygpu-stepper");
        const second = first.cloneNode(true);
        delete second.dataset.ready;
        first.after(second);
        for (let i = 0; i < 2; i++) {
            const script = document.createElement("script");
            script.textContent = first.querySelector("script:not([type])").textContent;
            second.append(script);
        }
    }""")
    second = page.tab.locator(".manygpu-stepper").nth(1)
    assert caption(second).startswith("Picture 1 of ")
    second.press("ArrowRight")
    second.press("ArrowRight")
    assert caption(second).startswith("Picture 3 of ")
    assert caption(page.stepper).startswith("Picture 2 of ")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_its_ink_is_the_articles(opened, theme):
    page = opened(color_scheme=theme)
    ink = page.tab.evaluate("getComputedStyle(document.querySelector('article')).color")
    page.stepper.press("ArrowRight")
    for part, what in (
        (".stepper-cell text", "fill"),
        (".stepper-messages path", "stroke"),
        (".stepper-messages text", "fill"),
        (".stepper-caption", "color"),
        ("button", "color"),
    ):
        found = page.stepper.locator(part).first
        assert found.evaluate(f"e => getComputedStyle(e).{what}") == ink, part


@pytest.mark.parametrize("wanted", ["reduce", "no-preference"])
def test_it_moves_only_for_those_who_want_it(opened, wanted):
    page = opened(reduced_motion=wanted)
    page.stepper.press("ArrowRight")
    moving = page.stepper.locator(".stepper-messages").evaluate(
        "e => getComputedStyle(e).animationName !== 'none'"
    )
    assert moving == (wanted == "no-preference")


def test_it_fits_a_phone_and_can_be_touched(opened):
    page = opened(viewport={"width": 390, "height": 844}, has_touch=True)
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= 390
    start = values(page.stepper)
    page.stepper.get_by_role("button", name="Next picture").tap()
    assert values(page.stepper) != start
    for button in page.stepper.locator("button").all():
        box = button.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        assert box["height"] >= 24
    # No text gets smaller than three quarters of its size.
    drawn = page.stepper.locator("svg").bounding_box()["width"]
    natural = page.stepper.locator("svg").evaluate("e => e.viewBox.baseVal.width")
    assert drawn / natural >= 0.74
