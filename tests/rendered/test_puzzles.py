"""The puzzles in their page: solved by keyboard alone, on a desk and on a phone.

Seconds to the first result are printed, not asserted.
"""

from __future__ import annotations

import os
import time

import pytest

from manygpu.exercises.puzzles import KNOWN, hall
from tests.rendered.conftest import DESK, PHONE
from tests.rendered.test_each_page import AXE as AXE_FILE
from tests.rendered.test_each_page import FRAMES, RULES, RUN, STILL
from workshop import page_python

PAGE = "book/back/puzzles"
LOOKS = [(PHONE, "dark"), (DESK, "light")]
OURS = "_static/puzzles/"
STORED = "name => JSON.parse(localStorage.getItem(`manygpu:puzzle:${name}`))"
ENDS = ".manygpu-puzzle:not([data-running])[data-result]"
FIRST_MS = 120_000  # a busy machine compiles slowly


@pytest.fixture
def page(served, visit):
    """The puzzles' page, served; and what it has asked for."""

    def open_page(size=DESK, theme="light", **settings):
        tab = visit(PAGE, size, root=served, color_scheme=theme, **settings)
        asked = []
        tab.on("request", lambda request: asked.append(request.url))
        if tab.locator("[data-missing]").count():
            why = page_python.package()[1] or "the build said so"
            pytest.fail(f"the page has no Python: {why}")
        return tab, asked

    return open_page


def puzzle_in(tab, name: str):
    return tab.locator(f'.manygpu-puzzle[data-puzzle="{name}"]')


def focused(tab) -> str:
    """The id of what has the focus, or what it does."""
    return tab.evaluate(
        "document.activeElement.id || document.activeElement.dataset.does || ''"
    )


def tab_to(tab, wanted: str) -> None:
    """Press Tab until the focus is there."""
    for _ in range(40):
        if focused(tab) == wanted:
            return
        tab.keyboard.press("Tab")
    pytest.fail(f"no Tab leads to {wanted}, but to {focused(tab)!r}")


def answered(tab, name: str, source: str, patience=20_000) -> str:
    """What the page says to an answer that is typed and run without a pointer."""
    if focused(tab) in ("run", "reset"):
        tab.keyboard.press("Shift+Tab")  # to the same field again, or one before
    tab_to(tab, f"answer-{name}")
    tab.keyboard.press("ControlOrMeta+a")
    tab.keyboard.insert_text(source)
    tab_to(tab, "run")
    tab.keyboard.press("Enter")
    ended = f'[data-puzzle="{name}"]{ENDS}'
    tab.wait_for_selector(ended, timeout=patience)
    return puzzle_in(tab, name).locator(".puzzle-said").text_content()


def own(url: str, served: str) -> bool:
    return url.startswith((served, "data:", "blob:"))


def test_each_is_solved_by_keyboard_with_nothing_from_elsewhere(page, served):
    tab, asked = page(DESK, "light")
    tab.wait_for_load_state("networkidle")
    assert [url for url in asked if "worker.js" in url or "pyodide" in url] == []
    names = tab.locator(".manygpu-puzzle").evaluate_all(
        "all => all.map(e => e.dataset.puzzle)"
    )
    assert sorted(names) == sorted(KNOWN)
    tab.locator(f"#answer-{names[0]}").focus()  # what is before is other tests' matter
    began, first = time.monotonic(), 0.0
    for name in names:
        said = answered(tab, name, hall.best(name).answer, FIRST_MS)
        first = first or time.monotonic() - began
        solved = KNOWN[name].score(hall.answer_of(hall.best(name).answer))
        assert said == solved.words, name
        assert puzzle_in(tab, name).get_attribute("data-result") == "solved"
        stored = tab.evaluate(STORED, name)
        assert stored["score"] == pytest.approx(solved.score)
        assert stored["bound"] == KNOWN[name].bound and stored["solved"] is True
        assert stored["answer"] == hall.best(name).answer
    print(f"\nfirst result after {first:.1f} s", end="")
    assert [url for url in asked if not own(url, served)] == []
    assert sum("pyodide.asm.wasm" in url for url in asked) == 1
    tab.add_style_tag(content=STILL)
    tab.evaluate(AXE_FILE.read_text(encoding="utf-8"))
    for size, theme in LOOKS:
        drawings_can_be_seen(tab, names, size, theme)


def drawings_can_be_seen(tab, names, size, theme) -> None:
    """Of the answers, in the page's ink, with letters of some size."""
    tab.set_viewport_size(size)
    tab.emulate_media(color_scheme=theme)
    tab.evaluate(FRAMES)
    ink = "e => getComputedStyle(e).color"
    for name in names:
        drawn = puzzle_in(tab, name).locator("svg[role=img]")
        assert drawn.get_attribute("aria-label") and drawn.is_visible()
        assert drawn.evaluate(ink) == tab.locator("article").evaluate(ink)
    assert tab.evaluate("document.documentElement.scrollWidth") <= size["width"]
    letters = tab.locator(".puzzle-drawing svg").evaluate_all(
        "all => all.map(e => e.clientWidth / e.viewBox.baseVal.width * 11)"
    )
    assert min(letters) > 8.9
    assert tab.evaluate(RUN, RULES) == []
    if place := os.environ.get("SHOTS"):
        tab.screenshot(path=f"{place}/puzzles-{theme}.png", full_page=True)


def test_nothing_on_other_pages_knows_of_them(html_root):
    """No page but this one asks for a byte of it."""
    for file in (html_root / "book").rglob("*.html"):
        is_here = file == html_root / f"{PAGE}.html"
        assert (OURS in file.read_text(encoding="utf-8")) == is_here, file
    for name in ("bundle.js", "bundle.css"):
        text = (html_root / "_static" / name).read_text(encoding="utf-8")
        assert "manygpu-puzzle" not in text


def test_wrong_worse_and_endless_answers(page):
    """Refused, not kept, stopped; one visit, for Python takes seconds to begin."""
    tab, _ = page()
    tab.locator("#answer-experts").focus()
    said = answered(tab, "experts", "answer = [[0], [1], [2], [3]]", FIRST_MS)
    assert said.startswith("Refused: expert 4 is on no GPU. The rule: each expert is")
    result = puzzle_in(tab, "experts").get_attribute("data-result")
    assert result == "refused" and "score" not in tab.evaluate(STORED, "experts")
    said = answered(tab, "experts", "print('seen')\nanswer = [1 / 0]")
    assert said.startswith("Refused: it doesn't run. Line 2: ZeroDivisionError")
    assert puzzle_in(tab, "experts").locator("pre").text_content() == "seen\n"
    answered(tab, "experts", KNOWN["experts"].start)
    first = tab.evaluate(STORED, "experts")
    answered(tab, "experts", hall.best("experts").answer)
    best = tab.evaluate(STORED, "experts")
    assert best["score"] < first["score"] and not first["solved"] and best["solved"]
    answered(tab, "experts", KNOWN["experts"].start)
    assert tab.evaluate(STORED, "experts") | {"draft": ""} == best | {"draft": ""}
    an_endless_one_is_stopped(tab, puzzle_in(tab, "experts"))
    tab.locator("#answer-experts").fill("answer = 'half a thought'")
    tab.reload()
    assert tab.locator("#answer-experts").input_value() == "answer = 'half a thought'"


def an_endless_one_is_stopped(tab, root) -> None:
    """By its button; the next answer runs."""
    field, said = root.locator("textarea"), root.locator(".puzzle-said")
    field.fill("while True:\n    pass")
    field.press("Control+Enter")
    stop = root.get_by_role("button", name="Stop")
    stop.wait_for(state="visible")
    assert root.get_by_role("button", name="Run").get_attribute("aria-disabled")
    stop.press("Enter")
    tab.wait_for_selector(f"[data-puzzle=experts]{ENDS}")
    assert said.text_content() == "Stopped."
    assert focused(tab) == "run"  # the button that had the focus is gone
    root.get_by_role("button", name="Back to the start").press("Enter")
    assert field.input_value() == KNOWN["experts"].start
    field.press("Control+Enter")
    tab.wait_for_selector("[data-result=scored]", timeout=FIRST_MS)


def test_what_takes_too_long_is_stopped_by_the_page(page):
    """After seconds that the page's own clock counts, which is set ahead."""
    tab, _ = page(fresh=True)
    tab.clock.install()
    tab.reload()
    root = puzzle_in(tab, "stages")
    root.locator("textarea").fill("while True:\n    pass")
    root.locator("textarea").press("Control+Enter")
    said = root.locator(".puzzle-said").element_handle()
    runs = "e => e.textContent === 'Running ...'"
    tab.wait_for_function(runs, arg=said, timeout=FIRST_MS, polling=100)
    tab.clock.run_for(21_000)
    tab.wait_for_selector(f"[data-puzzle=stages]{ENDS}")
    assert said.text_content() == "Stopped after 20 seconds."


def test_a_page_from_a_disk_says_what_to_do(visit):
    tab = visit(PAGE)
    assert tab.locator("#answer-ring").input_value() == KNOWN["ring"].start
    puzzle_in(tab, "ring").get_by_role("button", name="Run").click()
    tab.wait_for_selector(f"[data-puzzle=ring]{ENDS}")
    said = puzzle_in(tab, "ring").locator(".puzzle-said").text_content()
    assert "`make serve`" in said


def test_without_scripts_a_task_can_be_read(visit):
    tab = visit(PAGE, java_script_enabled=False)
    first = puzzle_in(tab, "ring")
    assert "gradient" in first.text_content()
    assert first.locator("textarea").is_visible()
    assert not first.get_by_role("button", name="Run").is_visible()


def test_python_of_the_page_is_the_one_that_is_named(html_root, tmp_path):
    file, why = page_python.package()
    assert file, why
    page_python.unpack(file, tmp_path)
    folder = html_root / OURS / "pyodide"
    assert sorted(each.name for each in folder.iterdir()) == sorted(page_python.FILES)
    for name in page_python.FILES:
        assert (folder / name).read_bytes() == (tmp_path / name).read_bytes(), name
    assert page_python.VERSION in (folder / "pyodide.mjs").read_text(encoding="utf-8")
