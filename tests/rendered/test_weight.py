"""What was left out or put off to make pages light is missed by nobody."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.rendered
CHAPTER = "book/data-parallel/all-reduce"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_code_is_painted_when_it_is_seen(html_root, browser, theme):
    """Keywords and their like, all in view, none of the others; on paper, all."""
    context = browser.new_context(
        color_scheme=theme, viewport={"width": 1280, "height": 900}
    )
    tab = context.new_page()
    tab.goto((html_root / f"{CHAPTER}.html").as_uri())
    first = "pre:not([data-inks])"
    tab.wait_for_selector(f"div.cell_input {first}")
    left = tab.locator("pre[data-inks]").count()
    assert left > 5
    words = tab.evaluate(
        """[...CSS.highlights].map(([name, ranges]) => [name, [...ranges].map(r =>
            r.startContainer.data.slice(r.startOffset, r.endOffset).trim())])"""
    )
    by_ink = dict(words)
    inks = {word: ink for ink, found in by_ink.items() for word in found}
    assert inks["import"] == inks["from"] != inks["="]
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert tab.locator("pre[data-inks]").count() == 0
    context.close()


def test_code_is_coloured_where_a_browser_cannot_paint(html_root, browser):
    context = browser.new_context()
    context.add_init_script("delete CSS.highlights; delete CSS.__proto__.highlights")
    tab = context.new_page()
    tab.goto((html_root / f"{CHAPTER}.html").as_uri())
    word = tab.locator("pre [class^=ink-]", has_text="import").first
    word.wait_for(state="attached")
    plain = word.evaluate("e => getComputedStyle(e.parentElement).color")
    assert word.evaluate("e => getComputedStyle(e).color") != plain
    assert tab.evaluate("document.body.textContent.includes('import tensorflow as tf')")
    context.close()


def test_without_scripts_code_is_whole_and_has_its_landmarks(html_root, browser):
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto((html_root / f"{CHAPTER}.html").as_uri())
    names = tab.locator("div.cell_input pre .nf")
    assert names.count() > 3
    code = names.first.locator("xpath=ancestor::pre")
    assert f"def {names.first.text_content().strip()}(" in code.text_content()
    ink = "e => getComputedStyle(e).color"
    assert names.first.evaluate(ink) != code.evaluate(ink)
    context.close()


def test_the_menu_opens_at_the_first_click(served, browser):
    """Though what opens it is fetched only then."""
    tab = browser.new_page()
    tab.goto(f"{served}/{CHAPTER}.html")
    tab.wait_for_load_state("networkidle")
    button = tab.locator(".dropdown-download-buttons button.dropdown-toggle")
    button.click()
    menu = tab.locator(".dropdown-download-buttons .dropdown-menu a[href*=ipynb]")
    menu.wait_for(state="visible")
    # A pointer above it opens it, too, by the theme's own rule: so ask the button.
    tab.wait_for_selector(".dropdown-download-buttons [aria-expanded=true]")
    tab.keyboard.press("Escape")
    tab.wait_for_selector(".dropdown-download-buttons [aria-expanded=false]")
    tab.mouse.move(0, 300)
    menu.wait_for(state="hidden")
    tab.close()


def test_a_copy_button_copies_the_code(served, browser):
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    tab = context.new_page()
    tab.goto(f"{served}/{CHAPTER}.html")
    cell = tab.locator("div.cell:not(.set-up) div.cell_input div.highlight").first
    cell.hover()
    cell.get_by_role("button", name="Copy").click()
    tab.wait_for_selector("button.copybtn.success")
    copied = tab.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == cell.locator("pre").inner_text().strip()
    context.close()
