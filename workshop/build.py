"""Build and check the book, step by step.

python -m workshop.build book              execute what has changed, render the book
python -m workshop.build test              all that `make test` promises
python -m workshop.build quick             what needs no TensorFlow, in a minute
python -m workshop.build chapter NAME      one chapter: lint, export, tests, run, page
python -m workshop.build unit [NAME]       unit tests: all, or of what uses that chapter
python -m workshop.build alone [NAME]      chapters as single files: all, or that one
python -m workshop.build serve             serve the rendered book on loopback
"""

from __future__ import annotations

import dataclasses
import functools
import http.server
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from pathlib import Path
from unittest import mock

import pytest
import yaml

from manygpu.records import write_whole
from workshop import browser, notebooks, page_python, standalone
from workshop.keys import Keys, key
from workshop.needs import needed
from workshop.notebook_runs import at_once, notebook_of
from workshop.pages import ROOT, parts, reading_order
from workshop.serving import Pages

BUILD = ROOT / "_build"
FIRST_PAGE = BUILD / "html" / "book" / "index.html"
# What `make book` has executed and may take up again; what `make test` executes anew.
EXECUTED, CHECKED = ROOT / "_executed", ROOT / "_checked"
EDITORS = shutil.ignore_patterns(".ipynb_checkpoints", "__pycache__")
# `make book SOLUTIONS=no` leaves it out; links to it are cut as pages are read.
SOLUTIONS = "book/back/solutions"
# Both kinds of kernels that TensorFlow has for CPUs, unless the reader has chosen one.
KERNELS = "TF_ENABLE_ONEDNN_OPTS"
CHOSEN = os.environ.get(KERNELS)
PLAIN, ONEDNN = {KERNELS: CHOSEN or "0"}, {KERNELS: CHOSEN or "1"}
QUICK = ("tests/quick", "workshop/tests")
# A test that takes longer, also on a busy machine, hangs: it is ended, with its stacks.
PATIENCE_S = 300
# Run as single files by `make test`: a plain one, one with d2l, one with processes.
ALONE = ("two-devices", "many-devices", "many-workers")
STRICT = ("-W", "-n", "--keep-going")  # warnings and broken references are errors
# What the pages at the back must know of a chapter.
BACK = (
    "tests/quick/test_api.py::test_what_a_chapter_uses_is_there",
    "tests/quick/test_notation.py::test_each_symbol_of_a_chapter_is_explained",
)
# What its exercises are made of, and what must know of them: all or its own tests.
ASKED = ("manygpu/exercises", "solutions", "tests/quick/exercises")
COUNTED = ("tests/quick/test_teaching.py", "tests/quick/test_agents.py")
# Its own script has a first line that a folder with spaces in its name can break.
JUPYTER_BOOK = "from jupyter_book.cli.main import main; main()"


def python(*words: str | Path, **variables: str) -> None:
    """Run this environment's Python in the root; stop everything if it fails."""
    command, environment = [sys.executable, *map(str, words)], os.environ | variables
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


def steps(title: str, tasks: list[tuple[str, Callable[[], None]]]) -> None:
    """Do the tasks in turn, saying which one it is and how long it took."""
    begun = time.monotonic()
    for number, (name, task) in enumerate(tasks, 1):
        print(f"\n[{title} {number}/{len(tasks)}] {name}", flush=True)
        start = time.monotonic()
        task()
        print(f"  done in {time.monotonic() - start:.0f} s", flush=True)
    print(f"\n{title}: all done in {time.monotonic() - begun:.0f} s", flush=True)


# Copies of the book: executed and rendered, so that the sources stay clean.


def copy_pages(target: Path, keep: Sequence[str] = ()) -> None:
    """Copy what the book is made of into `target`, all but the notebooks in `keep`."""
    kept = {page: (target / f"{page}.ipynb").read_bytes() for page in keep}
    for name in ("workshop/static", "book"):
        shutil.rmtree(target / name, ignore_errors=True)
        shutil.copytree(ROOT / name, target / name, ignore=EDITORS)
    for page, notebook in kept.items():
        (target / f"{page}.ipynb").write_bytes(notebook)
    toc = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    if not with_solutions():
        (target / f"{SOLUTIONS}.md").unlink(missing_ok=True)
        toc = without_solutions(toc)
    write_whole(toc, target / "_toc.yml")
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    config["execute"]["execute_notebooks"] = "off"  # they are executed already
    write_whole(yaml.safe_dump(config), target / "_config.yml")


def without_solutions(toc: str) -> str:
    """What _toc.yml says, without the page of solutions."""
    lines = toc.splitlines(keepends=True)
    return "".join(line for line in lines if not line.endswith(f"{SOLUTIONS}\n"))


def with_solutions() -> bool:
    """Whether the page of solutions is wanted: SOLUTIONS=no says that it isn't.

    A copy of the book that was handed out has none.
    """
    asked = os.environ.get("SOLUTIONS", "yes")
    if asked not in ("yes", "no"):
        sys.exit(f"SOLUTIONS must be yes or no, got {asked!r}")
    return asked == "yes" and (ROOT / f"{SOLUTIONS}.md").is_file()


def render(source: Path, output: Path, *options: str) -> None:
    """Render an executed book into `output`/_build/html, every page anew.

    What Jupyter Book says is shown only if it fails.
    """
    for name in ("html", ".doctrees", ".jupyter_cache"):
        shutil.rmtree(output / "_build" / name, ignore_errors=True)
    command = [sys.executable, "-c", JUPYTER_BOOK, "build", source, "-q"]
    command += ["--path-output", output, *options]
    told = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "cwd": ROOT}
    told |= {"encoding": "utf-8", "errors": "replace"}
    done = subprocess.run(command, check=False, **told)
    if done.returncode:
        print(done.stdout[-20_000:], flush=True)
        sys.exit("the book can't be rendered: see above")


# Execution: nbmake's, see notebook_runs.py for what is added to it.


@dataclasses.dataclass
class Keeper:
    """Tells of each notebook that ran, as it ends."""

    then: Callable[[Path], None]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell of one that is right."""
        file = notebook_of(report)
        if file and report.passed:
            self.then(file)


def execute(
    files: Sequence[Path],
    at_once: int = 1,
    then: Callable[[Path], None] = lambda file: None,
    plugins: Sequence[str] = (),
    **variables: str,
) -> None:
    """Run notebooks by nbmake, into themselves; stop after the last if one failed.

    Args:
        files: started in this order.
        at_once: how many run side by side.
        then: called with each file that ran without a fault, as soon as it did.
        plugins: modules of pytest plugins, beside the one that all runs have.
        variables: of the environment, beside this process's.
    """
    words = ["--nbmake", "--overwrite", "-q", "--no-header", "--tb=no"]
    for plugin in ("workshop.notebook_runs", *plugins, "no:warnings"):
        words += ["-p", plugin]
    words += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]
    words += ["-n", str(at_once), "--dist", "worksteal", *map(str, files)]
    with mock.patch.dict(os.environ, variables):
        status = pytest.main(words, plugins=[Keeper(then)])
    if status == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if status != pytest.ExitCode.OK:
        sys.exit(int(status))


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
    first, *_ = parts()
    if todo := [p for p in first if p not in done]:
        execute_and_keep(todo, keys, now)
        done += todo
        render(EXECUTED, ROOT)  # pages that have not run lack what others link to
        spent = time.monotonic() - begun
        print(f"\nThe first part can be read after {spent:.0f} s: {FIRST_PAGE}")
        print("The rest goes on; breaking it off loses nothing.\n", flush=True)
    execute_and_keep([p for p in now if p not in done], keys, now)
    render(EXECUTED, ROOT, *STRICT)
    if why := page_python.package()[1]:
        print(f"\n{page_python.ADVICE.format(why=why)}")
    print(f"\nbook: all done in {time.monotonic() - begun:.0f} s")
    print(f"First page: {FIRST_PAGE}\n`make serve` serves it.")


def execute_and_keep(pages: Sequence[str], keys: Keys, now: dict[str, str]) -> None:
    """Execute pages one at a time, for readers look at their times; keep each."""
    files = {EXECUTED / f"{page}.ipynb": page for page in pages}
    if pages:
        execute([*files], then=lambda f: keys.note(files[f], now[files[f]]))


# make test, make quick


def lint() -> None:
    """Ruff on package, tests and notebooks; the notebooks' own rules."""
    python("-m", "ruff", "check", ".")
    python("-m", "ruff", "format", "--check", ".")
    python("-m", "workshop.notebooks", "lint")


def pytest_on(*words: str | Path, **variables: str) -> None:
    """Run tests on all cores; one that has nothing left takes some of another's.

    A browser's answer, say, is waited for without end. So a test that takes PATIENCE_S
    ends its process, which prints what each thread was doing; pytest names the test
    and goes on with the others in a new process.
    """
    options = ["-q", "-n", "auto", "--dist", "worksteal"]
    options += ["-o", f"faulthandler_timeout={PATIENCE_S}"]
    options += ["-o", "faulthandler_exit_on_timeout=true"]
    python("-m", "pytest", *options, *words, **variables)


def execute_all() -> None:
    """Execute every notebook, several at a time, into fresh copies of the pages."""
    shutil.rmtree(CHECKED, ignore_errors=True)
    copy_pages(CHECKED)
    files = [CHECKED / f"{page}.ipynb" for page in reading_order()]
    forked = ["workshop.forked_kernels"]
    execute(files, at_once(), plugins=forked, MANYGPU_OFFLINE="1", **ONEDNN)


def execute_alone(*names: str) -> None:
    """Run chapters as the single files that readers get, all if none is named.

    They lie outside the repository, and manygpu can't be imported but from what each
    carries: neither here nor in the processes that they start.
    """
    with tempfile.TemporaryDirectory() as place:
        files = standalone.write(Path(place) / "alone", names)
        given = {"MANYGPU_OFFLINE": "1", "MANYGPU_DATA": "carried"}
        given["PYTHONPATH"] = str(ROOT / "workshop" / "no_manygpu")
        execute(files, at_once(), **given)


def render_and_open_figures() -> None:
    """Render, which one core does; meanwhile open figures, which need no book."""
    with futures.ThreadPoolExecutor() as pool:
        rendered = pool.submit(render, CHECKED, CHECKED, *STRICT)
        pytest_on("tests/rendered", "-m", "not rendered")
        rendered.result()


def open_pages() -> None:
    """Open the rendered book in a browser."""
    html = str(CHECKED / "_build" / "html")
    pytest_on("tests/rendered", "-m", "rendered", BOOK_HTML=html)


NO_TENSORFLOW = [
    ("lint: code, notebooks", lint),
    ("tests that need no TensorFlow", lambda: pytest_on(*QUICK)),
]


def unit_tests(*tests: Path) -> tuple[str, Callable[[], None]]:
    """The step of unit and property tests, with the plain kernels."""
    asked = tests or ["tests/unit"]
    said = f"unit and property tests {say_kernels(PLAIN)}"
    return said, lambda: pytest_on(*asked, **PLAIN)


def test() -> None:
    """Everything that must hold, the fastest first; both kinds of kernels."""
    tasks = [
        ("a browser for the last step", lambda: print(f"  {browser.ensure()}")),
        ("Python for a page", lambda: print(f"  {page_python.ensure()}")),
        *NO_TENSORFLOW,
        unit_tests(),
        (f"run every notebook {say_kernels(ONEDNN)}", execute_all),
        (f"run {len(ALONE)} chapters as single files", lambda: execute_alone(*ALONE)),
        ("render the book from those runs, open its figures", render_and_open_figures),
        ("open the rendered book in a browser", open_pages),
    ]
    steps("test", tasks)


def say_kernels(kind: dict[str, str]) -> str:
    """Which kernels a step runs with, in words."""
    return f"with oneDNN {'on' if kind[KERNELS] == '1' else 'off'}"


def quick() -> None:
    """All that needs no TensorFlow."""
    steps("quick", NO_TENSORFLOW)


# make chapter


def chapter(*names: str) -> None:
    """One chapter, from its notebook to its page."""
    page = asked_page(*names)
    source = ROOT / f"{page}.ipynb"
    tests = notebooks.tests_of(source)
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3"}  # its greetings look like failures
    tasks = {
        "lint, export": lambda: lint_and_export(source, tests),
        "its exercises, and the pages that count them": lambda: exercises(page),
        "its unit tests": lambda: pytest_on(*tests, **quiet) if tests else None,
        "run it": lambda: run_chapter(page),
        "its page": lambda: chapter_page(page),
        "how much of its code teaches": lambda: chapter_size(page),
    }
    steps(names[0], [*tasks.items()])


def asked_page(*names: str) -> str:
    """The page of the one chapter that is asked for; stop if there is none."""
    pages = [p for p in notebooks.chapters() if names == (p.stem,)]
    if not pages:
        known = ", ".join(Path(p).name for p in reading_order())
        sys.exit(f"usage: make chapter C=NAME, where NAME is one of {known}")
    return pages[0].relative_to(ROOT).with_suffix("").as_posix()


def lint_and_export(source: Path, tests: Sequence[Path]) -> None:
    """Lint a chapter and its tests, and what the book lacks; write what it exports."""
    if wrong := notebooks.told(source):
        sys.exit("\n".join(wrong))
    python("-m", "ruff", "check", source, *tests, *ASKED)
    python("-m", "ruff", "format", "--check", source, *tests, *ASKED)
    notebooks.export()
    page = source.relative_to(ROOT).with_suffix("").as_posix()
    python("-m", "pytest", "-q", *(f"{test}[{page}]" for test in BACK))


def exercises(page: str) -> None:
    """Test one chapter's exercises, their answers, and the pages that list them."""
    own = [Path(page).name, *(Path(test).stem for test in COUNTED)]
    python("-m", "pytest", "-q", ASKED[-1], *COUNTED, "-k", " or ".join(own))


def run_chapter(page: str) -> None:
    """Execute one chapter, as `make book` would, and keep it for that."""
    now = key(ROOT / f"{page}.ipynb", {})
    target = EXECUTED / f"{page}.ipynb"
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / f"{page}.ipynb", target)
    execute_and_keep([page], Keys(EXECUTED), {page: now})


def chapter_page(page: str) -> None:
    """Render one chapter alone."""
    alone = BUILD / "chapter"
    copy_pages(alone)
    shutil.copyfile(EXECUTED / f"{page}.ipynb", alone / f"{page}.ipynb")
    toc = {"format": "jb-book", "root": page}
    write_whole(yaml.safe_dump(toc), alone / "_toc.yml")
    # Links to other chapters lead nowhere here; the whole book is checked elsewhere.
    render(alone, alone)
    print(f"  {(alone / '_build' / 'html' / page).as_uri()}.html")


def chapter_size(page: str) -> None:
    """Say how long the page is, and how much of the code that it shows teaches."""
    python("-m", "workshop.sizes", BUILD / "chapter" / "_build" / "html", page)


def unit(*names: str) -> None:
    """All unit tests, or those of what uses what one chapter exports."""
    tests = dependents(asked_page(*names)) if names else []
    steps("unit", [unit_tests(*tests)])


def alone(*names: str) -> None:
    """Run every chapter as a single file, or one, with the lock's versions."""
    page = asked_page(*names) if names else ""
    execute_alone(*filter(None, [Path(page).name]))


def dependents(page: str) -> list[Path]:
    """The files of unit tests that use what a chapter exports, directly or not."""
    module = f"manygpu.scratch.{notebooks.own_module(ROOT / page)}"
    files = notebooks.TESTS.rglob("test_*.py")
    found = {p for p in files if module in needed(p.read_text(encoding="utf-8"))}
    return sorted(found.union(notebooks.tests_of(ROOT / f"{page}.ipynb")))


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


def main(words: list[str]) -> int:
    """Run one command; return the exit status."""
    asked, *names = words or [""]
    one = [chapter, unit, alone]
    known = one if names else [book, test, quick, serve, *one]
    command = {each.__name__: each for each in known}.get(asked)
    if command is None:
        print(__doc__)
        return 2
    try:
        command(*names)
    except subprocess.CalledProcessError as failed:
        print(f"\nfailed: {' '.join(map(str, failed.cmd))}", file=sys.stderr)
        return failed.returncode or 1
    except KeyboardInterrupt:
        print("\nbroken off; nothing that it started goes on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
