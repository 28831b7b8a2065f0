"""Stops a job that takes more than its time, where the system has alarms."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any


class TooLong(BaseException):  # noqa: N818  # what `except Exception` doesn't catch
    """A cell, a call, or judging it took more than its time."""


def in_time(seconds: int, job: Callable[..., Any], *given: Any) -> Any:
    """What a job returns; TooLong if it takes more seconds.

    A thread that isn't the main one gets no alarm, and Windows has none: there, a job
    has no limit. An alarm that somebody else has set goes on as it was.
    """
    if not has_alarms():
        return job(*given)

    def stop(*_: Any) -> None:
        raise TooLong(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    left = signal.setitimer(signal.ITIMER_REAL, seconds, 1)  # once more each second:
    try:  # in a `__del__` or a callback, Python only prints what is raised
        return job(*given)
    finally:
        signal.setitimer(signal.ITIMER_REAL, *left)
        signal.signal(signal.SIGALRM, before)


def has_alarms() -> bool:
    """Whether an alarm would reach this thread."""
    main = threading.current_thread() is threading.main_thread()
    return main and hasattr(signal, "SIGALRM")


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
