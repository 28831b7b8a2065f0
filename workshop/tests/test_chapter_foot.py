"""What the foot of a chapter says, with and without addresses."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest
from bs4 import BeautifulSoup
from pybtex.database import parse_string

from workshop.extensions import chapter_foot

TEMPLATES = Path(chapter_foot.__file__).parent / "templates"
CITED = {"title": "A Book", "version": "1.2", "authors": [{"name": "The authors"}]}
FOOT = {
    "name": "pipeline",
    "is_notebook": True,
    "colab": "",
    "report": "",
    "slides": "",
    "bibtex": "@misc{a, title = {<b>}}",
}
ADDRESSES = {
    "colab": "https://colab.example/pipeline.ipynb",
    "report": "https://code.example/issues/new?title=a",
    "slides": "https://pages.example/slides/pipeline.html",
}


def rendered(**more: object) -> BeautifulSoup:
    """The foot of a chapter of a book that has the page on how to run it."""
    found = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES))
    text = found.get_template("chapter-foot.html").render(
        foot=FOOT | more,
        pagename="book/splitting/pipeline",
        pathto=lambda page, is_file=0: page if is_file else f"{page}.html",
        hasdoc=lambda page: True,
    )
    return BeautifulSoup(text, "html.parser")


def test_with_addresses_the_foot_links_to_them():
    links = {a["href"] for a in rendered(**ADDRESSES)("a")}
    assert links >= {*ADDRESSES.values()}
    assert not any("running.html" in link for link in links)


def test_without_addresses_the_foot_says_what_to_do():
    foot = rendered()
    links = {a["href"] for a in foot("a")}
    page = "book/back/running.html"
    assert links >= {f"{page}#{x}" for x in ("on-colab-or-kaggle", "slides")}
    assert f"{page}#report-a-mistake" in links
    assert "_sources/book/splitting/pipeline.ipynb" in links
    assert "make slides C=pipeline" in foot.get_text()


def test_a_page_that_is_no_notebook_has_nothing_to_run():
    assert "Run" not in [term.get_text() for term in rendered(is_notebook=False)("dt")]


def test_the_citation_is_text():
    foot = rendered()
    assert foot.find("pre").get_text().strip() == FOOT["bibtex"]


@pytest.mark.parametrize("url", ["", "https://a.example/pipeline.html"])
def test_a_citation_can_be_read_by_bibtex(url):
    said = chapter_foot.bibtex(CITED, "2026", "Chapter 4.3: Pipeline", "pipeline", url)
    ((key, entry),) = parse_string(said, "bibtex").entries.items()
    assert key == "manygpu2026-pipeline"
    assert entry.fields["note"] == "Chapter 4.3: Pipeline"
    assert entry.fields.get("url", "") == url
    assert str(entry.persons["author"][0]) == "{The authors}"


def test_a_chapter_without_an_address_has_the_books():
    cited = CITED | {"url": "https://a.example/"}
    assert "url = {https://a.example/}" in chapter_foot.bibtex(cited, "2026")
    assert "note" not in chapter_foot.bibtex(cited, "2026")


def test_people_are_named_as_bibtex_wants():
    named = {"family-names": "Li", "given-names": "Mu"}
    assert chapter_foot.author(named) == "Li, Mu"


def test_a_report_names_the_page():
    url = chapter_foot.report_url("https://code.example/a", "book/a b")
    assert url == "https://code.example/a/issues/new?title=Mistake%20on%20book/a%20b"
    assert chapter_foot.report_url("", "book/a") == ""


def test_buttons_in_menus_are_found():
    menu = {"type": "group", "buttons": [{"text": "Colab", "url": "https://c.example"}]}
    found = [*chapter_foot.links_of([{"text": "no link"}, menu])]
    assert found == menu["buttons"]


def test_the_books_own_citation_is_whole():
    said = chapter_foot.bibtex(chapter_foot.citation(), "2026")
    assert "Training on Many GPUs" in said and "authors" in said
