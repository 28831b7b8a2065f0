"""Put small faults into the package, one at a time, and see whether tests notice.

python -m workshop.mutate [--count 300] [--seed 0] [--only TEXT]
    --only: modules whose path holds TEXT.

Each fault changes one place of one line: a comparison, an operator, a number, a truth
value, min for max, a statement left out, control dependencies dropped. Then the tests
run that bear the module's name, until one fails. What no test noticed is listed; look
at each: some faults change nothing. A seed draws the same faults each time.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
WALL_S = 900  # a fault can make a loop endless
PAIRS = [(ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn)]
PAIRS += [(ast.Is, ast.IsNot), (ast.Add, ast.Sub), (ast.And, ast.Or)]
SWAPS = {ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
SWAPS |= {ast.Mod: ast.FloorDiv, **dict(PAIRS), **{b: a for a, b in PAIRS}}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}
# Not looked into: what a reader of types, and what an error says.
LEFT_ALONE = {"annotation", "returns", "decorator_list", "exc", "cause"}
NOT_COPIED = shutil.ignore_patterns(".git", ".venv*", "_build", "_checked", "_executed")


class Fault(NamedTuple):
    """One changed line: its file from the root, its number, what it becomes."""

    file: str
    line: int
    shown: str


def faults_of(file: str, text: str) -> list[Fault]:
    """All faults that a module's text could have, in the order of its lines."""
    lines, found = text.splitlines(), []
    for node in list(walk(ast.parse(text))):
        if getattr(node, "lineno", 0) == getattr(node, "end_lineno", 1) and spoil(node):
            line = lines[node.lineno - 1].encode()  # Python counts columns in bytes
            new = ast.unparse(node)
            new = f"({new})" if isinstance(node, ast.expr) else new
            before, after = line[: node.col_offset], line[node.end_col_offset :]
            shown = (before + new.encode() + after).decode()
            found.append(Fault(file, node.lineno, shown))
    return sorted(found)


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but docstrings, imports, annotations, what an error says."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if name in LEFT_ALONE or not isinstance(child, ast.AST):
                continue
            docstring = isinstance(getattr(child, "value", None), ast.Constant)
            if isinstance(child, ast.Expr) and docstring:
                continue
            if not isinstance(child, ast.JoinedStr | ast.Import | ast.ImportFrom):
                yield child
                yield from walk(child)


def spoil(node: ast.AST) -> bool:
    """Put a fault into a node; return whether there is one for it."""
    match node:
        case ast.Compare(ops=[kind]) if type(kind) in SWAPS:
            node.ops = [SWAPS[type(kind)]()]
        case ast.BinOp(op=kind) | ast.BoolOp(op=kind) | ast.AugAssign(op=kind) if (
            type(kind) in SWAPS
        ):
            node.op = SWAPS[type(kind)]()
        case ast.Constant(value=bool(value)):
            node.value = not value
        case ast.Constant(value=int(value)):
            node.value = value + 1
        case ast.UnaryOp(op=ast.Not()):
            node.operand = ast.UnaryOp(ast.Not(), node.operand)
        case ast.Expr():
            node.value = ast.Constant(None)
        case ast.Call(func=ast.Name(id=name), args=[_, *_]) if name in NAMES:
            node.func.id = NAMES[name]
        case ast.Call(func=ast.Attribute(attr="control_dependencies")):
            node.args = [ast.List([])]
        case _:
            return False
    return True


def tests_of(module: str) -> list[str]:
    """The files of tests that bear a module's name or its folder's; else its room's."""
    path, found = Path(module), []
    room = ROOT / ("workshop/tests" if path.parts[0] == "workshop" else "tests/unit")
    own = room.joinpath(*path.parent.parts[1:])
    for name in (path.stem.strip("_"), path.parent.name):
        for place in (room, ROOT / "tests" / "quick"):
            found += sorted(place.rglob(f"test_{name}*.py"))
    found = found or sorted((own if own.is_dir() else room).rglob("test_*.py"))
    return [p.relative_to(ROOT).as_posix() for p in dict.fromkeys(found)]


def chosen(count: int, seed: int, only: str) -> list[Fault]:
    """So many faults, drawn from all places, each as likely as any other."""
    every = []
    for path in sorted([*ROOT.glob("manygpu/**/*.py"), *ROOT.glob("workshop/*.py")]):
        module = path.relative_to(ROOT).as_posix()
        if only in module:
            every += faults_of(module, path.read_text(encoding="utf-8"))
    return sorted(random.Random(seed).sample(every, min(count, len(every))))


def noticed_by(fault: Fault) -> str:
    """What fails in a copy with a fault: "a test", "the time-out", or "" if nothing."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        copy = shutil.copytree(ROOT, Path(folder) / "copy", ignore=NOT_COPIED)
        lines = (copy / fault.file).read_text(encoding="utf-8").split("\n")
        lines[fault.line - 1] = fault.shown
        (copy / fault.file).write_text("\n".join(lines), encoding="utf-8")
        running = subprocess.Popen(
            [*command, *tests_of(fault.file)],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return "a test" if running.wait(WALL_S) else ""
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)  # it, and whatever it started
            running.wait()
            return "the time-out"


def main(words: Sequence[str]) -> None:
    """Try the faults; say which were noticed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    asked = parser.parse_args(words)
    faults, unseen = chosen(asked.count, asked.seed, asked.only), 0
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        found = zip(faults, pool.map(noticed_by, faults), strict=True)
        for number, (fault, by) in enumerate(found, 1):
            unseen += not by
            word = f"noticed by {by}" if by else "NOT NOTICED"
            place = f"{number}/{len(faults)} {fault.file}:{fault.line}"
            print(f"{place}: {word}: {fault.shown.strip()}", flush=True)
    print(f"{len(faults) - unseen} of {len(faults)} noticed")


if __name__ == "__main__":
    main(sys.argv[1:])
