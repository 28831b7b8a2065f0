"""Waits that end, each with an error that names who was waited for.

A cell of a page may take 600 s where all pages are run. A wait that is as long, or has
no end, tells nobody anything. So each has a limit below its caller's, and a process
that is late is asked where in its program it is before it is ended.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

TIMEOUT_S = 300.0  # half of what a cell may take: what is late can still be told
ENDING_S = 30.0  # for the end of a process that was killed
STACKS_S = 5.0  # for a process to show where it is
LOOK_S = 0.1  # between two looks whether it has shown all
LAST_STACKS = 6000  # characters; the main thread's stack is the last one
# Windows has no such signal; there nobody can be asked.
ASK = getattr(signal, "SIGUSR1", None) if hasattr(faulthandler, "register") else None
STATES = {
    "R": "it runs",
    "S": "it waits for something",
    "D": "it waits for a disk or a driver",
    "T": "it is stopped (SIGSTOP)",
    "t": "a debugger holds it",
    "Z": "it has ended",
}

Result = TypeVar("Result")


class LateError(RuntimeError):
    """A process took too long; the message says which, and what it was doing."""


def within(seconds: float, work: Callable[..., Result], *arguments: Any) -> Result:
    """Return what `work` returns, for calls that have no time-out of their own.

    It runs in a thread. When the time is up, the thread is left to itself, and the
    caller ends whatever it waits for.

    Raises:
        TimeoutError: it was not done within so many seconds.
    """
    ended: list[tuple[bool, Any]] = []

    def run() -> None:
        try:
            ended.append((True, work(*arguments)))
        except BaseException as wrong:
            ended.append((False, wrong))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not ended:
        raise TimeoutError(f"not done within {seconds:g} s")
    [(worked, found)] = ended
    if not worked:
        raise found
    return found


def show_stacks_in(file: Any) -> None:
    """In a process that may be late: write all stacks into a file when asked.

    file: an open file, which must stay open, or its number. The system's handler does
    it, so a program shows its stacks even while it is in C.
    """
    if ASK is not None:
        faulthandler.register(ASK, file=file, all_threads=True, chain=False)


def stacks_of(process: int, log: Path) -> str:
    """Ask a process that has called `show_stacks_in`; say where it is, or why not.

    Args:
        process: its number.
        log: the file that it writes its stacks into.
    """
    if ASK is None:
        return "this system can't ask it where it is"
    try:
        begun = size = log.stat().st_size
        os.kill(process, ASK)
        until = time.monotonic() + STACKS_S
        while time.monotonic() < until:
            time.sleep(LOOK_S)
            before, size = size, log.stat().st_size
            if begun < size == before:
                break
        shown = log.read_bytes()[begun:].decode(errors="replace").strip()
    except OSError as gone:
        return f"it can't be asked where it is ({gone.strerror})"
    if not shown:
        return f"it shows no stack: {state_of(process)}"
    return f"where it was, the main thread last:\n{shown[-LAST_STACKS:]}"


def state_of(process: int) -> str:
    """Say how a process is, by the system's own list; only Linux has one to read."""
    with suppress(OSError, IndexError):
        stat = Path(f"/proc/{process}/stat").read_text(encoding="ascii")
        letter = stat.rpartition(")")[2].split()[0]  # after its name, of any letters
        return STATES.get(letter, f"its state is {letter}")
    return "how it is can't be read"


def has_ended(process: int) -> bool:
    """Whether a process is no more, or waits only for somebody to ask how it ended."""
    if state_of(process) == STATES["Z"]:
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:  # another user's; Windows says it in this way, too
        return os.name != "posix"
    return False
