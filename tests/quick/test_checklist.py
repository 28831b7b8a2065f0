"""The checklist: every point leads to a chapter that there is."""

import posixpath
import re

import pytest

from workshop.pages import ROOT
from workshop.tests.test_notebook_rules import toc_pages

PAGE = "book/choosing/checklist"
LINK = re.compile(r"\]\(([^()\s]+)\)")


TEXT = (ROOT / f"{PAGE}.md").read_text(encoding="utf-8")


def points(text: str) -> list[str]:
    """The points of all lists and the rows of all tables, each as one text."""
    body = re.sub(r"\|.*\n\|[-|]+\|", "", text[text.index("\n## ") :])  # no headers
    found = re.split(r"\n(?=- |\d+\. |\| )|\n\n", body)
    return [p for p in found if re.match(r"- |\d+\. |\| ", p)]


@pytest.mark.parametrize("point", points(TEXT))
def test_a_point_leads_to_a_chapter(point):
    links = [link.partition("#")[0] for link in LINK.findall(point)]
    assert links
    led_to = {posixpath.normpath(f"{posixpath.dirname(PAGE)}/{x}") for x in links}
    assert {posixpath.splitext(page)[0] for page in led_to} <= set(toc_pages())


GUIDE = (  # its checklist, in its own words and order
    "Check GPU availability",
    "Install multi-GPU TensorFlow",
    "Start with MirroredStrategy",
    "Scale batch size with GPU count",
    "Monitor GPU utilization",
    "Profile with TensorBoard",
    "Adjust learning rate",
    "Compare single vs multi-GPU performance",
    "Optimize data pipeline",
    "Consider mixed precision",
)


def test_the_guides_ten_points_are_there_and_no_others():
    started = TEXT.partition("\n## Getting started")[2].partition("\n## ")[0]
    said = re.findall(r"^\d+\. \*(.+?)\.?\*", started, flags=re.M)
    assert sorted(said) == sorted(GUIDE)
