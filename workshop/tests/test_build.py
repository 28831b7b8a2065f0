"""What `make book` copies, and shows of chapters that have not run yet."""

import io
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

from workshop import build
from workshop.extensions import search_weights
from workshop.pages import reading_order

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


# Copies, and one chapter alone


def test_a_copy_has_every_file_and_no_old_one(tmp_path):
    kept = "book/start/devices"
    mine, old = tmp_path / f"{kept}.ipynb", tmp_path / "book/start/old.ipynb"
    mine.parent.mkdir(parents=True)
    mine.write_text("executed", encoding="utf-8")
    old.write_text("of a chapter that is gone", encoding="utf-8")
    build.copy_pages(tmp_path, [kept])
    for page in PAGES:
        name = f"{page}.ipynb" if (build.ROOT / f"{page}.ipynb").is_file() else None
        assert name is None or (tmp_path / name).is_file()
    assert (tmp_path / "workshop/static/book.css").is_file() and not old.exists()
    assert mine.read_text(encoding="utf-8") == "executed"


@pytest.mark.parametrize(("cores", "some"), [(None, 1), (1, 1), (2, 2), (64, 4)])
def test_so_many_notebooks_run_at_once(monkeypatch, cores, some):
    monkeypatch.setattr(build.os, "cpu_count", lambda: cores)
    assert build.at_once() == some


def test_a_chapter_may_run_where_another_one_has(monkeypatch, tmp_path):
    ran = []
    monkeypatch.setattr(build, "EXECUTED", tmp_path)
    monkeypatch.setattr(build, "execute_and_keep", lambda *a: ran.append(a[0]))
    for page in ("book/start/devices", "book/start/one-device"):
        build.run_chapter(page)
    assert ran == [["book/start/devices"], ["book/start/one-device"]]


@pytest.mark.parametrize(
    ("platform", "display", "opens"),
    [("linux", "", 0), ("linux", ":0", 1), ("darwin", "", 1), ("win32", "", 1)],
)
def test_a_page_is_opened_where_there_is_a_display(
    monkeypatch, tmp_path, platform, display, opens
):
    page, opened = "book/start/devices", []
    monkeypatch.setattr(build, "BUILD", tmp_path)
    monkeypatch.setattr(build, "EXECUTED", build.ROOT)
    monkeypatch.setattr(build, "jupyter_book", lambda *a: None)
    monkeypatch.setattr(build.sys, "platform", platform)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.setattr(build.webbrowser, "open", opened.append)
    build.chapter_page(page)
    assert len(opened) == opens
    assert all(Path(address).name == "devices.html" for address in opened)


def test_a_chapter_is_rendered_alone_though_search_words_name_others(monkeypatch):
    """Of a whole book, a page that isn't there is a mistake in _config.yml."""
    monkeypatch.setattr(search_weights, "weights", lambda pages: {})
    env = SimpleNamespace(chapters={}, get_doctree=lambda page: None)
    config = SimpleNamespace(search_words={"other": ["word"]})
    index = search_weights.WeightedIndex(SimpleNamespace(env=env, config=config))
    monkeypatch.setattr(index, "counts", lambda *page: {})
    index.dump({"docnames": ["alone"]}, io.StringIO())
    with pytest.raises(search_weights.ExtensionError, match="no page {'other'}"):
        index.dump({"docnames": ["one", "two"]}, io.StringIO())
