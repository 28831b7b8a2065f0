"""What the chapters export: each name explained where it is made, and made once."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections import Counter

import pytest

from manygpu import scratch

MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(scratch.__path__, "manygpu.scratch.")
    if not found.ispkg
]

ASSIGNMENTS = (ast.Assign, ast.AnnAssign)


def unexplained(source: str, exported: list[str]) -> list[str]:
    """The exported names of a module that its source says nothing of.

    A function or class needs a docstring that somebody wrote: a NamedTuple makes up
    one. A constant with numbers needs a comment, on its lines or above its group; one
    of names or types says itself what it is.
    """
    lines, explained = source.splitlines(), set()
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            if ast.get_docstring(node):
                explained.add(node.name)
        elif isinstance(node, ASSIGNMENTS) and says_what_it_is(lines, node):
            explained |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return [name for name in exported if name not in explained]


def says_what_it_is(lines: list[str], node: ast.stmt) -> bool:
    """Whether a constant holds no numbers, or a comment is with it."""
    values = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
    if not any(isinstance(value, (int, float)) for value in values):
        return True
    first = node.lineno - 1
    while first and lines[first - 1].strip():
        first -= 1
    lines = [x for x in lines[first : node.end_lineno] if not x.startswith("# %%")]
    return any(re.search(r"(^|\s)#", line) for line in lines)


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__.split(".")[-1])
def test_each_exported_name_is_explained(module):
    assert unexplained(inspect.getsource(module), module.__all__) == []


@pytest.mark.parametrize(
    "source, missing",
    [
        ("def f(): return 1", ["f"]),
        ("def f():\n    'Says so.'", []),
        ("class f: pass", ["f"]),
        ("class f(NamedTuple):\n    x: int", ["f"]),
        ("f = 1", ["f"]),
        ("# %% book/chapter.ipynb #1\nf = 1", ["f"]),
        ("# Of another.\ng = 2\n\nf = 1", ["f"]),
        ("f: int = 1", ["f"]),
        ("f = 1  # the first", []),
        ("# The second and the first.\ng, f = 2, 1", []),
        ("f = Callable[..., str]", []),
        ("f = ('conv', 'dense')", []),
        ("g = 1  # of another", ["f"]),
    ],
)
def test_what_is_not_explained_is_noticed(source, missing):
    assert unexplained(source, ["f"]) == missing


def test_no_two_chapters_export_one_name():
    names = Counter(name for module in MODULES for name in module.__all__)
    assert [name for name, count in names.items() if count > 1] == []
    for module in MODULES:
        for name in module.__all__:
            assert getattr(scratch, name) is getattr(module, name), name
