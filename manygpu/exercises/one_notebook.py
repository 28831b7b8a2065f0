"""Grades one notebook, in a process of its own.

Started by `manygpu.exercises.grading` as `python -m manygpu.exercises.one_notebook`. It
reads one line, what is to be graded, and writes a line for each exercise as soon as it
is judged, and for each remark. Whatever a learner's results do to the judging, it ends
this process at worst, and what was written before still counts.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from manygpu.exercises import KNOWN
from manygpu.exercises.checking import Checked, answer_name, tried
from manygpu.exercises.families import adopt, die_with_parent, end_descendants
from manygpu.exercises.handed_in import Cells, first_line
from manygpu.exercises.namespaces import walled
from manygpu.exercises.pupil import limit
from manygpu.exercises.wire import NoDataError, from_line, to_line

HOMES = ("HOME", "TMPDIR", "IPYTHONDIR", "MPLCONFIGDIR", "XDG_CACHE_HOME")
SETTINGS = {
    "MANYGPU_OFFLINE": "1",
    "MPLBACKEND": "agg",
    "PYTHONDONTWRITEBYTECODE": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
MEMORY, RUNS = 4.0, 4  # gigabytes of a process, starts of a notebook
START = 60  # seconds that a process gets to import what it needs
SLACK = 5  # seconds that a process gets to notice that its time is over
PUPIL = [sys.executable, "-m", "manygpu.exercises.pupil"]
UNJUDGED = "it could be judged"  # the property of an exercise that nobody came to


class GoneError(Exception):
    """A learner's process has ended, or says nothing any more."""


class OverError(GoneError):
    """The notebook's whole time is over."""


def command_of_a_pupil(home: str) -> list[str]:
    """The command that starts a learner's process, whose own folder is `home`."""
    return walled(PUPIL, home)


def environment_of_a_pupil(folder: str) -> dict[str, str]:
    """A learner's environment: none of the teacher's, and `folder` as its home."""
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG")}
    kept |= dict.fromkeys(HOMES, folder) | SETTINGS
    return kept | {"PYTHONPATH": str(Path(__file__).parents[2])}


class Pupil:
    """A process that has run a notebook's cells, and answers calls.

    Args:
        cells: number and code of each.
        until: when the notebook's whole time is over, by `time.monotonic`.
        graded: the folder with all notebooks, which none may read.
        cell: seconds that a cell, or a call, may take.
    """

    def __init__(
        self, cells: Sequence[tuple[int, str]], until: float, graded: str, cell: int
    ) -> None:
        self.cells, self.until, self.graded, self.cell = cells, until, graded, cell
        self.refused: list[str] = []  # in calls
        self.start()

    def start(self) -> None:
        """Start the process; it begins with the cells."""
        self.failed: dict[int, str] = {}
        self.tried: dict[int, list[str]] = {}
        self.at: int | None = None
        self.gone = False
        self.folder = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(
            command_of_a_pupil(self.folder.name),
            cwd=self.folder.name, env=environment_of_a_pupil(self.folder.name),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            encoding="utf-8", errors="replace", start_new_session=True,
        )  # fmt: skip
        self.lines: queue.Queue[str] = queue.Queue(1000)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        """Take the process's lines, each cut where it is far too long."""
        lines = self.lines
        while line := self.process.stdout.readline(2_000_000):
            lines.put(line)
        lines.put("")

    def _tell(self, line: str) -> None:
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError as wrong:
            raise GoneError("its process has ended") from wrong

    def _hear(self, seconds: float) -> dict[str, Any]:
        """The next line; GoneError if there is none in time."""
        left = self.until - time.monotonic()
        try:
            line = self.lines.get(timeout=max(min(seconds + SLACK, left), 0.01))
        except queue.Empty as late:
            if left < seconds + SLACK:
                raise OverError("its whole time is over") from late
            raise GoneError("it takes too long") from late
        try:
            said = json.loads(line)
        except (ValueError, RecursionError) as wrong:
            raise GoneError("its process has ended") from wrong
        if not isinstance(said, dict):
            raise GoneError("its process says what means nothing")
        return said

    def prepare(self) -> None:
        """Wait until the cells have run; `at` is the one that is running."""
        asked = {"cells": self.cells, "seconds": self.cell, "gigabytes": MEMORY}
        self._tell(json.dumps(asked | {"graded": self.graded}))
        while not (said := self._hear(self.cell if self.at else START)).get("ready"):
            if "failed" in said:
                self.failed[said["failed"]] = str(said.get("said"))
            elif "refused" in said:
                self.tried[said["refused"]] = [*map(str, said["said"])]
            self.at = said.get("cell", self.at)
        self.at = None

    def call(self, function: str, in_place: bool, given: tuple) -> Any:
        """What one of the notebook's functions returns; raises as it does."""
        try:
            self._tell(to_line((function, in_place, given)))
            said = self._hear(self.cell)
        except GoneError:
            self.close()
            raise
        self.refused += [f"{function}: {one}" for one in said.get("refused", ())]
        if "found" in said:
            return from_line(said["found"])
        if said.get("error") == "NotImplementedError":
            raise NotImplementedError(str(said.get("said")))
        if said.get("error") == NoDataError.__name__:
            raise NoDataError(str(said.get("said")))
        raise RuntimeError(f"{said.get('error')}: {said.get('said')}")

    def close(self) -> None:
        """End the process and what it has started."""
        self.gone = True
        end_descendants(self.process.pid)
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.folder.cleanup()


def graded(
    cells: Cells,
    names: Sequence[str],
    seed: int,
    seconds: int,
    whole: int,
    folder: str,
    own: set[int],
    tell: Callable[..., None],
) -> None:
    """Run a notebook's cells, and tell what came of each exercise.

    Args:
        cells: by number.
        names: of the exercises.
        seed: draws their cases.
        seconds: that a cell, or a call, may take.
        whole: seconds that all of it may take.
        folder: the one with all notebooks.
        own: numbers of the cells that are the learner's own. Others were handed out as
            they are: that they fail is no fault of the learner.
        tell: gets `checked` or `remark`.
    """
    left, waiting, said = dict(cells), [*names], {""}
    until = time.monotonic() + whole

    def remark(text: str, number: int | None = None) -> None:
        where = f'cell "{first_line(cells[number])}": ' if number in cells else ""
        if (number is None or number in own) and where + text not in said:
            said.add(where + text)
            tell(remark=where + text)

    why = f"its process ended {RUNS} times"
    for _ in range(RUNS):
        pupil = Pupil([*left.items()], until, folder, seconds)
        try:
            prepare(pupil, remark)
            while waiting:
                tell(checked=[*checked(pupil, waiting[0], seed)])
                del waiting[0]
            break
        except OverError:
            why = f"the notebook took more than {whole} s"
            remark(why)
            break
        except GoneError as gone:
            remark(str(gone), pupil.at)
            if pupil.at not in left:
                why = str(gone)
                break
            del left[pupil.at]
        finally:
            pupil.close()
            for one in pupil.refused:
                remark(f"refused: {one}")
    for name in waiting:
        tell(checked=[*unjudged(name, why)])


def prepare(pupil: Pupil, remark: Callable[[str, int], None]) -> None:
    """Wait for a process's cells, and say which failed and what was refused."""
    pupil.prepare()
    for number, text in pupil.failed.items():
        remark(text, number)
    for number, texts in pupil.tried.items():
        for text in texts:
            if text not in pupil.failed.get(number, ""):
                remark(f"refused: {text}", number)


def unjudged(name: str, why: str) -> Checked:
    """An exercise that nobody came to, and why."""
    return Checked(name, 0, UNJUDGED, why, graded=True)


def checked(pupil: Pupil, name: str, seed: int) -> Checked:
    """One exercise; its answer may end the process, which is started anew then."""
    asked = KNOWN[name]
    function = answer_name(asked)
    if pupil.gone:
        pupil.start()
        pupil.prepare()
    return tried(asked, lambda given: pupil.call(function, asked.in_place, given), seed)


def main() -> None:
    """Grade what one line asks for, and write a line for all that is found."""
    lines, out = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def tell(**said: Any) -> None:
        print(json.dumps(said), file=out, flush=True)

    asked = json.loads(lines.readline())
    die_with_parent()
    adopt()
    limit(MEMORY)  # what a learner's results make of the judging takes no more
    cells = {int(number): code for number, code in asked.pop("cells").items()}
    try:
        graded(cells, own=set(asked.pop("own")), tell=tell, **asked)
    finally:
        end_descendants(os.getpid())
    tell(done=True)


if __name__ == "__main__":
    main()
