"""Timing a step that processes share: input, turns, a tiny run, and the clock."""

import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from manygpu.backstage import shared_step
from manygpu.backstage.shared_step import clocked_sum, compare_processes
from manygpu.scratch.beyond.many_workers import Door, join_ring
from manygpu.trace.spans import Span
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


class Group:
    """Stands in for a worker: each step takes it some seconds; notes its turns."""

    def __init__(self, name: str, seconds: float, turns: list[str]) -> None:
        self.name, self.seconds, self.turns = name, seconds, turns

    def send(self, steps: int) -> None:
        self.turns.append(self.name)
        self.taken = [self.seconds] * steps

    def receive(self) -> list[float]:
        return self.taken


def test_ways_take_turns_and_the_slowest_process_counts(monkeypatch):
    turns: list[str] = []
    alone = [Group("a", 0.002, turns)]
    both = [Group("b", 0.003, turns), Group("c", 0.005, turns)]
    ways = {"alone": (alone, 4), "both": (both, 4)}
    monkeypatch.setattr(shared_step, "_ways", lambda *_: ways)
    times = compare_processes(rounds=2, steps=4)
    assert times == {"alone": [2.0, 2.0], "both": [5.0, 5.0]}
    assert "".join(turns) == "abc" * 3  # the first one warms up


def test_real_processes_take_steps_in_each_way():
    times = compare_processes(2, samples=4, rounds=1, steps=1)
    assert [name.split()[0] for name in times] == ["one", "2", "2"]
    assert all(len(taken) == 1 and taken[0] > 0 for taken in times.values())


def clocked_in(members: int) -> list[list[Span]]:
    """What each member of a ring clocks of two sums."""
    secret = secrets.token_bytes(32)
    doors = [Door(rank, members, secret) for rank in range(members)]
    addresses = [door.address for door in doors]

    def member(door: Door) -> list[Span]:
        with closing(join_ring(door, addresses)) as ring:
            return clocked_sum(ring, 6)

    with ThreadPoolExecutor(members) as pool:
        return list(pool.map(member, doors))


def test_of_two_sums_only_the_second_is_clocked_and_one_alone_has_no_message():
    assert clocked_in(1) == [[]]
    for rank, spans in enumerate(clocked_in(2)):
        assert [span.device for span in spans] == [f"rank {rank}"] * 2
        assert spans[0].end <= spans[1].start
