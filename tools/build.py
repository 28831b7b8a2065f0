"""Build and check the book, step by step.

python tools/build.py book      execute every chapter and render the book
python tools/build.py test      all that `make test` promises
python tools/build.py matrix    run every notebook with 1, 2, 3, 4 and 8 devices
python tools/build.py serve     serve the rendered book on loopback
"""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "_build"
# Copies: executed by nbmake, which looks into no _build, and rendered from there.
CHECKED = ROOT / "_checked"
MATRIX = (1, 2, 3, 4, 8)
PAGES = ("_config.yml", "_toc.yml", "_static", "extensions", "book")


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


def render(source: Path) -> None:
    """Render the book in `source`; warnings and broken references are errors."""
    shutil.rmtree(source / "_build" / "html", ignore_errors=True)
    shutil.rmtree(source / "_build" / ".doctrees", ignore_errors=True)
    shutil.rmtree(source / "_build" / ".jupyter_cache", ignore_errors=True)
    jupyter_book = Path(sys.executable).parent / "jupyter-book"
    run(jupyter_book, "build", source, "-W", "-n", "--keep-going", "-q")


def book() -> None:
    """Execute every chapter, render the book and say where its first page is."""
    steps("book", [("execute and render every chapter", lambda: render(ROOT))])
    print(f"\nFirst page: {ROOT / '_build' / 'html' / 'book' / 'index.html'}")
    print("`make serve` serves it.")


def lint() -> None:
    """Ruff on package, tests and notebooks; the notebooks' own rules."""
    python("-m", "ruff", "check", ".")
    python("-m", "ruff", "format", "--check", ".")
    python("tools/notebooks.py", "lint")


def copy_pages() -> None:
    """Copy what the book is made of, so that executing leaves the sources clean."""
    shutil.rmtree(CHECKED, ignore_errors=True)
    CHECKED.mkdir(parents=True)
    for name in PAGES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, CHECKED / name)
    config = yaml.safe_load((CHECKED / "_config.yml").read_text())
    config["execute"]["execute_notebooks"] = "off"  # they are executed already
    (CHECKED / "_config.yml").write_text(yaml.safe_dump(config))


def execute(**variables: str) -> None:
    """Run every notebook in the copies, top to bottom, keeping its outputs."""
    options = ["--nbmake", "--overwrite", "--nbmake-timeout=300", "-q", "--durations=0"]
    # The copies lie below the project's pyproject.toml, which names other tests.
    options += ["-c", os.devnull, "--rootdir", CHECKED, "-p", "no:cacheprovider"]
    python("-m", "pytest", *options, CHECKED / "book", **variables)


def pytest_on(folder: str, **variables: str) -> None:
    """Run one folder of tests."""
    python("-m", "pytest", "-q", folder, **variables)


def test() -> None:
    """Everything that must hold, the fastest first."""
    html = str(CHECKED / "_build" / "html")
    offline = {"MANYGPU_OFFLINE": "1"}
    steps(
        "test",
        [
            ("lint: code, notebooks", lint),
            ("unit and property tests", lambda: pytest_on("tests/unit")),
            ("copy the book", copy_pages),
            ("run every notebook", lambda: execute(**offline)),
            ("render the book from those runs", lambda: render(CHECKED)),
            (
                "open the rendered book in a browser",
                lambda: pytest_on("tests/rendered", BOOK_HTML=html),
            ),
        ],
    )


def matrix() -> None:
    """Run every notebook with each number of devices."""

    def with_devices(count: int) -> None:
        copy_pages()
        execute(MANYGPU_DEVICES=str(count), MANYGPU_OFFLINE="1")

    tasks = [
        (f"{n} device{'s' if n > 1 else ''}", functools.partial(with_devices, n))
        for n in MATRIX
    ]
    steps("matrix", tasks)


def serve() -> None:
    """Serve the rendered book on loopback until interrupted."""
    html = BUILD / "html"
    if not html.is_dir():
        sys.exit("There is no rendered book yet: run `make book` first.")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=html)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/book/index.html (Ctrl-C stops)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("\nstopped")


COMMANDS = {"book": book, "test": test, "matrix": matrix, "serve": serve}


def main(words: list[str]) -> int:
    """Run one command; return the exit status."""
    if len(words) != 1 or words[0] not in COMMANDS:
        print(__doc__)
        return 2
    try:
        COMMANDS[words[0]]()
    except subprocess.CalledProcessError as failed:
        print(f"\nfailed: {' '.join(failed.cmd)}", file=sys.stderr)
        return failed.returncode or 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
