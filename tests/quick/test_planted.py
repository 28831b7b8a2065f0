"""Each row of the planted bugs still breaks a line that is there: read, never run."""

from __future__ import annotations

import pytest

from manygpu.prove.planted import (
    BUGS,
    Bug,
    broken_source,
    bugs,
    changed_functions,
    home_of,
)
from manygpu.prove.verdict import PROPERTIES
from workshop.needs import file_of
from workshop.pages import ROOT

HUNDREDTHS = bugs(ROOT / "experiments" / "hundredths.csv")


def source_of(module: str) -> str:
    return file_of(home_of(module)).read_text(encoding="utf-8")


def unmatched(bug: Bug) -> str:
    """Why a row no longer matches; "" if it does."""
    try:
        changed = changed_functions(bug, source_of(bug.module))
    except (LookupError, SyntaxError) as error:
        return f"{type(error).__name__}: {error}"
    if bug.function and bug.function not in changed:
        return f"{bug.function} stays as it is, {[*changed]} change"
    return ""


@pytest.mark.parametrize("table", [BUGS, HUNDREDTHS], ids=["planted", "hundredths"])
def test_each_row_breaks_a_line_that_is_there_once(table):
    told = [f"row {i}, {why}" for i, b in enumerate(table, 1) if (why := unmatched(b))]
    assert not told, "\n".join(["quote the line as it is now:", *told])


def test_each_row_breaks_a_property_that_a_verdict_can_name():
    assert {bug.broken for bug in BUGS} <= {*PROPERTIES}


CODE = """\
class Server:
    def push(self, x):
        return x + 1


def twice(x):
    return x + 1


@patch
def pull(self, x):
    y = x + 1
    return y
"""
ROW = Bug("made.up", "return x + 1", "return x + 2", "mean", "data")


@pytest.mark.parametrize(
    ("function", "line"), [("Server.push", 3), ("twice", 7)], ids=str
)
def test_a_line_is_looked_for_in_its_function_only(function, line):
    broken = broken_source(ROW._replace(function=function), CODE)
    pairs = zip(CODE.splitlines(), broken.splitlines(), strict=True)
    assert [i for i, (a, b) in enumerate(pairs, 1) if a != b] == [line]
    assert [*changed_functions(ROW._replace(function=function), CODE)] == [function]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, r"^made.up has 2 times 'return x \+ 1', not once$"),
        ({"function": "pull"}, "made.up.pull has 0 times"),
        ({"function": "gone"}, "made.up.gone isn't there: in which is 'return x"),
        ({"function": "twice", "after": "return x + 1"}, "changes no function of made"),
    ],
)
def test_a_row_that_matches_no_line_of_its_own_is_named(changed, said):
    with pytest.raises(LookupError, match=said):
        changed_functions(ROW._replace(**changed), CODE)
    assert unmatched(BUGS[0]._replace(function="no_such_function")) != ""
