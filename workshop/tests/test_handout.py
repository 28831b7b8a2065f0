"""What a teacher hands out holds no answer, and is a book all the same."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile

import pytest

from workshop import build, dist, handout
from workshop.pages import ROOT
from workshop.tests import small_book

SMALL = {
    "_toc.yml": "- file: book/start/devices\n- file: book/back/solutions\n",
    "book/start/devices.ipynb": "{}",
    "book/back/solutions.md": "def my_answer",
    "solutions/devices.py": "def my_answer",
    "tests/quick/exercises/answers/start.py": "def my_answer",
    "workshop/tests/test_x.py": "def my_answer",
    "left.txt": "def my_answer",
}


def test_a_hand_out_has_the_book_and_no_answer(tmp_path):
    root, target = tmp_path / "root", tmp_path / "out"
    small_book.write(root, SMALL)
    for words in (["init", "-q"], ["add", "_toc.yml", *[*SMALL][1:-1]]):
        subprocess.run(["git", *words], cwd=root, check=True)
    assert handout.write(target, root) == 2
    book = target / "book-of-manygpu"
    there = {p.relative_to(book).as_posix() for p in book.rglob("*") if p.is_file()}
    assert there == {"_toc.yml", "book/start/devices.ipynb"}
    contents = (book / "_toc.yml").read_text(encoding="utf-8")
    assert contents == "- file: book/start/devices\n"
    packed = zipfile.ZipFile(target / "book-of-manygpu.zip").namelist()
    assert {name for name in packed if not name.endswith("/")} == {
        f"book-of-manygpu/{name}" for name in there
    }


def test_what_holds_answers_here_is_left_out():
    files = [p.relative_to(ROOT).as_posix() for p in (ROOT / "solutions").glob("*.py")]
    page = f"{build.SOLUTIONS}.md"
    assert len(files) > 40 and (ROOT / page).is_file()
    assert handout.handed_out([*files, page, "tests/unit/helpers.py"]) == []
    assert handout.handed_out(["book/back/teaching.md"]) == ["book/back/teaching.md"]


def test_what_is_no_clone_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(handout, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(ValueError, match="must be a clone made by git"):
        handout.write(tmp_path / "out", tmp_path)


def test_a_copy_that_was_handed_out_renders_without_the_page(monkeypatch, tmp_path):
    monkeypatch.delenv("SOLUTIONS", raising=False)
    monkeypatch.setattr(build, "ROOT", tmp_path)
    assert not build.with_solutions()


def test_an_archive_that_holds_answers_is_named(tmp_path):
    wheel, sdist = tmp_path / "manygpu-1.whl", tmp_path / "manygpu-1.tar.gz"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("manygpu/exercises/asked/start.py", "")
        packed.writestr("tests/quick/test_x.py", "")
    (tmp_path / "x.py").write_text("")
    with tarfile.open(sdist, "w:gz") as packed:
        packed.add(tmp_path / "x.py", "manygpu-1/solutions/devices.py")
        packed.add(tmp_path / "x.py", "manygpu-1/manygpu/devices.py")
    assert dist.answers_in(wheel) == ["tests/quick/test_x.py"]
    assert dist.answers_in(sdist) == ["manygpu-1/solutions/devices.py"]
