"""Small broken functions: each is refused by its name, and shows its symptom."""

from __future__ import annotations

import subprocess
import sys

import pytest

from manygpu.exercises import KNOWN, check
from manygpu.exercises.flaws import FLAWS, flaw
from manygpu.exercises.hunts import hunt, hunts
from tests.quick.exercises.answers import RIGHT

ALL = [one for own in FLAWS.values() for one in own]
named = pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)


@named
def test_it_is_refused_by_name(one):
    found = one.mended(one.function)
    assert found.broken == check(one.of, one.function).broken == one.broken
    assert found.name == one.name


@named
def test_it_shows_what_is_seen_and_asks_what_breaks(one, capsys):
    one.symptom()
    assert one.name in capsys.readouterr().out
    assert one.broken in one.choices
    assert len(one.choices) > 1 or one.choices == [one.broken]
    assert one.guess(one.broken)
    assert str(one.guess(one.broken)).endswith(f": yes: it breaks {one.broken!r}")
    others = set(one.choices) - {one.broken}
    assert not any(map(one.guess, others))
    for other in others:
        said = f"{one.name}: no, {other!r} isn't the property that breaks first"
        assert repr(one.guess(other)) == said
    with pytest.raises(ValueError, match="broken must be one of"):
        one.guess("nothing")


@named
def test_its_code_says_what_it_should_do(one):
    assert one.function.__doc__ in one.code


@named
def test_a_right_answer_mends_it(one):
    assert one.mended(RIGHT[one.of][0])
    assert hunt(one.of.partition("/")[0], number(one)) is one


def number(one):
    return hunts(one.of.partition("/")[0]).index(one) + 1


def test_a_flaw_of_no_exercise_is_refused():
    assert "pipeline/none" not in KNOWN
    with pytest.raises(ValueError, match="of must be the name of an exercise"):
        flaw("pipeline/none", "", str, "")


def test_a_hunt_alone_finds_them():
    code = "from manygpu.exercises.hunts import hunt; print(hunt('roofline').of)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout == "roofline/intensity\n", ran.stderr
