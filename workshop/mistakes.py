"""Put mistakes into the cells of pages, as a reader may: does each page notice?

python -m workshop.mistakes [NAME ...]
    NAME: of chapters, or of single mistakes as they are listed; all without any.

mistakes.csv has them: a page, lines of one of its cells, and what they become. Each
runs as a copy of the page, alone. A page must fail by itself, whatever other tests say.
Where none can, the last column says why, and the page must pass. Exit status: 0 if
each mistake ends as it says, 1 if not.
"""

from __future__ import annotations

import contextlib
import csv
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import nbformat

from workshop.build import ROOT, execute
from workshop.notebook_runs import at_once

LIST = Path(__file__).with_suffix(".csv")
COPIES = ROOT / "_mistakes"


class Mistake(NamedTuple):
    """A mistake in a page.

    name: by which it is asked for. page: in book/, without ending. before: lines that
    stand in one place of its code. after: what a reader writes there. unnoticed: why
    the page can't notice it; empty if it does.
    """

    name: str
    page: str
    before: str
    after: str
    unnoticed: str


def listed() -> list[Mistake]:
    """Return all mistakes of the list."""
    with LIST.open(encoding="utf-8", newline="") as rows:
        return [Mistake(**row) for row in csv.DictReader(rows)]


def made(mistake: Mistake) -> nbformat.NotebookNode:
    """Return the page with the mistake in it.

    Raises:
        ValueError: the lines are not there, or more than once.
    """
    file = ROOT / "book" / f"{mistake.page}.ipynb"
    notebook = nbformat.read(file, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if (count := sum(cell.source.count(mistake.before) for cell in cells)) != 1:
        raise ValueError(f"{mistake.name}: {count} places have {mistake.before!r}")
    for cell in cells:
        cell.source = cell.source.replace(mistake.before, mistake.after)
    return notebook


def unnoticed(mistakes: Sequence[Mistake]) -> set[str]:
    """Run each mistake; return the names of those that their page doesn't notice."""
    shutil.rmtree(COPIES, ignore_errors=True)
    COPIES.mkdir()
    passed: list[Path] = []
    for mistake in mistakes:
        nbformat.write(made(mistake), COPIES / f"{mistake.name}.ipynb")
    with contextlib.suppress(SystemExit):  # as it should: pages failed
        execute(sorted(COPIES.iterdir()), at_once(), passed.append, MANYGPU_OFFLINE="1")
    return {file.stem for file in passed}


def main(names: Sequence[str]) -> int:
    """Run what is asked for; say what didn't end as it should."""
    asked = [m for m in listed() if not names or {m.name, Path(m.page).name} & {*names}]
    if not asked:
        sys.exit(f"{LIST.name} has no mistake or chapter of these: {' '.join(names)}")
    passed = unnoticed(asked)
    wrong = [m for m in asked if (m.name in passed) != bool(m.unnoticed)]
    for m in wrong:
        print(f"{m.name}: {'not noticed' if m.name in passed else 'noticed after all'}")
    print(f"{len(asked) - len(passed)} of {len(asked)} mistakes are noticed")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
