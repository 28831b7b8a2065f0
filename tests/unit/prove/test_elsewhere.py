"""Processes of another framework, on a site that needs none: who fails or is late."""

import os
import time
from functools import partial
from types import SimpleNamespace

import pytest

from manygpu.processes.waits import LateError
from manygpu.processes.workers import everywhere
from manygpu.prove import elsewhere
from manygpu.prove.elsewhere import Crew, packed


def site(rank: int, *_: object) -> SimpleNamespace:
    """A site whose rank 1 fails, or is lost, while rank 0 waits for it."""

    def fails() -> None:
        if rank == 1:
            raise ValueError("rank 1 has no such class")
        time.sleep(600)

    def lost() -> int:
        if rank == 1:
            time.sleep(600)
        return rank

    return SimpleNamespace(number=lambda: (rank, os.getpid()), fails=fails, lost=lost)


def test_a_crew_answers_in_order_and_the_first_failure_ends_it():
    crew, own = Crew(site, {}), packed([site])
    (zero, first), (one, second) = crew.ask(2, own, "number")
    assert (zero, one) == (0, 1) and first != second
    with pytest.raises(RuntimeError, match="^ValueError: rank 1 has no such class$"):
        crew.ask(2, own, "fails")  # rank 0 would wait for ten minutes
    assert crew.workers == []


def test_of_a_crew_the_late_one_is_named_with_where_it_was(monkeypatch):
    crew, own = Crew(site, {}), packed([site])
    crew.ask(2, own, "number")
    soon = partial(everywhere, timeout_s=1.0)
    monkeypatch.setattr(elsewhere, "everywhere", soon)
    with pytest.raises(LateError, match="(?s)^rank 1 gave no answer in 1 s.* in lost"):
        crew.ask(2, own, "lost")
    assert crew.workers == []
