"""Each page's buttons: the download runs alone, and no button leads nowhere."""

from __future__ import annotations

import ast
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup, SoupStrainer

from tests.rendered.test_pages import pages
from workshop import standalone
from workshop.pages import reading_order

BUTTONS = SoupStrainer("div", class_="article-header-buttons")


@pytest.mark.parametrize("page", pages())
def test_every_button_leads_somewhere(html_root, page):
    """To a file that is there; out of the book, only where that has an address."""
    file = html_root / f"{page}.html"
    buttons = BeautifulSoup(file.read_text("utf-8"), "html.parser", parse_only=BUTTONS)
    assert buttons.find("button")
    links = [link["href"] for link in buttons.select("a[href]")]
    downloads = [(file.parent / x).resolve() for x in links if "_sources/" in x]
    assert [file for file in downloads if not file.is_file()] == []
    is_notebook = page in reading_order()
    if is_notebook:
        (alone,) = downloads
        assert alone.name == f"{Path(page).name}.ipynb"
        runs_alone(alone)
    outside = [link for link in links if ":" in link]
    url = standalone.published().partition("/blob/")[0]
    source = [link for link in outside if url and link.startswith(url)]
    assert len(source) == (3 if url else 0)  # the repository, edit, report
    assert not url or any(f"/edit/main/{page}." in link for link in source)
    assert not url or any("/issues/new?" in link and page in link for link in source)
    launchers = [link for link in outside if link not in source]
    assert len(launchers) == (3 if url and is_notebook else 0)  # Colab, Kaggle, Binder
    assert all(f"{page}.ipynb" in link for link in launchers)


def runs_alone(notebook: Path) -> None:
    """A notebook carries what it needs, is light, has no output, and is Python."""
    assert notebook.stat().st_size <= standalone.MOST_BYTES
    cells = nbformat.read(notebook, as_version=4).cells
    assert "standalone" in [cell.id for cell in cells]
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert "\nunpack(\n" in code[0].source
    assert [cell for cell in code if cell.outputs] == []
    ast.parse("\n".join(cell.source for cell in code))
