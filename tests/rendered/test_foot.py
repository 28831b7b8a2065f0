"""The foot of each chapter: what a reader may do with it beside reading."""

from __future__ import annotations

import functools
import re

import pytest
import yaml
from bs4 import BeautifulSoup, SoupStrainer

from tests.rendered.conftest import PHONE
from tests.rendered.test_pages import pages
from workshop import standalone
from workshop.pages import ROOT, reading_order

CHAPTER = "book/splitting/pipeline"
FOOT = SoupStrainer("section", class_="chapter-foot")


@functools.cache
def chapters() -> list[str]:
    """The pages of the parts that have numbers."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    parts = [part for part in toc["parts"] if part["caption"][0].isdigit()]
    return [each["file"] for part in parts for each in part["chapters"]]


@pytest.mark.parametrize("page", pages())
def test_chapters_have_a_foot_whose_links_lead_somewhere(html_root, page):
    file = html_root / f"{page}.html"
    foot = BeautifulSoup(file.read_text("utf-8"), "html.parser", parse_only=FOOT)
    if page not in chapters():
        assert not foot.find("dl")
        return
    points = [term.get_text() for term in foot("dt")]
    runs = ["Run"] if page in reading_order() else []
    assert points == [*runs, "Cite", "Report", "Slides", "Print", "Licence"]
    inside = [a["href"] for a in foot.select("a[href]") if ":" not in a["href"]]
    lost = [x for x in inside if not (file.parent / x.partition("#")[0]).is_file()]
    assert lost == []
    for place in (x.partition("#") for x in inside if "#" in x):
        there = (file.parent / place[0]).read_text("utf-8")
        assert f'id="{place[2]}"' in there
    url = standalone.published().partition("/blob/")[0]
    report = foot.find("dt", string="Report").find_next("dd")
    assert ("/issues/new?" in str(report)) == bool(url)
    assert f"make slides C={page.rpartition('/')[2]}" in foot.get_text() or url


def test_the_citation_is_copied_as_it_is_shown(served, visit):
    allowed = ["clipboard-read", "clipboard-write"]
    tab = visit(CHAPTER, root=served, permissions=allowed)
    foot = tab.locator(".chapter-foot")
    foot.locator("summary").click()
    entry = foot.locator("pre")
    entry.hover()
    foot.get_by_role("button", name="Copy").click()
    tab.wait_for_selector(".chapter-foot button.copybtn.success")
    copied = tab.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == entry.inner_text().strip()
    assert copied.startswith("@misc{manygpu")
    assert re.search(r"Chapter 4\.\d+: Pipeline", copied)


def test_the_foot_fits_a_phone_and_is_not_printed(visit):
    tab = visit(CHAPTER, PHONE)
    foot = tab.locator(".chapter-foot")
    foot.locator("summary").click()
    assert tab.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    tab.emulate_media(media="print")
    assert not foot.is_visible()
