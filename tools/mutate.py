"""Put small faults into the package, one at a time, and see whether tests notice.

python -m tools.mutate [--count 300] [--seed 0] [--only TEXT] [--to FILE] [--list]
    --only: modules whose path holds TEXT; --list: say the faults, try none;
    --again: try once more what no test noticed.

Each fault changes one place of one line: a comparison, an operator, a number, a truth
value, min for max, a statement left out, control dependencies dropped. Of the tests of
the module that was changed, those run that come through the changed line, until one
fails. Before, all pass once without any fault; that also finds out through which lines
each of them comes. All of the module's tests run where the line is one that none comes
through: it runs when the module is imported, or in another process. What no test
noticed is listed; look at each: some faults change nothing. A run that is broken off
is taken up with the same --to.

Faults in JavaScript are put into the rendered pages, which a browser opens: they need
the book that `make book` or `make test` has rendered.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import hashlib
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
# A fault can make a loop endless. On a busy machine only the wall's clock goes on.
CPU_S, WALL_S = 240, 900

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
# JavaScript has no parser here: its strings and comments are stepped over.
SCRIPT = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`"""
    r"""|=>|\+\+|--|(?P<fault>[!=]==|[<>]=?|&&|\|\||[-+]=|[-+*/%]"""
    r"""|\b(?:true|false|min|max)\b|\b\d+\b(?!\.\d))""",
    re.DOTALL,
)
SCRIPT_SWAPS = {"===": "!==", "<": "<=", ">": ">=", "&&": "||", "+=": "-=", "+": "-"}
SCRIPT_SWAPS |= {"true": "false", "min": "max"}
SCRIPT_SWAPS |= {new: old for old, new in SCRIPT_SWAPS.items()}
SCRIPT_SWAPS |= {"*": "+", "/": "*", "%": "*"}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}


@dataclass(frozen=True)
class Fault:
    """One changed place.

    Attributes:
        file: path from the root.
        line: its number.
        start, end: place in the file's text.
        new: what stands there instead.
        shown: the line as it becomes.
    """

    file: str
    line: int
    start: int
    end: int
    new: str
    shown: str

    def applied(self, text: str) -> str:
        """The file's text with the fault in it."""
        return text[: self.start] + self.new + text[self.end :]


class Text:
    """A module's text, and where each node of its tree stands in it."""

    def __init__(self, text: str) -> None:
        self.text, self.tree = text, ast.parse(text)
        self.lines = text.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def place(self, line: int, column: int) -> int:
        """Where in the text; Python counts a line's columns in bytes."""
        before = self.lines[line - 1].encode("utf-8")[:column]
        return self.starts[line - 1] + len(before.decode("utf-8"))

    def span(self, node: ast.AST) -> tuple[int, int]:
        """From where to where a node goes."""
        start = self.place(node.lineno, node.col_offset)
        return start, self.place(node.end_lineno, node.end_col_offset)

    def of(self, node: ast.AST) -> str:
        """A node as it is written."""
        start, end = self.span(node)
        return self.text[start:end]


def faults_of(file: str, text: str) -> list[Fault]:
    """All faults that a module's text could have, in the order of its lines."""
    if file.endswith(".js"):
        return _faults_of_script(file, text)
    whole, found = Text(text), []
    for node, new in _changes(whole):
        start, end = whole.span(node)
        line = whole.lines[node.lineno - 1]
        begin = whole.starts[node.lineno - 1]
        shown = line[: start - begin] + new + line[end - begin :]
        found.append(Fault(file, node.lineno, start, end, new, shown.strip()))
    return sorted(found, key=lambda f: (f.start, f.new))


def _faults_of_script(file: str, text: str) -> list[Fault]:
    """The same for JavaScript."""
    found = []
    for match in SCRIPT.finditer(text):
        old = match["fault"]
        if old:
            new = str(int(old) + 1) if old.isdigit() else SCRIPT_SWAPS[old]
            start, end = match.span()
            begin = text.rfind("\n", 0, start) + 1
            line = text[begin:start] + new + text[end:].partition("\n")[0]
            number = text.count("\n", 0, start) + 1
            found.append(Fault(file, number, start, end, new, line.strip()))
    return found


def _changes(text: Text) -> Iterator[tuple[ast.AST, str]]:
    """Nodes, and what could take their place."""
    for node in _walk(text.tree):
        if getattr(node, "lineno", 0) != getattr(node, "end_lineno", 1):
            continue
        if isinstance(node, ast.Compare | ast.BinOp | ast.BoolOp):
            yield from _swapped(node, text)
        elif isinstance(node, ast.Constant):
            yield from _other_value(node)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node, f"({text.of(node.operand)})"
        elif isinstance(node, ast.Call):
            yield from _other_call(node, text.of(node))
        elif isinstance(node, ast.Expr | ast.AugAssign):
            yield node, "pass"


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but docstrings, annotations, and what an error says."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or (
            isinstance(node, ast.Raise) and name in ("exc", "cause")
        ):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr):
                continue
            if isinstance(child, ast.Import | ast.ImportFrom) or _is_text(child):
                continue
            yield child
            yield from _walk(child)


def _is_text(node: ast.AST) -> bool:
    """Whether it is a docstring, or `__all__`, or a name for types."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id == "__all__"
    return False


def _swapped(node: ast.AST, text: Text) -> Iterator[tuple[ast.AST, str]]:
    if isinstance(node, ast.Compare):
        left, right, kind = node.left, node.comparators[0], type(node.ops[0])
        if len(node.ops) > 1:
            return
    elif isinstance(node, ast.BoolOp):
        left, right, kind = node.values[0], node.values[-1], type(node.op)
        if len(node.values) > 2:
            return
    else:
        left, right, kind = node.left, node.right, type(node.op)
    if kind in SWAPS:
        yield node, f"(({text.of(left)}) {SWAPS[kind]} ({text.of(right)}))"


def _other_value(node: ast.Constant) -> Iterator[tuple[ast.AST, str]]:
    if isinstance(node.value, bool):
        yield node, str(not node.value)
    elif isinstance(node.value, int):
        yield node, str(node.value + 1)


def _other_call(node: ast.Call, source: str) -> Iterator[tuple[ast.AST, str]]:
    name = node.func
    if isinstance(name, ast.Name) and name.id in NAMES and node.args:
        yield node, source.replace(name.id, NAMES[name.id], 1)
    if isinstance(name, ast.Attribute) and name.attr == "control_dependencies":
        yield node, "tf.control_dependencies([])"


def modules() -> list[str]:
    """The modules to be tried, as paths from the root."""
    found = [n for n in _kept() if n.startswith(("manygpu/", "tools/"))]
    empty = {n for n in found if n.endswith("__init__.py")}
    empty -= {"manygpu/bench/__init__.py", "manygpu/records/__init__.py"}
    own = f"tools/{Path(__file__).name}"
    found += [n for n in _kept() if n.startswith("_static/")]
    found = [n for n in found if n.endswith((".py", ".js"))]
    return sorted(n for n in found if n not in {own, *empty})


def tests_of(module: str) -> list[str]:
    """Files of tests for a module, the likeliest first."""
    path = Path(module)
    if path.suffix == ".js":
        rendered = ROOT / "tests/rendered"
        found = [*rendered.glob(f"test_{path.stem}*.py"), rendered / "test_pages.py"]
    elif path.parts[0] == "tools":
        found = [ROOT / f"tests/quick/test_{path.stem}.py"]
        uses = re.compile(
            rf"^from tools(\.{path.stem}\b| import .*\b{path.stem}\b)", re.M
        )
        unit = sorted((ROOT / "tests/unit").rglob("test_*.py"))
        found += [p for p in unit if uses.search(p.read_text(encoding="utf-8"))]
        found += sorted((ROOT / "tests/quick").glob("test_*.py"))
    else:
        folder = ROOT / "tests/unit" / path.relative_to("manygpu").parent
        stem = path.parent.name if path.stem == "__init__" else path.stem.strip("_")
        found = sorted(folder.glob(f"test_{stem}*.py"))
        found += sorted((ROOT / "tests/quick").glob(f"test_{stem}*.py"))
        if folder != ROOT / "tests/unit":
            found += sorted(folder.glob("test_*.py"))
            found.append(ROOT / f"tests/unit/test_{path.parts[1]}.py")
        if path.parts[1] not in ("trace", "bench", "widgets", "records"):
            shared = ("compositions", "exports")
            found += [ROOT / f"tests/unit/test_{name}.py" for name in shared]
        found += sorted((ROOT / "tests/unit/bad_input").glob("test_*.py"))
    files = [p.relative_to(ROOT).as_posix() for p in found if p.is_file()]
    return list(dict.fromkeys(files))


def chosen(count: int, seed: int, only: str) -> list[Fault]:
    """So many faults, drawn from all places, each as likely as any other."""
    every = []
    for module in modules():
        if only in module:
            text = (ROOT / module).read_text(encoding="utf-8")
            every += faults_of(module, text)
    drawn = random.Random(seed).sample(every, min(count, len(every)))
    return sorted(drawn, key=lambda f: (f.file, f.start, f.new))


@functools.cache
def _kept() -> list[str]:
    """All files that git knows."""
    command = ["git", "ls-files", "-z"]
    found = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    names = found.stdout.decode("utf-8").split("\0")
    return [name for name in names if name and (ROOT / name).is_file()]


def noticed_by(
    fault: Fault,
    tests: Sequence[str] = (),
    only: Sequence[str] = (),
    lines_to: Path | None = None,
) -> str:
    """What fails in a copy of the project that has the fault: "" if nothing does.

    tests: files; else those of the fault's module. only: names of tests in them; else
    all. lines_to: a file for the lines that each test comes through.

    It is "a test", or "the time-out", which a fault's endless loop would reach.
    """
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        copy = Path(folder)
        for name in _kept():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            if "fashion-mnist" in name:
                (copy / name).symlink_to(ROOT / name)  # large, and read only
            else:
                shutil.copy(ROOT / name, copy / name)
        (copy / ".git").symlink_to(ROOT / ".git")  # some tests ask it for the files
        file = copy / fault.file
        text = file.read_text("utf-8")
        file.write_text(fault.applied(text), encoding="utf-8")
        if file.suffix == ".js":
            _copy_pages(copy, text, fault.applied(text))
        process = multiprocessing.get_context("forkserver").Process(
            target=_try,
            args=(folder, tests or tests_of(fault.file), only, lines_to),
        )
        process.start()
        process.join(WALL_S)
        late = process.is_alive()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # it, and whatever it started
        process.join()
        if late or process.exitcode == -signal.SIGXCPU:
            return "the time-out"
        return "a test" if process.exitcode else ""


def _copy_pages(copy: Path, old: str, new: str) -> None:
    """Put the rendered book into a copy of the project, another script in its pages."""
    made = [ROOT / folder / "_build" / "html" for folder in ("_checked", ".")]
    made = [html for html in made if (html / "book" / "index.html").is_file()]
    if not made:
        raise FileNotFoundError(
            "no rendered book: run `make book` or `make test` first"
        )
    html, changed = copy / "_build" / "html", 0
    shutil.copytree(made[0], html, copy_function=os.symlink)
    for path in [*html.rglob("*.html"), *html.rglob("*.js")]:
        text = path.read_text("utf-8")
        if old.strip() in text:
            path.unlink()
            path.write_text(text.replace(old.strip(), new.strip()), encoding="utf-8")
            changed += 1
    if not changed:
        raise FileNotFoundError(f"no page of {made[0]} holds this script: render anew")


class Lines:
    """A plugin of pytest: the lines of a folder that each test comes through.

    lines: by the test's name, "" for what several tests share, such as a fixture of a
    module. What runs in another process isn't seen.
    """

    def __init__(self, folder: str) -> None:
        self.folder, self.lines = f"{folder}/", defaultdict(set)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.now = self.lines[item.nodeid]
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        before = self.now
        self.now = before if fixturedef.scope == "function" else self.lines[""]
        try:
            return (yield)
        finally:
            self.now = before

    def _enter(self, frame: FrameType, event: str, value: Any) -> Any:
        """Called for each function that is entered: only those of the folder count."""
        return self._line if frame.f_code.co_filename.startswith(self.folder) else None

    def _line(self, frame: FrameType, event: str, value: Any) -> Any:
        file = frame.f_code.co_filename.removeprefix(self.folder)
        self.now.add(f"{file}:{frame.f_lineno}")
        return self._line


class Only:
    """A plugin of pytest: of the tests that it finds, these; all if none is there.

    names: of tests, or of files, which stand for all of theirs.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = set(names)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        files = {item: item.nodeid.partition("::")[0] for item in items}
        kept = [i for i in items if {i.nodeid, files[i]} & self.names]
        items[:] = kept or items


def _try(
    folder: str, tests: list[str], only: Sequence[str], lines_to: Path | None
) -> None:
    """In a process of its own: run the tests of the copy; 0 if all pass."""
    os.chdir(folder)
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 10))
    sys.path[:] = [folder, *(p for p in sys.path if Path(p or ".").resolve() != ROOT)]
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    lines = Lines(folder)
    plugins = [Only(only)] * bool(only) + [lines] * bool(lines_to)
    status = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests], plugins)
    if lines_to:
        found = {test: sorted(seen) for test, seen in lines.lines.items()}
        lines_to.write_text(json.dumps(found), encoding="utf-8")
    os._exit(status)


def tried_alone(
    faults: Sequence[Fault], pool: ThreadPoolExecutor, folder: Path
) -> tuple[list[str], dict[str, list[str]]]:
    """Run the tests without any fault.

    Returns the files that fail all the same, which could not tell a fault, and for each
    line the names of the tests that come through it. What was found is kept in `folder`
    for the next time, unless the package or the file has changed.
    """
    module = {test: fault.file for fault in faults for test in tests_of(fault.file)}
    package = _digest(n for n in _kept() if not n.startswith(("book/", "tests/")))
    shared = _digest(n for n in _kept() if re.match(r"tests/.*(conftest|helpers)", n))
    folder.mkdir(parents=True, exist_ok=True)
    files, running = {}, {}
    for test, file in sorted(module.items()):
        key = hashlib.sha256(f"{package}{shared}{_digest([test])}".encode()).hexdigest()
        files[test] = folder / f"{Path(test).stem}-{key[:16]}.json"
        if not files[test].is_file():
            one = Fault(file, 1, 0, 0, "", "")
            running[test] = pool.submit(noticed_by, one, [test], (), files[test])
    red = [test for test, by in running.items() if by.result()]
    for test in red:
        files[test].unlink(missing_ok=True)
    through = defaultdict(list)
    for test in module.keys() - set(red):
        for name, lines in json.loads(files[test].read_text("utf-8")).items():
            for line in lines:
                through[line].append(name or test)
    return red, through


def _digest(names: Iterable[str]) -> str:
    """One number for the contents of some files."""
    found = hashlib.sha256()
    for name in names:
        found.update(f"{name}\n".encode() + (ROOT / name).read_bytes())
    return found.hexdigest()


def tests_through(fault: Fault, through: dict[str, list[str]]) -> list[list[str]]:
    """The files of tests for a fault, and which of their tests: all if that is []."""
    files, names = tests_of(fault.file), through.get(f"{fault.file}:{fault.line}", [])
    some = [file for file in files if any(n.startswith(file) for n in names)]
    return [some or files, names]


def read(file: Path) -> dict[Fault, str]:
    """Faults that were tried, and what noticed each; all still fit the package."""
    known = {}
    for one in json.loads(file.read_text("utf-8")):
        fault = Fault(**one["fault"])
        lines = fault.applied((ROOT / fault.file).read_text("utf-8")).splitlines()
        if lines[fault.line - 1].strip() != fault.shown:
            raise ValueError(f"{fault.file} has changed: begin anew without {file}")
        known[fault] = one["noticed by"]
    return known


def tried(fault: Fault, through: dict[str, list[str]]) -> str:
    """What notices a fault: the tests that come through its line, or its module's own.

    TensorFlow rewrites what it makes a graph of; in that, no line is seen.
    """
    by = noticed_by(fault, *tests_through(fault, through))
    return by or noticed_by(fault, tests_of(fault.file)[:1])


def main(words: Sequence[str]) -> int:
    """Try the faults; say which were noticed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--to", type=Path, default=ROOT / "_build" / "faults.json")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--again", action="store_true")
    asked = parser.parse_args(words)
    faults = chosen(asked.count, asked.seed, asked.only)
    if asked.list:
        print("\n".join(f"{f.file}:{f.line}: {f.shown}" for f in faults))
        return 0
    asked.to.parent.mkdir(parents=True, exist_ok=True)
    known = read(asked.to) if asked.to.is_file() else {}
    todo = [fault for fault in faults if fault not in known]
    if asked.again:
        todo = [fault for fault, by in known.items() if not by]
    multiprocessing.get_context("forkserver").set_forkserver_preload(
        ["tensorflow", "numpy", "pytest", "hypothesis", "matplotlib.pyplot"]
    )
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        red, through = tried_alone(todo, pool, asked.to.with_suffix(".lines"))
        if red:
            print(f"these tests fail without any fault: {', '.join(red)}")
            return 1
        running = {pool.submit(tried, fault, through): fault for fault in todo}
        for number, future in enumerate(as_completed(running), 1):
            fault, by = running[future], future.result()
            known[fault] = by
            found = [{"fault": asdict(f), "noticed by": by} for f, by in known.items()]
            asked.to.write_text(json.dumps(found, indent=1), encoding="utf-8")
            word = f"noticed by {by}" if by else "NOT NOTICED"
            place = f"{fault.file}:{fault.line}"
            print(f"{number}/{len(todo)} {place}: {word}: {fault.shown}", flush=True)
    count = Counter(known.values())
    print(f"{len(known) - count['']} of {len(known)} noticed, ", end="")
    print(f"{count['the time-out']} of them by the time-out")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
