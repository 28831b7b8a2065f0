"""The table of checked claims in a real browser: filtered without kernel or script."""

from __future__ import annotations

import pytest

from manygpu import sources
from manygpu.sources import page

pytestmark = pytest.mark.rendered
CLAIMS = [claim for claim in sources.claims() if claim.source == "article"]
FOUND = [v for v in sources.VERDICTS if any(c.verdict == v for c in CLAIMS)]


@pytest.fixture
def tab(browser, tmp_path):
    """The article's claims on a page of their own, with no script at all."""
    file = tmp_path / "claims.html"
    shown = page.to_html(CLAIMS, "The article's claims.", "article")
    file.write_text(f"<!doctype html><meta charset=utf-8>{shown}", encoding="utf-8")
    context = browser.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto(file.as_uri())
    yield opened
    context.close()


def verdicts(tab) -> list[str]:
    """The verdicts of the rows that are seen."""
    rows = tab.locator("tbody tr").all()
    return [row.get_attribute("class") for row in rows if row.is_visible()]


def test_all_rows_are_shown_until_a_verdict_is_chosen(tab):
    assert verdicts(tab) == [claim.verdict for claim in CLAIMS]


def test_the_keyboard_chooses_a_verdict_and_all_again(tab):
    tab.get_by_label("all (").focus()
    assert len(FOUND) > 1
    for verdict in FOUND:
        tab.keyboard.press("ArrowRight")
        wanted = [claim.verdict for claim in CLAIMS if claim.verdict == verdict]
        assert verdicts(tab) == wanted
    tab.keyboard.press("ArrowRight")
    assert len(verdicts(tab)) == len(CLAIMS)


def test_the_buttons_are_one_group_with_a_name(tab):
    radios = tab.get_by_role("group", name="Show").get_by_role("radio")
    assert radios.count() == 1 + len(FOUND)  # all, then a verdict each
