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
# How it was counted before. Pages that are listed in goals.csv still are.
EARLIER_PACE = 180, 8, float("inf")
TIME = re.compile(r"\*\*Time:\*\* (\d+) minutes")


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


def minutes(path: Path, earlier: bool = False) -> float:
    """How long a page takes: its prose, its code, and the code of its folds.

    Args:
        path: a notebook, or a page in Markdown.
        earlier: count at the earlier pace, at which folds took no time.
    """
    words, visible, folded = 0, 0, 0
    if path.suffix == ".md":
        cells = [nbformat.v4.new_markdown_cell(path.read_text(encoding="utf-8"))]
    else:
        cells = nbformat.read(path, as_version=4).cells
    for cell in cells:
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
    read = zip((words, visible, folded), EARLIER_PACE if earlier else PACE, strict=True)
    return sum(number / pace for number, pace in read)


def right_time(path: Path, counted: float) -> int | None:
    """The minutes that a page's box should promise; None if it has them."""
    said = TIME.search(path.read_text(encoding="utf-8"))
    if not said or abs(int(said[1]) - counted) <= 2.5 + 0.1 * counted:
        return None  # a box without a time is refused when it is rendered
    return max(5, 5 * round(counted / 5))
