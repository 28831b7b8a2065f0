"""The questions that people ask: drawn by chance, each with a page that exists."""

import csv
import random

import pytest

from workshop.pages import ROOT

FOLDER = ROOT / "experiments" / "questions"


def rows(name: str) -> list[dict[str, str]]:
    """The rows of a table of the experiment."""
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


THREADS = {row["number"]: row for row in rows("threads.csv")}
DRAWN = {"questions.csv": (20261130, 40), "again.csv": (20261201, 20)}


def test_threads_are_numbered_and_each_is_there_once():
    assert [*THREADS] == [str(i + 1) for i in range(len(THREADS))]
    assert len({row["thread"] for row in THREADS.values()}) == len(THREADS) == 139


def drawn(name: str) -> list[int]:
    """The numbers of a table's questions; the second one has none of the first."""
    seed, count = DRAWN[name]
    earlier = drawn("questions.csv") if name == "again.csv" else []
    left = [i for i in range(1, len(THREADS) + 1) if i not in earlier]
    return sorted(random.Random(seed).sample(left, count))


@pytest.mark.parametrize("name", DRAWN)
def test_the_questions_are_those_that_chance_has_drawn(name):
    table = rows(name)
    assert [int(row["number"]) for row in table] == drawn(name)
    assert all(THREADS[row["number"]]["thread"] == row["thread"] for row in table)
    assert {row["known"] for row in table} <= {"title", "list", "kind"}


@pytest.mark.parametrize("name", DRAWN)
def test_each_question_has_a_page_or_says_that_it_has_none(name):
    for row in rows(name):
        files = [ROOT / "book" / page for page in row["pages"].split("|")]
        exist = [f.with_suffix(s).is_file() for f in files for s in (".ipynb", ".md")]
        assert sum(exist) == (0 if row["pages"] == "none" else len(files)), row
        assert row["rank"].isdecimal() or row["pages"] == "none", row
        assert 2 <= len(row["search"].split()) <= 8, row
