"""Import what files that run alone carry, and nothing else of the book: a program.

python -I workshop/tests/import_carried.py FOLDER...

Each folder has what one file carries, unpacked, and `page.py`, the imports of its own
cells. All modules are imported from there, then those lines run. JSON on standard
output says what failed, by folder. TensorFlow, Keras and d2l are stand-ins: seconds
instead of minutes, and none of the modules may need more of them to be imported.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

PACKAGE = "manygpu"
STAND_INS = ("tensorflow", "keras", "d2l")


class Anything(type):
    """The type of a class whose attributes, calls and sums are that class."""

    def __getattr__(cls, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return Thing

    def __call__(cls, *given: Any, **_: Any) -> Any:
        """A decorator gives back what it decorates."""
        return given[0] if given and callable(given[0]) else Thing

    def _same(cls, *_: Any) -> type:
        return Thing

    __add__ = __radd__ = __sub__ = __mul__ = __rmul__ = __truediv__ = _same
    __getitem__ = __or__ = __ror__ = __neg__ = __pow__ = _same


class Thing(metaclass=Anything):
    """What a stand-in has, whatever it is asked for."""


class StandIns:
    """Finds the stand-ins, before anything else does; refuses the book's own folder."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find a package that isn't to be imported."""
        if name.split(".")[0] not in STAND_INS:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Make a module that has every name."""
        module = types.ModuleType(spec.name)
        module.__getattr__ = functools.partial(getattr, Thing)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing: there is nothing in it."""


@functools.cache
def compiled(content: bytes, name: str) -> types.CodeType:
    """Compile a module once, though many pages carry it."""
    return compile(content, name, "exec", dont_inherit=True)


class Loader(importlib.machinery.SourceFileLoader):
    """Loads a module of the package, from its bytes alone."""

    def get_code(self, fullname: str) -> types.CodeType:
        """Return what its bytes compile to."""
        return compiled(Path(self.path).read_bytes(), fullname)


def finder(path: str) -> importlib.machinery.FileFinder:
    """Find the package's modules; leave all others to the usual finder."""
    if not any(part == PACKAGE for part in Path(path).parts):
        raise ImportError(f"{path} is another package's")
    return importlib.machinery.FileFinder(path, (Loader, [".py"]))


def failure(folder: Path) -> str:
    """Import all that is in a folder; return what stopped it, "" if nothing did."""
    files = sorted(folder.glob(f"{PACKAGE}/**/*.py"))
    names = [".".join(f.relative_to(folder).with_suffix("").parts) for f in files]
    sys.path.insert(0, str(folder))
    try:
        for name in names:
            importlib.import_module(name.removesuffix(".__init__"))
        page = folder / "page.py"
        exec(compile(page.read_text(encoding="utf-8"), "its cells", "exec"), {})
    except Exception as wrong:
        return f"{type(wrong).__name__}: {wrong}"
    finally:
        sys.path.remove(str(folder))
        for name in [n for n in sys.modules if n.split(".")[0] == PACKAGE]:
            del sys.modules[name]
    return ""


def main(*folders: str) -> None:
    """Try each folder."""
    # Where the book is developed, its package can be imported from anywhere.
    sys.meta_path[:] = [f for f in sys.meta_path if PACKAGE not in f.__module__]
    sys.meta_path.insert(0, StandIns())
    sys.path_hooks.insert(0, finder)
    if importlib.util.find_spec(PACKAGE):
        sys.exit(f"{PACKAGE} must come from a folder alone, and is here without one")
    print(json.dumps({folder: failure(Path(folder)) for folder in folders}))


if __name__ == "__main__":
    main(*sys.argv[1:])
