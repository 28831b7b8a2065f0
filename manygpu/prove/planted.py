"""Bugs that are planted: a line of a chapter's exported code, and what to write there.

A planted bug replaces the code of functions that are there, so that everybody who has
imported them runs the broken ones, and puts it back.
"""

from __future__ import annotations

import contextlib
import csv
import importlib
import inspect
import linecache
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from manygpu._files import data_file


class Bug(NamedTuple):
    """A line that is wrong.

    Attributes:
        module: below manygpu.scratch, where the line is.
        before, after: the line as it is, and as it is broken.
        broken: the property that it breaks, a key of `verdict.PROPERTIES`.
        subject: of `steps.BY_NAME`, whose step runs that line.
        thread: where somebody shipped it.
    """

    module: str
    before: str
    after: str
    broken: str
    subject: str
    thread: str = ""


def bugs(path: Path) -> list[Bug]:
    """Return the planted bugs of a table, a row each."""
    with path.open(encoding="utf-8", newline="") as rows:
        return [Bug(**row) for row in csv.DictReader(rows)]


BUGS = bugs(data_file("prove/planted.csv"))


@contextlib.contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Break the module's functions while the block runs.

    Raises:
        LookupError: the line isn't there, or not only there, or changes no function.
    """
    module = importlib.import_module(f"manygpu.scratch.{bug.module}")
    source = inspect.getsource(module)
    if (count := source.count(bug.before)) != 1:
        raise LookupError(f"{bug.module} has {count} times {bug.before!r}, not once")
    broken, file = source.replace(bug.before, bug.after), f"<{bug.module}, broken>"
    # AutoGraph makes its graphs from the source that Python finds by this name.
    linecache.cache[file] = len(broken), None, broken.splitlines(True), file
    wrong = compile(broken, file, "exec", dont_inherit=True)
    right = compile(source, file, "exec", dont_inherit=True)
    before, after = functions_of(right), functions_of(wrong)
    changed = [name for name in before if before[name] != after.get(name)]
    if not changed:
        raise LookupError(f"{bug.after!r} changes no function of {bug.module}")
    undo: list[tuple[FunctionType, CodeType]] = []
    try:
        for name in changed:
            function = found(module, name)
            undo.append((function, function.__code__))
            function.__code__ = after[name]
        yield
    finally:
        for function, code in undo:
            function.__code__ = code
        del linecache.cache[file]


def functions_of(code: CodeType, prefix: str = "") -> dict[str, CodeType]:
    """Return a module's functions and methods by qualified name, without inner ones."""
    all_of: dict[str, CodeType] = {}
    for one in code.co_consts:
        if not isinstance(one, CodeType) or one.co_name.startswith("<"):
            continue
        name = f"{prefix}{one.co_name}"
        if one.co_flags & inspect.CO_OPTIMIZED:
            all_of[name] = one.replace(co_firstlineno=1, co_linetable=b"")
        else:  # a class' body
            all_of |= functions_of(one, f"{name}.")
    return all_of


def found(module: ModuleType, name: str) -> FunctionType:
    """Return the function of this qualified name, below whatever wraps it.

    A function that `patch` made a method is found on its class.

    Raises:
        LookupError: there is none, or of several classes.
    """
    thing: Any = module
    for part in name.split("."):
        thing = inspect.getattr_static(thing, part)
    for inside in ("fget", "func", "__func__", "__wrapped__"):
        thing = getattr(thing, inside, thing)
    return thing if isinstance(thing, FunctionType) else patched(module, name)


def patched(module: ModuleType, name: str) -> FunctionType:
    """Return the method that a function of this name in a module has become."""
    classes = [own for own in vars(module).values() if inspect.isclass(own)]
    methods = [vars(own)[name] for own in classes if name in vars(own)]
    own = [one for one in methods if one.__module__ == module.__name__]
    if len(own) != 1:
        raise LookupError(f"{module.__name__} has {len(own)} methods {name!r}, not one")
    return own[0]
