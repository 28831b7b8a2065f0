"""Grades learners' notebooks: each in a process of its own, judged from outside.

`python -m manygpu grade FOLDER --chapter NAME` runs each notebook's cells in a process
that has limits of time and memory, and calls the functions it has written from here:
arguments go out and results come back as text, so that nothing a notebook does, to
`check` or to its memory, changes what is asked or how it is judged. A cell that never
ends, or ends its process, is left out when the notebook is run again. Each notebook's
row is written as soon as it is known.

This keeps accidents and small tricks apart. It is no prison: a notebook may read what
its user may read. For those you don't trust, run the command as a user of its own, in
a container without a network.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import html
import json
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from manygpu.exercises import KNOWN
from manygpu.exercises.checking import PUBLIC, Checked, answer_name, tried
from manygpu.exercises.wire import from_line, to_line
from manygpu.records import write_whole

HOMES = ("HOME", "TMPDIR", "IPYTHONDIR", "MPLCONFIGDIR", "XDG_CACHE_HOME")
SETTINGS = {
    "MANYGPU_OFFLINE": "1",
    "MPLBACKEND": "agg",
    "PYTHONDONTWRITEBYTECODE": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
CELL, MEMORY, RUNS = 60, 4.0, 4  # seconds a cell, gigabytes, starts of a notebook
WHOLE = 600  # seconds of a notebook, all its starts together
SLACK = 5  # seconds that a process gets to notice that its time is over
LARGE = 20e6  # bytes of a notebook file
COLUMNS = ("notebook", "points", "of", "seconds", "remarks")


class GoneError(Exception):
    """A learner's process has ended, or says nothing any more."""


class Grade(NamedTuple):
    """What a notebook got.

    Attributes:
        notebook: its file's name.
        checked: of each exercise, in order.
        seconds: that it took.
        remarks: what went wrong with the notebook itself.
    """

    notebook: str
    checked: tuple[Checked, ...]
    seconds: float
    remarks: tuple[str, ...] = ()

    @property
    def points(self) -> int:
        """One for each exercise whose cases all hold."""
        return sum(map(bool, self.checked))

    @property
    def row(self) -> dict[str, Any]:
        """Its row of the table."""
        known = self.notebook, self.points, len(self.checked), f"{self.seconds:.1f}"
        row = dict(zip(COLUMNS, (*known, "; ".join(self.remarks)), strict=True))
        return row | {
            each.name: "yes" if each else each.broken for each in self.checked
        }


class Pupil:
    """A process that has run a notebook's cells, and answers calls."""

    def __init__(
        self, cells: Sequence[tuple[int, str]], until: float, graded: Path, cell: int
    ) -> None:
        self.cells, self.until, self.graded, self.cell = cells, until, graded, cell
        self.start()

    def start(self) -> None:
        """Start the process; it begins with the cells."""
        self.failed: dict[int, str] = {}
        self.at: int | None = None
        self.gone = False
        self.folder = tempfile.TemporaryDirectory()
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG")}
        kept |= dict.fromkeys(HOMES, self.folder.name) | SETTINGS
        kept["PYTHONPATH"] = str(Path(__file__).parents[2])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "manygpu.exercises.pupil"],
            cwd=self.folder.name, env=kept, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True,
        )  # fmt: skip
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        asked = {"cells": self.cells, "seconds": self.cell, "gigabytes": MEMORY}
        asked["graded"] = str(self.graded)
        self._tell(json.dumps(asked))

    def _listen(self) -> None:
        """Take the process's lines, each cut where it is far too long."""
        while line := self.process.stdout.readline(2_000_000):
            self.lines.put(line)
        self.lines.put("")

    def _tell(self, line: str) -> None:
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError as wrong:
            raise GoneError("its process has ended") from wrong

    def _hear(self) -> dict[str, Any]:
        """The next line; GoneError if there is none in time."""
        left = min(self.cell + SLACK, self.until - time.monotonic())
        try:
            line = self.lines.get(timeout=max(left, 0.01))
        except queue.Empty as late:
            raise GoneError("it takes too long") from late
        try:
            said = json.loads(line)
        except ValueError as wrong:
            raise GoneError("its process has ended") from wrong
        if not isinstance(said, dict):
            raise GoneError("its process says what means nothing")
        return said

    def prepare(self) -> None:
        """Wait until the cells have run; `at` is the one that is running."""
        while not (said := self._hear()).get("ready"):
            if "failed" in said:
                self.failed[said["failed"]] = str(said.get("said"))
            self.at = said.get("cell", self.at)
        self.at = None

    def call(self, function: str, in_place: bool, given: tuple) -> Any:
        """What one of the notebook's functions returns; raises as it does."""
        try:
            self._tell(to_line((function, in_place, given)))
            said = self._hear()
        except GoneError:
            self.close()
            raise
        if "found" in said:
            return from_line(said["found"])
        if said.get("error") == "NotImplementedError":
            raise NotImplementedError(str(said.get("said")))
        raise RuntimeError(f"{said.get('error')}: {said.get('said')}")

    def close(self) -> None:
        """End the process and what it has started."""
        self.gone = True
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.folder.cleanup()


def cells_of(notebook: Path) -> dict[int, str] | str:
    """Each code cell by number; a text that says why there are none."""
    try:
        if notebook.stat().st_size > LARGE:
            return f"the file is larger than {LARGE / 1e6:g} MB"
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        codes = [c["source"] for c in cells if c["cell_type"] == "code"]
        return {i: "".join(code) for i, code in enumerate(codes, 1)}
    except (OSError, KeyError, TypeError, RecursionError, ValueError) as wrong:
        return f"the file is no notebook: {wrong!s:.100}"


def exercises_of(chapter: str) -> list[str]:
    """Names of a chapter's exercises; ValueError if there are none."""
    asked = [name for name, each in KNOWN.items() if not each.hunted]
    found = [name for name in asked if name.startswith(f"{chapter}/")]
    if not found:
        known = ", ".join(sorted({name.partition("/")[0] for name in asked}))
        raise ValueError(f"chapter must be one of {known}, got {chapter!r}")
    return found


def grade(
    notebook: Path,
    names: Sequence[str],
    seed: int,
    cells: dict[int, str] | str,
    seconds: int = CELL,
) -> Grade:
    """Run a notebook's cells and check its functions with the cases of a seed.

    `cells` by number; a text says why there are none. Each cell, and each call, may
    take so many seconds.
    """
    start, remarks = time.monotonic(), []
    if isinstance(cells, str):
        nothing = [Checked(n, 0, "it is a notebook", graded=True) for n in names]
        return Grade(notebook.name, tuple(nothing), 0.0, (cells,))
    checked: tuple[Checked, ...] = ()
    left = dict(cells)
    for _ in range(RUNS):
        pupil = Pupil([*left.items()], start + WHOLE, notebook.parent, seconds)
        try:
            pupil.prepare()
            failed = [f"cell {n}: {said}" for n, said in pupil.failed.items()]
            remarks += failed
            checked = tuple(_checked(pupil, name, seed) for name in names)
            break
        except GoneError as gone:
            remarks.append(f"cell {pupil.at}: {gone}" if pupil.at else str(gone))
            if pupil.at not in left:
                break
            del left[pupil.at]
        finally:
            pupil.close()
    none = [Checked(n, 0, "the notebook can be run", graded=True) for n in names]
    checked = checked or tuple(none)
    return Grade(notebook.name, checked, time.monotonic() - start, tuple(remarks))


def _checked(pupil: Pupil, name: str, seed: int) -> Checked:
    """One exercise; its answer may end the process, which is started anew then."""
    asked = KNOWN[name]
    function = answer_name(asked)
    if pupil.gone:
        pupil.start()
        pupil.prepare()
    return tried(asked, lambda given: pupil.call(function, asked.in_place, given), seed)


def grade_all(
    notebooks: Sequence[Path],
    names: Sequence[str],
    seed: int,
    seconds: int = CELL,
    at_once: int = 2,
) -> Iterator[Grade]:
    """Grade notebooks side by side; yield each grade as soon as it is there.

    All are read before the first one runs.
    """
    cells = [cells_of(notebook) for notebook in notebooks]
    with ThreadPoolExecutor(at_once) as pool:
        jobs = [
            pool.submit(grade, notebook, names, seed, own, seconds)
            for notebook, own in zip(notebooks, cells)
        ]
        for job in as_completed(jobs):
            yield job.result()


class Book:
    """Where grades are kept: a table, and a page for each learner."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder, self.names = folder, names
        folder.mkdir(parents=True, exist_ok=True)
        self.table = folder / "grades.csv"
        with self.table.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow([*COLUMNS, *names])

    def keep(self, grade: Grade) -> None:
        """Add a row, on disk at once, and write the learner's page."""
        with self.table.open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, [*COLUMNS, *self.names]).writerow(grade.row)
            file.flush()
            os.fsync(file.fileno())
        write_whole(page(grade), self.folder / f"{Path(grade.notebook).stem}.html")


def page(grade: Grade) -> str:
    """A learner's page: what held, what broke, and on which arguments."""
    rows = "".join(
        f"<tr><th scope=row>{html.escape(each.name)}</th><td>"
        f"{html.escape('holds' if each else f'{each.broken}. {each.said}')}</td></tr>"
        for each in grade.checked
    )
    remarks = "".join(f"<li>{html.escape(said)}</li>" for said in grade.remarks)
    title = html.escape(grade.notebook)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width">'
        "<style>body{font:16px/1.5 sans-serif;max-width:50rem;margin:2rem auto;"
        "padding:0 1rem;color-scheme:light dark}th{text-align:left;padding-right:1rem}"
        "td,th{vertical-align:top;overflow-wrap:anywhere}</style>"
        f"<h1>{title}</h1><p>{grade.points} of {len(grade.checked)} exercises hold.</p>"
        f"<table>{rows}</table>"
        + (f"<ul>{remarks}</ul>" if remarks else "")
        + "</html>"
    )


def add_options(made: argparse.ArgumentParser) -> None:
    """Add what can be said of a folder to be graded."""
    made.add_argument("folder", type=Path, help="with a notebook a learner")
    made.add_argument("--chapter", required=True, metavar="NAME", help="such as "
        "pipeline: the page's file name")  # fmt: skip
    made.add_argument("--seed", type=int, metavar="N", help="draws the cases; default: "
        "another one each time, which is printed")  # fmt: skip
    made.add_argument("--seconds", type=int, default=CELL, metavar="N", help="that a "
        f"cell, or a call, may take; default: {CELL}")  # fmt: skip
    made.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="where "
        "grades.csv and a page a learner go; default: FOLDER/grades")  # fmt: skip


def run(given: argparse.Namespace) -> int:
    """Grade a folder and print the table's rows; return the exit status.

    Raises:
        ValueError: no such chapter, or no notebooks.
    """
    names = exercises_of(given.chapter)
    notebooks = sorted(given.folder.glob("*.ipynb"))
    if not notebooks:
        raise ValueError(f"folder must hold notebooks, got {given.folder}")
    seed = random.SystemRandom().getrandbits(31) if given.seed is None else given.seed
    if seed == PUBLIC:
        raise ValueError(f"--seed must not be {PUBLIC}, that of the public cases")
    book = Book(given.output or given.folder / "grades", names)
    for each in grade_all(notebooks, names, seed, given.seconds):
        book.keep(each)
        print(f"{each.points} of {len(names)}  {each.notebook}", flush=True)
    print(f"seed {seed}; {book.table}")
    return 0
