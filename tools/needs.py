"""What a chapter imports of the package, read from its code and never imported.

The standalone files carry just that, and a chapter runs again when any of it changes.
"""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, SCRATCH = "manygpu", "manygpu.scratch"


@dataclass(eq=False)
class Package:
    """The package's modules, read and never imported: TensorFlow is not needed."""

    root: Path = ROOT
    trees: dict[str, ast.Module] = field(default_factory=dict)

    def file(self, module: str) -> Path | None:
        """The file of a module, or None if there is no such module."""
        place = self.root.joinpath(*module.split("."))
        found = (place / "__init__.py", place.with_suffix(".py"))
        return next((f for f in found if f.is_file()), None)

    def tree(self, module: str) -> ast.Module:
        """A module's code, parsed once."""
        if module not in self.trees:
            text = self.file(module).read_text(encoding="utf-8")
            self.trees[module] = ast.parse(text)
        return self.trees[module]

    @functools.cached_property
    def exports(self) -> dict[str, list[str]]:
        """What manygpu.scratch takes from each module, in its order."""
        inside = f"{SCRATCH}."
        taken = [n for n in ast.walk(self.tree(SCRATCH)) if _is_import(n, inside)]
        return {n.module: [alias.name for alias in n.names] for n in taken}

    @functools.cached_property
    def providers(self) -> dict[str, str]:
        """The module of each name that `from manygpu.scratch import name` finds."""
        return {name: m for m, names in self.exports.items() for name in names}

    @property
    def version(self) -> str:
        """The version, from the one place where it stands."""
        return _constant(self.tree(PACKAGE), "__version__")

    def direct(self, tree: ast.Module) -> set[str]:
        """The modules that this code imports, at its top or inside a function."""
        found = set()
        for module, name in _imports(tree):
            if module.split(".")[0] != PACKAGE:
                continue
            if name is None or not self.file(f"{module}.{name}"):
                found |= self._of_scratch(name) if module == SCRATCH else {module}
            else:
                found.add(f"{module}.{name}")
        return found | self._through_scratch(tree)

    def _of_scratch(self, name: str | None) -> set[str]:
        if name is None:
            return {SCRATCH}
        if name == "*":
            return set(self.exports)
        if name not in self.providers:
            raise ValueError(f"{SCRATCH} exports no {name!r}: run `make export`")
        return {self.providers[name]}

    def _through_scratch(self, tree: ast.Module) -> set[str]:
        """What is meant by `scratch.name`; by `scratch` alone, anything may be."""
        if (PACKAGE, "scratch") not in _imports(tree):
            return set()
        names = [n for n in _walk(tree) if _named(n, "scratch")]
        reads = [n for n in _walk(tree) if isinstance(n, ast.Attribute)]
        reads = [n.attr for n in reads if _named(n.value, "scratch")]
        if len(reads) < len(names):
            return {SCRATCH, *self.exports}
        return {SCRATCH}.union(*map(self._of_scratch, reads))

    def needed(self, tree: ast.Module) -> list[str]:
        """All modules that this code needs, directly or through others, sorted."""
        found, new = set(), self.direct(tree)
        while new:
            module = new.pop()
            parents = {
                module.rsplit(".", i)[0] for i in range(1, module.count(".") + 1)
            }
            found.add(module)
            # scratch/__init__ imports what is needed, not the other way round.
            inner = set() if module == SCRATCH else self.direct(self.tree(module))
            new |= (inner | parents) - found
        return sorted(found)

    @functools.cache  # noqa: B019 (a package is kept for as long as the process)
    def used(self, tree: ast.Module) -> set[tuple[str, str]]:
        """Module and name of all that this code uses, directly or through others.

        It follows functions, not modules: a module may need d2l, or the images, in one
        function only, and a chapter that uses another one does without.
        """
        new, seen = self._uses(tree, tree, None), set()
        while new:
            module, name = new.pop()
            seen.add((module, name))
            body = _definition(self.tree(module), name)
            if body is not None:
                new |= self._uses(self.tree(module), body, module) - seen
        return seen

    def needs_d2l(self, tree: ast.Module) -> bool:
        """Whether d2l is imported by the code, at a module's top or in use."""
        bodies = [_definition(self.tree(m), name) for m, name in self.used(tree)]
        tops = [_top_imports(self.tree(m)) for m in self.needed(tree)]
        imports = [_imports(b) for b in [tree, *bodies, *tops] if b is not None]
        return any(m.split(".")[0] == "d2l" for pairs in imports for m, _ in pairs)

    def needs_images(self, tree: ast.Module) -> bool:
        """Whether the code, or what it uses, loads Fashion-MNIST."""
        return (f"{PACKAGE}.data", "load") in self.used(tree)

    @functools.cache  # noqa: B019
    def _uses(
        self, tree: ast.Module, code: ast.AST, own: str | None
    ) -> set[tuple[str, str]]:
        """Module and name of what `code`, a part of `tree`, uses of the package."""
        names = [n.id for n in _walk(code) if isinstance(n, ast.Name)]
        reads = [n for n in _walk(code) if isinstance(n, ast.Attribute)]
        reads = [(n.value.id, n.attr) for n in reads if isinstance(n.value, ast.Name)]
        modules, found = {}, {(own, name) for name in names if own}
        for module, name in _imports(tree):
            if name is None or module.split(".")[0] != PACKAGE:
                continue
            if self.file(f"{module}.{name}"):
                modules[name] = f"{module}.{name}"
            elif name in names:
                found.add((module, name))
        found |= {(modules[n], attribute) for n, attribute in reads if n in modules}
        return {self._home(module, name) for module, name in found}

    def _home(self, module: str, name: str) -> tuple[str, str]:
        """Where a name that a module offers is defined: scratch itself defines none."""
        return (self.providers.get(name, module) if module == SCRATCH else module), name


# What is imported is a chapter whose name is asked for, and no other: some need no
# TensorFlow.
OFFER = '''\
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
{imports}
HOMES = {{
{homes}
}}
__all__ = [*HOMES]


def __getattr__(name):
    """Import the chapter that made `name`, and remember it."""
    if name not in HOMES:
        raise AttributeError(f"module {{__name__!r}} has no attribute {{name!r}}")
    globals()[name] = getattr(import_module(f"{{__name__}}.{{HOMES[name]}}"), name)
    return globals()[name]


def __dir__():
    return [*globals(), *HOMES]
'''


def offer(exported: dict[str, list[str]]) -> str:
    """Code of manygpu.scratch that offers these names of these modules of its own."""
    imports, homes = [], []
    for module, names in exported.items():
        if names:
            imports += [f"    from {module} import ("]
            imports += [*(f"        {n}," for n in names), "    )"]
        place = module.removeprefix(f"{SCRATCH}.")
        homes += [f'    "{n}": "{place}",' for n in names]
    imports, homes = "\n".join(imports or ["    pass"]), "\n".join(homes)
    return OFFER.format(imports=imports, homes=homes)


@functools.cache
def _walk(tree: ast.AST) -> list[ast.AST]:
    """All nodes of some code; asked for again and again, found once."""
    return list(ast.walk(tree))


def _is_import(node: ast.AST, inside: str) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module.startswith(inside)


@functools.cache
def _imports(tree: ast.AST) -> tuple[tuple[str, str | None], ...]:
    """Each import as module and name; name is None for `import module`."""
    found = []
    for node in _walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A program in a string, for another process.
            named = re.findall(r"^import (\S+)", node.value, flags=re.M)
            found += [(module, None) for module in named]
    return tuple(found)


def _named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _constant(tree: ast.Module, name: str):
    """The value of a constant at the top of a module."""
    assigned = [n for n in tree.body if isinstance(n, ast.Assign)]
    return next(
        ast.literal_eval(n.value) for n in assigned if _named(n.targets[0], name)
    )


def _definition(tree: ast.Module, name: str) -> ast.AST | None:
    """The function or class of that name at the top of a module."""
    return next((n for n in tree.body if getattr(n, "name", None) == name), None)


def _top_imports(tree: ast.Module) -> ast.Module:
    """The imports that are done when the module is."""
    kept = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    return ast.Module(kept, [])


@functools.cache
def package_in(root: Path) -> Package:
    """The package below `root`, read once for all chapters."""
    return Package(root)
