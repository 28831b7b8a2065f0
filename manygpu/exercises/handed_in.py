"""Finds the notebooks that learners handed in, and reads their code cells.

What comes from a learner is not trusted: a file may have any name, any size and any
content, and may be no file at all.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from manygpu.tables import visible

LARGE = 20e6  # bytes of a notebook file
DEEP = 4  # folders in folders that are looked into
NOBODYS = {"__MACOSX"}  # what a Mac adds to an archive
LONG = 60  # letters of a cell's first line that are shown
Cells = dict[int, str]


class HandedIn(NamedTuple):
    """One learner's notebook.

    Attributes:
        name: its path below the folder, with letters that can be printed.
        cells: the code cells by number; a text says why there are none.
    """

    name: str
    cells: Cells | str


def handed_in(folder: Path) -> list[HandedIn]:
    """The notebooks of a folder, and of the folders in it: Moodle makes one a learner.

    They come in the order of their names, and no two have the same. Folders that begin
    with a dot aren't looked into, as editors keep copies there, nor is `__MACOSX`.
    """
    files = [file for inside in _folders(folder) for file in _notebooks(inside)]
    found: dict[str, HandedIn] = {}
    for file in sorted(files):
        name = name_of(file, folder)
        while name in found:  # a name of odd bytes, and one that spells these out
            name = f"{name.removesuffix('.ipynb')} again.ipynb"
        found[name] = HandedIn(name, cells_of(file))
    return [*found.values()]


def empty_folders(folder: Path, grades: Path) -> list[str]:
    """Names of the folders in a folder that hold no notebook, and nor does one inside.

    `grades` is none of them. A folder that lies too deep makes the one around it empty.
    """
    below = [each for each in _folders(folder) if each != folder]
    full = {up for each in below if _notebooks(each) for up in (each, *each.parents)}
    empty = [e for e in below if e not in full and grades not in (e, *e.parents)]
    return [name_of(each, folder) for each in empty if each.parent not in empty]


def _folders(folder: Path, deep: int = 0) -> Iterator[Path]:
    """A folder and the folders in it, by name; a link to a folder is none."""
    yield folder
    if deep == DEEP:
        return
    for each in sorted(folder.iterdir()):
        skipped = each.name.startswith(".") or each.name in NOBODYS
        if each.is_dir() and not each.is_symlink() and not skipped:
            yield from _folders(each, deep + 1)


def _notebooks(folder: Path) -> list[Path]:
    """The notebooks in a folder; names that begin with a dot are an editor's, or a
    Mac's.
    """
    return [each for each in folder.glob("*.ipynb") if not each.name.startswith(".")]


def name_of(file: Path, folder: Path) -> str:
    """A file's path below a folder, as it can be printed: a name may be any bytes."""
    name = file.relative_to(folder).as_posix()
    return visible(os.fsencode(name).decode("utf-8", "backslashreplace")).replace(
        "\n", "\\n"
    )


def cells_of(notebook: Path) -> Cells | str:
    """Each code cell of a file by number; a text that says why there are none.

    A byte order mark is no fault, and neither is the format of before 2015, with
    worksheets: Jupyter opens both.
    """
    try:
        about = notebook.stat()
        if not stat.S_ISREG(about.st_mode):  # a pipe would keep us waiting
            return "it is not a regular file"
        if about.st_size > LARGE:
            return f"the file is larger than {LARGE / 1e6:g} MB"
        whole = json.loads(notebook.read_bytes())
        sheets = whole.get("worksheets", [whole])
        cells = [cell for sheet in sheets for cell in sheet["cells"]]
        codes = [cell for cell in cells if cell["cell_type"] == "code"]
        sources = [c["source"] if "source" in c else c["input"] for c in codes]
        return {i: "".join(code) for i, code in enumerate(sources, 1)}
    except (
        OSError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        ValueError,
    ) as wrong:
        return f"the file is no notebook: {wrong!s:.100}"


def first_line(code: str) -> str:
    """A cell's first line with something in it: what a learner finds the cell by."""
    lines = [line.strip() for line in code.splitlines() if line.strip()]
    line = visible(lines[0]) if lines else ""
    return line if len(line) <= LONG else f"{line[: LONG - 3]}..."


def as_handed_out(cells: Cells, handed_out: Iterable[str]) -> set[int]:
    """Numbers of the cells that a teacher gave out, with or without directives."""
    known = {_bare(code) for code in handed_out}
    return {number for number, code in cells.items() if _bare(code) in known}


def _bare(code: str) -> str:
    """Code without what a single file leaves out, or an editor: directives, blanks."""
    lines = [line.rstrip() for line in code.strip().splitlines()]
    return "\n".join(line for line in lines if not line.startswith("#|"))
