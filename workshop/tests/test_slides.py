"""Slides: a chapter's figures, first code and summary, with its prose beside them."""

from __future__ import annotations

import nbformat
import pytest
from bs4 import BeautifulSoup

from workshop import slides
from workshop.pages import reading_order

FIGURE = '<figure class="manygpu-figure"><svg></svg></figure>'
HERE = '<p class="manygpu-here"><b>Here:</b> it is 3.</p>'
GUESS = '<p class="manygpu-here manygpu-guess"><b>Guess first:</b> how many?</p>'
TOLD = '<p class="manygpu-here manygpu-told"><b>Guess:</b> measured 3.</p>'
OPENING = """# A chapter

> What is asked?

- **Needs:** nothing
- **Time:** 5 minutes
- **You build:** a `slide`

Prose that is told, with a [link](other.ipynb)."""
FIRST_CODE = "def first():\n    # the first\n    return 1"
LONG = "def second():\n    # the second\n    return 2"
CELLS = [
    OPENING,
    (FIRST_CODE, []),
    (LONG, []),
    "## It draws\n\nLook at it.",
    ("a = 1\nb = 2\nfigures.draw(a, b)", [FIGURE]),
    ("here.show(3)", [HERE]),
    "## It asks",
    ("guess()", [GUESS]),
    ("told()", [TOLD]),
    "### Only told\n\nThis is [said](one.ipynb) {cite}`zhang2023d2l`.\n\n"
    "This is not seen.",
    "## Summary\n\n- One point.\n- Another.",
]


def made(cell: str | tuple[str, list[str]]) -> dict:
    """A notebook's cell: prose, or code with what it showed."""
    v4 = nbformat.v4
    if isinstance(cell, str):
        return v4.new_markdown_cell(cell)
    code, shown = cell
    outputs = [v4.new_output("display_data", {"text/html": each}) for each in shown]
    return v4.new_code_cell(code, outputs=outputs, execution_count=1)


@pytest.fixture(scope="module")
def deck(tmp_path_factory):
    """The folder that was written, and the slides of its one chapter."""
    root = tmp_path_factory.mktemp("slides")
    language = {"language_info": {"name": "python"}}
    notebook = nbformat.v4.new_notebook(cells=[*map(made, CELLS)], metadata=language)
    nbformat.write(notebook, root / "one.ipynb")
    slides.write_slides({"one": root / "one.ipynb"}, root / "out")
    page = (root / "out" / "one.html").read_text(encoding="utf-8")
    soup = BeautifulSoup(page, "html.parser")
    return root / "out", [s for s in soup.select("section") if not s.section]


def seen(slide) -> str:
    """The text of a slide without its notes."""
    return slide.get_text(" ").replace(told(slide), "")


def told(slide) -> str:
    """The text of a slide's notes."""
    return slide.aside.get_text(" ") if slide.aside else ""


def test_slides_are_what_a_room_looks_at(deck):
    titles = [slide.find(["h1", "h2"]).get_text() for slide in deck[1]]
    asked = ["It asks", "It asks", "Only told", "Summary"]
    assert titles == ["A chapter", "A chapter", "It draws", *asked]
    first, code, drawn, asks, tells, only, summary = deck[1]
    assert "how many?" in seen(asks) and "measured" not in seen(asks)
    assert "measured 3" in seen(tells)
    assert "What is asked?" in seen(first)
    assert "You build: a slide" in " ".join(seen(first).split())
    assert code.code.get_text().strip() == FIRST_CODE
    assert drawn.figure
    assert "it is 3" in seen(drawn)
    assert not drawn.code
    assert only.p.get_text() == "This is said."
    assert not only.select("a[href]")
    assert [point.get_text(strip=True) for point in summary.select("li")] == [
        "One point.",
        "Another.",
    ]


def test_prose_is_in_the_notes(deck):
    _, code, drawn, _, _, only, _ = deck[1]
    assert told(code) == "Prose that is told, with a link."
    assert told(drawn) == "Look at it."
    assert "This is not seen." in told(only)
    assert not any("This is not seen." in seen(slide) for slide in deck[1])


def test_no_other_host_is_asked(deck):
    folder, _ = deck
    soup = BeautifulSoup((folder / "one.html").read_text("utf-8"), "html.parser")
    asked = [s["src"] for s in soup.select("script[src]")]
    asked += [s["href"] for s in soup.select("link[rel=stylesheet]")]
    files = [(folder / place.partition("?")[0]) for place in asked]
    assert files
    assert [file for file in files if not file.is_file()] == []
    beside = {"one.ipynb", folder.name}  # nothing is left where the folder lies
    assert {each.name for each in folder.parent.iterdir()} == beside
    assert "one.html" in (folder / "index.html").read_text(encoding="utf-8")


def test_each_chapter_has_slides_and_no_other_page():
    found = slides.chapters()
    assert [*found][:5][-1] == "how-clusters-run"
    assert found["how-clusters-run"].suffix == ".md"
    assert len(found) == 1 + len(reading_order())


def test_a_page_of_prose_shows_its_code_and_tables(tmp_path):
    page = slides.chapters()["how-clusters-run"]
    slides.write_slides({"how": page}, tmp_path / "out")
    soup = BeautifulSoup(
        (tmp_path / "out" / "how.html").read_text("utf-8"), "html.parser"
    )
    assert len(soup.select("section section table")) == 1
    assert "split_batch" in soup.select_one("section pre").get_text()
    assert soup.select("main, [role=main]")


def test_what_is_no_chapter_is_refused():
    with pytest.raises(SystemExit, match="C must be one of .*pipeline.*'pipelines'"):
        slides.main(["pipelines"])
