"""Whether the evidence of each checked claim is there, and can fail.

`make test` runs every cell of every chapter and every test. So what is left to check,
without running anything, is that a claim's evidence is among them. The chapter is in
the table of contents, the cell is there, none of its tags keeps it from running, and an
`assert` stands where the cell can't pass it by. Or the test is there and not skipped.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable
from pathlib import Path

import nbformat

from manygpu.sources import Claim, Evidence
from workshop.notebooks import ALLOWED_TAGS
from workshop.pages import reading_order

ROOT = Path(__file__).resolve().parent.parent
UNRUN = {"skip", "skipif", "xfail"}


def wrong(claims: Iterable[Claim], root: Path = ROOT) -> list[str]:
    """What is wrong with the evidence of these claims, a sentence each."""
    return [
        f"{claim.name}: {evidence.file}, {evidence.place}, {what}"
        for claim in claims
        for evidence in claim.evidence
        if (what := missing(evidence, root))
    ]


def missing(evidence: Evidence, root: Path = ROOT) -> str:
    """Why this can't be evidence; "" if it can."""
    if evidence.is_cell:
        return _missing_in_cell(evidence, root)
    return _missing_in_test(evidence, root)


def _missing_in_cell(evidence: Evidence, root: Path) -> str:
    page = f"book/{evidence.file}"
    if page not in reading_order(root):
        return "is in no chapter of the table of contents"
    cell = code_cells(root / f"{page}.ipynb").get(evidence.place)
    if cell is None:
        return "is no code cell of that chapter"
    source, tags = cell
    if tags - ALLOWED_TAGS:
        return f"has tags {sorted(tags - ALLOWED_TAGS)}, which may keep it from running"
    return "" if proves(source) else "has no assert that it must pass"


@functools.cache
def code_cells(path: Path) -> dict[str, tuple[str, set[str]]]:
    """Source and tags of each code cell of a notebook, by id."""
    cells = nbformat.read(path, as_version=4).cells
    code = [c for c in cells if c.cell_type == "code"]
    return {c.id: (c.source, set(c.metadata.get("tags", ()))) for c in code}


def proves(source: str) -> bool:
    """Whether code, once it runs, comes to an assert that could fail.

    One inside a function, a class or an `if` may never be reached, so it doesn't count;
    inside `for`, `with` and `try` it does.
    """
    waiting = list(ast.parse(source).body)
    while waiting:
        statement = waiting.pop()
        if isinstance(statement, ast.Assert):
            if not _always_true(statement.test):
                return True
        elif isinstance(statement, ast.For) and _is_empty(statement.iter):
            pass
        elif isinstance(statement, ast.For | ast.With | ast.Try):
            waiting += statement.body
    return False


def _always_true(test: ast.expr) -> bool:
    """Whether an assert's test holds by its form: a constant, `True or x`, `x == x`."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return any(map(_always_true, test.values))
    if isinstance(test, ast.Compare):
        sides = {ast.dump(side) for side in (test.left, *test.comparators)}
        return len(sides) == 1
    return isinstance(test, ast.Constant)


def _is_empty(what: ast.expr) -> bool:
    """Whether a loop over this runs not once."""
    return isinstance(what, ast.List | ast.Tuple) and not what.elts


def _missing_in_test(evidence: Evidence, root: Path) -> str:
    file = root / evidence.file
    if not file.is_file():
        return "is in no file of tests"
    tree = ast.parse(file.read_text(encoding="utf-8"))
    found = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    test = next((n for n in found if n.name == evidence.place), None)
    if test is None:
        return "is no test of that file"
    if any(isinstance(n, ast.Return) for n in test.body):
        return "returns before its end"
    marks = [n for n in tree.body if _sets(n, "pytestmark")] + test.decorator_list
    words = {n.attr for m in marks for n in ast.walk(m) if isinstance(n, ast.Attribute)}
    return f"is marked {sorted(words & UNRUN)}" if words & UNRUN else ""


def _sets(node: ast.stmt, name: str) -> bool:
    """Whether a statement gives a value to this name."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(t, ast.Name) and t.id == name for t in targets)
