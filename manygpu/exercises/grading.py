"""Grades learners' notebooks: each in a process of its own, judged from outside.

`python -m manygpu grade FOLDER --chapter NAME` runs each notebook's cells in a process
that has limits of time and memory, and calls the functions it has written from another
one: arguments go out and results come back as text, so that nothing a notebook does, to
`check` or to its memory, changes what is asked or how it is judged. A cell that never
ends, or ends its process, is left out when the notebook is run again. Each notebook's
row is written as soon as it is known, and what stops the grading of one notebook is a
remark in its own row.

This keeps accidents and small tricks apart, with walls of the system where it has them:
`landlock` for files, `namespaces` for the network and processes. The command says what
they don't hold here. It is no prison: a notebook may read what its user may read, all
but other notebooks and the book's answers. For those you don't trust, run the command
as a user of its own, in a container.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TextIO

from manygpu import options
from manygpu.exercises import KNOWN, namespaces
from manygpu.exercises.checking import PUBLIC, Checked
from manygpu.exercises.families import end_descendants
from manygpu.exercises.gradebook import Book, Grade
from manygpu.exercises.handed_in import (
    HandedIn,
    as_handed_out,
    cells_of,
    empty_folders,
    handed_in,
)
from manygpu.exercises.landlock import landlock_version
from manygpu.exercises.one_notebook import (
    MEMORY,
    PUPIL,
    START,
    command_of_a_pupil,
    environment_of_a_pupil,
    unjudged,
)
from manygpu.tables import visible

CELL = 60  # seconds a cell
WHOLE = 600  # seconds of a notebook, all its starts together
SEEDS = 2**63  # none is larger
GRACE = 60  # seconds after that in which judging must have ended
RUNNING: set[subprocess.Popen] = set()  # processes that grade a notebook each


def exercises_of(chapter: str) -> list[str]:
    """Names of a chapter's exercises; ValueError if there are none."""
    asked = [name for name, each in KNOWN.items() if not each.hunted]
    found = [name for name in asked if name.startswith(f"{chapter}/")]
    if not found:
        known = ", ".join(sorted({name.partition("/")[0] for name in asked}))
        raise ValueError(f"chapter must be one of {known}, got {chapter!r}")
    return found


def grade(
    notebook: HandedIn,
    names: Sequence[str],
    seed: int,
    folder: Path,
    seconds: int = CELL,
    handed_out: Sequence[str] = (),
    whole: int = WHOLE,
) -> Grade:
    """Run a notebook's cells and check its functions with the cases of a seed.

    Args:
        notebook: its name and its cells.
        names: of the exercises.
        seed: draws their cases.
        folder: the one with all notebooks, which none of them may read.
        seconds: that each cell, and each call, may take.
        handed_out: cells that get no remark if they fail, because they are no
            learner's: the book's own start processes, which no notebook may here.
        whole: seconds that all of it may take.
    """
    start = time.monotonic()
    if isinstance(notebook.cells, str):
        none = [unjudged(name, "it has no cells that can be read") for name in names]
        return Grade(notebook.name, tuple(none), 0.0, (notebook.cells,))
    own = {*notebook.cells} - as_handed_out(notebook.cells, handed_out)
    asked = {"cells": notebook.cells, "names": [*names], "seed": seed, "whole": whole}
    asked |= {"seconds": seconds, "folder": str(folder.resolve()), "own": [*own]}
    checked: dict[str, Checked] = {}
    remarks, why = [], "grading it has ended early"
    for said in answers_to(asked, whole + GRACE):
        if "checked" in said:
            name, passed, *texts, graded = said["checked"]
            checked[name] = Checked(name, passed, *map(visible, texts), graded)
        elif "remark" in said:
            remarks.append(visible(said["remark"]))
        else:
            why = said["why"]
            remarks.append(why)
    found = [checked[n] if n in checked else unjudged(n, why) for n in names]
    return Grade(notebook.name, tuple(found), time.monotonic() - start, tuple(remarks))


def answers_to(asked: dict, seconds: float) -> Iterator[dict]:
    """What a process that grades one notebook says, as it says it.

    If it ends before it is done, or takes more seconds, the last answer says `why`.
    """
    until = time.monotonic() + seconds
    command = [sys.executable, "-m", "manygpu.exercises.one_notebook"]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        process = subprocess.Popen(  # its folder is where it finds the package
            command,
            cwd=Path(__file__).parents[2], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=errors, encoding="utf-8",
        )  # fmt: skip
        RUNNING.add(process)
        lines: queue.Queue[str] = queue.Queue()

        def listen() -> None:
            for line in process.stdout:
                lines.put(line)
            lines.put("")

        threading.Thread(target=listen, daemon=True).start()
        try:
            with contextlib.suppress(OSError):
                process.stdin.write(json.dumps(asked) + "\n")
                process.stdin.flush()
            while not (said := _next(lines, until, errors)).get("done"):
                yield said
                if "why" in said:
                    break
        finally:
            end(process)
            process.stdin.close()


def end(process: subprocess.Popen) -> None:
    """End a process that grades a notebook, and all that this has started."""
    end_descendants(process.pid)
    process.kill()
    process.wait()
    RUNNING.discard(process)


def _next(lines: queue.Queue[str], until: float, errors: TextIO) -> dict:
    """The next answer; a `why` if there is none in time, or the process has ended."""
    try:
        return json.loads(lines.get(timeout=max(until - time.monotonic(), 0.01)))
    except queue.Empty:
        return {"why": "judging it took too long"}
    except ValueError:  # half a line, or none
        errors.seek(0)
        return {"why": f"grading it has ended early{last_line(errors)}"}


def last_line(errors: Iterable[str]) -> str:
    """The last of the lines in which a process tells why it failed, after a colon."""
    lines = [line.strip() for line in errors if line.strip()]
    return f": {visible(lines[-1]):.200}" if lines else ""


def grade_all(
    notebooks: Sequence[HandedIn],
    names: Sequence[str],
    seed: int,
    folder: Path,
    seconds: int = CELL,
    at_once: int = 2,
    handed_out: Sequence[str] = (),
) -> Iterator[Grade]:
    """Grade notebooks side by side; yield each grade as soon as it is there."""
    with ThreadPoolExecutor(at_once) as pool:
        jobs = [
            pool.submit(grade, notebook, names, seed, folder, seconds, handed_out)
            for notebook in notebooks
        ]
        try:
            for job in as_completed(jobs):
                yield job.result()
        finally:  # broken off: who hasn't begun never does, and nobody waits
            pool.shutdown(wait=False, cancel_futures=True)
            for process in [*RUNNING]:
                end(process)


# The command.


def add_options(made: argparse.ArgumentParser) -> None:
    """Add what can be said of a folder to be graded."""
    made.add_argument("folder", type=Path, help="with a notebook per learner, or a "
        "folder per learner with a notebook in it")  # fmt: skip
    made.add_argument("--chapter", required=True, metavar="NAME", help="such as "
        "pipeline: the page's file name")  # fmt: skip
    each = options.whole(1, WHOLE)  # with 0 there would be no alarm at all
    seed = options.whole(0, SEEDS)
    made.add_argument("--seed", type=seed, metavar="N", help="draws the cases; "
        "default: another one each time, which is printed")  # fmt: skip
    made.add_argument("--seconds", type=each, default=CELL, metavar="N", help="that a "
        f"cell, or a call, may take, 1 to {WHOLE}; default: {CELL}")  # fmt: skip
    made.add_argument("--handout", type=Path, metavar="FILE", help="the notebook that "
        "you gave out: if a cell of it fails, no learner gets a remark for it; "
        "default: the book's own, where the package lies in a clone of it")  # fmt: skip
    made.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="where "
        "grades.csv and a page per learner go; default: FOLDER/grades")  # fmt: skip


def run(given: argparse.Namespace) -> int:
    """Grade a folder and print the table's rows; return the exit status.

    Raises:
        ValueError: no such chapter, no notebooks, a number that can't be used, or
            learners' processes that can't start here.
    """
    refuse_windows()
    names = exercises_of(given.chapter)
    if not given.folder.is_dir():
        raise ValueError(f"folder must be a folder that exists, got {given.folder}")
    notebooks = handed_in(given.folder)
    if not notebooks:
        raise ValueError(f"folder must hold notebooks, got {given.folder}")
    seed = random.SystemRandom().getrandbits(31) if given.seed is None else given.seed
    if seed == PUBLIC:
        raise ValueError(f"--seed must not be {PUBLIC}, that of the public cases")
    handed_out = handed_out_cells(given.handout, given.chapter)
    output = given.output or given.folder / "grades"
    if os.path.lexists(output) and not output.is_dir():
        raise ValueError(f"--output must be a folder, got {output}: name another")
    for each in empty_folders(given.folder, output):
        print(f"no notebook in the folder {each}", file=sys.stderr)
    refuse_what_cannot_start(given.folder)
    print(namespaces.held(namespaces.way(), landlock_version()), file=sys.stderr)
    book = Book(output, names)
    for each in grade_all(
        notebooks, names, seed, given.folder, given.seconds, handed_out=handed_out
    ):
        book.keep(each)
        print(f"{each.points} of {len(names)}  {each.notebook}", flush=True)
    book.close()
    print(visible(f"seed {seed}; {book.table}"))
    return 0


def refuse_windows() -> None:
    """ValueError where processes have no limits that we could set."""
    if sys.platform == "win32":
        raise ValueError(
            "the system must be Linux or macOS, got Windows: run grade in WSL2"
        )


def handed_out_cells(handout: Path | None, chapter: str) -> list[str]:
    """The cells of the notebook that was given out; none if nobody knows it.

    Raises:
        ValueError: a file that is no notebook.
    """
    if handout is None:
        found = sorted(Path(__file__).parents[2].glob(f"book/*/{chapter}.ipynb"))
        if not found:
            return []
        handout = found[0]
    cells = cells_of(handout)
    if isinstance(cells, str):
        raise ValueError(f"--handout must be a notebook, got {handout}: {cells}")
    return [*cells.values()]


def refuse_what_cannot_start(folder: Path) -> None:
    """ValueError if a notebook of one empty cell can't run: else all would get 0."""
    asked = {"cells": [[1, "1"]], "seconds": CELL, "gigabytes": MEMORY}
    asked["graded"] = str(folder.resolve())
    with tempfile.TemporaryDirectory() as home:
        try:
            done = subprocess.run(
                command_of_a_pupil(home),
                cwd=home, env=environment_of_a_pupil(home), timeout=2 * START,
                input=json.dumps(asked) + "\n", capture_output=True, check=False,
                encoding="utf-8", errors="replace",
            )  # fmt: skip
            ran = '"ready"' in done.stdout and '"failed"' not in done.stdout
            why = last_line(done.stderr.splitlines()) or ": it says nothing"
        except (OSError, subprocess.TimeoutExpired) as wrong:
            ran, why = False, f": {wrong}"
    if not ran:
        raise ValueError(
            f"learners' processes must start here, got none{visible(why)}: nothing was "
            f"graded; run {' '.join(PUPIL)} to see more"
        )
