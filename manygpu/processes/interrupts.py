"""Signals that end a command, which then still shows what it has found."""

from __future__ import annotations

import signal
from typing import Any

from manygpu.processes.launch import STOPPING


def heed_signals(came: list[KeyboardInterrupt] | None = None) -> None:
    """Make the first signal that would end the command an interrupt; ignore others.

    So nobody keeps it from ending its processes and showing what it has found.

    Args:
        came: gets the interrupt, too, for whoever looks whether Python, or a framework,
            has swallowed it.
    """

    def stop(number: int, _: Any) -> None:
        for one in STOPPING:
            signal.signal(one, signal.SIG_IGN)
        interrupt = KeyboardInterrupt(number)
        if came is not None:
            came.append(interrupt)
        raise interrupt

    for number in STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)


def status_of(interrupt: KeyboardInterrupt) -> int:
    """Return the exit status of a command that an interrupt has ended."""
    return 128 + (interrupt.args or [signal.SIGINT])[0]
