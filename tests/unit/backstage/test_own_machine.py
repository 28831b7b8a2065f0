"""Parts and steps of this machine: which cases, what a forecast gets, and bad input."""

import numpy as np
import pytest

from manygpu.backstage import own_machine
from manygpu.backstage.own_machine import KNOWN, Times, measure, plans_for
from manygpu.scratch.splitting.pipeline import gpipe
from manygpu.simulate.cluster import Link
from manygpu.simulate.works import Agenda
from tests import refusals
from tests.refusals import good

REFUSED = good(measure, devices=["CPU:0"], plans=plans_for(1), rounds=2).refuses(
    ("devices", [[]], ValueError, "devices is empty"),
    ("devices", [["CPU:0"] * 3], ValueError, "devices must be 1 or 2, got 3"),
    ("rounds", [1.5], TypeError),
    ("rounds", [0], ValueError),
    ("rounds", [1], ValueError, "rounds must be at least 2, got 1"),
)


@pytest.mark.parametrize("refusal", REFUSED, ids=str)
def test_bad_input_is_refused_before_anything_runs(refusal, monkeypatch):
    monkeypatch.setattr(own_machine, "_runner", None)
    refusals.is_refused(refusal)


def test_the_second_gradients_of_a_stage_are_added():
    parts = list(own_machine.parts_of(gpipe(2, 2)).values())
    assert parts.count(("F", 0, False)) == 2
    for stage in range(2):
        again = [part for part in parts if part[:2] == ("B", stage)]
        assert again == [("B", stage, False), ("B", stage, True)]


def test_one_device_has_one_plan_and_two_have_five():
    assert list(plans_for(1)) == ["one device"]
    assert len(plans_for(2)) == 5
    assert {slot.device for slot in plans_for(2)["data parallel"]} == {0}


def test_values_lie_between_the_sizes_that_were_measured():
    known = {n: {"update": float(n)} for n in KNOWN}
    times = Times(known, {"update": [0.5, 0.5, 1.0]})
    assert times.seconds("update", 100) == pytest.approx(100)
    assert times.seconds("update", 1) == KNOWN[0]
    assert times.shares("update", 800) == [("machine", pytest.approx(0.75))]


def test_the_middle_round_of_a_half_counts():
    found = {("GPipe", 256): [(s, np.zeros((1, 2))) for s in (3.0, 9.0, 1.0, 7.0, 2.0)]}
    measured = own_machine.Measured(found)
    assert measured.seconds(0, "GPipe", 256) == 2.0
    assert measured.seconds(1, "GPipe", 256) == 9.0


def test_the_end_of_a_step_has_an_update_per_device():
    known = {n: {"update": 1.0, own_machine.CALL: 0.25} for n in KNOWN}
    times = Times(known, {"update": [0.5] * 3}, Link(0.0, 1e9))
    times.calls = {"stages": [0.5] * 3, "replicas": [0.75] * 3}
    agenda = Agenda()
    last = {device: agenda.put("B", [device], 1.0) for device in range(2)}
    assert own_machine.end_of_step(agenda, times, last, 1, 100) == 0.5
    assert [work.seconds for work in agenda[2:]] == [0.5, 0.5]  # half of the layers
    whole = Agenda()
    last = {device: whole.put("B", [device], 1.0) for device in range(2)}
    assert own_machine.end_of_step(whole, times, last, 2, 100) == 0.75
    assert [work.seconds for work in whole[-2:]] == [1.0, 1.0]
    assert sum(work.name == "communication" for work in whole) == 2 * 16


@pytest.mark.parametrize("count", [1, 2])
def test_measuring_takes_each_case_in_each_round(count, monkeypatch):
    """In place of steps: each takes as many seconds as it has samples."""
    asked = []

    def runner(name, size, plans, devices):
        parts = {"in turns": 9, "all-reduce": 1, "two at once": 10, "handed over": 6}
        times = np.arange(2.0 * parts.get(name, 4)).reshape(-1, 2)

        def once():
            asked.append(name)
            return 100.0 + size, times * (1 + size / 1000)

        return once

    monkeypatch.setattr(own_machine, "_runner", runner)
    measured = measure(["CPU:0"] * count, plans_for(count), 4)
    assert {len(rounds) for rounds in measured.found.values()} == {4}
    assert len(asked) == 5 * len(measured.found)
    times = measured.times(1, lambda ratio: 0.5)
    assert set(times.known) == {*KNOWN}
    assert (times.link is None) == (count == 1)
    if count > 1:
        assert times.link.bandwidth > 0 and len(times.hand_over) == len(KNOWN)
