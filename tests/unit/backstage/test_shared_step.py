"""Timing a step that processes share: input, turns, a tiny run, and the clock."""

import pytest

from manygpu.backstage import shared_step
from manygpu.backstage.shared_step import compare_processes
from tests import refusals
from tests.refusals import good

REFUSED = good(compare_processes).refuses(
    ("count", [0], ValueError),
    ("samples", [1.5], TypeError),
    ("rounds", [0], ValueError),
    ("steps", [0], ValueError),
    ({"count": 3, "samples": 32}, ValueError, "samples must be a multiple of 3"),
)


@pytest.mark.parametrize("refusal", REFUSED, ids=str)
def test_bad_counts_are_refused_before_anything_starts(monkeypatch, refusal):
    monkeypatch.setattr(shared_step, "_ways", None)
    refusals.is_refused(refusal)


def test_ways_take_turns_and_the_slowest_process_counts(monkeypatch):
    turns: list[str] = []

    def asked(group: dict[str, float], steps: int) -> list[list[float]]:
        """In place of workers: each step takes each of them some seconds."""
        turns.extend(group)
        return [[seconds] * steps for seconds in group.values()]

    ways = {"alone": ({"a": 0.002}, 4), "both": ({"b": 0.003, "c": 0.005}, 4)}
    monkeypatch.setattr(shared_step, "_ways", lambda *_: ways)
    monkeypatch.setattr(shared_step, "everywhere", asked)
    times = compare_processes(rounds=2, steps=4)
    assert times == {"alone": [2.0, 2.0], "both": [5.0, 5.0]}
    assert "".join(turns) == "abc" * 3  # the first one warms up
