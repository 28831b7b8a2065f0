"""The notation: each symbol of each chapter is there, and nothing else."""

import functools
import posixpath
import re
from itertools import chain

import nbformat
import pytest

from workshop.pages import ROOT, reading_order

PAGE = "book/back/notation"
CODE = re.compile(r"```.*?```|`[^`]*`", flags=re.S)
FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\\$])\$(?=\S)(.+?)(?<=\S)\$", flags=re.S)
WORDS = re.compile(r"\\(?:text|mathrm|operatorname)\{[^}]*\}")
GREEK = "alpha beta gamma delta Delta epsilon eta theta lambda mu pi sigma Sigma tau"
LETTERS = {*GREEK.split(), "ell", "nabla"}


def symbols(text: str) -> set[str]:
    """The letters, Latin or Greek, in the formulas of a text."""
    found = set()
    paragraphs = re.split(r"\n\s*\n", CODE.sub("", text))
    for formula in chain.from_iterable(map(FORMULA.finditer, paragraphs)):
        plain = WORDS.sub(" ", formula[1] or formula[2])
        found |= {*re.findall(r"(?<=\\)[A-Za-z]+|[A-Za-z]", plain)}
    return {name for name in found if len(name) == 1 or name in LETTERS}


@functools.cache
def of_chapter(page: str) -> set[str]:
    """The symbols of a chapter's prose."""
    cells = nbformat.read(ROOT / f"{page}.ipynb", as_version=4).cells
    return symbols("\n\n".join(c.source for c in cells if c.cell_type == "markdown"))


TEXT = (ROOT / f"{PAGE}.md").read_text(encoding="utf-8")
EVERYWHERE, ALONE = TEXT.split("\n## ")[1:]
GENERAL = symbols("\n".join(re.findall(r"^\| ([^|]+) \|", EVERYWHERE, flags=re.M)))
ROWS = {
    posixpath.normpath(f"book/back/{link}"): symbols(row)
    for link, row in re.findall(r"^\| \[.+?\]\((.+?)\.ipynb\) (.+)$", ALONE, flags=re.M)
}


@pytest.mark.parametrize("page", reading_order())
def test_each_symbol_of_a_chapter_is_explained(page):
    own = ROWS.get(page, set())
    unknown = of_chapter(page) - GENERAL - own
    assert unknown == set(), f"{page} uses what {PAGE}.md does not have"
    assert own - of_chapter(page) == set(), f"{PAGE}.md has what {page} does not use"


def test_what_the_whole_book_uses_is_used_twice_and_each_row_is_of_a_chapter():
    chapters = [of_chapter(page) for page in reading_order()]
    rare = {s for s in GENERAL if sum(s in used for used in chapters) < 2}
    assert rare == set()
    assert ROWS and {*ROWS} <= {*reading_order()}
