"""How long a page takes to read, and which of its cells are its reader's."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat

HUNTED = "from manygpu.exercises.hunts import hunt"  # a cell with a bug begins so
TO_DO = ("**Checked.**", "**Find the bug.**")  # what a cell of tasks begins with
GUESSED = ("# In a notebook, your number", "# Your guess, beside ")  # asked, and told
SET_UP = "# Nothing to do where the book is installed."
# Words, visible lines of code and folded ones that a reader understands per minute.
PACE = 150, 5, 15
# The box's minutes: of the whole page and, if the paths leave it earlier, up to there.
TIME = re.compile(r"\*\*Time:\*\* (\d+) minutes(?:, or (\d+) on a path)?")
# What the cell begins with, at which the paths of the front page go on to another one.
GOES_ON = ":::{admonition} If you follow a path"


def is_asked(code: str) -> bool:
    """Whether a cell is for the reader: to write a function, find a bug, or guess."""
    lines = code.splitlines() or [""]
    if lines[0].startswith(GUESSED):
        return "first_guess" in code
    if lines[0] == HUNTED:
        return lines[-1] == "bug.symptom()"
    return "raise NotImplementedError(" in code and bool(
        re.match(r'check\("[a-z0-9/-]+", my_\w+\)$', lines[-1])
    )


def minutes(path: Path, on_a_path: bool = False) -> float:
    """How long a page takes: its prose, its code, and the code of its folds.

    Args:
        path: a notebook, or a page in Markdown.
        on_a_path: count to the cell at which the paths go on, if there is one.
    """
    words, visible, folded = 0, 0, 0
    for cell in cells_of(path):
        if on_a_path and cell.source.startswith(GOES_ON):
            break
        tags = cell.metadata.get("tags", [])
        if cell.source.startswith((*TO_DO, SET_UP)) or "remove-cell" in tags:
            continue
        if cell.cell_type == "markdown":
            prose = re.sub(r"\]\([^)]*\)|\{cite[^}]*\}`[^`]*`", "]", cell.source)
            words += sum(bool(re.search(r"\w", word)) for word in prose.split())
        elif not is_asked(cell.source):
            lines = sum(bool(line.strip()) for line in cell.source.splitlines())
            if "hide-input" in tags:
                folded += lines
            else:
                visible += lines
    read = zip((words, visible, folded), PACE, strict=True)
    return sum(number / pace for number, pace in read)


def cells_of(path: Path) -> list[nbformat.NotebookNode]:
    """A page's cells; a page in Markdown is one."""
    if path.suffix == ".md":
        return [nbformat.v4.new_markdown_cell(path.read_text(encoding="utf-8"))]
    return nbformat.read(path, as_version=4).cells


def is_left_early(path: Path) -> bool:
    """Whether the paths of the front page go on before the page's end."""
    return any(cell.source.startswith(GOES_ON) for cell in cells_of(path))


def right_time(path: Path) -> str | None:
    """The minutes that a page's box should promise; None if it has them."""
    said = TIME.search(path.read_text(encoding="utf-8"))
    if not said:
        return None  # a box without a time is refused when it is rendered
    counted = [minutes(path)]
    if is_left_early(path):
        counted.append(minutes(path, on_a_path=True))
    told = [int(number) for number in said.groups() if number]
    if len(told) == len(counted) and all(map(_is_near, told, counted)):
        return None
    whole, *on_a_path = (max(5, 5 * round(number / 5)) for number in counted)
    return f"{whole} minutes" + "".join(f", or {n} on a path" for n in on_a_path)


def _is_near(told: int, counted: float) -> bool:
    return abs(told - counted) <= 2.5 + 0.1 * counted
