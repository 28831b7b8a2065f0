"""Threads in place of processes: to a socket they are the same."""

import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

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


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other
