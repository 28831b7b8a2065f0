"""What a chapter or a test needs of the package: modules, and the files they read.

grimp reads the package's imports, and nothing is imported. The standalone files carry
just that, and a chapter runs again when any of it changes.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import grimp

from workshop.pages import ROOT

PACKAGE, SCRATCH = "manygpu", "manygpu.scratch"
DECLARED = ("data_file", "data_folder")  # the functions of manygpu/_files.py


@functools.cache
def graph() -> grimp.ImportGraph:
    """The package's imports; `scratch` itself offers names, and so needs nothing."""
    found = grimp.build_graph(PACKAGE, cache_dir=None)
    for module in found.find_modules_directly_imported_by(SCRATCH):
        found.remove_import(importer=SCRATCH, imported=module)
    return found


def file_of(module: str) -> Path:
    """The file of a module of the package."""
    place = ROOT.joinpath(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


@functools.cache
def exports() -> dict[str, list[str]]:
    """What `scratch` takes from each module, in the order of the book."""
    tree = ast.parse(file_of(SCRATCH).read_text(encoding="utf-8"))
    taken = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    taken = [n for n in taken if n.module.startswith(f"{SCRATCH}.")]
    return {n.module: [alias.name for alias in n.names] for n in taken}


@functools.cache  # each chapter carries many modules that others do
def direct(code: str) -> frozenset[str]:
    """The modules that code imports, at its top, in a function, or in a string.

    Raises:
        ValueError: it takes a name from scratch that scratch doesn't have.
    """
    nodes, found = list(ast.walk(ast.parse(code))), set()
    known = graph().modules
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                found.add(module if module in known else node.module)
                if node.module == SCRATCH and module not in known:
                    found |= _providers(alias.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A program in a string, for another process.
            found |= set(re.findall(r"^import (\S+)", node.value, flags=re.M))
    if SCRATCH in found:
        read = [n for n in nodes if isinstance(n, ast.Attribute)]
        read = [n.attr for n in read if _is_scratch(n.value)]
        found.update(*map(_providers, read))
        if sum(map(_is_scratch, nodes)) > len(read):  # any of its names may be meant
            found |= set(exports())
    return frozenset(found & known)


def _is_scratch(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "scratch"


def _providers(name: str) -> set[str]:
    """The modules that give a name of `scratch`."""
    all_of_them = name == "*" or name.startswith("__")  # its __path__, say
    found = {m for m, names in exports().items() if all_of_them or name in names}
    if not found:
        raise ValueError(f"{SCRATCH} exports no {name!r}: run `make export`")
    return found


def needed(code: str) -> list[str]:
    """All modules of the package that code needs, directly or through others."""
    found, new = set(), set(direct(code))
    while new:
        module = new.pop()
        found.add(module)
        parts = module.split(".")
        above = {".".join(parts[:i]) for i in range(1, len(parts))}
        new |= (graph().find_modules_directly_imported_by(module) | above) - found
    return sorted(found)


@functools.cache
def reads(module: str) -> tuple[Path, ...]:
    """The files of the package that a module declares: see manygpu/_files.py.

    Raises:
        ValueError: a declaration isn't written out, or names no file that is there.
    """
    found: set[Path] = set()
    for node in ast.walk(ast.parse(file_of(module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in DECLARED:
            found.update(_declared(node, f"{module}, line {node.lineno}"))
    return tuple(sorted(found))


def _declared(call: ast.Call, where: str) -> list[Path]:
    """The files that one call of data_file or data_folder names."""
    words = [w.value for w in call.args if isinstance(w, ast.Constant)]
    if len(words) < len(call.args) or call.keywords:
        got = ast.unparse(call)
        raise ValueError(f"{where}: paths must be texts, got {got}: write them out")
    path, *patterns = words
    place = ROOT / PACKAGE / path
    one = call.func.id == "data_file"
    found = [place] if one else [p for each in patterns for p in place.glob(each)]
    if not found or not all(p.is_file() for p in found):
        got = ast.unparse(call)
        raise ValueError(f"{where}: it must name files that are there, got {got}")
    return found
