"""Bugs that are planted: a line of a chapter's exported code, and what to write there.

A row of the table names the module, the function and the line, which must be there
once. `make quick` says which rows no longer match: its tests ask `changed_functions`,
which imports no chapter.

A planted bug replaces the code of functions that are there, so that everybody who has
imported them runs the broken ones, and puts it back.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import functools
import importlib
import inspect
import itertools
import linecache
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from manygpu._files import data_file


class Bug(NamedTuple):
    """A line that is wrong.

    Attributes:
        module: below manygpu.scratch, where the line is; or, as "prove.todays_steps",
            below manygpu, if it is a line of the judge's own step.
        before, after: the line as it is, and as it is broken.
        broken: the property that it breaks, a key of `verdict.PROPERTIES`.
        subject: of `steps.BY_NAME`, whose step runs that line.
        thread: where somebody shipped it.
        function: in which the line is looked for, such as "Ledger.push"; "" is the
            whole module.
    """

    module: str
    before: str
    after: str
    broken: str
    subject: str
    thread: str = ""
    function: str = ""


def bugs(path: Path) -> list[Bug]:
    """Return the planted bugs of a table, a row each."""
    with path.open(encoding="utf-8", newline="") as rows:
        return [Bug(**row) for row in csv.DictReader(rows)]


BUGS = bugs(data_file("prove/planted.csv"))


def home_of(module: str) -> str:
    """Return the whole name of a bug's module."""
    within = "manygpu" if module.startswith("prove.") else "manygpu.scratch"
    return f"{within}.{module}"


@contextlib.contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Break the module's functions while the block runs.

    Raises:
        LookupError: the line isn't there, or not only there, or changes no function.
    """
    module = importlib.import_module(home_of(bug.module))
    source = inspect.getsource(module)
    broken, file = broken_source(bug, source), file_of(bug.module)
    # AutoGraph makes its graphs from the source that Python finds by this name.
    linecache.cache[file] = len(broken), None, broken.splitlines(True), file
    undo: list[tuple[FunctionType, CodeType]] = []
    try:
        for name, code in changed_functions(bug, source).items():
            function = found(module, name)
            undo.append((function, function.__code__))
            function.__code__ = code
        yield
    finally:
        for function, code in undo:
            function.__code__ = code
        linecache.cache.pop(file, None)


def changed_functions(bug: Bug, source: str) -> dict[str, CodeType]:
    """Return the broken functions of a module, by qualified name.

    Args:
        bug: of that module.
        source: the module's code as it is.

    Raises:
        LookupError: the line isn't there, or not only there, or changes no function.
    """
    before = compiled(source, file_of(bug.module))
    after = compiled(broken_source(bug, source), file_of(bug.module))
    changed = {n: after[n] for n in before if n in after and before[n] != after[n]}
    if not changed:
        raise LookupError(f"{bug.after!r} changes no function of {bug.module}")
    return changed


def broken_source(bug: Bug, source: str) -> str:
    """Return a module's code with the bug in its place; see `changed_functions`."""
    where, within = bug.module, range(len(source))
    if bug.function:
        where += f".{bug.function}"
        if (within := extents(source).get(bug.function)) is None:
            raise LookupError(f"{where} isn't there: in which is {bug.before!r}?")
    text = source[within.start : within.stop]
    if (count := text.count(bug.before)) != 1:
        raise LookupError(f"{where} has {count} times {bug.before!r}, not once")
    text = text.replace(bug.before, bug.after)
    return source[: within.start] + text + source[within.stop :]


@functools.cache
def extents(source: str) -> dict[str, range]:
    """Return where each function and method is in some code, by qualified name."""
    lines = source.splitlines(keepends=True)
    starts = [0, *itertools.accumulate(map(len, lines))]
    all_of: dict[str, range] = {}

    def add(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                add(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                first = min([node, *node.decorator_list], key=lambda one: one.lineno)
                extent = range(starts[first.lineno - 1], starts[node.end_lineno])
                all_of[f"{prefix}{node.name}"] = extent

    add(ast.parse(source).body, "")
    return all_of


def file_of(module: str) -> str:
    """Return what broken code calls its file."""
    return f"<{module}, broken>"


@functools.cache
def compiled(source: str, file: str) -> dict[str, CodeType]:
    """Return the functions of some code: see `functions_of`."""
    return functions_of(compile(source, file, "exec", dont_inherit=True))


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
