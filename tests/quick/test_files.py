"""What a module reads of the package's files is declared, in one way."""

from __future__ import annotations

import ast
import fnmatch
import re

import pytest

from manygpu import _files
from workshop.needs import PACKAGE, ROOT, graph, reads

HOME = ROOT / PACKAGE
# Where else the package's own folder may be asked for, and why.
ALLOWED = {
    "_files.py": "all others ask it",
    "exercises/fence.py": "the book's answers lie beside the package in a clone",
    "exercises/grading.py": "the chapter that was handed out lies beside the package",
    "exercises/one_notebook.py": "a learner's process is told where the package is",
}
# Files that no module declares, and why.
UNDECLARED = {
    "datasets/fashion-mnist/*": "a single file carries fewer images, in another folder",
    "records/machines/README.md": "for people who add a machine",
}
# What leads to a module's own place.
PLACES = {"__file__", "__path__", "resources", "get_data", "getfile", "getsourcefile"}


def names_of(node: ast.AST) -> set[str]:
    """The names that a piece of code uses or imports."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        parts = [alias.name for alias in node.names] + [getattr(node, "module", "")]
        return {word for part in parts for word in (part or "").split(".")}
    return {getattr(node, "id", ""), getattr(node, "attr", "")}


@pytest.mark.parametrize(
    "file", sorted(HOME.rglob("*.py")), ids=lambda p: p.relative_to(HOME).as_posix()
)
def test_a_module_finds_files_in_no_other_way(file):
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    found = set().union(*map(names_of, nodes)) & PLACES
    allowed = file.relative_to(HOME).as_posix() in ALLOWED
    assert bool(found) == allowed, f"{found}: use manygpu._files.data_file"


def declared() -> set[str]:
    """All that is declared, by paths in the package."""
    read = [file for module in graph().modules for file in reads(module)]
    return {file.relative_to(HOME).as_posix() for file in read}


def files() -> set[str]:
    """All files that are no modules, by paths in the package."""
    found = [p for p in HOME.rglob("*") if p.is_file()]
    found = [p for p in found if p.suffix not in (".py", ".pyc")]
    return {p.relative_to(HOME).as_posix() for p in found}


def test_each_file_is_declared_by_a_module_that_reads_it():
    left = files() - declared()
    for pattern in UNDECLARED:
        assert fnmatch.filter(left, pattern), f"{pattern} is declared, or gone"
        left -= {*fnmatch.filter(left, pattern)}
    assert left == set(), "no module declares them: see manygpu/_files.py"


def test_each_file_is_in_the_wheel():
    """As `make dist` demands, which takes minutes to say so."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    patterns = ast.literal_eval(re.search(rf"^{PACKAGE} = (\[.*)$", project, re.M)[1])
    kept = {p for pattern in patterns for p in HOME.glob(pattern)}
    assert files() - {p.relative_to(HOME).as_posix() for p in kept} == set()


def test_a_file_is_found_and_a_missing_one_is_named():
    assert _files.data_file("prove/planted.csv") == HOME / "prove" / "planted.csv"
    said = "path must name a file that comes with manygpu, got 'prove/gone.csv'"
    with pytest.raises(FileNotFoundError, match=said):
        _files.data_file("prove/gone.csv")
    with pytest.raises(FileNotFoundError, match="got 'prove'"):
        _files.data_file("prove")


def test_a_folder_is_found_and_a_pattern_without_a_file_is_named():
    folder = _files.data_folder("widgets", "*.css", "calculator.js")
    assert folder == HOME / "widgets"
    said = r"pattern must name a file that comes with manygpu, got 'widgets/\*.csv'"
    with pytest.raises(FileNotFoundError, match=said):
        _files.data_folder("widgets", "*.css", "*.csv")
