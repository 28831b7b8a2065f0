"""Build and check the book, step by step.

python -m workshop.build book              execute what has changed, render the book
python -m workshop.build test              all that `make test` promises
python -m workshop.build quick             what needs no TensorFlow, in a minute
python -m workshop.build chapter NAME      one chapter: lint, export, tests, run, page
python -m workshop.build unit [NAME]       unit tests: all, or of what uses that chapter
python -m workshop.build matrix [NAME...]  notebooks x devices x both kinds of kernels
python -m workshop.build oldest            notebooks and unit tests, as installed
python -m workshop.build serve             serve the rendered book on loopback
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import os
import re
import shutil
import subprocess
import sys
import time
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import nbformat
import pytest
import yaml

from workshop import browser, notebooks
from workshop.keys import Keys, key, modules, write_whole
from workshop.needs import needed
from workshop.notebook_runs import notebook_of
from workshop.pages import parts, reading_order
from workshop.serving import Pages

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "_build"
FIRST_PAGE = BUILD / "html" / "book" / "index.html"
# What `make book` has executed and may take up again; what `make test` executes anew.
EXECUTED, CHECKED = ROOT / "_executed", ROOT / "_checked"
MATRIX = (1, 2, 3, 4, 8)
PAGES = ("_config.yml", "_toc.yml", "workshop/static", "book")
KERNELS = "TF_ENABLE_ONEDNN_OPTS"
# Both kinds of kernels that TensorFlow has for CPUs, whatever this one would choose.
PLAIN, ONEDNN = {KERNELS: "0"}, {KERNELS: "1"}
PYTEST = ("-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal")
QUICK = ("tests/quick", "workshop/tests")
# What the pages at the back must know of a chapter.
BACK = (
    "tests/quick/test_api.py::test_what_a_chapter_uses_is_there",
    "tests/quick/test_notation.py::test_each_symbol_of_a_chapter_is_explained",
)
# Its own script has a first line that a folder with spaces in its name can break.
JUPYTER_BOOK = "from jupyter_book.cli.main import main; main()"
PENDING = """\
```{{note}}
This page has not run yet, so it has no numbers and no figures. `make book` reaches it
as {place} of {count}; load it again when that is done.
```"""
TO_CAPTION = re.compile(r"\[([^\]]*)\]\(#(?:figure|table)-[^)]+\)")


def run(*command: str | Path, **variables: str) -> None:
    """Run a command in the root; stop everything if it fails."""
    environment = {**os.environ, **variables}
    subprocess.run([*map(str, command)], cwd=ROOT, env=environment, check=True)


def python(*words: str | Path, **variables: str) -> None:
    """Run this environment's Python."""
    run(sys.executable, *words, **variables)


def steps(title: str, tasks: list[tuple[str, Callable[[], None]]]) -> None:
    """Do the tasks in turn, saying which one it is and how long it took."""
    begun = time.monotonic()
    for number, (name, task) in enumerate(tasks, 1):
        print(f"\n[{title} {number}/{len(tasks)}] {name}", flush=True)
        start = time.monotonic()
        task()
        print(f"  done in {time.monotonic() - start:.0f} s", flush=True)
    print(f"\n{title}: all done in {time.monotonic() - begun:.0f} s", flush=True)


def kernels(kind: dict[str, str]) -> dict[str, str]:
    """That kind of kernels, unless the reader has chosen one."""
    return {} if os.environ.get(KERNELS) else kind


def at_once() -> int:
    """How many notebooks run at once where nobody reads their times."""
    return max(1, min(4, os.cpu_count() or 1))


# Copies of the book: executed and rendered, so that the sources stay clean.


def copy_pages(target: Path, keep: Sequence[str] = ()) -> None:
    """Copy what the book is made of into `target`, all but the notebooks in `keep`."""
    kept = {target / f"{page}.ipynb" for page in keep}
    for name in PAGES:
        source = ROOT / name
        if source.is_file():
            place(source, target / name)
            continue
        files = [p for p in source.rglob("*") if p.is_file() and wanted(p)]
        there = {target / p.relative_to(ROOT) for p in files}
        for old in set((target / name).rglob("*")) - there:
            if old.is_file():
                old.unlink()
        for path in files:
            copy = target / path.relative_to(ROOT)
            if copy not in kept:
                place(path, copy)
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    config["execute"]["execute_notebooks"] = "off"  # they are executed already
    write_whole(target / "_config.yml", yaml.safe_dump(config))


def wanted(path: Path) -> bool:
    """Whether a file belongs to the book, and not to an editor or an interpreter."""
    return not {".ipynb_checkpoints", "__pycache__"} & set(path.parts)


def place(source: Path, target: Path) -> None:
    """Copy a file unless the same is there: what is older than its page is not read."""
    if target.is_file() and target.read_bytes() == source.read_bytes():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def render(source: Path, output: Path, anew: bool = True) -> None:
    """Render the book in `source`; warnings and broken references are errors.

    Args:
        source: a folder with _config.yml, _toc.yml and the executed book.
        output: below it goes _build/html.
        anew: read every page again, as a check must; else only those that changed.
    """
    if anew:
        for name in ("html", ".doctrees", ".jupyter_cache"):
            shutil.rmtree(output / "_build" / name, ignore_errors=True)
    strict = ["-W", "-n", "--keep-going"]
    jupyter_book("build", source, "--path-output", output, *strict)


def jupyter_book(*words: str | Path) -> None:
    """Run Jupyter Book; what it says is shown only if it fails."""
    command = [sys.executable, "-c", JUPYTER_BOOK, *map(str, words), "-q"]
    told = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    told |= {"encoding": "utf-8", "errors": "replace"}
    done = subprocess.run(command, cwd=ROOT, check=False, **told)
    if done.returncode:
        print(done.stdout[-20_000:], flush=True)
        raise subprocess.CalledProcessError(done.returncode, ["jupyter-book", *words])


# Execution: nbmake's, see notebook_runs.py for what is added to it.


class Keeper:
    """Tells of each notebook that ran, as it ends."""

    def __init__(self, then: Callable[[Path], None]) -> None:
        self.then = then

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell of one that is right."""
        file = notebook_of(report)
        if file and report.passed:
            self.then(file)


def execute(
    files: Sequence[Path],
    *options: str,
    at_once: int = 1,
    then: Callable[[Path], None] = lambda file: None,
    **variables: str | None,
) -> None:
    """Run notebooks by nbmake; stop after the last if one failed.

    Args:
        files: started in this order; left as they are without `--overwrite`.
        options: more of pytest's, such as "--nbmake-kernel=NAME".
        at_once: how many run side by side.
        then: called with each file that ran without a fault, as soon as it did.
        variables: of the environment, beside this process's; None takes one away.
    """
    words = ["--nbmake", "-q", "--no-header", "--tb=no"]
    words += ["-p", "workshop.notebook_runs", "-p", "no:warnings"]
    words += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]
    words += ["-n", str(at_once), "--dist", "worksteal", *options, *map(str, files)]
    with environment(variables):
        status = pytest.main(words, plugins=[Keeper(then)])
    if status == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if status != pytest.ExitCode.OK:
        sys.exit(int(status))


@contextlib.contextmanager
def environment(variables: dict[str, str | None]) -> Iterator[None]:
    """The environment with these variables, or without those that are None."""
    with mock.patch.dict(os.environ):
        for name, value in variables.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        yield


# make book


def book() -> None:
    """Execute what has changed, in reading order; the first part can be read early."""
    begun = time.monotonic()
    keys = Keys(EXECUTED)
    now = {p: key(ROOT / f"{p}.ipynb", {}) for p in reading_order()}
    there = [p for p in now if (EXECUTED / f"{p}.ipynb").is_file()]
    done = [p for p in there if keys.fresh(p, now[p])]
    if done:
        print(f"{len(done)} of {len(now)} notebooks ran before and are unchanged")
    copy_pages(EXECUTED, keep=done)
    anew = surroundings_changed(keys)
    first, *_ = parts()
    todo = [p for p in first if p not in done]
    if todo:
        execute_and_keep(todo, keys, now)
        done += todo
        mark_pending([p for p in now if p not in done], list(now))
        render(EXECUTED, ROOT, anew)
        copy_pages(EXECUTED, keep=done)  # those marked as pending are to run
        anew = False
        spent = time.monotonic() - begun
        print(f"\nThe first part can be read after {spent:.0f} s: {FIRST_PAGE}")
        print("The rest goes on; breaking it off loses nothing.\n", flush=True)
    execute_and_keep([p for p in now if p not in done], keys, now)
    render(EXECUTED, ROOT, anew)
    print(f"\nbook: all done in {time.monotonic() - begun:.0f} s")
    print(f"First page: {FIRST_PAGE}\n`make serve` serves it.")


def execute_and_keep(pages: Sequence[str], keys: Keys, now: dict[str, str]) -> None:
    """Execute pages one at a time, for readers look at their times; keep each."""

    def keep(file: Path) -> None:
        page = page_of(file, EXECUTED)
        keys.note(page, now[page])

    if pages:
        files = [EXECUTED / f"{page}.ipynb" for page in pages]
        execute(files, "--overwrite", then=keep)


def page_of(file: Path, folder: Path) -> str:
    """The page that a notebook below a folder is: book/PART/CHAPTER."""
    return file.relative_to(folder).with_suffix("").as_posix()


def mark_pending(pages: Sequence[str], order: list[str]) -> None:
    """Say on each page that has not run that it has not."""
    for page in pages:
        notebook = nbformat.read(ROOT / f"{page}.ipynb", as_version=4)
        text = PENDING.format(place=order.index(page) + 1, count=len(order))
        for cell in notebook.cells:
            if cell.cell_type == "markdown":  # its figures are not there to link to
                cell.source = TO_CAPTION.sub(r"\1", cell.source)
        notebook.cells.insert(1, nbformat.v4.new_markdown_cell(text, id="pending"))
        path = EXECUTED / f"{page}.ipynb"
        write_whole(path, nbformat.writes(notebook) + "\n")


def surroundings_changed(keys: Keys) -> bool:
    """Whether anything but notebooks changed: then every page is read anew."""
    paths = [ROOT / "requirements.txt", ROOT / "_config.yml", ROOT / "_toc.yml"]
    for folder in ("workshop/extensions", "workshop/static", "manygpu", "book"):
        paths += sorted(p for p in (ROOT / folder).rglob("*.*") if p.is_file())
    texts = [p.read_bytes() for p in paths if p.suffix != ".ipynb" and wanted(p)]
    found = hashlib.sha256(b"".join(texts)).hexdigest()
    changed = not keys.fresh("surroundings", found)
    keys.note("surroundings", found)
    return changed or not FIRST_PAGE.is_file()


# make test, make quick, make oldest, make matrix


def lint() -> None:
    """Ruff on package, tests and notebooks; the notebooks' own rules."""
    python("-m", "ruff", "check", ".")
    python("-m", "ruff", "format", "--check", ".")
    python("-m", "workshop.notebooks", "lint")


def pytest_on(*words: str | Path, **variables: str) -> None:
    """Run tests on all cores; one that has nothing left takes some of another's."""
    python(*PYTEST, *words, **variables)


def execute_all(**variables: str) -> None:
    """Execute every notebook, several at a time, into fresh copies of the pages."""
    shutil.rmtree(CHECKED, ignore_errors=True)
    copy_pages(CHECKED)
    files = [CHECKED / f"{page}.ipynb" for page in reading_order()]
    offline = {"MANYGPU_OFFLINE": "1", **variables}
    execute(files, "--overwrite", at_once=at_once(), **offline)


def test() -> None:
    """Everything that must hold, the fastest first; both kinds of kernels."""
    html = str(CHECKED / "_build" / "html")
    steps(
        "test",
        [
            ("a browser for the last step", lambda: print(f"  {browser.ensure()}")),
            ("lint: code, notebooks", lint),
            ("tests that need no TensorFlow", lambda: pytest_on(*QUICK)),
            (
                f"unit and property tests {say_kernels(PLAIN)}",
                lambda: pytest_on("tests/unit", **kernels(PLAIN)),
            ),
            (
                f"run every notebook {say_kernels(ONEDNN)}",
                lambda: execute_all(**kernels(ONEDNN)),
            ),
            ("render the book from those runs", lambda: render(CHECKED, CHECKED)),
            (
                "open the rendered book in a browser",
                lambda: pytest_on("tests/rendered", BOOK_HTML=html),
            ),
        ],
    )


def say_kernels(kind: dict[str, str]) -> str:
    """Which kernels a step runs with, in words."""
    chosen = (kernels(kind) or dict(os.environ))[KERNELS]
    return f"with oneDNN {'on' if chosen == '1' else 'off'}"


def quick() -> None:
    """All that needs no TensorFlow."""
    tests = ("tests that need no TensorFlow", lambda: pytest_on(*QUICK))
    steps("quick", [("lint: code, notebooks", lint), tests])


def oldest() -> None:
    """Unit tests and notebooks with the TensorFlow and Keras of this environment."""
    import keras
    import numpy
    import tensorflow

    print(f"TensorFlow {tensorflow.__version__}, Keras {keras.__version__}", end=", ")
    print(f"NumPy {numpy.__version__}, Python {sys.version.split()[0]}")
    tasks = [
        ("run every notebook", lambda: execute_all(**kernels(ONEDNN))),
        ("unit tests", lambda: pytest_on("tests/unit", **kernels(PLAIN))),
    ]
    steps("oldest", tasks)


def matrix(*names: str) -> None:
    """Every notebook with each number of devices and both kinds of kernels.

    What was green before and has not changed is not run again.
    """
    keys = Keys(BUILD / "matrix")
    pages = [p for p in reading_order() if not names or Path(p).name in names]
    failed = 0
    for kind in (ONEDNN, PLAIN):
        for count in MATRIX:
            label = f"{count} devices, {KERNELS}={kind[KERNELS]}"
            variables = {"MANYGPU_DEVICES": str(count), "MANYGPU_OFFLINE": "1", **kind}
            failed += not column(label, pages, variables, keys)
    if failed:
        sys.exit(f"\n{failed} of {2 * len(MATRIX)} columns have a red notebook")
    print(f"matrix: {len(pages)} notebooks x {2 * len(MATRIX)} columns green")


def column(
    label: str, pages: Sequence[str], variables: dict[str, str], keys: Keys
) -> bool:
    """Run the notebooks with these variables; return whether all are green."""
    files = {ROOT / f"{page}.ipynb": page for page in pages}
    now = {f: key(f, variables) for f in files}
    todo = [f for f in files if not keys.fresh(f"{files[f]}, {label}", now[f])]
    print(f"\n{label}: {len(files) - len(todo)} of {len(files)} green before")

    def keep(file: Path) -> None:
        keys.note(f"{files[file]}, {label}", now[file])

    try:
        if todo:
            execute(todo, at_once=at_once(), then=keep, **variables)
    except SystemExit:  # the other columns are told, too
        return False
    return True


# make chapter


def chapter(*names: str) -> None:
    """One chapter, from its notebook to its page."""
    page = asked_page(*names)
    source = ROOT / f"{page}.ipynb"
    tests = notebooks.tests_of(source)
    tasks = [
        ("lint, export", lambda: lint_and_export(source, tests)),
        ("its unit tests, and run it", lambda: test_and_run(page, tests)),
        ("its page", lambda: chapter_page(page)),
        ("how much of it is code", lambda: chapter_size(page)),
    ]
    steps(names[0], tasks)
    others = importers(page)
    if others:
        print("These may use what it exports, and `make book` runs them if it changed:")
        print("  " + ", ".join(Path(p).name for p in others))
        count = len(dependents(page))
        print(f"`make unit C={names[0]}` runs the {count} files of tests that use it.")


def asked_page(*names: str) -> str:
    """The page of the one chapter that is asked for; stop if there is none."""
    pages = [p for p in notebooks.chapters() if names == (p.stem,)]
    if not pages:
        known = ", ".join(Path(p).name for p in reading_order())
        sys.exit(f"usage: make chapter C=NAME, where NAME is one of {known}")
    return page_of(pages[0], ROOT)


def lint_and_export(source: Path, tests: Sequence[Path]) -> None:
    """Lint a chapter and its tests, and what the book lacks; write what it exports."""
    wrong = notebooks.told(source)
    if wrong:
        sys.exit("\n".join(wrong))
    for command in ("check", "format"):
        words = ["--check"] if command == "format" else []
        python("-m", "ruff", command, *words, source, *tests)
    notebooks.export()
    page = page_of(source, ROOT)
    python("-m", "pytest", "-q", *(f"{test}[{page}]" for test in BACK))


def test_and_run(page: str, tests: Sequence[Path]) -> None:
    """Run a chapter beside its tests: neither keeps all cores busy."""
    with ThreadPoolExecutor(1) as beside:
        tested = beside.submit(lambda: tests and pytest_quietly(*tests))
        run_chapter(page)
        tested.result()


def pytest_quietly(*tests: Path) -> None:
    """Run tests; TensorFlow's greetings look like failures, so only if one fails."""
    command = [sys.executable, *PYTEST, *map(str, tests)]
    told = {"stderr": subprocess.PIPE, "encoding": "utf-8", "errors": "replace"}
    done = subprocess.run(command, cwd=ROOT, check=False, **told)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        raise subprocess.CalledProcessError(done.returncode, command)


def run_chapter(page: str) -> None:
    """Execute one chapter, as `make book` would, and keep it for that."""
    now = key(ROOT / f"{page}.ipynb", {})
    place(ROOT / f"{page}.ipynb", EXECUTED / f"{page}.ipynb")
    execute_and_keep([page], Keys(EXECUTED), {page: now})


def chapter_page(page: str) -> None:
    """Render one chapter alone, and open it where there is a display."""
    alone = BUILD / "chapter"
    copy_pages(alone)
    shutil.copyfile(EXECUTED / f"{page}.ipynb", alone / f"{page}.ipynb")
    toc = {"format": "jb-book", "root": page}
    write_whole(alone / "_toc.yml", yaml.safe_dump(toc))
    # Links to other chapters lead nowhere here; the whole book is checked elsewhere.
    jupyter_book("build", alone)
    path = alone / "_build" / "html" / f"{page}.html"
    print(f"  {path}")
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if display or sys.platform in ("darwin", "win32"):
        webbrowser.open(path.as_uri())


def chapter_size(page: str) -> None:
    """Say how large the page is, and stop if more of it is code than may be."""
    if browser.find():
        python("-m", "workshop.sizes", BUILD / "chapter" / "_build" / "html", page)
    else:
        print("  no browser is here to measure it; `make sizes` does where one is")


def unit(*names: str) -> None:
    """All unit tests, or those of what uses what one chapter exports."""
    tests = dependents(asked_page(*names)) if names else ["tests/unit"]
    said = f"unit and property tests {say_kernels(PLAIN)}"
    steps("unit", [(said, lambda: pytest_on(*tests, **kernels(PLAIN)))])


def dependents(page: str) -> list[Path]:
    """The files of unit tests that use what a chapter exports, directly or not."""
    module = f"manygpu.scratch.{notebooks.own_module(ROOT / page)}"
    files = sorted(notebooks.TESTS.rglob("test_*.py"))
    found = [p for p in files if module in needed(p.read_text(encoding="utf-8"))]
    own = notebooks.tests_of(ROOT / f"{page}.ipynb")
    return sorted({*found, *own})


def importers(page: str) -> list[str]:
    """The chapters that use what this one exports."""
    module = notebooks.default_module(ROOT / f"{page}.ipynb")
    others = [p for p in reading_order() if p != page]
    name = f"manygpu.scratch.{module}"
    return [p for p in others if name in modules(ROOT / f"{p}.ipynb")]


def serve() -> None:
    """Serve the rendered book on loopback until interrupted."""
    html = BUILD / "html"
    # The root's door is written last: a build that was broken off has none.
    if not (html / "index.html").is_file():
        sys.exit("There is no rendered book yet: run `make book` first.")
    handler = functools.partial(Pages, directory=html)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/book/index.html (Ctrl-C stops)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("\nstopped")


COMMANDS: dict[str, Callable[..., None]] = {
    "book": book,
    "test": test,
    "quick": quick,
    "oldest": oldest,
    "serve": serve,
}
WITH_NAMES: dict[str, Callable[..., None]] = {
    "chapter": chapter,
    "matrix": matrix,
    "unit": unit,
}


def main(words: list[str]) -> int:
    """Run one command; return the exit status."""
    command, *names = words or [""]
    known = WITH_NAMES if names else {**COMMANDS, **WITH_NAMES}
    if command not in known:
        print(__doc__)
        return 2
    try:
        known[command](*names)
    except subprocess.CalledProcessError as failed:
        print(f"\nfailed: {' '.join(map(str, failed.cmd))}", file=sys.stderr)
        return failed.returncode or 1
    except KeyboardInterrupt:
        print("\nbroken off; nothing that it started goes on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
