"""Grade a class of notebooks that mean harm: does each have a row, and is nothing hurt?

    .venv/bin/python experiments/hostile.py [WORD ...]

Makes a folder of the notebooks of `tests/quick/exercises/hostile.py` (those whose names
have one of the words), runs `manygpu grade` on it, and says which have no row, took too
long or got a point that they shouldn't have; which files outside changed; and which
processes are left. Exit status 1 if there is anything.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.quick.exercises.hostile import ANSWERS, CELLS_OF

ROOT = Path(__file__).parents[1]
SECONDS = 6  # of a cell, or a call
MOST = 120  # seconds of a notebook: four starts, of which each may take a cell's time
MARK = "hostile"  # the name of the processes that such cells leave


def write(folder: Path, outside: Path, names: list[str]) -> None:
    """The class, and the folder that it could harm."""
    (outside / "tree").mkdir(parents=True)
    (outside / "empty").mkdir()
    for name in ("a.txt", "tree/b.txt"):
        (outside / name).write_text(name, encoding="utf-8")
    folder.mkdir()
    for name in names:
        cells = []
        for code in CELLS_OF[name]:
            code = code.replace("OUTSIDE", str(outside)).replace("CLASS", str(folder))
            code = code.replace("MARK", MARK)
            cells.append({"cell_type": "code", "source": code})
        text = json.dumps({"cells": cells})
        (folder / f"{name}.ipynb").write_text(text, encoding="utf-8")


def state(folder: Path) -> dict[str, tuple[int, str]]:
    """Each file and folder: its rights, and its text."""
    return {
        str(file): (
            file.stat().st_mode,
            file.read_text(encoding="utf-8") if file.is_file() else "",
        )
        for file in folder.rglob("*")
        if "grades" not in file.parts
    }


def left() -> list[int]:
    """Processes that a hostile cell has started."""
    found = []
    for file in Path("/proc").glob("[0-9]*/comm"):
        try:
            if file.read_text(encoding="utf-8", errors="replace").strip() == MARK:
                found.append(int(file.parent.name))
        except OSError:
            continue
    return found


def faults_of(rows: dict[str, dict[str, str]], names: list[str]) -> list[str]:
    """What is wrong with the table."""
    faults = [f"no row: {name}" for name in names if f"{name}.ipynb" not in rows]
    for name, row in rows.items():
        if float(row["seconds"]) > MOST:
            faults.append(f"{row['seconds']} s: {name}")
        if row["points"] != "0" and name.removesuffix(".ipynb") in ANSWERS:
            faults.append(f"a point: {name}")
    return faults


def graded(names: list[str], place: Path) -> tuple[list[str], dict[str, dict]]:
    """Grade these notebooks in a new folder: what went wrong, and the rows."""
    folder, outside = place / "class", place / "outside"
    write(folder, outside, names)
    before = state(place)
    words = ["grade", str(folder), "--chapter", "pipeline", "--seed", "7"]
    command = [sys.executable, "-m", "manygpu", *words, "--seconds", str(SECONDS)]
    done = subprocess.run(
        command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL, encoding="utf-8"
    )
    faults = [f"status {done.returncode}"] if done.returncode else []
    after = state(place)
    faults += [
        f"changed: {name}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]
    faults += [f"left running: {number}" for number in left()]
    with (folder / "grades" / "grades.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["notebook"]: row for row in csv.DictReader(file)}
    return faults + faults_of(rows, names), rows


def main(words: list[str]) -> int:
    """Grade all, or those with a word in their names; return the exit status."""
    names = [n for n in CELLS_OF if not words or any(word in n for word in words)]
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        faults, rows = graded(names, Path(place))
    for name, row in rows.items():
        print(f"{row['points']} {float(row['seconds']):5.1f} s  {name}: "
              f"{row['remarks']:.120}")  # fmt: skip
    for fault in faults:
        print(fault)
    longest = max((float(row["seconds"]) for row in rows.values()), default=0)
    whole = time.monotonic() - start
    print(f"{len(names)} notebooks, {len(rows)} rows, {len(faults)} faults")
    print(f"the longest took {longest:.0f} s, all {whole:.0f} s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
