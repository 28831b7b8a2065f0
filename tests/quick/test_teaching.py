"""The syllabus: minutes that are true, pages in order, exercises that are there."""

import posixpath
import re

import pytest

from manygpu.exercises import KNOWN
from workshop.notebooks import minutes
from workshop.pages import ROOT

PAGE = ROOT / "book" / "back" / "teaching.md"
TEXT = PAGE.read_text(encoding="utf-8")
SESSIONS = {"Four": 4, "Eight": 8, "Fifteen": 15}


def rows_of(number: str) -> list[list[str]]:
    """The cells of each row of a syllabus."""
    section = TEXT.partition(f"\n### {number} sessions\n")[2].partition("\n### ")[0]
    rows = [
        line.strip("| ").split(" | ") for line in section.splitlines() if "](" in line
    ]
    return [[cell.strip() for cell in row] for row in rows]


def pages_of(cell: str) -> list[str]:
    """The pages that a cell links to, as paths in the repository."""
    links = re.findall(r"\]\(([^)]+)\)", cell)
    return [posixpath.normpath(f"book/back/{link}") for link in links]


@pytest.mark.parametrize(("number", "count"), SESSIONS.items())
def test_a_syllabus_has_so_many_sessions_with_true_minutes(number, count):
    rows = rows_of(number)
    assert len(rows) == count
    for name, links, said, _ in rows:
        counted = sum(minutes(ROOT / page) for page in pages_of(links))
        right = 5 * round(counted / 5)
        assert int(said) == pytest.approx(counted, rel=0.1), f"{name}: write {right}"


@pytest.mark.parametrize("number", SESSIONS)
def test_a_session_has_checked_exercises_of_its_pages_in_their_order(number):
    for name, links, _, exercises in rows_of(number):
        stems = [posixpath.basename(page).partition(".")[0] for page in pages_of(links)]
        asked = [one for one in KNOWN if not KNOWN[one].hunted]
        there = [one for stem in stems for one in asked if one.startswith(f"{stem}/")]
        chosen = re.findall(r"`([^`]+)`", exercises)
        assert chosen, name
        assert chosen == [one for one in there if one in chosen], name
