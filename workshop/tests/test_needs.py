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


def test_no_module_takes_from_scratch_as_a_whole():
    """What it needs would not be known; a notebook's names are looked up."""
    assert needs.graph().find_modules_that_directly_import(needs.SCRATCH) == set()
