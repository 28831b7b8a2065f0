"""What was left out or put off to make pages light is missed by nobody."""

from __future__ import annotations

import pytest

CHAPTER = "book/data-parallel/all-reduce"
INK = "e => getComputedStyle(e).color"
PAINTED = """[...CSS.highlights].flatMap(([ink, ranges]) => [...ranges].map(r =>
    [r.startContainer.data.slice(r.startOffset, r.endOffset).trim(), ink]))"""


def test_code_is_painted_where_its_inks_are(visit):
    tab = visit(CHAPTER)
    inks = dict(tab.evaluate(PAINTED))
    assert inks["import"] == inks["from"] == "k"
    assert inks['"""'] if '"""' in inks else inks["2"] == "n"
    assert "=" not in inks


@pytest.mark.parametrize("scripts", [True, False])
def test_code_has_its_landmarks_also_without_scripts(visit, scripts):
    tab = visit(CHAPTER, color_scheme="dark", java_script_enabled=scripts)
    names = tab.locator("div.cell_input pre .nf")
    assert names.count() > 3
    code = names.first.locator("xpath=ancestor::pre")
    assert f"def {names.first.text_content().strip()}(" in code.text_content()
    assert names.first.evaluate(INK) != code.evaluate(INK)


def test_the_menu_opens_at_the_first_click(served, visit):
    """Though what opens it is fetched only then."""
    tab = visit(CHAPTER, root=served)
    tab.wait_for_load_state("networkidle")
    tab.locator(".dropdown-download-buttons button.dropdown-toggle").click()
    menu = tab.locator(".dropdown-download-buttons .dropdown-menu a[href*=ipynb]")
    menu.wait_for(state="visible")
    # A pointer above it opens it, too, by the theme's own rule: so ask the button.
    tab.wait_for_selector(".dropdown-download-buttons [aria-expanded=true]")
    tab.keyboard.press("Escape")
    tab.wait_for_selector(".dropdown-download-buttons [aria-expanded=false]")
    tab.mouse.move(0, 300)
    menu.wait_for(state="hidden")


def test_a_copy_button_copies_the_code(served, visit):
    allowed = ["clipboard-read", "clipboard-write"]
    tab = visit(CHAPTER, root=served, permissions=allowed)
    shown = "div.cell:not(.set-up) div.cell_input div.highlight:visible"
    cell = tab.locator(shown).first
    cell.hover()
    cell.get_by_role("button", name="Copy").click()
    tab.wait_for_selector("button.copybtn.success")
    copied = tab.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == cell.locator("pre").inner_text().strip()
