"""A page on paper: what a reader of its PDF finds, and what stays on the screen."""

from __future__ import annotations

import re

import pytest
from pypdf import PdfReader

from tools import pdf

pytestmark = pytest.mark.rendered
PAGE = "book/choosing/which-one.html"
LEAST_LETTERS = 60  # a page with fewer and no picture is as good as empty


@pytest.fixture(scope="module")
def printed(html_root, browser, tmp_path_factory) -> PdfReader:
    """A chapter's PDF, printed as `make pdf` does."""
    target = tmp_path_factory.mktemp("pdf") / "which-one.pdf"
    context = browser.new_context(color_scheme="light")
    pdf.print_page(context.new_page(), html_root / PAGE, target)
    context.close()
    return PdfReader(target)


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
    assert re.search(r"\d+\.\d+\s+Which one", texts[0][:40])  # its number: 1


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
