"""Whether the evidence of each checked claim is there, and can fail.

`make test` runs every cell of every chapter and every test; lint refuses tags that keep
a cell from running, and asserts that hold by their form. So what is left to check,
without running anything, is that a claim's evidence is among them, isn't skipped, and
comes to an `assert` that it can't pass by.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable
from pathlib import Path

import nbformat

from manygpu.sources import Claim, Evidence
from workshop.pages import ROOT, reading_order

UNRUN = {"skip", "skipif", "xfail"}


def wrong(claims: Iterable[Claim], root: Path = ROOT) -> list[str]:
    """What is wrong with the evidence of these claims, a sentence each."""
    found = [(c.name, e, missing(e, root)) for c in claims for e in c.evidence]
    return [f"{name}: {e.file}, {e.place}, {what}" for name, e, what in found if what]


def missing(evidence: Evidence, root: Path = ROOT) -> str:
    """Why this can't be evidence; "" if it can."""
    missing_in = _missing_in_cell if evidence.is_cell else _missing_in_test
    return missing_in(evidence, root)


def _missing_in_cell(evidence: Evidence, root: Path) -> str:
    page = f"book/{evidence.file}"
    if page not in reading_order(root):
        return "is in no chapter of the table of contents"
    source = code_cells(root / f"{page}.ipynb").get(evidence.place)
    if source is None:
        return "is no code cell of that chapter"
    return "" if proves(source) else "has no assert that it must pass"


@functools.cache
def code_cells(path: Path) -> dict[str, str]:
    """The source of each code cell of a notebook, by id."""
    cells = nbformat.read(path, as_version=4).cells
    return {c.id: c.source for c in cells if c.cell_type == "code"}


def proves(source: str) -> bool:
    """Whether code, once it runs, comes to an assert that could fail.

    One inside a function, a class or an `if` may never be reached, so it doesn't count;
    inside `for`, `with` and `try` it does.
    """
    waiting = list(ast.parse(source).body)
    while waiting:
        statement = waiting.pop()
        match statement:
            case ast.Assert(test=test) if not isinstance(test, ast.Constant):
                return True
            case ast.For() | ast.With() | ast.Try():
                waiting += statement.body
    return False


def _missing_in_test(evidence: Evidence, root: Path) -> str:
    file = root / evidence.file
    if not file.is_file():
        return "is in no file of tests"
    body = ast.parse(file.read_text(encoding="utf-8")).body
    tests = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    if not (test := tests.get(evidence.place)):
        return "is no test of that file"
    if any(isinstance(n, ast.Return) for n in test.body):
        return "returns before its end"
    marks = [
        n for n in body if ast.unparse(n).startswith("pytestmark =")
    ] + test.decorator_list
    words = {n.attr for m in marks for n in ast.walk(m) if isinstance(n, ast.Attribute)}
    return f"is marked {sorted(words & UNRUN)}" if words & UNRUN else ""
