"""The hall of records: the best scores, each with the answer that reaches it.

hall.csv has a row a record: puzzle, score, name, date, answer. The answer is Python
that defines `answer`. A test runs each one, and its score must be the row's.
"""

from __future__ import annotations

import csv
import functools
from typing import Any, NamedTuple

from manygpu._files import data_file

FILE = data_file("exercises/puzzles/hall.csv")
SOURCE = "<answer>"  # the name of a text that is run


class Record(NamedTuple):
    """A row of the hall.

    Attributes:
        puzzle: its name.
        score: in the puzzle's unit.
        name: who found it.
        date: year-month-day.
        answer: Python that defines `answer`.
    """

    puzzle: str
    score: float
    name: str
    date: str
    answer: str


@functools.cache
def records() -> tuple[Record, ...]:
    """All rows, in the file's order."""
    with FILE.open(encoding="utf-8", newline="") as lines:
        rows = [*csv.DictReader(lines)]
    return tuple(Record(**row | {"score": float(row["score"])}) for row in rows)


def best(puzzle: str) -> Record:
    """The lowest score of a puzzle; of equal ones the first.

    Raises:
        ValueError: the hall has none.
    """
    own = [record for record in records() if record.puzzle == puzzle]
    if not own:
        raise ValueError(f"puzzle must have a record in hall.csv, got {puzzle!r}")
    return min(own, key=lambda record: record.score)


def answer_of(source: str) -> Any:
    """What a text of Python defines as `answer`; None if it doesn't."""
    names: dict[str, Any] = {}
    exec(compile(source, SOURCE, "exec"), names)
    return names.get("answer")
