"""The stepper, used as a reader uses it: the ring of the front page, alone."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from manygpu.widgets.ring import RING_ALT, ring_frames
from manygpu.widgets.stepper import stepper_html

FRAMES = ring_frames(4)
LAST = len(FRAMES)


@pytest.fixture
def opened(lone) -> Callable:
    """Open the page with the given browser settings; return its tab and stepper."""
    html = stepper_html(FRAMES, RING_ALT)

    def open_page(**settings) -> SimpleNamespace:
        page = lone(html, "stepper", **settings)
        return SimpleNamespace(tab=page.tab, stepper=page.figure.first)

    return open_page


def values(stepper) -> list[str]:
    """What the cells show, column by column."""
    return stepper.locator(".stepper-cell text").all_text_contents()


def caption(stepper) -> str:
    return stepper.locator(".stepper-caption").text_content()


def held(k: int) -> list[str]:
    """What the cells of picture k, from 1, show."""
    return [text for column in FRAMES[k - 1].cells.values() for text in column]


def test_next_leads_from_the_first_picture_to_the_last(opened):
    """And no further; back it goes, too."""
    stepper = opened().stepper
    previous, following = (
        stepper.get_by_role("button", name=f"{name} picture")
        for name in ("Previous", "Next")
    )
    assert stepper.locator("button:visible").count() == 3
    previous.click(force=True)  # aria-disabled: it keeps the focus and does nothing
    assert not stepper.locator(".stepper-steps").is_visible()
    for k, frame in enumerate(FRAMES, start=1):
        said = f"Picture {k} of {LAST}. {frame.caption}"
        assert caption(stepper) == said
        assert values(stepper) == held(k)
        messages = stepper.locator(".stepper-messages")
        assert messages.locator("path").count() == len(frame.messages)
        texts = messages.locator("text").all_text_contents()
        assert texts == [text for *_, text in frame.messages]
        before = held(max(k - 1, 1))
        marked = stepper.locator(".stepper-cell").evaluate_all(
            "all => all.flatMap((c, i) => c.classList.contains('changed') ? [i] : [])"
        )
        assert marked == [i for i, v in enumerate(held(k)) if v != before[i]]
        ends = [b.get_attribute("aria-disabled") for b in (previous, following)]
        assert ends == [str(at == k).lower() for at in (1, LAST)]
        following.click(force=True)
    assert values(stepper) == held(LAST)
    previous.click()
    assert caption(stepper).startswith(f"Picture {LAST - 1} of ")


def test_keys_move_it_and_not_the_page(opened):
    page = opened(viewport={"width": 500, "height": 150})
    stepper = page.stepper
    stepper.scroll_into_view_if_needed()
    place = page.tab.evaluate("scrollY")
    for key, at in (
        ("ArrowRight", 2),
        ("ArrowRight", 3),
        ("ArrowLeft", 2),
        ("End", LAST),
        ("ArrowRight", LAST),
        ("ArrowLeft", LAST - 1),
        ("Home", 1),
        ("ArrowLeft", 1),
    ):
        stepper.press(key)
        assert caption(stepper).startswith(f"Picture {at} of {LAST}. "), key
    assert values(stepper) == held(1)
    assert page.tab.evaluate("scrollY") == place
    stepper.get_by_role("button", name="Next picture").press("End")  # on a button too
    assert values(stepper) == held(LAST)


def test_play_runs_to_the_end_and_pause_stops_it(opened):
    page = opened(fresh=True)  # nothing resets a clock
    page.tab.clock.install()
    stepper = page.stepper
    stepper.get_by_role("button", name="Play all pictures").click()
    page.tab.clock.run_for(1500)
    assert caption(stepper).startswith("Picture 2 of ")
    stepper.get_by_role("button", name="Pause").click()
    page.tab.clock.run_for(10_000)
    assert caption(stepper).startswith("Picture 2 of ")
    stepper.get_by_role("button", name="Play all pictures").click()
    page.tab.clock.run_for(1500 * LAST)
    assert caption(stepper).startswith(f"Picture {LAST} of ")
    play = stepper.get_by_role("button", name="Play all pictures")  # not "Pause" now
    play.click()
    assert caption(stepper).startswith("Picture 1 of ")


def test_without_javascript_the_end_and_all_steps_are_seen(opened):
    stepper = opened(java_script_enabled=False).stepper
    # Locators that evaluate would need JavaScript: read the texts alone.
    assert values(stepper) == held(LAST)
    assert stepper.locator("svg").is_visible()
    listed = stepper.locator(".stepper-steps li")
    assert listed.all_text_contents() == [frame.caption for frame in FRAMES]
    assert all(listed.nth(i).is_visible() for i in range(LAST))
    assert stepper.locator("button:visible").count() == 0
    assert FRAMES[-1].caption in caption(stepper)


def test_two_on_a_page_keep_apart_and_start_once(opened):
    """Also when the script runs long after the page has loaded."""
    page = opened()
    page.tab.locator("h1").click()
    page.tab.keyboard.press("ArrowRight")  # elsewhere
    assert caption(page.stepper).startswith("Picture 1 of ")
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
def test_its_ink_is_the_pages(opened, theme):
    """And it moves only for those who want it."""
    wanted = {"light": "reduce", "dark": "no-preference"}[theme]
    page = opened(color_scheme=theme, reduced_motion=wanted)
    ink = page.tab.evaluate("getComputedStyle(document.body).color")
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
    moving = page.stepper.locator(".stepper-messages").evaluate(
        "e => getComputedStyle(e).animationName !== 'none'"
    )
    assert moving == (wanted == "no-preference")


def test_it_fits_a_phone_and_can_be_touched(opened):
    page = opened(viewport={"width": 390, "height": 844}, has_touch=True)
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= 390
    page.stepper.get_by_role("button", name="Next picture").tap()
    assert values(page.stepper) == held(2)
    for button in page.stepper.locator("button").all():
        box = button.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        assert box["height"] >= 24
    # No text gets smaller than three quarters of its size.
    drawn = page.stepper.locator("svg").bounding_box()["width"]
    natural = page.stepper.locator("svg").evaluate("e => e.viewBox.baseVal.width")
    assert drawn / natural >= 0.74
