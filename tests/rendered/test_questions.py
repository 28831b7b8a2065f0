"""What people have asked, and the place of the page that answers in a search."""

from __future__ import annotations

import csv

import pytest

from tests.rendered.test_found import search
from workshop.pages import ROOT

FILE = ROOT / "experiments" / "questions" / "questions.csv"
with FILE.open(encoding="utf-8", newline="") as file:
    QUESTIONS = list(csv.DictReader(file))
ANSWERED = [row for row in QUESTIONS if row["pages"] != "none"]


@pytest.mark.parametrize("row", ANSWERED, ids=[row["number"] for row in ANSWERED])
def test_the_page_that_answers_is_among_the_first_two(html_root, visit, row):
    found = search(visit, html_root.as_uri(), row["search"])
    places = [place.partition("#")[0] for place, _ in found]
    wanted = [f"book/{page}.html" for page in row["pages"].split("|")]
    ranks = [1 + places.index(page) for page in wanted if page in places]
    assert ranks, f"{row['search']}: none of {wanted} is among {places}"
    assert min(ranks) <= 2, f"{row['search']}: first {places[:2]}"
