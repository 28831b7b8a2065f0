"""The claims of the three documents that the book grew out of, each with a verdict.

`claims.csv` has one row for each claim: where it stands, a few of the source's words,
what it says in ours, the verdict, one sentence on what was found, and the evidence. In
a quote, "…" stands for words left out and "|" for the border of a table's cell. The
sources are no part of the book, so nothing here can test that a quote stands in its
lines; a row must have one, and a short one. Evidence is code that runs
whenever the book is tested: a cell of a chapter that holds an `assert`, or a test. That
each of them is there, `workshop/evidence.py` checks.
"""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from manygpu._files import data_file

FILE = data_file("sources/claims.csv")
SOURCES = {
    "guide": "the guide, Multi-GPU Training Strategies: Complete Comparison Guide",
    "article": "the article, Multi-GPU Training: Strategies for Scaling Deep Learning",
    "slides": "the slides, Training on Multiple GPUs, of Dive into Deep Learning",
}
VERDICTS = {
    "held": "true as it stands",
    "depends": "true under a condition that the source leaves out",
    "disagrees": "two places contradict each other, and we can't say which is right",
    "corrected": "false",
    "outdated": "was true, or half true, and isn't any more",
}
QUOTED = 20  # words of a source, at most
CELL = re.compile(r"([a-z-]+/[a-z-]+)#([0-9a-f]{8})")
TEST = re.compile(r"(tests/[a-z_/]+\.py)::(test_\w+)")


class Evidence(NamedTuple):
    """What shows a verdict: a cell of a chapter, or a test.

    Attributes:
        file: "splitting/pipeline" for a chapter, "tests/unit/test_x.py" for a test.
        place: the cell's id, or the test's name.
    """

    file: str
    place: str

    @property
    def is_cell(self) -> bool:
        """Whether it is a cell; else it is a test."""
        return not self.file.startswith("tests/")


class Claim(NamedTuple):
    """A claim of a source, and what became of it.

    Attributes:
        name: such as "guide-07".
        source: a key of `SOURCES`.
        section: what the source calls the part in which it stands.
        lines: of the source's text, such as "82" or "79-80".
        quote: a few words of the source, from those lines.
        claim: what it says, in our words.
        verdict: a key of `VERDICTS`.
        finding: one sentence.
        evidence: one piece at least.
    """

    name: str
    source: str
    section: str
    lines: str
    quote: str
    claim: str
    verdict: str
    finding: str
    evidence: tuple[Evidence, ...]


@functools.cache
def claims() -> tuple[Claim, ...]:
    """All claims, in the order of the sources and of their lines."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return read(file)


def read(lines: Iterable[str]) -> tuple[Claim, ...]:
    """The claims in the lines of a CSV file with the columns of `Claim`.

    Raises:
        ValueError: other columns, an empty cell, a name that is there twice, a source
            or a verdict that isn't known, a quote of more than `QUOTED` words, a
            finding that is no sentence, or evidence that names neither a cell nor a
            test.
    """
    rows = csv.DictReader(lines)
    if tuple(rows.fieldnames or ()) != Claim._fields:
        raise ValueError(f"the columns must be {Claim._fields}, got {rows.fieldnames}")
    found: dict[str, Claim] = {}
    for row in rows:
        claim = _claim(row)
        if claim.name in found:
            raise ValueError(f"{claim.name} is there twice")
        found[claim.name] = claim
    return tuple(found.values())


def _claim(row: dict[str, str]) -> Claim:
    """One row, checked. Errors are those of `read`."""
    name = row["name"] or "a row without a name"
    empty = [field for field in Claim._fields if not (row[field] or "").strip()]
    if empty:
        raise ValueError(f"{name} has no {', no '.join(empty)}")
    if row["source"] not in SOURCES:
        raise ValueError(f"{name}: source must be of {[*SOURCES]}, got {row['source']}")
    if not re.fullmatch(rf"{row['source']}-\d\d", name):
        raise ValueError(f"{name} must be called {row['source']}- and two digits")
    if row["verdict"] not in VERDICTS:
        known = [*VERDICTS]
        raise ValueError(f"{name}: verdict must be of {known}, got {row['verdict']}")
    if not re.fullmatch(r"\d+(-\d+)?(, \d+(-\d+)?)*", row["lines"]):
        raise ValueError(f"{name}: lines must be like 79-80, got {row['lines']}")
    if len(words := row["quote"].split()) > QUOTED:
        raise ValueError(f"{name}: quote {QUOTED} words at most, got {len(words)}")
    if not re.fullmatch(r"[A-Z0-9].+[^.]\.", row["finding"]):
        raise ValueError(f"{name}: finding must be a sentence, got {row['finding']!r}")
    pieces = tuple(_evidence(name, word) for word in row["evidence"].split())
    return Claim(**{**row, "evidence": pieces})


def _evidence(name: str, word: str) -> Evidence:
    """What a word of the column evidence names."""
    found = CELL.fullmatch(word) or TEST.fullmatch(word)
    if not found:
        raise ValueError(
            f"{name}: evidence must be part/chapter#cell or tests/file.py::test_name, "
            f"got {word!r}"
        )
    return Evidence(*found.groups())


def counts(of: Sequence[Claim]) -> dict[str, dict[str, int]]:
    """How many claims of each source got each verdict: {source: {verdict: count}}."""
    return {
        source: {
            verdict: sum((c.source, c.verdict) == (source, verdict) for c in of)
            for verdict in VERDICTS
        }
        for source in SOURCES
    }
