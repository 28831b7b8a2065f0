"""Has the kernel keep a process to one folder, whatever it uses to get out.

Python's own audit sees Python's own calls only: TensorFlow's file functions, SQLite or
a removal relative to an open folder pass it by. Linux' Landlock (5.13 or newer, without
any privilege) sees all of them. See https://docs.kernel.org/userspace-api/landlock.html
for the numbers below.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

CREATE, ADD, RESTRICT, NO_NEW_PRIVILEGES = 444, 445, 446, 38
VERSION, BENEATH = 1, 1
READ, WRITE = 1 << 2, 1 << 1
CHANGE = sum(1 << i for i in range(4, 13))  # remove and make files, folders, links
MOVE, CUT = 1 << 13, 1 << 14  # since the second and third version
TCP, ABSTRACT_AND_SIGNALS = 3, 3  # listen and connect; sockets by name, and signals
NETWORK, SCOPES = 4, 6  # the versions since which there are these
OF_A_FILE = READ | WRITE | CUT


def enclose(own: str, closed: Iterable[str]) -> bool:
    """From now on change nothing outside `own` and /dev, and read nothing in `closed`.

    Nor connect by TCP, nor send other processes signals, if the kernel is new enough.
    Holds for this thread and for all that it starts. What lies beside a closed folder
    stays open if it is there now. Returns whether the kernel does it.
    """
    version = landlock_version()
    if version < 1:
        return False
    call = ctypes.CDLL(None, use_errno=True).syscall
    change = CHANGE | (MOVE if version > 1 else 0) | (CUT if version > 2 else 0)
    rules = struct.pack("Q", READ | WRITE | change)
    rules += struct.pack("Q", TCP) if version >= NETWORK else b""
    rules += struct.pack("Q", ABSTRACT_AND_SIGNALS) if version >= SCOPES else b""
    handle = call(CREATE, rules, ctypes.c_size_t(len(rules)), 0)
    if handle < 0:
        return False
    for place in beside([os.path.realpath(each) for each in closed]):
        _allow(call, handle, place, READ)
    _allow(call, handle, "/dev", READ | WRITE | change & CUT)
    _allow(call, handle, own, READ | WRITE | change)
    ctypes.CDLL(None).prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    restricted = call(RESTRICT, handle, 0) == 0
    os.close(handle)
    return restricted


def landlock_version() -> int:
    """The version of Landlock that this kernel has, or 0."""
    if sys.platform != "linux":
        return 0
    call = ctypes.CDLL(None, use_errno=True).syscall
    return max(call(CREATE, None, ctypes.c_size_t(0), VERSION), 0)


def _allow(call: Callable, handle: int, place: str, rights: int) -> None:
    """Allow something below a place; what has gone meanwhile needs no rule."""
    with contextlib.suppress(OSError):
        opened = os.open(place, os.O_PATH | os.O_CLOEXEC)
        if not os.path.isdir(place):
            rights &= OF_A_FILE
        call(ADD, handle, BENEATH, struct.pack("=Qi", rights, opened), 0)
        os.close(opened)


def beside(closed: Iterable[str]) -> Iterator[str]:
    """The fewest places below which everything lies but the closed folders."""
    shut = {*closed}
    ways = {str(parent) for each in shut for parent in Path(each).parents}
    for way in ways or {"/"}:
        if any(f"{way}/".startswith(f"{each}/") for each in shut):
            continue
        with contextlib.suppress(OSError):
            for name in os.listdir(way):
                place = os.path.join(way, name)
                # A link leads to another place, which has a rule of its own.
                if place not in shut | ways and not os.path.islink(place):
                    yield place
