"""What a notebook got, and where grades are kept: a table, and a page for each learner.

Names and sentences come from learners: the table holds none that a spreadsheet would
take for a formula.
"""

from __future__ import annotations

import csv
import hashlib
import html
import io
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from manygpu.exercises.checking import WRITTEN, Checked
from manygpu.exercises.handed_in import DEEP
from manygpu.exercises.one_notebook import UNJUDGED
from manygpu.records import write_whole

COLUMNS = ("notebook", "points", "of", "seconds", "remarks")
# What a spreadsheet's formula begins with, wide letters too: at the start of a text, or
# where a spreadsheet of another language takes a new cell to begin.
FORMULA = re.compile(r"(^|[;\t\r\n])(\s*)(?=[=+\-@\uff1d\uff0b\uff0d\uff20])")
LONG = 200  # bytes of the name of a learner's page


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
        row |= {each.name: outcome(each) for each in self.checked}
        return {k: plain(v) if isinstance(v, str) else v for k, v in row.items()}


def outcome(found: Checked) -> str:
    """What came of an exercise, in words that nobody takes for praise."""
    if found:
        return "yes"
    if found.broken == UNJUDGED:
        return f"not judged: {found.said}"
    return "not written yet" if found.broken == WRITTEN else f"broken: {found.broken}"


def plain(text: str) -> str:
    """A text that a spreadsheet shows, and never computes."""
    return FORMULA.sub(r"\1\2'", text.replace("\t", " ").replace("\r", " "))


def page_name(notebook: str) -> str:
    """Where a learner's page goes: like the notebook, if a file can be called so."""
    name = notebook.removesuffix(".ipynb")
    parts = name.split("/")
    usual = all(0 < len(part.encode()) <= LONG for part in parts)
    if usual and len(parts) <= DEEP and not {"", ".", ".."} & {*parts}:
        return f"{name}.html"
    return f"page {hashlib.sha256(notebook.encode()).hexdigest()[:16]}.html"


class Book:
    """A table that holds a row as soon as it is known, and is in order in the end.

    Rows are added to `grades.part.csv`, so that a run that is broken off leaves the
    table of the run before it as it was. `close` puts the new table in its place.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder, self.columns = folder, [*COLUMNS, *names]
        self.rows: dict[str, dict[str, Any]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self.table, self.part = folder / "grades.csv", folder / "grades.part.csv"
        write_whole(self._text([]), self.part)

    def _text(self, rows: Sequence[dict[str, Any]], header: bool = True) -> str:
        """Rows as a table's lines."""
        file = io.StringIO(newline="")
        writer = csv.DictWriter(file, self.columns)
        if header:
            writer.writeheader()
        writer.writerows(rows)
        return file.getvalue()

    def keep(self, grade: Grade) -> None:
        """Add a row, on disk at once, and write the learner's page."""
        self.rows[grade.notebook] = grade.row
        with self.part.open("a", newline="", encoding="utf-8") as file:
            file.write(self._text([grade.row], header=False))
            file.flush()
            os.fsync(file.fileno())
        name = page_name(grade.notebook)
        try:
            write_whole(page(grade), self.folder / name)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            # One learner's folder is called like another one's page.
            other = page_name(f"./{grade.notebook}")
            write_whole(page(grade), self.folder / other)

    def close(self) -> None:
        """Put the rows in the order of the names, where the table belongs."""
        write_whole(
            self._text([self.rows[name] for name in sorted(self.rows)]), self.table
        )
        self.part.unlink()


def page(grade: Grade) -> str:
    """A learner's page: what held, what broke, and on which arguments."""
    rows = "".join(
        f"<tr><th scope=row>{html.escape(each.name)}</th><td>"
        f"{html.escape(told(each))}</td></tr>"
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


def told(found: Checked) -> str:
    """What a learner reads of an exercise."""
    if found or found.broken == UNJUDGED:
        return "holds" if found else outcome(found)
    return f"{outcome(found)}. {found.said}"
