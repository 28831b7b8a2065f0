"""Put small faults into the package, one at a time, and see whether tests notice.

python -m workshop.mutate [--count 300] [--seed 0] [--only TEXT]
    --only: modules whose path holds TEXT.

Each fault changes one word of a line, or leaves a call out. Then the tests run that
bear the module's name, until one fails. What no test noticed is listed; look at each:
some faults change nothing. A seed draws the same faults each time.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import tokenize
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from workshop.notebook_runs import RUN, end_all
from workshop.pages import ROOT

WALL_S = 900  # a fault can make a loop endless
PAIRS = [("<", "<="), (">", ">="), ("==", "!="), ("+", "-"), ("+=", "-=")]
PAIRS += [("and", "or"), ("True", "False"), ("min", "max"), ("any", "all")]
SWAPS = dict(PAIRS) | {b: a for a, b in PAIRS} | {"in": "not in", "is": "is not"}
SWAPS |= {"*": "+", "/": "*", "//": "*", "%": "//", "sorted": "list", "not": "not not"}
ORDER = re.compile(r"(?<=control_dependencies\().+(?=\):)")
NOT_COPIED = shutil.ignore_patterns(".git", ".venv*", "_build", "_checked", "_executed")


class Fault(NamedTuple):
    """One changed line: its file from the root, its number, what it becomes."""

    file: str
    line: int
    shown: str


def faults_of(file: str, text: str) -> list[Fault]:
    """All faults that a module's text could have; strings are left alone."""
    lines = dict(enumerate(text.split("\n"), 1))
    found = {Fault(file, k, ORDER.sub("[]", line)) for k, line in lines.items()}
    for word in tokenize.generate_tokens(io.StringIO(text).readline):
        said, (number, begin), new = word.string, word.start, SWAPS.get(word.string)
        if said.isdigit():
            new = str(int(said) + 1)
        before, after = lines.get(number, "")[:begin], word.line[word.end[1] :]
        tied = re.match(r"\*\S|(not in|is not) ", f"{said}{after}")  # such as *args
        if said in ("in", "not"):
            tied = tied or re.search(r"\bfor\b|\b(not|is) $", before)
        if new and not tied:
            found.add(Fault(file, number, f"{before}{new}{after.rstrip()}"))
    for node in ast.walk(ast.parse(text)):
        is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        if is_call and node.lineno == node.end_lineno:
            found.add(Fault(file, node.lineno, " " * node.col_offset + "None"))
    return sorted(fault for fault in found if fault.shown != lines[fault.line])


def tests_of(module: str) -> list[str]:
    """The files of tests that bear a module's name or its folder's; else its room's."""
    path = Path(module)
    room = ROOT / ("workshop/tests" if path.parts[0] == "workshop" else "tests/unit")
    own = room.joinpath(*path.parent.parts[1:])
    names, rooms = (
        (path.stem.strip("_"), path.parent.name),
        (room, ROOT / "tests/quick"),
    )
    found = [p for n in names for r in rooms for p in sorted(r.rglob(f"test_{n}*.py"))]
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
        variables = {**os.environ, "PYTHONPATH": str(copy), RUN: folder}
        told = {"cwd": copy, "env": variables, "stdout": subprocess.DEVNULL}
        try:
            command += tests_of(fault.file)
            done = subprocess.run(command, timeout=WALL_S, check=False, **told)
            return "a test" if done.returncode else ""
        except subprocess.TimeoutExpired:
            return "the time-out"
        finally:
            end_all(folder)  # it, and whatever it started


def main(words: list[str]) -> None:
    """Try the faults; say which were noticed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    faults, unseen = chosen(**vars(parser.parse_args(words))), 0
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
