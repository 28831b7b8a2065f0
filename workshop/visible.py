"""What a reader sees of a page's code: what it needs of the folds, and what it teaches.

Three rules, for docs/style.md asks that visible code can be read alone: it uses no name
that only a fold defines; a fold that proves something says so; lines fit the column.
"""

from __future__ import annotations

import ast
import functools
import re
import symtable
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat

from workshop.extensions.code_cells import DIRECTIVE, title_of
from workshop.reading import SET_UP, is_asked

FOLDED, REMOVED = "hide-input", "remove-cell"
MOST_LETTERS = 79  # of a visible line
CHECKS = "check_"  # how the name of a check of arguments begins
PROOF = re.compile(r"(?i)\b(?:proofs?|proves?|proving|checks?|checked|checking)\b")
STATED = re.compile(r"`[^`\n]+`|\$[^$\n]+\$")  # inline code and formulas
REPORTS = ("print", "here", "figures", "display", "textwrap", "plt", "first_guess")
EMPTY = (ast.Pass, ast.Continue, ast.Import, ast.ImportFrom)
SAID = {"alt", "caption", "said"}  # names of texts that a cell shows below itself


@dataclass(eq=False)  # each cell is one
class Cell:
    """A cell of a page: its number, its kind, its text, and who sees it."""

    number: int
    kind: str  # "text", "visible" or "folded"
    source: str

    @functools.cached_property
    def code(self) -> str:
        """Its code, an empty line for each magic; nothing if it is no Python."""
        lines = self.source.splitlines()
        code = "\n".join("" if line.startswith("%") else line for line in lines)
        try:
            ast.parse(code)
        except SyntaxError:  # lint and ruff name it
            return ""
        return code

    @functools.cached_property
    def tree(self) -> ast.Module:
        """Its code as Python reads it; line numbers are those of the source."""
        return ast.parse(self.code)

    @functools.cached_property
    def table(self) -> symtable.SymbolTable:
        """The names of its code, scope by scope."""
        return symtable.symtable(self.code, f"cell {self.number}", "exec")


def cells(path: Path) -> list[Cell]:
    """A notebook's texts and code, without its set-up and what its reader writes."""
    found = []
    for number, cell in enumerate(nbformat.read(path, as_version=4).cells):
        tags = cell.metadata.get("tags", [])
        if cell.cell_type == "markdown":
            found.append(Cell(number, "text", cell.source))
        elif not (REMOVED in tags or cell.source.startswith(SET_UP)):
            if FOLDED in tags:
                found.append(Cell(number, "folded", cell.source))
            elif not is_asked(cell.source):
                found.append(Cell(number, "visible", cell.source))
    return found


# Names that only folds define


def hidden_names(page: list[Cell]) -> list[str]:
    """Where visible code uses a name that only a fold makes, a sentence each.

    A fold's imports don't count, nor do values that a text above has stated by name,
    nor checks of arguments, which are folded so that nobody has to read them.
    """
    made = {cell: _made(cell.tree) for cell in page if cell.kind != "text"}
    visible = [cell for cell in made if cell.kind == "visible"]
    seen = {name for cell in visible for name in _bound(cell)}
    found, stated = [], ""
    for cell in page:
        if cell.kind == "text":
            stated += " ".join(STATED.findall(cell.source)) + " "
        elif cell.kind == "visible":
            for name in sorted(_used(cell) - seen):
                if name.startswith(CHECKS):
                    continue
                homes = [c for c in made if c.kind == "folded" and name in made[c]]
                values = all(made[home][name] == "value" for home in homes)
                if not homes or values and re.search(rf"\b{name}\b", stated):
                    continue
                place = ", ".join(str(home.number) for home in homes)
                found.append(
                    f"cell {cell.number} shows `{name}`, which only a fold makes "
                    f"(cell {place}): show it"
                    + (", or state it in a text above" if values else "")
                )
    return found


def _made(tree: ast.Module) -> dict[str, str]:
    """The names that code makes at its top, each "made" or "value"; no imports."""
    made = {}
    for node in _at_the_top(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            made[node.name] = "made"
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            made.setdefault(node.id, "value")
    return made


def _at_the_top(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of the outermost scope; of an inner one only its head."""
    inner = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
    inner |= ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, inner):
            yield from _at_the_top(child)


def _bound(cell: Cell) -> set[str]:
    """What a cell makes or imports at its top."""
    return {s.get_name() for s in cell.table.get_symbols() if s.is_local()}


def _used(cell: Cell) -> set[str]:
    """The names of the page that a cell reads, also inside its functions."""
    used, tables = set(), [cell.table]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        outermost = table.get_type() == "module"
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (outermost or symbol.is_global()):
                used.add(symbol.get_name())
    return used


# Folds that prove, and long lines


def unnamed_proofs(page: list[Cell]) -> list[str]:
    """Which folds prove something under a title that doesn't say so."""
    return [
        f"cell {cell.number} is a fold that can fail, and its title is "
        f"{title_of(cell.source)!r}: begin it with a comment that says proof or "
        "check, or show it"
        for cell in page
        if cell.kind == "folded"
        and any(map(_can_fail, ast.walk(cell.tree)))
        and not PROOF.search(title_of(DIRECTIVE.sub("", cell.source)))
    ]


def _can_fail(node: ast.AST) -> bool:
    """Whether it is an assert, or a helper's that raises like one."""
    if isinstance(node, ast.Raise) and node.exc is not None:
        made = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return _names(made) == ["AssertionError"]
    if isinstance(node, ast.Call):
        return _names(node.func)[-1].startswith("assert_")
    return isinstance(node, ast.Assert)


def long_lines(page: list[Cell]) -> list[str]:
    """Which visible lines are cut off in a narrow window."""
    return [
        f"cell {cell.number} shows a line of {len(line)} letters, {MOST_LETTERS} at "
        f"most: {line.strip()[:40]}..."
        for cell in page
        if cell.kind == "visible"
        for line in cell.source.splitlines()
        if len(line) > MOST_LETTERS
    ]


# What teaches


def teaching(page: list[Cell]) -> tuple[int, int]:
    """How many visible lines teach, and how many there are.

    Docstrings, checks of arguments, asserts and reporting don't.
    """
    teach = shown = 0
    for cell in page:
        if cell.kind == "visible":
            plumbing = _plumbing(cell.tree)
            for number, line in enumerate(cell.source.splitlines(), 1):
                if line.strip() and not line.startswith("#|"):
                    shown += 1
                    teach += number not in plumbing
    return teach, shown


def _plumbing(tree: ast.Module) -> set[int]:
    """The numbers of the lines that carry nothing of the idea."""
    found = set()
    for node in ast.walk(tree):
        if _is_plumbing(node):
            found |= {*range(node.lineno, node.end_lineno + 1)}
    return found


def _is_plumbing(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert | ast.Raise | ast.ExceptHandler):
        return True
    if isinstance(node, ast.If | ast.For | ast.With):  # if this, then refuse
        body = [*node.body, *getattr(node, "orelse", [])]
        return all(_is_plumbing(each) or isinstance(each, EMPTY) for each in body)
    if isinstance(node, ast.Assign):
        names = {t.id for t in node.targets if isinstance(t, ast.Name)}
        return bool(names) and names <= SAID or _reports(node.value)
    if not isinstance(node, ast.Expr):
        return False
    if isinstance(node.value, ast.Constant):  # a docstring
        return isinstance(node.value.value, str)
    return _reports(node.value) or _checks(node.value)


def _reports(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _names(node.func)[0] in REPORTS


def _checks(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _names(node.func)[-1].startswith(
        (CHECKS, "assert_")
    )


def _names(node: ast.AST) -> list[str]:
    """The names that a dotted one has; [""] of anything else."""
    if isinstance(node, ast.Attribute):
        return [*_names(node.value), node.attr]
    return [node.id if isinstance(node, ast.Name) else ""]
