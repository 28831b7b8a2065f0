"""Put small faults into the package, one at a time, and see whether tests notice.

python -m workshop.mutate [--count 300] [--seed 0] [--only TEXT] [--to FILE] [--list]
    --only: modules whose path holds TEXT; --list: say the faults, try none.

Each fault changes one place of one line: a comparison, an operator, a number, a truth
value, min for max, a statement left out, control dependencies dropped. Before, the
tests of each module pass once under coverage.py, which notes through which lines each
of them comes. Those of the changed line run, until one fails; if none does, or none
comes through it, for it runs at import, in a graph or in another process, the module's
own file of tests runs. What no test noticed is listed; look at each: some faults change
nothing. A run that is broken off is taken up with the same --to.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from coverage import CoverageData

ROOT = Path(__file__).resolve().parent.parent
WALL_S = 900  # a fault can make a loop endless
SWAPS = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "+",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "//",
    ast.And: "or",
    ast.Or: "and",
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}
# Not looked into: what a reader of types, and what an error says.
LEFT_ALONE = {"annotation", "returns", "decorator_list", "exc", "cause"}


class Fault(NamedTuple):
    """One changed line: its file from the root, its number, what it becomes."""

    file: str
    line: int
    shown: str


def faults_of(file: str, text: str) -> list[Fault]:
    """All faults that a module's text could have, in the order of its lines."""
    lines, found = text.splitlines(), []
    for node in walk(ast.parse(text)):
        if getattr(node, "lineno", 0) != getattr(node, "end_lineno", 1):
            continue
        line = lines[node.lineno - 1].encode()  # Python counts columns in bytes
        before, after = line[: node.col_offset], line[node.end_col_offset :]
        for new in instead(node):
            shown = (before + new.encode() + after).decode()
            found.append(Fault(file, node.lineno, shown))
    return sorted(found)


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but docstrings, imports, `__all__`, annotations, what an error says."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if name in LEFT_ALONE or not isinstance(child, ast.AST):
                continue
            docstring = isinstance(getattr(child, "value", None), ast.Constant)
            if isinstance(child, ast.Expr) and docstring:
                continue
            names = isinstance(child, ast.Assign) and child.targets
            if names and is_named(names[0], "__all__"):
                continue
            if not isinstance(child, ast.JoinedStr | ast.Import | ast.ImportFrom):
                yield child
                yield from walk(child)


def is_named(node: ast.AST, *names: str) -> bool:
    """Whether a node is one of these names."""
    return isinstance(node, ast.Name) and node.id in names


def instead(node: ast.AST) -> Iterator[str]:
    """What could stand in a node's place."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield from swapped(node.left, node.ops[0], node.comparators[0])
    elif isinstance(node, ast.BinOp):
        yield from swapped(node.left, node.op, node.right)
    elif isinstance(node, ast.BoolOp) and len(node.values) == 2:
        yield from swapped(node.values[0], node.op, node.values[1])
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield str(node.value + 1)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.Expr | ast.AugAssign):
        yield "pass"
    elif isinstance(node, ast.Call):
        if is_named(node.func, *NAMES) and node.args:
            yield ast.unparse(node).replace(node.func.id, NAMES[node.func.id], 1)
        if getattr(node.func, "attr", "") == "control_dependencies":
            yield "tf.control_dependencies([])"


def swapped(left: ast.AST, kind: ast.AST, right: ast.AST) -> Iterator[str]:
    """Both sides with another operator between them."""
    if type(kind) in SWAPS:
        yield f"(({ast.unparse(left)}) {SWAPS[type(kind)]} ({ast.unparse(right)}))"


def modules() -> list[str]:
    """The modules to be tried, as paths from the root."""
    found = sorted((ROOT / "manygpu").rglob("*.py"))
    # An __init__ that only says what there is has nothing to go wrong.
    found = [f for f in found if f.name != "__init__.py" or "def " in f.read_text()]
    found += sorted((ROOT / "workshop").glob("[a-z]*.py"))
    return [f.relative_to(ROOT).as_posix() for f in found if f != Path(__file__)]


def tests_of(module: str) -> list[str]:
    """Files of tests for a module, the likeliest first."""
    path, tests = Path(module), ROOT / "tests"
    stem = path.parent.name if path.stem == "__init__" else path.stem.strip("_")
    if path.parts[0] == "workshop":
        found = [*(ROOT / "workshop/tests").glob(f"test_{stem}.py")]
        found += [tests / f"unit/test_{stem}.py", *tests.glob(f"unit/*/test_{stem}.py")]
        if not any(file.is_file() for file in found):
            found = sorted((ROOT / "workshop/tests").glob("test_*.py"))
    else:
        folder = tests / "unit" / path.relative_to("manygpu").parent
        found = sorted(folder.glob(f"test_{stem}*.py"))
        found += sorted((tests / "quick").glob(f"test_{stem}*.py"))
        if folder != tests / "unit":
            found += [*sorted(folder.glob("test_*.py"))]
            found += [tests / f"unit/test_{path.parts[1]}.py"]
        if path.parts[1] not in ("trace", "bench", "widgets", "records"):
            shared = ("compositions", "exports")
            found += [tests / f"unit/test_{name}.py" for name in shared]
        found += sorted((tests / "unit/bad_input").glob("test_*.py"))
    files = [p.relative_to(ROOT).as_posix() for p in found if p.is_file()]
    return list(dict.fromkeys(files))


def chosen(count: int, seed: int, only: str) -> list[Fault]:
    """So many faults, drawn from all places, each as likely as any other."""
    every = []
    for module in modules():
        if only in module:
            every += faults_of(module, (ROOT / module).read_text(encoding="utf-8"))
    return sorted(random.Random(seed).sample(every, min(count, len(every))))


@contextlib.contextmanager
def copy_with(fault: Fault | None) -> Iterator[Path]:
    """A copy of the project, with a fault in it or without."""
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        command = [
            "git",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, Path(folder) / name)
        (Path(folder) / ".git").symlink_to(ROOT / ".git")  # some tests ask it
        if fault:
            file = Path(folder) / fault.file
            lines = file.read_text(encoding="utf-8").split("\n")
            lines[fault.line - 1] = fault.shown
            file.write_text("\n".join(lines), encoding="utf-8")
        yield Path(folder)


def noticed_by(folder: Path, tests: Sequence[str], *options: str) -> str:
    """What fails in a copy: "a test", "the time-out", or "" if nothing does."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    running = subprocess.Popen(
        [*command, *options, *tests],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return "a test" if running.wait(WALL_S) else ""
    except subprocess.TimeoutExpired:
        return "the time-out"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)  # it, and whatever it started
        running.wait()


def lines_of(test: str) -> dict[str, list[str]] | None:
    """Through which lines each test of a file comes; None if one fails as it is."""
    found = defaultdict(list)
    with copy_with(None) as folder:
        options = ["--cov=manygpu", "--cov=workshop", "--cov-context=test"]
        if noticed_by(folder, [test], *options, "--cov-report="):
            return None
        data = CoverageData(str(folder / ".coverage"))
        data.read()
        for file in data.measured_files():
            name = Path(file).relative_to(folder.resolve()).as_posix()
            for line, tests in data.contexts_by_lineno(file).items():
                names = {t.rpartition("|")[0] for t in tests} - {""}
                found[f"{name}:{line}"] += sorted(names)
    return dict(found)


def tried(fault: Fault, through: dict[str, list[str]]) -> str:
    """What notices a fault: tests that come through its line, or the module's own."""
    own = tests_of(fault.file)
    names = through.get(f"{fault.file}:{fault.line}", [])
    names = [name for name in names if name.partition("::")[0] in own]
    with copy_with(fault) as folder:
        return (names and noticed_by(folder, names)) or noticed_by(folder, own[:1])


def main(words: Sequence[str]) -> int:
    """Try the faults; say which were noticed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--to", type=Path, default=ROOT / "_build" / "faults.json")
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args(words)
    faults = chosen(asked.count, asked.seed, asked.only)
    if asked.list:
        print("\n".join(f"{f.file}:{f.line}: {f.shown.strip()}" for f in faults))
        return 0
    asked.to.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(asked.to.read_text("utf-8")) if asked.to.is_file() else []
    known = {Fault(*fault): by for fault, by in kept if Fault(*fault) in faults}
    todo = [fault for fault in faults if fault not in known]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        files = sorted({test for fault in todo for test in tests_of(fault.file)})
        found = dict(zip(files, pool.map(lines_of, files), strict=True))
        if red := [file for file, lines in found.items() if lines is None]:
            print(f"these tests fail without any fault: {', '.join(red)}")
            return 1
        through = defaultdict(list)
        for lines in found.values():
            for line, tests in lines.items():
                through[line] += tests
        running = {pool.submit(tried, fault, through): fault for fault in todo}
        for number, future in enumerate(as_completed(running), 1):
            fault = running[future]
            known[fault] = by = future.result()
            asked.to.write_text(json.dumps(list(known.items())), encoding="utf-8")
            word = f"noticed by {by}" if by else "NOT NOTICED"
            place = f"{number}/{len(todo)} {fault.file}:{fault.line}"
            print(f"{place}: {word}: {fault.shown.strip()}", flush=True)
    late = sum(by == "the time-out" for by in known.values())
    noticed = sum(map(bool, known.values()))
    print(f"{noticed} of {len(known)} noticed, {late} of them by the time-out")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
