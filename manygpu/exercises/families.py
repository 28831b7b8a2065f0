"""Ends a process with all that it has started, also what has left its group.

Linux only: elsewhere there is no /proc, and a process that has made a session of its
own outlives the one that started it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

PDEATHSIG, SUBREAPER = 1, 36  # of Linux' prctl


def die_with_parent() -> None:
    """Have the kernel kill this process once the one that started it is gone."""
    _prctl(PDEATHSIG, signal.SIGKILL)


def adopt() -> None:
    """Become the parent of each descendant whose own parent ends."""
    _prctl(SUBREAPER, 1)


def _prctl(*words: int) -> None:
    """Set one of this process's properties, where Linux has it."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(*words, 0, 0, 0)


def descendants(ancestor: int) -> list[int]:
    """Children of a process, their children and so on, as they are at the moment."""
    children: dict[int, list[int]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            # The name, in brackets, may hold anything; its parent is the second after.
            parent = int(file.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(file.parent.name))
    found = [*children.get(ancestor, [])]
    for one in found:  # grows while it is read
        found += children.get(one, [])
    return found


def end_descendants(ancestor: int, rounds: int = 20) -> None:
    """Kill all descendants of a process, and what they start meanwhile."""
    ended: set[int] = set()
    for _ in range(rounds):
        found = set(descendants(ancestor)) - ended
        if not found:
            return
        for one in found:
            with contextlib.suppress(OSError):
                os.kill(one, signal.SIGKILL)
        ended |= found
