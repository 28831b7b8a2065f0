"""Whole projects: a training script with two bugs, one of which hides the other.

For example::

    task = project("resume")
    print(task.code)         # the script, broken
    task.symptom()           # what is seen of it
    task.write("mine.py")    # a copy, to be run and fixed
    task.check("mine.py")    # which property still breaks

Both bugs must be found. With one fixed, `check` says what still breaks.
"""

from __future__ import annotations

import random
import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from manygpu._files import data_folder
from manygpu.exercises.checking import PUBLIC, RUNS, Checked
from manygpu.exercises.projects import judges, symptoms

SCRIPTS = data_folder("exercises/projects/scripts", "*.py")
THERE = "the script's functions are there"
# By name: the functions that are tried, how they are judged, and what is seen.
JUDGED = {
    "odd-batch": (("train",), judges.odd_batch, symptoms.odd_batch),
    "half-precision": (("step",), judges.half_precision, symptoms.half_precision),
    "resume": (("start", "train", "save", "load"), judges.resume, symptoms.resume),
    "pipeline": (("order", "run"), judges.pipeline, symptoms.pipeline),
    "sharded": (("train",), judges.sharded, symptoms.sharded),
}
Given = Mapping[str, Any]


class Project(NamedTuple):
    """A script with two bugs.

    Attributes:
        name: such as "resume".
        functions: those that are tried. All else may change.
    """

    name: str
    functions: tuple[str, ...]

    def __repr__(self) -> str:
        return f"{self.name}: see code, symptom, write and check"

    @property
    def script(self) -> Path:
        """Where the broken script is."""
        return SCRIPTS / f"{self.name.replace('-', '_')}.py"

    @property
    def code(self) -> str:
        """The broken script, to be read."""
        return self.script.read_text(encoding="utf-8")

    def symptom(self) -> None:
        """Run the broken script, and show what one sees of its bugs."""
        JUDGED[self.name][2](self._broken())

    def write(self, file: str | Path) -> Path:
        """Copy the script, to be fixed; return where it is.

        Raises:
            FileExistsError: the file is there. It may be the one you have fixed.
        """
        target = Path(file)
        if target.exists():
            raise FileExistsError(f"file must be a new one, {target} is there already")
        target.write_text(self.code, encoding="utf-8")
        return target

    def check(self, mine: str | Path | Given, seed: int = PUBLIC) -> Checked:
        """Try your version on some cases, and say which property the first one breaks.

        Args:
            mine: the file, or its functions by name, such as `globals()`.
            seed: draws the cases that aren't always there.

        Raises:
            FileNotFoundError: there is no such file.
        """
        try:
            given = mine if isinstance(mine, Mapping) else functions_of(Path(mine))
        except Exception as error:
            if isinstance(error, FileNotFoundError) and not Path(mine).exists():
                raise FileNotFoundError(f"mine must be a file, got {mine}") from None
            return self._stopped(error)
        if lacking := [f for f in self.functions if not callable(given.get(f))]:
            return Checked(
                self.name, 0, THERE, f"There is no {lacking[0]}", graded=True
            )
        return self._judged(given, seed)

    def _judged(self, given: Given, seed: int) -> Checked:
        judge: Callable = JUDGED[self.name][1]
        passed = 0
        try:
            for broken, said in judge(given, random.Random(seed), self._broken):
                if said:
                    return Checked(self.name, 0, broken, said, graded=True)
                passed += 1
        except Exception as error:
            return self._stopped(error)
        return Checked(self.name, passed, graded=True)

    def _stopped(self, error: Exception) -> Checked:
        said = f"It stops with {type(error).__name__}: {error!s:.300}"
        return Checked(self.name, 0, RUNS, said, graded=True)

    def _broken(self) -> Given:
        return functions_of(self.script)


def functions_of(script: Path) -> Given:
    """What a script defines; its last lines, below `__main__`, don't run."""
    return runpy.run_path(str(script), run_name="mine")


PROJECTS = {name: Project(name, judged[0]) for name, judged in JUDGED.items()}


def project(name: str) -> Project:
    """Return a project; see `Project`. ValueError if there is none of this name."""
    if name not in PROJECTS:
        raise ValueError(f"name must be one of {', '.join(PROJECTS)}, got {name!r}")
    return PROJECTS[name]
