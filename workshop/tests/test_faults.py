"""What is drawn, counted and kept when a training is killed; that it is, see unit."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from workshop import faults

DEATH = {"in_write": True, "torn": True, "twice": 2, "from": 5}
DEATH |= {"resumed": 1, "lost": 0, "different": 0, "left": 0}


def test_each_second_life_ends_in_a_write_while_there_is_one_to_come():
    for begins in range(0, faults.STEPS, faults.EVERY):
        for number in range(2):
            plan = faults.drawn(random.Random(0), number, begins)
            to_come = begins + faults.EVERY < faults.STEPS
            assert plan["in_write"] == (number == 1 and to_come)
            if plan["in_write"]:
                assert plan["step"] == begins + faults.EVERY
            else:
                assert begins <= plan["step"] <= max(begins, faults.STEPS - 6)
            assert 0 <= plan["pause"] <= 1


def test_lives_end_in_different_steps():
    rng = random.Random(0)
    drawn = [faults.drawn(rng, 0, 0) for _ in range(50)]
    assert {plan["step"] for plan in drawn} == set(range(faults.EVERY + 1))
    assert len({plan["pause"] for plan in drawn}) == 50


def test_a_damage_is_one_and_all_kinds_are_drawn():
    data, before = bytes(range(200)), bytes(200)
    kinds, places = set(), set()
    for number in range(400):
        kind, changed = faults.damaged(data, before, random.Random(number))
        assert changed != data
        kinds.add(kind)
        if kind == "a byte":
            [place] = [i for i in range(200) if data[i] != changed[i]]
            places.add(place < faults.HEADER_BYTES)
        if kind == "cut":
            assert data.startswith(changed)
        if kind in ("a piece twice", "more behind"):
            assert len(changed) > len(data)
        if kind == "a piece missing":
            assert len(changed) < len(data)
        if kind == "the one before":
            assert changed == before
    assert len(kinds) == 7 and places == {True, False}


def test_a_damage_that_changes_nothing_is_drawn_again():
    zeros = bytes(100)
    for number in range(100):
        kind, changed = faults.damaged(zeros, zeros, random.Random(number))
        assert changed != zeros and kind not in ("a block of zeros", "the one before")


def test_states_are_the_same_in_every_bit_or_not_at_all():
    state = {"w": np.zeros(5), "place": np.zeros(2, np.int64)}
    assert faults.same(state, {n: a.copy() for n, a in state.items()})
    for other in (np.array([0, -0.0, 0, 0, 0]), np.zeros(6), np.zeros(5, np.float32)):
        assert not faults.same({**state, "w": other}, state)
    assert not faults.same({"w": state["w"]}, state)


def test_all_is_well_only_if_nothing_is_lost():
    lines, good = faults.summary([DEATH] * 3, 9, Counter(cut=9))
    assert good
    assert lines[0] == "3 kills, 3 aimed at a write, 3 left a torn file"
    assert lines[1].startswith("3 resumed, 0 steps lost past the last checkpoint, 0 ")
    assert lines[2].startswith("2.00 steps were taken twice")
    assert lines[3].startswith("9 damages, 9 refused by name") and "cut: 9" in lines[3]


@pytest.mark.parametrize(
    "wrong",
    [{"resumed": 0}, {"lost": 1}, {"different": 1}, {"left": 1}],
)
def test_one_that_lost_something_is_noticed(wrong):
    assert not faults.summary([DEATH, DEATH | wrong], 0, Counter())[1]


def test_one_damage_that_passed_is_noticed():
    assert not faults.summary([DEATH], 8, Counter(cut=9))[1]


@pytest.mark.parametrize("words", [["--count", "0"], ["--damages", "-1"]])
def test_bad_counts_are_refused_before_anything_runs(words, capsys):
    with pytest.raises(SystemExit):
        faults.main(words)
    assert "--count must be at least 1" in capsys.readouterr().err
