"""The pages of the rendered book: what they hold, and some in a real browser."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from bs4 import BeautifulSoup

from tests.rendered.conftest import DESK, PHONE, ROOT
from workshop.pages import reading_order

FIGURE = re.compile(r"<figure.*?</figure>", re.DOTALL)
LETTERS = re.compile(r"(?:<mi>[A-Za-z]</mi>\s*){3,}")


@functools.cache
def pages() -> list[str]:
    """The pages that _toc.yml names, without their endings."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    chapters = [c["file"] for part in toc["parts"] for c in part["chapters"]]
    return [toc["root"], *chapters]


def all_pages() -> list[str]:
    """Those, and what the build adds: search, indices, the page for who is lost."""
    return [*pages(), "search", "genindex", "py-modindex", "404"]


def soup(html_root: Path, page: str) -> BeautifulSoup:
    """A page's HTML, parsed."""
    text = (html_root / f"{page}.html").read_text(encoding="utf-8")
    return BeautifulSoup(text, "html.parser")


class Places(HTMLParser):
    """Collects what a link may name behind its #, without a tree of the page."""

    def __init__(self, text: str) -> None:
        """Read a page."""
        super().__init__()
        self.found: set[str | None] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element is called."""
        self.found |= {value for key, value in attrs if key in ("id", "name")}


@functools.cache
def places(file: Path) -> set[str | None]:
    """What a link may name on one page; pages are long, so read once."""
    return Places(file.read_text(encoding="utf-8")).found


@pytest.mark.parametrize("page", pages())
def test_what_a_page_holds(html_root, page):
    read = soup(html_root, page)
    wrong = [*broken_links(read, html_root / f"{page}.html"), *prose_in_formulas(read)]
    if page in reading_order():
        wrong += what_a_run_left(read)
    assert wrong == []


def broken_links(read: BeautifulSoup, here: Path) -> Iterator[str]:
    """Each link inside the book has its page, and its place on that page."""
    for link in read.select("article a[href], nav a[href]"):
        target, _, place = link["href"].partition("#")
        if ":" in target:
            continue  # to the world outside, which this machine may not reach
        file = (here.parent / target).resolve() if target else here
        is_page = place and file.suffix == ".html"
        if not file.is_file() or (is_page and place not in places(file)):
            yield f"broken link: {link['href']}"


def prose_in_formulas(read: BeautifulSoup) -> Iterator[str]:
    """Two prices in dollars are no formula: a word in one is letters in a row."""
    for math in read.select("article math"):
        for run in LETTERS.findall(str(math)):
            yield "a word in a formula: " + re.sub(r"<[^>]*>|\s", "", run)


def what_a_run_left(read: BeautifulSoup) -> Iterator[str]:
    """`#| export` became a note, no cell failed, each picture has a text."""
    text = read.select_one("article").get_text()
    for left in ("#|", "Traceback (most recent call last)"):
        if left in text:
            yield f"{left} is on the page"
    for image in read.select("article img"):
        if not (image.get("alt") or "").strip():
            yield f"no text for {image}"


def test_an_exported_cell_says_where_it_lives_and_a_formula_is_mathml(html_root):
    notes = soup(html_root, "book/data-parallel/all-reduce").select(".exported-note")
    assert notes
    home = "manygpu/scratch/data_parallel/all_reduce.py"
    assert all(home in note.get_text() for note in notes)
    assert len(soup(html_root, "book/back/notation").select("article math")) > 5


def test_nearly_all_figures_have_a_narrow_form(html_root):
    """All but steppers, those with too many words in a row, and some by bad luck."""
    files = [html_root / f"{page}.html" for page in reading_order()]
    texts = "".join(file.read_text(encoding="utf-8") for file in files)
    read = BeautifulSoup("".join(FIGURE.findall(texts)), "html.parser")
    drawn = read.select(".manygpu-figure:has(svg)")
    without = [f.svg["aria-label"] for f in drawn if not f.select_one(".narrow")]
    assert len(drawn) > 100
    assert len(without) <= len(drawn) / 10, without


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_tables_lie_on_the_page_and_take_its_ink(visit, theme):
    """No card of another colour around them, on light and on dark pages."""
    tab = visit("book/choosing/side-by-side", color_scheme=theme)
    ink = tab.evaluate("getComputedStyle(document.querySelector('article')).color")
    tables = tab.locator("div.cell_output .text_html:has(div.manygpu-table)").all()
    assert tables
    for table in tables:
        look = table.evaluate("e => getComputedStyle(e).backgroundColor")
        assert look == "rgba(0, 0, 0, 0)"
        cell = table.locator("tbody td").first
        assert cell.evaluate("e => getComputedStyle(e).color") == ink


@pytest.mark.parametrize("page", ["choosing/side-by-side", "splitting/transformer"])
def test_what_is_wider_than_a_phone_can_be_scrolled_by_keyboard(visit, page):
    """What overflows takes the focus, with a name; no figure gets another role."""
    tab = visit(f"book/{page}", PHONE)
    wanted = ["figure.manygpu-figure", "div.cell_input pre[role=group]"]
    if page == "choosing/side-by-side":
        wanted.append("div.manygpu-table[role=group]")
    for part in wanted:
        # What waits for a guess is hidden, and takes no focus.
        wide = tab.locator(f"{part}[tabindex='0'][aria-label]:visible").first
        assert len(wide.get_attribute("aria-label")) > 3
        wide.focus()
        wide.press("ArrowRight")
        tab.wait_for_function("e => e.scrollLeft > 0", arg=wide.element_handle())
    assert tab.locator("figure[role]:has(figcaption)").count() == 0
    tab.set_viewport_size(DESK)
    fit = ".manygpu-figure[tabindex], .manygpu-table[tabindex]"
    tab.wait_for_function("found => !document.querySelector(found)", arg=fit)


def test_a_figure_has_its_wide_form_on_a_screen_and_on_paper(visit):
    """One form is seen at a time, and only that one is read aloud."""
    tab = visit("book/data-parallel/large-batches")
    forms = "figure.manygpu-figure > svg", "figure.manygpu-figure > .narrow"
    wide, narrow = (tab.locator(form) for form in forms)
    assert narrow.count() > 3
    for media in ("screen", "print"):
        tab.emulate_media(media=media)
        assert [e.is_visible() for e in wide.all()] == [True] * wide.count()
        assert [e for e in narrow.all() if e.is_visible()] == []
    tab.emulate_media(media="screen")
    tab.set_viewport_size(PHONE)
    assert [e.is_visible() for e in narrow.all()] == [True] * narrow.count()
    seen = tab.locator("figure.manygpu-figure svg[role=img]:visible").count()
    assert seen == tab.locator("figure.manygpu-figure").count()


def test_the_first_calculator_is_on_the_first_screen(visit):
    tab = visit("book/choosing/calculators")
    tab.wait_for_selector(".manygpu-calculator[data-ready]")
    place = tab.locator(".manygpu-calculator").first.bounding_box()
    assert place["y"] < DESK["height"]
