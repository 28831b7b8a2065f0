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

pytestmark = pytest.mark.rendered
PAGE = "book/choosing/which-one.html"
PIPELINE, CALCULATORS = "book/splitting/pipeline.html", "book/choosing/calculators.html"
LEAST_LETTERS = 60  # a page with fewer and no picture is as good as empty


@pytest.fixture(scope="module")
def paper(html_root, browser, tmp_path_factory) -> Callable[[str], PdfReader]:
    """Print a page of the book as `make pdf` does, once."""

    @functools.cache
    def print_it(page: str) -> PdfReader:
        target = tmp_path_factory.mktemp("pdf") / "page.pdf"
        context = browser.new_context(color_scheme="light")
        pdf.print_page(context.new_page(), html_root / page, target)
        context.close()
        return PdfReader(target)

    return print_it


@pytest.fixture(scope="module")
def printed(paper) -> PdfReader:
    """A chapter's PDF."""
    return paper(PAGE)


def letters(text: str) -> str:
    """A text without spaces, for a line may end anywhere, and without ligatures."""
    return "".join(unicodedata.normalize("NFKC", text).split())


def printed_letters(reader: PdfReader) -> str:
    return letters("".join(page.extract_text() for page in reader.pages))


def lowest(page) -> float:
    """How far down the text of a page goes, 0 at its head and 1 at its foot."""
    height, ends = float(page.mediabox.height), []

    def note(text, transform, matrix, *_) -> None:
        if len(text.strip()) > 3:  # not the page's number
            ends.append(
                transform[1] * matrix[4] + transform[3] * matrix[5] + transform[5]
            )

    page.extract_text(visitor_text=note)
    return 1 - min(ends) / height


def test_each_sheet_says_which_book_and_which_chapter_it_is(printed):
    for page in printed.pages:
        text = page.extract_text()
        assert "Training on Many GPUs" in text
        assert re.search(r"\d\.\d+ Which one", text)


def test_what_is_set_and_all_steps_are_printed(paper, html_root):
    """In words, where a reader of the screen would move a slider or press a button."""
    explorer = soup(html_root, "book/splitting/pipeline").select_one(
        ".pipeline-setting"
    )
    assert letters(explorer.get_text()) in printed_letters(paper(PIPELINE))
    ring = "book/data-parallel/collectives"
    steps = soup(html_root, ring).select(".stepper-steps li")
    text = printed_letters(paper(f"{ring}.html"))
    assert len(steps) > 3
    assert [step for step in steps if letters(step.get_text()) not in text] == []


def test_a_calculator_on_paper_has_no_fields_but_what_they_hold(html_root, browser):
    tab = browser.new_page()
    tab.emulate_media(media="print")
    tab.goto((html_root / CALCULATORS).as_uri())
    fields = tab.locator(".calculator-fields :is(input, select)")
    looks = fields.evaluate_all(
        """found => found.map(getComputedStyle).map(
            ({ borderTopColor, appearance }) => [borderTopColor, appearance])"""
    )
    legend = tab.locator(".calculator-legend span[class^=part]").first
    exact = legend.evaluate("e => getComputedStyle(e, '::before').printColorAdjust")
    tab.close()
    assert len(looks) > 20
    assert {tuple(look) for look in looks} == {("rgba(0, 0, 0, 0)", "none")}
    assert exact == "exact"


def test_calculators_leave_no_sheet_half_empty(paper):
    sheets = paper(CALCULATORS).pages
    ends = [lowest(page) for page in sheets]
    assert [k for k, end in enumerate(ends[:-1], 1) if end < 0.6] == []


def test_it_has_tags_an_outline_a_title_and_a_language(printed):
    catalog = printed.trailer["/Root"]
    assert "/StructTreeRoot" in catalog
    assert catalog["/MarkInfo"]["/Marked"]
    assert catalog["/Lang"] == "en"
    assert "Which one" in printed.metadata.title
    assert "Which one" in printed.outline[0].title
    assert len(printed.outline[1]) > 3  # the sections, below the title


def test_no_link_says_where_this_machine_keeps_the_book(printed):
    for page in printed.pages:
        for note in page.get("/Annots") or []:
            action = note.get_object().get("/A", {})
            assert not str(action.get("/URI", "")).startswith("file:")


def test_no_page_is_nearly_empty_and_none_begins_with_contents(printed):
    texts = [page.extract_text() for page in printed.pages]
    drawn = [len(page.get_contents().get_data()) for page in printed.pages]
    thin = [k for k, text in enumerate(texts) if len(text) < LEAST_LETTERS]
    assert [k for k in thin if drawn[k] < 5_000] == []
    assert "Contents" not in texts[0]


def test_a_pdf_is_offered_in_its_pages_menu_once(html_root, tmp_path):
    page = tmp_path / "which-one.html"
    page.write_bytes((html_root / PAGE).read_bytes())
    for _ in range(2):
        pdf.offer(page, page.with_suffix(".pdf"))
    menu = pdf.read(page).select_one(".dropdown-download-buttons ul")
    assert [a["href"] for a in menu.select("a[href$='.pdf']")] == ["which-one.pdf"]


@pytest.fixture
def together(html_root, monkeypatch):
    """The whole book as one page, as if it had two chapters: it is long."""
    folder = html_root.resolve() / "book" / "choosing"
    pages = [folder / "which-one.html", folder / "calculators.html"]
    monkeypatch.setattr(pdf, "parts", lambda root: [("7 · Choosing", pages)])
    return pdf.BeautifulSoup(pdf.whole_book(html_root), "html.parser")


def test_links_between_chapters_stay_in_the_whole_book(together):
    places = {tag["id"] for tag in together.select("[id]")}
    inner = [a["href"][1:] for a in together.select("a[href^='#']")]
    assert "choosing-which-one" in inner  # a link from the other chapter
    assert len(inner) > 20
    assert [link for link in inner if link not in places] == []
    assert together.select("h1.part + section.chapter > section > h2")
    assert not together.select("script, .bd-sidebar-primary")


def test_the_whole_book_finds_its_styles_and_pictures(together, html_root):
    wanted = [tag["href"] for tag in together.select("link[rel=stylesheet]")]
    wanted += [img["src"] for img in together.select("img[src]:not([src^='data:'])")]
    files = [html_root / "book" / link.split("?")[0] for link in wanted]
    assert files
    assert [file for file in files if not file.is_file()] == []


def test_the_whole_book_begins_with_its_contents_and_their_sheets(
    html_root, browser, tmp_path, together
):
    """Each entry is a link to its chapter, and names the sheet that this begins on."""
    source = html_root / "book" / "together.html"
    source.write_text(str(together), encoding="utf-8")
    context = browser.new_context(color_scheme="light")
    target, tab = tmp_path / "whole.pdf", context.new_page()
    pdf.print_page(tab, source, target)
    sheets = pdf.sheets_of(target)
    source.write_text(pdf.whole_book(html_root, sheets), encoding="utf-8")
    pdf.print_page(tab, source, target)
    source.unlink()
    context.close()
    assert pdf.sheets_of(target) == sheets
    texts = [page.extract_text() for page in PdfReader(target).pages]
    listed = re.findall(r"(?m)^(\d\.\d+ .+?) ?(\d+)$", texts[0])
    assert len(listed) == 2
    for title, sheet in listed:
        assert title in texts[int(sheet) - 1]
        assert title not in texts[int(sheet) - 2] or sheet == "2"
