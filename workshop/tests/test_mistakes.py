"""Mistakes in pages' cells: the list fits the pages, and a page that passes is told."""

from __future__ import annotations

import pytest

from workshop import mistakes

ALL = mistakes.listed()


@pytest.mark.parametrize("mistake", ALL, ids=lambda m: m.name)
def test_a_mistake_can_be_made_on_its_page(mistake):
    texts = [cell.source for cell in mistakes.made(mistake).cells]
    assert any(mistake.after in text for text in texts)


def test_no_name_stands_for_two_mistakes():
    assert len({mistake.name for mistake in ALL}) == len(ALL)


def test_a_mistake_whose_lines_are_gone_is_refused():
    with pytest.raises(ValueError, match="0 places have 'no such line'"):
        mistakes.made(ALL[0]._replace(before="no such line"))


@pytest.mark.parametrize(
    "passed, unnoticed, status, said",
    [
        (False, "", 0, "1 of 1 mistakes are noticed"),
        (True, "", 1, "mine: not noticed"),
        (True, "nobody sees it", 0, "0 of 1 mistakes are noticed"),
        (False, "nobody sees it", 1, "mine: noticed after all"),
    ],
)
def test_what_a_page_lets_pass_is_told(
    monkeypatch, capsys, passed, unnoticed, status, said
):
    mine = mistakes.Mistake("mine", "part/page", "a", "b", unnoticed)
    monkeypatch.setattr(mistakes, "listed", lambda: [mine])
    monkeypatch.setattr(
        mistakes, "unnoticed", lambda asked: {m.name for m in asked if passed}
    )
    assert mistakes.main(["page"]) == status
    assert said in capsys.readouterr().out
