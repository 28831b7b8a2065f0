"""A page on paper: what a reader of its PDF finds, and what stays on the screen."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable

import pytest
from pypdf import PdfReader

from tests.rendered.test_pages import soup
from workshop import pdf

CALCULATORS = "book/choosing/calculators"
LEAST_LETTERS = 60  # a page with fewer and no picture is as good as empty
LOOKS = """found => found.map(getComputedStyle).map(
    ({ borderTopColor, appearance }) => [borderTopColor, appearance])"""


@pytest.fixture(scope="module")
def paper(html_root, browser, tmp_path_factory) -> Callable[..., PdfReader]:
    """Print chapters as `make pdf` does, once."""

    @functools.cache
    def print_them(*names: str) -> PdfReader:
        target = tmp_path_factory.mktemp("pdf") / "book.pdf"
        source = html_root / "book" / f"{'-and-'.join(names)}.html"
        source.write_text(pdf.whole_book(html_root, [*names]), encoding="utf-8")
        tab = browser.new_page(color_scheme="light")
        pdf.print_page(tab, source, target)
        tab.close()
        source.unlink()
        return PdfReader(target)

    return print_them


def letters(text: str) -> str:
    """A text without spaces, for a line may end anywhere, and without ligatures."""
    return "".join(unicodedata.normalize("NFKC", text).split())


def lowest(page) -> float:
    """How far down the text of a page goes, 0 at its head and 1 at its foot."""
    ends = []

    def note(text, transform, matrix, *_) -> None:
        if len(text.strip()) > 3:  # not the page's number
            _, b, _, d, _, f = transform
            ends.append(b * matrix[4] + d * matrix[5] + f)

    page.extract_text(visitor_text=note)
    return 1 - min(ends) / float(page.mediabox.height)


def test_each_sheet_is_full_says_where_it_is_and_keeps_no_path(paper):
    """No path of this machine in a link."""
    sheets = paper("which-one").pages
    for sheet in sheets:
        text = sheet.extract_text()
        assert "Training on Many GPUs" in text
        assert sheet is sheets[0] or re.search(r"\d\.\d+ Which one", text)
        is_drawn = len(sheet.get_contents().get_data()) >= 5_000
        assert len(text) >= LEAST_LETTERS or is_drawn
        for note in sheet.get("/Annots") or []:
            action = note.get_object().get("/A", {})
            assert not str(action.get("/URI", "")).startswith("file:")
    assert "Contents" not in sheets[0].extract_text()


@pytest.mark.parametrize(
    ("page", "told", "least"),
    [
        ("splitting/pipeline", ".calculator-field label > span", 5),
        ("data-parallel/collectives", ".stepper-steps li", 4),
    ],
)
def test_what_is_set_and_all_steps_are_printed(paper, html_root, page, told, least):
    """In words, where a reader of the screen would move a slider or press a button."""
    said = soup(html_root, f"book/{page}").select(told)
    assert len(said) >= least
    text = letters("".join(p.extract_text() for p in paper(page.split("/")[1]).pages))
    names = [one.get_text().partition(" [")[0] for one in said]  # without the unit
    assert [name for name in names if letters(name) not in text] == []


def test_a_calculator_on_paper_has_no_fields_but_what_they_hold(visit):
    tab = visit(CALCULATORS)
    tab.emulate_media(media="print")
    fields = tab.locator(".calculator-fields :is(input, select)")
    looks = fields.evaluate_all(LOOKS)
    assert len(looks) > 20
    assert {tuple(look) for look in looks} == {("rgba(0, 0, 0, 0)", "none")}
    legend = tab.locator(".calculator-legend span[class^=part]").first
    exact = legend.evaluate("e => getComputedStyle(e, '::before').printColorAdjust")
    assert exact == "exact"


def test_calculators_leave_no_sheet_half_empty(paper):
    ends = [lowest(page) for page in paper("calculators").pages]
    assert [k for k, end in enumerate(ends[1:-1], 2) if end < 0.6] == []


def test_it_has_tags_an_outline_a_title_and_a_language(paper):
    printed = paper("which-one")
    catalog = printed.trailer["/Root"]
    assert "/StructTreeRoot" in catalog
    assert catalog["/MarkInfo"]["/Marked"]
    assert catalog["/Lang"] == "en"
    assert "Training on Many GPUs" in printed.metadata.title
    _, part, (chapter, sections) = printed.outline
    assert "Choosing" in part.title and "Which one" in chapter.title
    assert len(sections) > 3


def test_the_whole_book_keeps_links_styles_and_pictures(html_root, paper):
    """As if it had two chapters: it is long."""
    names = ["which-one", "calculators"]
    together = pdf.BeautifulSoup(pdf.whole_book(html_root, names), "html.parser")
    places = {tag["id"] for tag in together.select("[id]")}
    inner = [a["href"][1:] for a in together.select("a[href^='#']")]
    assert "choosing-which-one" in inner  # a link from the other chapter
    assert len(inner) > 20
    assert [link for link in inner if link not in places] == []
    assert together.select("h1.part + section.chapter > section > h2")
    assert not together.select("script, .bd-sidebar-primary")
    assert together.select("a:not([href])")  # to chapters that aren't in it
    files = [tag["href"] for tag in together.select("link[rel=stylesheet]")]
    files += [img["src"] for img in together.select("img[src]:not([src^='data:'])")]
    assert files
    for file in files:
        assert (html_root / "book" / file.split("?")[0]).is_file(), file
    links = paper(*names).named_destinations
    assert {"/choosing-which-one", "/choosing-calculators"} <= links.keys()
