"""Each page's buttons: the download runs alone, and no button leads nowhere."""

from __future__ import annotations

import ast
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup, SoupStrainer

from tests.rendered.test_pages import notebooks, pages
from workshop import standalone

pytestmark = pytest.mark.rendered
BUTTONS = SoupStrainer("div", class_="article-header-buttons")


def links(html_root: Path, page: str) -> list[str]:
    """Where the buttons above an article lead."""
    text = (html_root / f"{page}.html").read_text(encoding="utf-8")
    buttons = BeautifulSoup(text, "html.parser", parse_only=BUTTONS)
    assert buttons.find("button")
    return [link["href"] for link in buttons.select("a[href]")]


def downloads(html_root: Path, page: str) -> list[Path]:
    """The files that a page's download button offers."""
    here = (html_root / f"{page}.html").parent
    found = [link for link in links(html_root, page) if "_sources/" in link]
    return [(here / link).resolve() for link in found]


@pytest.mark.parametrize("page", notebooks())
def test_the_download_of_a_page_is_the_file_that_runs_alone(html_root, page):
    (file,) = downloads(html_root, page)
    assert file.name == f"{Path(page).name}.ipynb"
    assert file.stat().st_size <= standalone.MOST_BYTES
    cells = nbformat.read(file, as_version=4).cells
    assert "standalone" in [cell.id for cell in cells]
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert "\n    unpack(\n" in code[0].source
    assert [cell for cell in code if cell.outputs] == []
    ast.parse("\n".join(cell.source for cell in code))


@pytest.mark.parametrize("page", pages())
def test_every_button_leads_somewhere(html_root, page):
    """To a file that is there; out of the book, only where that has an address."""
    for file in downloads(html_root, page):
        assert file.is_file()
    outside = [link for link in links(html_root, page) if ":" in link]
    url = standalone.published().partition("/blob/")[0]
    launchers = 3 if page in notebooks() else 0  # Colab, Kaggle, Binder
    source = [link for link in outside if url and link.startswith(url)]
    assert len(source) == (3 if url else 0)  # the repository, edit, report
    assert not url or any(f"/edit/main/{page}." in link for link in source)
    assert not url or any("/issues/new?" in link and page in link for link in source)
    others = [link for link in outside if link not in source]
    assert len(others) == (launchers if url else 0)
    assert all(f"{page}.ipynb" in link for link in others)
