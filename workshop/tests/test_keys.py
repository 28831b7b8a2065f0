"""What makes a chapter run again, and in which order they run."""

from __future__ import annotations

import nbformat
import pytest

from workshop import pages
from workshop.keys import ROOT, Keys, key, modules
from workshop.needs import Package
from workshop.tests.small_book import notebook


@pytest.fixture
def package(tmp_path) -> Package:
    """A package of two modules that chapters built, one on the other."""
    scratch = tmp_path / "manygpu" / "scratch"
    scratch.mkdir(parents=True)
    (scratch.parent / "__init__.py").write_text("", encoding="utf-8")
    lines = "from manygpu.scratch.a import fa\nfrom manygpu.scratch.b import fb\n"
    (scratch / "__init__.py").write_text(lines, encoding="utf-8")
    a = "def fa():\n    return 1\n"
    (scratch / "a.py").write_text(a, encoding="utf-8")
    b = "from manygpu.scratch.a import fa\nfb = lambda: fa()\n"
    (scratch / "b.py").write_text(b, encoding="utf-8")
    return Package(tmp_path)


@pytest.mark.parametrize(
    ("code", "changed", "again"),
    [
        ("from manygpu.scratch import fa", "a", True),
        ("from manygpu.scratch import fa", "b", False),
        ("from manygpu.scratch import fb", "a", True),
        ("from manygpu import scratch\nscratch.fb()", "a", True),
        ("from manygpu import scratch\nscratch.fa()", "b", False),
        ("import math", "a", False),
    ],
)
def test_a_chapter_runs_again_if_what_it_uses_changed(
    tmp_path, package, code, changed, again
):
    source = notebook(tmp_path / "chapter.ipynb", code)
    before = key(source, {}, package)
    assert key(source, {}, Package(package.root)) == before
    file = package.root / "manygpu" / "scratch" / f"{changed}.py"
    file.write_text(file.read_text(encoding="utf-8") + "# more\n", encoding="utf-8")
    assert (key(source, {}, Package(package.root)) != before) == again


def test_a_chapter_runs_again_if_it_or_its_surroundings_changed(
    tmp_path, package, monkeypatch
):
    source = notebook(tmp_path / "chapter.ipynb", "1 + 1")
    before = key(source, {}, package)
    assert key(source, {"MANYGPU_DEVICES": "3"}, package) != before
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    off = key(source, {}, package)
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
    assert key(source, {}, package) != off
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS")
    notebook(source, "1 + 2")
    assert key(source, {}, package) != before


def test_outputs_alone_change_nothing(tmp_path, package):
    source = notebook(tmp_path / "chapter.ipynb", "print(1)")
    before = key(source, {}, package)
    executed = nbformat.read(source, as_version=4)
    executed.cells[0].outputs = [nbformat.v4.new_output("stream", text="1\n")]
    nbformat.write(executed, source)
    assert key(source, {}, package) == before


def test_the_chapters_of_the_book_need_what_they_import():
    package = Package()
    needed = modules(ROOT / "book" / "data-parallel" / "collectives.ipynb", package)
    assert "manygpu.scratch.data_parallel.all_reduce" in needed
    assert "manygpu.scratch.splitting.pipeline" not in needed


def test_keys_are_kept_from_one_run_to_the_next(tmp_path):
    assert not Keys(tmp_path).fresh("a", "1")
    Keys(tmp_path).note("a", "1")
    assert Keys(tmp_path).fresh("a", "1")
    assert not Keys(tmp_path).fresh("a", "2")
    assert not Keys(tmp_path).fresh("b", "1")
    assert [p.name for p in tmp_path.iterdir()] == ["keys.json"]


def test_the_reading_order_is_that_of_the_contents():
    order = pages.reading_order()
    assert order[0] == "book/start/devices"
    files = [p.relative_to(ROOT) for p in ROOT.glob("book/*/*.ipynb")]
    assert sorted(order) == sorted(p.with_suffix("").as_posix() for p in files)
    assert [page for part in pages.parts() for page in part] == order
