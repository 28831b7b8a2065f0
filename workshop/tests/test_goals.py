"""Each page keeps the goals of docs/style.md, or is listed and comes no farther off."""

from __future__ import annotations

import nbformat
import pytest

from workshop import goals, prose, reading
from workshop.pages import ROOT

PAGE = "book/part/page.ipynb"


@pytest.mark.parametrize("path", prose.pages(), ids=goals.name_of)
def test_a_page_keeps_the_goals_or_its_bounds(path):
    assert goals.wrong(path) == []


@pytest.mark.parametrize("name", goals.bounds())
def test_what_is_listed_is_a_page_and_a_number_that_misses_the_goal(name):
    assert ROOT / name in prose.pages()
    least = {"suspicious": goals.MOST_SUSPICIOUS, "semicolons": goals.MOST_SEMICOLONS}
    allowed = goals.bounds()[name]
    assert allowed and {*allowed} <= {*goals.COLUMNS}
    assert all(number > least.get(column, 0) for column, number in allowed.items())


def test_the_front_page_says_how_minutes_are_counted():
    words, visible, folded = reading.PACE
    said = f"{words} words, {visible} visible lines of code and {folded} folded lines"
    assert said in (ROOT / "book" / "index.md").read_text(encoding="utf-8")


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a page with some places, and what the list allows it."""
    path = tmp_path / PAGE
    path.parent.mkdir(parents=True)
    monkeypatch.setattr(goals, "LIST", tmp_path / "goals.csv")
    monkeypatch.setattr(goals, "ROOT", tmp_path)

    def wrong(nobodies=0, semicolons=0, lines=0, box=5, **allowed: float):
        words = ["Nobody"] * nobodies + ["word;"] * semicolons
        words += ["word"] * (500 - len(words))
        top = f"# Title\n\n> Question?\n\n- **Time:** {box} minutes\n\n"
        made = [nbformat.v4.new_markdown_cell(top + " ".join(words))]
        made += [nbformat.v4.new_code_cell("\n".join(["x = " + "1" * 80] * lines))]
        nbformat.write(nbformat.v4.new_notebook(cells=made), path)
        allowed = {column.replace("_", " "): n for column, n in allowed.items()}
        goals.write({PAGE: allowed} if allowed else {})
        return goals.wrong(path, tmp_path)

    yield wrong
    goals.bounds.cache_clear()


def test_a_page_that_is_not_listed_keeps_each_goal(write):
    assert write() == []
    assert write(nobodies=3, semicolons=2) == []  # few, whatever the rate
    (said,) = write(nobodies=4)
    assert "suspicious per 1,000 words, 5 at most: `make prose C=page`" in said
    (said,) = write(semicolons=3)
    assert "semicolons per 1,000 words, 3 at most" in said
    assert ["a line of 84 letters" in said for said in write(lines=2)] == [True, True]


def test_the_numbers_of_a_listed_page_may_fall_and_not_rise(write):
    assert write(nobodies=6, lines=3, suspicious=12, long_lines=3) == []
    assert write(nobodies=5, lines=2, suspicious=12, long_lines=3) == []
    said, place = write(nobodies=7, lines=3, suspicious=12, long_lines=3)
    assert "suspicious, 12 at most, its number in goals.csv" in said
    assert "make prose" in place
    said, *places = write(nobodies=6, lines=4, suspicious=12, long_lines=3)
    assert "has 4 long lines, 3 at most, its number" in said and len(places) == 4


def test_a_page_that_reaches_a_goal_leaves_the_list(write):
    (said,) = write(nobodies=6, suspicious=12, long_lines=3)
    assert said == (
        "reaches the goal for long lines and is still in goals.csv: run `python -m "
        "workshop.goals`"
    )


def test_the_command_lowers_and_never_raises(write, capsys):
    write(nobodies=6, lines=4, suspicious=20, hidden_names=9, long_lines=3)
    assert goals.main() == 0
    said = "1 goals reached, 2 to go, on 1 pages"
    assert capsys.readouterr().out.strip() == said
    bounds = goals.bounds()[PAGE]
    assert {*bounds} == {"suspicious", "long lines"} and bounds["long lines"] == 3
    assert 11 < bounds["suspicious"] < 13
    (goals.ROOT / PAGE).unlink()
    assert goals.main() == 0 and goals.bounds() == {}
