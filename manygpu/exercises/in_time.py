"""Stops a job that takes more than its time; in a process's main thread only."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any


class TooLong(BaseException):  # noqa: N818  # what `except Exception` doesn't catch
    """A cell, a call, or judging it took more than its time."""


def in_time(seconds: int, job: Callable[..., Any], *given: Any) -> Any:
    """What a job returns; TooLong if it takes more seconds."""

    def stop(*_: Any) -> None:
        raise TooLong(f"more than {seconds} s")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1)  # once more each second: in a
    try:  # `__del__` or a callback, Python only prints what is raised
        return job(*given)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def each_in_time(
    seconds: int, properties: Callable[..., Iterator]
) -> Callable[..., Iterator]:
    """The same properties; TimeoutError if one takes more seconds to be judged.

    What a learner returns may make an honest comparison take hours.
    """

    def judged(*given: Any) -> Iterator:
        try:
            left = in_time(seconds, properties, *given)
            while (found := in_time(seconds, next, left, None)) is not None:
                yield found
        except TooLong as late:
            raise TimeoutError(str(late)) from late

    return judged
