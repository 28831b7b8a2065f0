"""The API pages have each name that a page of the book uses.

Nothing is imported: modules, notebooks and the pages are read. Sphinx itself refuses
what doesn't exist and what is there twice.
"""

import ast
import functools
import re
from pathlib import Path

import pytest

from workshop.evidence import code_cells
from workshop.pages import ROOT, reading_order

PAGES = sorted((ROOT / "book" / "back").glob("*.md"))
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
ENTRY = re.compile(r"^\.\. auto(\w+):: (\S+)\n((?: +:.*\n?)*)", flags=re.M)
SCRATCH = "manygpu.scratch"


def file_of(module: str) -> Path | None:
    """Where a module of the package is; None if it is none."""
    place = ROOT / module.replace(".", "/")
    files = place.with_suffix(".py"), place / "__init__.py"
    return next((file for file in files if file.is_file()), None)


@functools.cache
def defined(module: str) -> dict[str, str]:
    """The functions and classes that a module has, and where each is defined."""
    found = {}
    for node in ast.parse(file_of(module).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = f"{module}.{node.name}"
        elif isinstance(node, ast.ImportFrom) and file_of(node.module or ""):
            taken = [x for x in node.names if not file_of(f"{node.module}.{x.name}")]
            homes = defined(node.module) if taken else {}
            found |= {
                name.asname or name.name: homes[name.name]
                for name in taken
                if name.name in homes
            }
    return found


def home(name: str) -> str | None:
    """Where what a name stands for is defined; None if it is no function or class."""
    module, _, last = name.rpartition(".")
    return defined(module).get(last)


def listed(text: str = TEXT) -> list[str]:
    """All names that the page gives, in full; "module.*" where it gives all."""
    found = []
    for kind, name, options in ENTRY.findall(text):
        members = re.search(r":members:(.*)", options)
        if kind != "module":
            found.append(name)
        elif members and members[1].strip():
            found += [f"{name}.{m.strip()}" for m in members[1].split(",")]
        elif members:
            found.append(f"{name}.*")
    return found


def used(code: str) -> set[str]:
    """The names of the package that some code uses, in full, without modules."""
    tree, modules, found = ast.parse(code), {"manygpu": "manygpu"}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {name.asname or name.name: name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            for name in node.names:
                full = f"{node.module}.{name.name}"
                if file_of(full):
                    modules[name.asname or name.name] = full
                else:
                    found.add(full)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            full = f"{modules.get(ast.unparse(node.value))}.{node.attr}"
            if not file_of(full):
                found.add(full)
    return {n for n in found if n.startswith("manygpu.") and not n.startswith(SCRATCH)}


def used_by(page: str) -> set[str]:
    """The same of a chapter; its magic commands are no Python."""
    cells = code_cells(ROOT / f"{page}.ipynb").values()
    code = "\n".join(cells)
    return used(re.sub(r"^[%!].*$", "", code, flags=re.M))


LISTED = listed()


def is_there(name: str) -> bool:
    """Whether the page has a name, by itself or with all of its module."""
    places = {name, home(name)}
    return any(p in LISTED or f"{p.rpartition('.')[0]}.*" in LISTED for p in places)


@pytest.mark.parametrize("page", reading_order())
def test_what_a_chapter_uses_is_there(page):
    names = {name for name in used_by(page) if "._" not in name and home(name)}
    missing = sorted(name for name in names if not is_there(name))
    assert missing == [], f"add them to book/back/api-*.md: {missing}"
