"""A rehearsal: which of its verdicts counts, and what it refuses.

The page rehearses each failure on real processes, and its cure.
"""

import time
from unittest.mock import Mock

import pytest

from manygpu.backstage import rehearsal
from manygpu.backstage.rehearsal import Rehearsal, Rehearsed, come, go
from manygpu.processes.waits import LateError
from manygpu.scratch.beyond import step_hangs
from manygpu.scratch.beyond.step_hangs import FlightLog, Verdict


def held_up(cause: str, seconds: float) -> tuple[Verdict, list[FlightLog]]:
    """A verdict, and the log of a rank that had waited so long when it was drawn."""
    log = FlightLog(0, calls=(step_hangs.Call(0, 0, "W"),), at=seconds)
    return Verdict(cause, (1,), ""), [log]


def test_the_link_is_blamed_only_if_nothing_else_was_found():
    link, early, late = held_up("link", 3), held_up("straggler", 1), held_up("dead", 2)
    assert Rehearsed([link, early, late, (None, [])], {}, {}).verdict == late[0]
    assert Rehearsed([link, (None, [])], {}, {}).verdict == link[0]
    assert Rehearsed([early, link], {}, {}).verdict == link[0]  # how it ended


@pytest.mark.parametrize("inside", [False, True])
def test_an_error_of_a_ranks_own_is_its_last_word(monkeypatch, inside):
    def out_of_memory(ring, recorder, *_):
        if not inside:
            raise MemoryError
        with recorder.call("sum"):
            raise MemoryError

    monkeypatch.setattr(rehearsal, "train_watched", out_of_memory)
    with step_hangs.Collector(1, b"k" * 32) as collector:
        door, *rest = come(0, 1, b"k" * 32, collector.address, 60.0)
        with pytest.raises(MemoryError):
            go(door, *rest, [door.address], None, 60.0)
        *_, (verdict, [log]) = collector.watch()
    assert (log.ended, bool(log.open_call)) == ("MemoryError()", inside)
    assert verdict[:2] == ("missing rank", (0,))
    assert "MemoryError()" in verdict.sentence


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"kind": "x"}, "kind must be one of"),
        ({"kind": "slow", "rank": 3}, "rank must be 0 to 2, got 3"),
        ({"kind": "slow", "step": 6}, "step must be 0 to 5, got 6"),
    ],
)
def test_a_rehearsal_refuses_what_it_cannot_do(wrong, said):
    with pytest.raises(ValueError, match=said):
        Rehearsal(3).run(**wrong)


def lost_in_its_own_code() -> None:
    time.sleep(600)


def stands_still_at(word: str):
    """A rank 1 that never ends what it does when it is told this word."""

    def member(rank: int, size: int):
        own = rehearsal.watched_member(rank, size)

        def answer(question: tuple):
            if rank == 1 and question[0] == word:
                lost_in_its_own_code()
            return own(question)

        return answer

    return member


def lost_at_come(rank: int, size: int):
    return stands_still_at("come")(rank, size)


def lost_at_go(rank: int, size: int):
    return stands_still_at("go")(rank, size)


@pytest.mark.parametrize("member", [lost_at_come, lost_at_go])
def test_a_rank_that_is_lost_is_named_with_where_it_was(monkeypatch, member):
    """Before that, nobody heard of it until the page's cell was ended."""
    with Rehearsal(2) as stage:
        stage.run()  # starts what processes are forked from
        stage.close()
        monkeypatch.setattr(rehearsal, "watched_member", member)
        begun, lost = time.monotonic(), r"(?s)rank 1 .* in lost_in_its_own_code"
        with pytest.raises(LateError, match=lost):
            stage.run(timeout_s=2.0, limit_s=8.0)
        assert time.monotonic() - begun < 180  # it has tens of seconds to end in
        assert not stage._workers  # the next run has processes of its own


def test_its_processes_end_with_the_block():
    workers = [Mock(), Mock()]
    with Rehearsal(2) as stage:
        stage._workers.update(enumerate(workers))
    assert [worker.close.called for worker in workers] == [True, True]
