"""The pages of the rendered book: what they hold, and some in a real browser."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.rendered


def pages() -> list[str]:
    """The pages that _toc.yml names, without their endings."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    chapters = [c["file"] for part in toc["parts"] for c in part["chapters"]]
    return [toc["root"], *chapters]


def all_pages() -> list[str]:
    """Those, and what the build adds: search, indices, the page for who is lost."""
    return [*pages(), "search", "genindex", "py-modindex", "404"]


def notebooks() -> list[str]:
    """Those of the pages that are notebooks."""
    return [p for p in pages() if (ROOT / f"{p}.ipynb").is_file()]


def soup(html_root: Path, page: str) -> BeautifulSoup:
    """A page's HTML, parsed."""
    return BeautifulSoup(
        (html_root / f"{page}.html").read_text(encoding="utf-8"), "html.parser"
    )


@functools.cache
def places(file: Path) -> frozenset[str]:
    """What a link may name behind its #, on one page; pages are long, so read once."""
    found = BeautifulSoup(file.read_text(encoding="utf-8"), "html.parser").find_all(
        True
    )
    return frozenset(t.get(key) for t in found for key in ("id", "name") if t.get(key))


@pytest.fixture(params=["light", "dark"])
def theme(request: pytest.FixtureRequest) -> str:
    return request.param


def test_tables_lie_on_the_page_and_take_its_ink(html_root, browser, theme):
    """No card of another colour around them, on light and on dark pages."""
    context = browser.new_context(color_scheme=theme)
    tab = context.new_page()
    tab.goto((html_root / "book/choosing/side-by-side.html").as_uri())
    ink = tab.evaluate("getComputedStyle(document.querySelector('article')).color")
    tables = tab.locator("div.cell_output .text_html:has(div.manygpu-table)").all()
    assert tables
    for table in tables:
        look = table.evaluate("e => getComputedStyle(e).backgroundColor")
        assert look == "rgba(0, 0, 0, 0)"
        cell = table.locator("tbody td").first
        assert cell.evaluate("e => getComputedStyle(e).color") == ink
    context.close()


@pytest.mark.parametrize("page", notebooks())
def test_every_picture_has_a_text(html_root, page):
    """No <img> of an output without an alternative text."""
    images = soup(html_root, page).select("article img")
    assert [i for i in images if not (i.get("alt") or "").strip()] == []


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(html_root, page):
    """Each link inside the book has its page, and its place on that page."""
    here = html_root / f"{page}.html"
    broken = []
    for link in soup(html_root, page).select("article a[href], nav a[href]"):
        target, _, place = link["href"].partition("#")
        if ":" in target:
            continue  # to the world outside, which this machine may not reach
        file = (here.parent / target).resolve() if target else here
        found = file.is_file()
        if found and place and file.suffix == ".html":
            found = place in places(file)
        if not found:
            broken.append(link["href"])
    assert broken == []


@pytest.mark.parametrize("page", notebooks())
def test_no_directive_or_error_is_left_on_a_page(html_root, page):
    """`#| export` became a note; no cell printed a traceback."""
    text = soup(html_root, page).select_one("article").get_text()
    assert "#|" not in text
    assert "Traceback (most recent call last)" not in text


def test_an_exported_cell_says_where_it_lives(html_root):
    """The quiet note names the module."""
    notes = soup(html_root, "book/data-parallel/all-reduce").select(".exported-note")
    assert notes
    assert all(
        "manygpu/scratch/data_parallel/all_reduce.py" in n.get_text() for n in notes
    )


def test_what_is_wider_than_a_phone_can_be_scrolled_by_keyboard(html_root, browser):
    """A figure, a table and code take the focus while they overflow, with a name."""
    context = browser.new_context(viewport={"width": 390, "height": 844})
    tab = context.new_page()
    tab.goto((html_root / "book/choosing/side-by-side.html").as_uri())
    parts = ("figure.manygpu-figure", "div.manygpu-table[role=group]")
    for part in (*parts, "div.cell_input pre[role=group]"):
        wide = tab.locator(f"{part}[tabindex='0'][aria-label]").first
        assert len(wide.get_attribute("aria-label")) > 3
        wide.focus()
        wide.press("ArrowRight")
        tab.wait_for_function("e => e.scrollLeft > 0", arg=wide.element_handle())
    tab.set_viewport_size({"width": 1280, "height": 844})
    fit = ".manygpu-figure[tabindex], .manygpu-table[tabindex]"
    tab.wait_for_function("found => !document.querySelector(found)", arg=fit)
    context.close()


def test_nearly_all_figures_have_a_narrow_form(html_root):
    """All but steppers, those with too many words in a row, and some by bad luck."""
    drawn = [
        figure
        for page in notebooks()
        for figure in soup(html_root, page).select(".manygpu-figure:has(svg)")
    ]
    without = [f.svg["aria-label"] for f in drawn if not f.select_one(".narrow")]
    assert len(drawn) > 100
    assert len(without) <= len(drawn) / 12, without


def test_a_figure_has_its_wide_form_on_a_screen_and_on_paper(html_root, browser):
    """One form is seen at a time, and only that one is read aloud."""
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    tab.goto((html_root / "book/start/one-device.html").as_uri())
    forms = "figure.manygpu-figure > svg", "figure.manygpu-figure > .narrow"
    wide, narrow = (tab.locator(form) for form in forms)
    assert narrow.count() > 3
    for media in ("screen", "print"):
        tab.emulate_media(media=media)
        assert [e.is_visible() for e in wide.all()] == [True] * wide.count()
        assert [e for e in narrow.all() if e.is_visible()] == []
    tab.emulate_media(media="screen")
    tab.set_viewport_size({"width": 390, "height": 844})
    assert [e.is_visible() for e in narrow.all()] == [True] * narrow.count()
    seen = tab.locator("figure.manygpu-figure svg[role=img]:visible").count()
    assert seen == tab.locator("figure.manygpu-figure").count()
    tab.close()


def test_a_formula_is_mathml(html_root):
    """Formulas need no network: the browser draws them itself."""
    formulas = soup(html_root, "book/back/notation").select("article math")
    assert len(formulas) > 5


def test_formulas_have_their_font(html_root, browser):
    """The font comes with the book, and the page did load it."""
    tab = browser.new_page()
    tab.goto((html_root / "book/back/notation.html").as_uri())
    tab.wait_for_load_state("networkidle")
    fonts = tab.evaluate("[...document.fonts].map(f => [f.family, f.status])")
    family = tab.evaluate("getComputedStyle(document.querySelector('math')).fontFamily")
    tab.close()
    assert ["Book Math", "loaded"] in [[f.strip('"'), status] for f, status in fonts]
    assert family.startswith('"Book Math"')


def test_search_finds_a_chapter(served, browser):
    """Search answers on loopback alone, shows where the word is, and says no error."""
    tab, said = browser.new_page(), []
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("requestfailed", lambda request: said.append(request.url))
    tab.on("console", lambda m: said.append(m.text) if m.type == "error" else None)
    tab.goto(f"{served}/search.html?q=reduce-scatter")
    found = tab.locator("#search-results li:has(a[href*='data-parallel/collectives'])")
    found.locator("p.context").first.wait_for()
    tab.wait_for_load_state("networkidle")
    assert "scatter" in found.locator("p.context").first.inner_text()
    tab.close()
    assert said == []


def test_a_figure_has_no_other_role(html_root, browser):
    """Not even while it can be scrolled: one with a caption may have no other."""
    tab = browser.new_page(viewport={"width": 390, "height": 844})
    for page in ("choosing/side-by-side", "splitting/transformer"):
        tab.goto((html_root / f"book/{page}.html").as_uri())
        tab.wait_for_selector("pre[data-scrolls]")
        assert tab.locator("figure.manygpu-figure[tabindex]").count() > 0
        assert tab.locator("figure[role]:has(figcaption)").count() == 0
    tab.close()
