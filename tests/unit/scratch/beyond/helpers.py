"""A ring of threads in place of processes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from manygpu.processes.door import Door
from manygpu.scratch.beyond.many_workers import Ring, join_ring
from tests.threads import LONG, SECRET, at_once


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
