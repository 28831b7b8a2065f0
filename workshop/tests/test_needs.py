"""What a chapter needs of the package: no less, for it must run, and no more."""

from __future__ import annotations

import pytest

from workshop import needs

MODULES = {
    "__init__": "",
    "checks": "",
    "data": "",
    "far": "",
    "bench": "def times():\n    from tiny_book.scratch.many import step\n",
    "scratch.__init__": (
        "from tiny_book.scratch.one import lenet\n"
        "from tiny_book.scratch.many import step, train\n"
        "from tiny_book.scratch.alone import lonely\n"
    ),
    "scratch.one": "def lenet(): ...\n",
    "scratch.many": (
        "from tiny_book import checks\nfrom tiny_book.data import load\n"
        "from tiny_book.scratch.one import lenet\n"
    ),
    "scratch.alone": "from tiny_book import far\nlonely = 1\n",
}
MANY = "scratch scratch.many scratch.one checks data"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A small package in which each module is needed for a reason of its own."""
    for name, text in MODULES.items():
        file = tmp_path.joinpath("tiny_book", *name.split(".")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for name, now in (("PACKAGE", ""), ("SCRATCH", ".scratch")):
        monkeypatch.setattr(needs, name, f"tiny_book{now}")
    monkeypatch.setattr(needs, "ROOT", tmp_path)
    for cached in (needs.graph, needs.exports, needs.direct):
        monkeypatch.setattr(needs, cached.__name__, cached.__wrapped__)


@pytest.mark.parametrize(
    "code, right",
    [
        ("import numpy", None),
        ("import tiny_book", ""),
        ("from tiny_book import checks", "checks"),
        ("from tiny_book.scratch import lenet", "scratch scratch.one"),
        ("from tiny_book.scratch.one import lenet", "scratch scratch.one"),
        ("from tiny_book.scratch import lonely", "scratch scratch.alone far"),
        ("from tiny_book import scratch\nscratch.lenet()", "scratch scratch.one"),
        ("def later():\n    from tiny_book import bench", f"bench {MANY}"),
        (
            "from tiny_book import scratch\ngetattr(scratch, 'step')",
            f"{MANY} scratch.alone far",
        ),
        ("from tiny_book.scratch import *", f"{MANY} scratch.alone far"),
        ('PROGRAM = """\nimport tiny_book.bench\n"""', f"bench {MANY}"),
    ],
)
def test_what_is_needed_is_found_and_nothing_else(package, code, right):
    found = [f"tiny_book.{name}" for name in (right or "").split()]
    root = [] if right is None else ["tiny_book"]
    assert needs.needed(code) == sorted(root + found)


def test_a_name_that_scratch_does_not_export_is_refused(package):
    with pytest.raises(ValueError, match="exports no 'leent': run `make export`"):
        needs.direct("from tiny_book.scratch import leent")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('A = data_file("far/a.csv")', ["a.csv"]),
        ('B = data_folder("far", "*.csv", "b.json")', ["a.csv", "b.json"]),
        ('C = 1  # data_file("far/gone.csv")', []),
    ],
)
def test_what_a_module_declares_is_what_it_reads(package, tmp_path, line, found):
    for name in ("a.csv", "b.json", "c.txt"):
        (tmp_path / "tiny_book" / "far").mkdir(exist_ok=True)
        (tmp_path / "tiny_book" / "far" / name).touch()
    (tmp_path / "tiny_book" / "checks.py").write_text(line, encoding="utf-8")
    read = needs.reads.__wrapped__("tiny_book.checks")
    assert [path.name for path in read] == found


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("data_file(NAME)", "line 2: paths must be texts"),
        ("data_file('far/' + NAME)", "line 2: paths must be texts"),
        ("data_file(path='checks.py')", "line 2: paths must be texts"),
        ("data_file('gone.csv')", "line 2: it must name files that are there"),
        ("data_folder('scratch')", "line 2: it must name files that are there"),
        ("data_folder('scratch', '*.csv')", "line 2: it must name files that are"),
    ],
)
def test_a_declaration_that_can_not_be_read_is_refused(package, tmp_path, call, said):
    text = f"NAME = 'checks.py'\nFILE = {call}\n"
    (tmp_path / "tiny_book" / "checks.py").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=said):
        needs.reads.__wrapped__("tiny_book.checks")


def test_no_module_takes_from_scratch_as_a_whole():
    """What it needs would not be known; a notebook's names are looked up."""
    assert needs.graph().find_modules_that_directly_import(needs.SCRATCH) == set()
