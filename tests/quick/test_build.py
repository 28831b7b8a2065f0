"""What `make book` shows of chapters that have not run yet."""

import nbformat
import pytest

from tools import build
from tools.pages import reading_order

PAGES = list(reading_order())


@pytest.fixture
def pending(tmp_path, monkeypatch):
    """Each page, marked as one that has not run: {page: its notebook}."""
    monkeypatch.setattr(build, "EXECUTED", tmp_path)
    build.mark_pending(PAGES, PAGES)
    read = {p: tmp_path / f"{p}.ipynb" for p in PAGES}
    return {p: nbformat.read(path, as_version=4) for p, path in read.items()}


def texts(notebook):
    return [c.source for c in notebook.cells if c.cell_type == "markdown"]


def test_a_page_that_has_not_run_says_so_and_when_it_will(pending):
    for place, page in enumerate(PAGES, 1):
        note = texts(pending[page])[1]
        assert "has not run yet" in note
        assert f"as {place} of {len(PAGES)};" in note


def test_a_page_that_has_not_run_links_to_none_of_its_figures(pending):
    """They aren't there: Sphinx would end the build at each such link."""
    linked = 0
    for page in PAGES:
        source = nbformat.read(build.ROOT / f"{page}.ipynb", as_version=4)
        linked += sum("](#figure-" in t or "](#table-" in t for t in texts(source))
        for text in texts(pending[page]):
            assert "](#figure-" not in text and "](#table-" not in text
    assert linked


def test_what_such_a_link_said_stays_in_the_sentence(monkeypatch, tmp_path):
    page = "book/choosing/side-by-side"
    source = nbformat.read(build.ROOT / f"{page}.ipynb", as_version=4)
    sentence = next(t for t in texts(source) if "[Figure](#figure-times)" in t)
    monkeypatch.setattr(build, "EXECUTED", tmp_path)
    build.mark_pending([page], [page])
    shown = texts(nbformat.read(tmp_path / f"{page}.ipynb", as_version=4))
    assert sentence.replace("[Figure](#figure-times)", "Figure") in shown
