"""Each judge of an exercise has a name, which a trace and a search can show."""

from __future__ import annotations

import ast

import pytest

from workshop.pages import ROOT

ASKED = sorted((ROOT / "manygpu" / "exercises" / "asked").glob("*.py"))


def judges(code: str) -> list[str]:
    """The names of the functions below `@exercise(...)`."""
    return [
        node.name
        for node in ast.parse(code).body
        if isinstance(node, ast.FunctionDef)
        for made_by in node.decorator_list
        if isinstance(made_by, ast.Call) and ast.unparse(made_by.func) == "exercise"
    ]


@pytest.mark.parametrize("file", ASKED, ids=lambda path: path.stem)
def test_a_judge_is_called_by_its_exercise(file):
    names = judges(file.read_text(encoding="utf-8"))
    strange = [name for name in names if not name.startswith("judge_")]
    assert strange == [], "call it judge_ and the exercise's own name"
    assert len({*names}) == len(names)


def test_a_judge_without_a_name_is_seen():
    code = '@exercise("a/b", "", None)\ndef _(found): ...\n\ndef other(): ...\n'
    assert judges(code) == ["_"]
    assert sum(len(judges(file.read_text(encoding="utf-8"))) for file in ASKED) >= 168
