"""What `make book` copies, and one chapter alone."""

import io
import subprocess
import sys
from types import SimpleNamespace

import pytest
from docutils import nodes

from workshop import build
from workshop.extensions import search_weights
from workshop.pages import reading_order

PAGES = list(reading_order())


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


HANGS = """
import threading
def test_hangs():
    threading.Event().wait()
def test_is_quick():
    pass
"""


def test_a_test_that_hangs_is_ended_with_its_stack_and_named(monkeypatch, tmp_path):
    said = []

    def run(*words, **variables):
        command = [sys.executable, *map(str, words), "-p", "no:cacheprovider"]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=100
        )
        said.append((done.returncode, done.stdout, done.stderr))

    (tmp_path / "test_one.py").write_text(HANGS, encoding="utf-8")
    monkeypatch.setattr(build, "python", run)
    monkeypatch.setattr(build, "PATIENCE_S", 1)
    build.pytest_on("test_one.py")
    ((code, out, err),) = said
    assert code == 1 and "1 failed, 1 passed" in out
    assert "crashed while running 'test_one.py::test_hangs'" in out
    assert 'test_one.py", line 4 in test_hangs' in err


def test_a_chapter_may_run_where_another_one_has(monkeypatch, tmp_path):
    ran = []
    monkeypatch.setattr(build, "EXECUTED", tmp_path)
    monkeypatch.setattr(build, "execute_and_keep", lambda *a: ran.append(a[0]))
    for page in ("book/start/devices", "book/start/one-device"):
        build.run_chapter(page)
    assert ran == [["book/start/devices"], ["book/start/one-device"]]


def test_a_chapter_is_rendered_alone_though_search_words_name_others(monkeypatch):
    """Of a whole book, a page that isn't there is a mistake in _config.yml."""
    monkeypatch.setattr(search_weights, "weights", lambda pages: {})
    env = SimpleNamespace(chapters={}, get_doctree=lambda page: None, metadata={})
    env.titles = {"alone": nodes.title("", "Alone")}
    config = SimpleNamespace(search_words={"other": ["word"]})
    app = SimpleNamespace(env=env, config=config, builder=SimpleNamespace())
    index = search_weights.WeightedIndex(app)
    monkeypatch.setattr(index, "counts", lambda *page: {})
    index.dump({"docnames": ["alone"]}, io.StringIO())
    with pytest.raises(search_weights.ExtensionError, match="no page {'other'}"):
        index.dump({"docnames": ["one", "two"]}, io.StringIO())
