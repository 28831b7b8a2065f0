"""docs/architecture.md is true: its rooms, its nouns' homes, its derived files."""

from __future__ import annotations

import ast
import functools
import re

import pytest

from tests.quick.test_structure import levels
from workshop.needs import PACKAGE, file_of, graph
from workshop.pages import ROOT

TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NOUNS = "training, model, layer, cut, mesh, letter, spread, plan, op, player, message, "
NOUNS += "machine, judge, subject, task, strategy, exercise, record, figure, span"
IN_CODE = re.compile(r"`([^`]+)`")


def rows(heading: str) -> list[list[str]]:
    """The cells of a section's table, without its head."""
    section = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    split = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines[2:]]
    return [[cell.strip() for cell in line] for line in split]


@functools.cache
def made_in(module: str) -> frozenset[str]:
    """The functions, classes and values that a module makes at its top."""
    found = set()
    for node in ast.parse(file_of(module).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    return frozenset(found)


# Rooms


def test_the_picture_has_the_rooms_of_the_contract():
    picture = TEXT.partition("```text\n")[2].partition("```")[0]
    drawn = [re.match(r" │ ((?:\w+ \| )*\w+) ", x) for x in picture.splitlines()]
    lines = [found[1].split(" | ") for found in drawn if found]
    assert {room: i for i, line in enumerate(lines) for room in line} == levels()


# Nouns


def test_each_of_the_nouns_has_a_row():
    assert [row[0] for row in rows("Nouns")] == NOUNS.split(", ")


@pytest.mark.parametrize("row", rows("Nouns"), ids=lambda row: row[0])
def test_a_noun_is_made_where_its_row_says(row):
    _, home, says, others = row
    assert len(IN_CODE.findall(home)) == 1 and says
    for name in IN_CODE.findall(home + others):
        module, _, last = name.rpartition(".")
        assert module in graph().modules, f"there is no {module}"
        assert last in made_in(module), f"{module} makes no {last}"


@pytest.mark.parametrize("row", rows("Nouns"), ids=lambda row: row[0])
def test_no_other_class_has_the_name_of_a_noun(row):
    _, home, _, others = row
    ours = {*IN_CODE.findall(home + others)}
    last = IN_CODE.findall(home)[0].rpartition(".")[2]
    if last[0].isupper():
        modules = [m for m in graph().modules if m != PACKAGE and last in made_in(m)]
        found = {f"{module}.{last}" for module in modules}
        assert found <= ours, "extend the one that is there, or name it otherwise"


# Derived files


def targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):", makefile, flags=re.M))


def names_of(row: list[str]) -> str:
    return row[0]


@pytest.mark.parametrize("row", rows("Derived files"), ids=names_of)
def test_a_derived_file_is_there(row):
    for pattern in IN_CODE.findall(row[0]):
        assert [*ROOT.glob(pattern)], f"no file is called {pattern}"


@pytest.mark.parametrize("row", rows("Derived files"), ids=names_of)
def test_what_writes_a_derived_file_is_there(row):
    written = row[2]
    if written == "by hand":
        return
    (command,) = IN_CODE.findall(written)
    if command.startswith("make "):
        assert command.removeprefix("make ") in targets()
    else:
        assert (ROOT / command).is_file()


@pytest.mark.parametrize("row", rows("Derived files"), ids=names_of)
def test_what_holds_a_derived_file_is_a_test(row):
    tests = IN_CODE.findall(row[3])
    assert tests or re.fullmatch(r"no test: \S.*", row[3])
    for test in tests:
        path, _, name = test.partition("::")
        code = (ROOT / path).read_text(encoding="utf-8")
        made = [n for n in ast.parse(code).body if isinstance(n, ast.FunctionDef)]
        assert name.startswith("test_") and name in {node.name for node in made}


def test_the_tables_are_as_long_as_they_were_found():
    """A table that is read badly holds nothing."""
    assert len(rows("Derived files")) >= 25
    assert sum("::" in row[3] for row in rows("Derived files")) >= 22
    assert all(len(row) == 4 for row in rows("Nouns") + rows("Derived files"))


def test_whoever_contributes_is_led_there():
    said = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert "](docs/architecture.md)" in said
