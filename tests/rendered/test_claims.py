"""The table of checked claims in a real browser: filtered without kernel or script."""

from __future__ import annotations

from manygpu import sources
from manygpu.sources import page

CLAIMS = [claim for claim in sources.claims() if claim.source == "article"]


def verdicts(tab) -> list[str]:
    """The verdicts of the rows that are seen."""
    rows = tab.locator("tbody tr").all()
    return [row.get_attribute("class") for row in rows if row.is_visible()]


def test_the_keyboard_chooses_a_verdict_and_all_again(browser, tmp_path):
    """Of the article's claims, on a page of their own with no script at all."""
    file = tmp_path / "claims.html"
    shown = page.to_html(CLAIMS, "The article's claims.", "article")
    file.write_text(f"<!doctype html><meta charset=utf-8>{shown}", encoding="utf-8")
    tab = browser.new_page(java_script_enabled=False)
    tab.goto(file.as_uri())
    every = [claim.verdict for claim in CLAIMS]
    assert verdicts(tab) == every
    found = [v for v in sources.VERDICTS if v in every]
    assert len(found) > 1
    radios = tab.get_by_role("group", name="Show").get_by_role("radio")
    assert radios.count() == 1 + len(found)  # all, then a verdict each
    tab.get_by_label("all (").focus()
    for verdict in found:
        tab.keyboard.press("ArrowRight")
        assert verdicts(tab) == [v for v in every if v == verdict]
    tab.keyboard.press("ArrowRight")
    assert verdicts(tab) == every
    tab.close()
