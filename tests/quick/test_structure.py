"""The package's rooms: what may import what, and no two import each other."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tools.needs import ROOT, Package

# From the ground up: a room imports those before it, and its own.
ROOMS = (
    "checks patching _devices _page _narrow measure tables figures data records "
    "workers launch cluster simulate deaths choosing sources comparison report costs",
    "trace",
    "scratch",
    "bench widgets",
    "__main__",
)
LEVEL = {name: i for i, names in enumerate(ROOMS) for name in names.split()}


def without_types(tree: ast.Module) -> ast.Module:
    """The code without what only type checkers import."""
    kept = [
        n
        for n in tree.body
        if not (isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    ]
    return ast.Module(kept, [])


def imports(root: Path = ROOT) -> dict[str, set[str]]:
    """What each module of the package imports of it, when it is imported."""
    package, found = Package(root), {}
    for file in sorted((root / "manygpu").rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        module = ".".join(parts).removesuffix(".__init__")
        needed = package.direct(without_types(package.tree(module)))
        found[module] = needed - {"manygpu", module}
    return found


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_no_modules_import_each_other():
    order = list(TopologicalSorter(imports()).static_order())
    assert order.index("manygpu.checks") < order.index("manygpu.bench")


def test_no_module_imports_upward():
    found = imports()
    upward = [
        f"{module} imports {other}"
        for module, others in found.items()
        for other in others
        if module != "manygpu" and LEVEL[room(other)] > LEVEL[room(module)]
    ]
    assert upward == []
    assert {room(module) for module in found} - {""} == set(LEVEL)


def test_a_chapter_imports_chapters_before_it_only():
    order = list(Package().exports)
    for module, others in imports().items():
        if module in order:
            later = set(order[order.index(module) :])
            assert not others & later, module


@pytest.mark.parametrize("code", ["import a", "from typing import TYPE_CHECKING"])
def test_what_runs_is_kept(code):
    tree = ast.parse(f"{code}\nif TYPE_CHECKING:\n    import b\n")
    assert ast.unparse(without_types(tree)) == code
