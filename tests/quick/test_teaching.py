"""The syllabus: minutes that are true, pages in order, exercises that are there."""

import posixpath
import re

import pytest

from manygpu.exercises import KNOWN
from manygpu.exercises.hunts import hunts
from manygpu.exercises.projects import PROJECTS
from workshop.pages import ROOT
from workshop.reading import minutes

PAGE = ROOT / "book" / "back" / "teaching.md"
TEXT = PAGE.read_text(encoding="utf-8")
PROJECT = re.compile(r"^\| `([\w-]+)` \|", flags=re.M)
SESSIONS = {"Four": 4, "Eight": 8, "Fifteen": 15, "More": 3}


def rows_of(number: str) -> list[list[str]]:
    """The cells of each row of a syllabus."""
    section = TEXT.partition(f"\n### {number} sessions\n")[2].partition("\n### ")[0]
    rows = [
        line.strip("| ").split(" | ")
        for line in section.splitlines()
        if line[:1] == "|" and "](" in line
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
        counted = sum(minutes(ROOT / page, on_a_path=True) for page in pages_of(links))
        right = 5 * round(counted / 5)
        assert int(said) == pytest.approx(counted, rel=0.1), f"{name}: write {right}"


@pytest.mark.parametrize("number", SESSIONS)
def test_a_session_has_the_exercises_and_bugs_of_its_pages(number):
    for name, links, _, asked in rows_of(number):
        stems = [posixpath.basename(page).partition(".")[0] for page in pages_of(links)]
        assert asked == ", ".join(map(asked_of, stems)), name


def asked_of(page: str) -> str:
    """How many functions a page asks for, and how many bugs it has."""
    own = [one for name, one in KNOWN.items() if name.startswith(f"{page}/")]
    return f"`{page}` {sum(not one.hunted for one in own)} + {len(hunts(page))}"


def test_each_project_is_listed():
    section = TEXT.partition("\n## Whole projects\n")[2].partition("\n## ")[0]
    assert PROJECT.findall(section) == list(PROJECTS)
