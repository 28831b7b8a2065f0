"""Starts a learner's process where there is no network and no other process to see.

Linux gives a process a network, processes and, with bubblewrap, a file system of its
own: see https://man7.org/linux/man-pages/man7/namespaces.7.html. Not every system
allows it, a container often doesn't: so each way is tried once, and what can't be had
is said.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile

from manygpu.exercises import landlock

# The first that works is taken. HOME is the only folder that may be changed.
WAYS = {
    "bubblewrap": "bwrap --ro-bind / / --dev-bind /dev /dev --bind HOME HOME "
    "--unshare-user --unshare-net --unshare-pid --unshare-ipc --die-with-parent --",
    "user namespaces": "unshare --user --map-current-user --net --ipc --pid --fork "
    "--kill-child --",
}
PROBE = 20  # seconds


def walled(command: list[str], home: str) -> list[str]:
    """The command that runs another one behind the best wall that there is here."""
    known = way()
    return [*words(known, home), *command] if known else command


def words(name: str, home: str) -> list[str]:
    """The words of a way, for a process whose own folder is `home`."""
    return [home if word == "HOME" else word for word in WAYS[name].split()]


@functools.cache
def way() -> str:
    """The first of `WAYS` that works here, or ""."""
    return next(filter(works, WAYS), "") if sys.platform == "linux" else ""


def works(name: str) -> bool:
    """Whether Python runs in this way, and is cut off from all other processes."""
    with tempfile.TemporaryDirectory() as home:
        command = [*words(name, home), sys.executable, "-c", "import os; os.getpid()"]
        try:
            done = subprocess.run(
                command, cwd=home, timeout=PROBE, check=False,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return False
    return done.returncode == 0


def held(known: str, version: int) -> str:
    """What the system keeps a notebook from, and what it can't, in one sentence.

    Args:
        known: the way that works here, or "".
        version: Landlock's, or 0.
    """
    kept, open_ = [], []
    files = "changing files outside its folder"
    (kept if version or known == "bubblewrap" else open_).append(files)
    (kept if known or version >= landlock.NETWORK else open_).append("the network")
    (kept if known else open_).append("leaving processes")
    said = f"the system keeps each notebook from {', '.join(kept)}" if kept else ""
    if not open_:
        return said
    by = " and ".join(open_)
    wall = f"no wall of the system keeps a notebook from {by}, only Python's own calls"
    advice = "are checked: run this as a user of its own, in a container"
    return f"{said}; {wall} {advice}" if said else f"{wall} {advice}"
