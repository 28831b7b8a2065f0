"""Threads in place of processes: to a socket they are the same."""

import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from manygpu.scratch.beyond.many_workers import Door, Ring, join_ring

SECRET, LONG = secrets.token_bytes(32), 60.0  # seconds that must not be waited for


def at_once(works: Sequence[Callable]) -> list:
    """What each gives, or the error it raises; all run at the same time."""

    def outcome(work: Callable):
        try:
            return work()
        except Exception as wrong:
            return wrong

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(outcome, works))


def joined(doors: Sequence[Door], timeout_s: float = LONG) -> list[Ring]:
    """The ring that the members behind these doors make."""
    addresses = [door.address for door in doors]
    return at_once([partial(join_ring, d, addresses, timeout_s) for d in doors])


@contextmanager
def rings(size: int, timeout_s: float = LONG) -> Iterator[list[Ring]]:
    """A ring of threads."""
    members = joined([Door(rank, size, SECRET) for rank in range(size)], timeout_s)
    try:
        yield members
    finally:
        for ring in members:
            ring.close()


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other
