"""Timing a step that processes share: input, turns, a tiny run, and the clock."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor

import pytest
import tensorflow as tf

from manygpu.backstage import shared_step
from manygpu.backstage.shared_step import clocked_sum, compare_processes, seconds_of
from manygpu.scratch.beyond.many_workers import Door, join_ring
from manygpu.trace.spans import Span


@pytest.mark.parametrize("name", ["count", "samples", "rounds", "steps"])
@pytest.mark.parametrize(("bad", "error"), [(0, ValueError), (1.5, TypeError)])
def test_a_count_must_be_whole_and_above_0(monkeypatch, name, bad, error):
    monkeypatch.setattr(shared_step, "_ways", None)  # nothing is started
    with pytest.raises(error, match=name):
        compare_processes(**{name: bad})


def test_processes_that_get_shards_of_other_sizes_are_refused(monkeypatch):
    monkeypatch.setattr(shared_step, "_ways", None)
    with pytest.raises(ValueError, match="samples must be a multiple of 3, got 32"):
        compare_processes(3, 32)


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
    assert [name.split()[:2] for name in times] == [
        ["one", "process,"],
        ["2", "processes,"],
        ["2", "processes,"],
    ]
    assert all(len(taken) == 1 and taken[0] > 0 for taken in times.values())


def test_a_step_ends_when_its_loss_is_there():
    seen = []
    taken = seconds_of(lambda: seen.append(1) or tf.constant(2.0), 3)
    assert len(taken) == len(seen) == 3
    assert min(taken) > 0


def test_a_ring_of_one_has_no_message_to_clock():
    door = Door(0, 1, secrets.token_bytes(32))
    ring = join_ring(door, [door.address])
    assert clocked_sum(ring, 5) == []
    ring.close()


def test_of_two_sums_only_the_second_is_clocked():
    secret = secrets.token_bytes(32)
    doors = [Door(rank, 2, secret) for rank in range(2)]
    addresses = [door.address for door in doors]

    def member(door: Door) -> list[Span]:
        ring = join_ring(door, addresses)
        try:
            return clocked_sum(ring, 6)
        finally:
            ring.close()

    with ThreadPoolExecutor(2) as pool:
        clocked = list(pool.map(member, doors))
    for rank, spans in enumerate(clocked):
        assert [span.device for span in spans] == [f"rank {rank}"] * 2
        assert spans[0].end <= spans[1].start
