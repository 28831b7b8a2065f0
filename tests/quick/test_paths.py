"""The paths of the front page: their pages, their minutes, and what each page needs."""

import posixpath
import re

import nbformat
import pytest

from workshop.pages import ROOT
from workshop.reading import TIME, minutes

FRONT = (ROOT / "book" / "index.md").read_text(encoding="utf-8")
FIRST = "book/start/two-devices.ipynb"
ENTRY = re.compile(r"^- \[.+?\]\((.+?)\), (\d+) minutes$", flags=re.M)
SUM = re.compile(r"^(\d+) pages, (\d+) (minutes|hours) in all", flags=re.M)


def path_of(heading: str) -> tuple[str, list[tuple[str, int]]]:
    """A path's section; and its pages, each with the minutes that are said of it."""
    section = FRONT.partition(f"\n### {heading}\n")[2].partition("\n::::\n")[0]
    found = ENTRY.findall(section)
    return section, [(f"book/{link}", int(said)) for link, said in found]


def box(page: str) -> str:
    """The cell with a page's question and box; of a page that has none, nothing."""
    if not page.endswith(".ipynb"):
        return ""
    return nbformat.read(ROOT / page, as_version=4).cells[0].source


def needs(page: str) -> list[str]:
    """The pages that a page's box says it needs."""
    line = "".join(re.findall(r"^- \*\*Needs:\*\* .+$", box(page), flags=re.M))
    links = re.findall(r"\]\(([^)#]+)", line)
    return [posixpath.normpath(f"{posixpath.dirname(page)}/{link}") for link in links]


MOST = {"Two hours": 132, "A course": 528}  # minutes: two hours and eight, and a tenth
PATHS = {heading: path_of(heading) for heading in MOST}
PAGES = sorted({page for _, path in PATHS.values() for page in path})


def test_the_first_page_with_code_takes_twenty_minutes():
    rounded = 5 * round(minutes(ROOT / FIRST, on_a_path=True) / 5)  # as all boxes are
    assert rounded <= 20
    assert needs(FIRST) == []
    assert all(path[0] == (FIRST, 20) for _, path in PATHS.values())


@pytest.mark.parametrize("heading", PATHS)
def test_the_sum_that_the_front_page_names_is_that_of_its_pages(heading):
    section, path = PATHS[heading]
    pages, total, unit = SUM.search(section).groups()
    assert int(pages) == len(path) >= 5
    total = int(total) * (60 if unit == "hours" else 1)
    counted = sum(minutes(ROOT / page, on_a_path=True) for page, _ in path)
    assert total == pytest.approx(counted, rel=0.1)
    assert counted <= MOST[heading]


def test_the_third_page_of_a_path_judges_steps():
    right = "book/choosing/is-my-step-right.ipynb"
    assert all(path[2][0] == right for _, path in PATHS.values())


@pytest.mark.parametrize("heading", PATHS)
def test_a_page_of_a_path_needs_only_pages_before_it(heading):
    path = [page for page, _ in PATHS[heading][1]]
    assert len({*path}) == len(path)
    for place, page in enumerate(path):
        assert (ROOT / page).is_file()
        assert {*needs(page)} <= {*path[:place]}, page


@pytest.mark.parametrize(("page", "said"), PAGES)
def test_a_page_takes_as_long_as_the_front_page_and_its_box_say(page, said):
    counted = minutes(ROOT / page, on_a_path=True)
    assert abs(said - counted) <= max(2.5, 0.2 * counted)
    if box(page):
        whole, on_a_path = TIME.search(box(page)).groups()
        assert int(on_a_path or whole) == said


@pytest.mark.parametrize("page", [page for page, _ in PATHS["Two hours"][1][1:]])
def test_a_page_of_the_two_hours_says_which_of_the_twelve_lines_it_is_about(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    if page.endswith(".ipynb"):
        cells = nbformat.read(ROOT / page, as_version=4).cells
        text = "\n\n".join(c.source for c in cells[1:] if c.cell_type == "markdown")
    near_the_top = "\n\n".join(text.split("\n\n")[:8])
    folder = posixpath.dirname(page)
    link = posixpath.relpath(FIRST, folder)
    assert re.search(rf"\[twelve( lines)?\]\({re.escape(link)}\)", near_the_top)


def test_the_twelve_lines_are_twelve():
    cells = nbformat.read(ROOT / FIRST, as_version=4).cells
    code = next(c.source for c in cells if c.source.startswith("def train_batch("))
    body = code.splitlines()[1:]
    assert len(body) == 12
    assert "tf.reduce_sum" in body[4] and "tf.add_n" in body[6]
    assert "len(y)" in body[10] and body[11].split() == ["return", "grads"]


def test_pages_that_the_first_one_names_for_a_line_name_that_line():
    cells = nbformat.read(ROOT / FIRST, as_version=4).cells
    table = next(c.source for c in cells if "\n| line | " in c.source)
    rows = re.findall(r"^\| (\d[\d, ]*) \|.+$", table, flags=re.M)
    assert len(rows) >= 5
    for row in re.findall(r"^\| \d.+$", table, flags=re.M):
        line = re.search(r"\d+", row)[0]
        for link in re.findall(r"\]\(([^)]+)\)", row):
            page = posixpath.normpath(f"{posixpath.dirname(FIRST)}/{link}")
            text = nbformat.read(ROOT / page, as_version=4)
            prose = "\n".join(c.source for c in text.cells if c.cell_type == "markdown")
            there = posixpath.relpath(FIRST, posixpath.dirname(page))
            near = [p for p in prose.split("\n\n") if f"]({there})" in p]
            assert any(re.search(rf"\blines? {line}\b", p, re.I) for p in near), page
