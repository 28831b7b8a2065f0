"""What makes a chapter run again, and in which order they run."""

from __future__ import annotations

import nbformat
import pytest

from workshop import keys, pages
from workshop.keys import ROOT, Keys, key
from workshop.needs import file_of
from workshop.tests.small_book import notebook


@pytest.mark.parametrize(
    ("changed", "again"),
    [("start/one_device.py", True), ("splitting/pipeline.py", False)],
)
def test_a_chapter_runs_again_if_what_it_uses_changed(
    tmp_path, monkeypatch, changed, again
):
    source = notebook(tmp_path / "a.ipynb", "from manygpu.scratch import train_batch")
    before, file = key(source, {}), ROOT / "manygpu" / "scratch" / changed
    other = tmp_path / "other.py"
    other.write_text(file.read_text(encoding="utf-8") + "# more\n", encoding="utf-8")
    monkeypatch.setattr(
        keys, "file_of", lambda m: other if (found := file_of(m)) == file else found
    )
    assert (key(source, {}) != before) == again


def test_a_chapter_runs_again_if_a_file_changed_that_its_modules_read(
    tmp_path, monkeypatch
):
    source = notebook(tmp_path / "a.ipynb", "import manygpu.simulate.cluster")
    before, other = key(source, {}), tmp_path / "links.csv"
    (file,) = keys.reads("manygpu.simulate.cluster")
    other.write_bytes(file.read_bytes() + b"more\n")
    declared = keys.reads
    monkeypatch.setattr(
        keys, "reads", lambda m: [other if p == file else p for p in declared(m)]
    )
    assert key(source, {}) != before


def test_a_chapter_runs_again_if_it_or_its_surroundings_changed(tmp_path, monkeypatch):
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    source = notebook(tmp_path / "chapter.ipynb", "1 + 1")
    off = key(source, {})
    assert key(source, {"MANYGPU_DEVICES": "3"}) != off
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
    before = key(source, {})
    assert before != off
    executed = nbformat.read(source, as_version=4)
    executed.cells[0].outputs = [nbformat.v4.new_output("stream", text="2\n")]
    nbformat.write(executed, source)
    assert key(source, {}) == before  # outputs alone change nothing
    notebook(source, "1 + 2")
    assert key(source, {}) != before


def test_keys_are_kept_from_one_run_to_the_next(tmp_path):
    assert not Keys(tmp_path).fresh("a", "1")
    Keys(tmp_path).note("a", "1")
    assert Keys(tmp_path).fresh("a", "1")
    assert not Keys(tmp_path).fresh("a", "2")
    assert not Keys(tmp_path).fresh("b", "1")
    assert [p.name for p in tmp_path.iterdir()] == ["keys.json"]


def test_the_reading_order_is_that_of_the_contents():
    order = pages.reading_order()
    assert order[0] == "book/start/two-devices"
    files = [p.relative_to(ROOT) for p in ROOT.glob("book/*/*.ipynb")]
    assert sorted(order) == sorted(p.with_suffix("").as_posix() for p in files)
    assert [page for part in pages.parts() for page in part] == order
