"""Keeps a learner's process to its own folder, and notes what it tries elsewhere.

Python's audit names each call before it happens, so that the call can be refused with a
sentence, and the teacher be told. `landlock` sees to the calls that aren't Python's.
"""

from __future__ import annotations

import _posixsubprocess
import functools
import os
import sys
from pathlib import Path
from typing import Any

from manygpu.exercises.landlock import enclose

# What a notebook has no need of while it is graded, by the names of Python's audit.
FORBIDDEN = {
    *("os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system"),
    *("subprocess.Popen", "socket.connect", "socket.bind", "os.kill", "os.killpg"),
}
# Of what changes files: where its arguments have paths, each with the folder it is
# relative to. None: relative to the one that the process is in.
CHANGING: dict[str, tuple[tuple[int, int | None], ...]] = {
    "os.remove": ((0, 1),),
    "os.rename": ((0, 2), (1, 3)),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.link": ((0, 2), (1, 3)),
    "os.symlink": ((0, None), (1, 2)),
    "os.truncate": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "shutil.rmtree": ((0, 1),),
}
MOST_TRIES = 20  # that are noted


def answers() -> list[str]:
    """The folders of the book that hold answers, where the package lies in a clone."""
    root = Path(__file__).resolve().parents[2]
    there = (root / "_toc.yml").is_file()
    return [str(root / name) for name in ("solutions", "tests")] if there else []


def fence(graded: str) -> list[str]:
    """From now on change no other folder, and read no graded notebook and no answer.

    Returns the list that what was refused is added to.
    """
    own = os.path.realpath(os.getcwd())
    closed = [os.path.realpath(graded), *answers()]
    tries: list[str] = []

    def refuse(said: str) -> None:
        if len(tries) < MOST_TRIES and not importing():
            tries.append(said)
        raise PermissionError(said)

    def look(event: str, given: tuple) -> None:
        if event == "open":
            path, _, flags = given
            changes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
            outside = changes and not within(path, own) and not within(path, "/dev")
            shut = any(within(path, each) for each in closed) and not within(path, own)
            if not isinstance(path, int) and (shut or outside):
                refuse(f"while it is graded, leave {path!r} alone")
        elif event in FORBIDDEN:
            refuse(f"{event} is not allowed while it is graded")
        elif event in CHANGING:
            for path, folder in places(event, given):
                if not within(path, own, folder):
                    refuse(f"while it is graded, leave {path!r} alone")

    def start(*_: Any) -> None:
        refuse("starting a process is not allowed while it is graded")

    # The audit isn't told of the folder that a path is relative to, nor of this start.
    os.open = _relative(os.open, look)
    os.supports_dir_fd.add(os.open)
    _posixsubprocess.fork_exec = start
    enclose(own, closed)
    sys.addaudithook(look)
    return tries


def importing() -> bool:
    """Whether a module is being imported: TensorFlow tries processes and ports then."""
    frame = sys._getframe()
    while frame:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _relative(opened: Any, look: Any) -> Any:
    """`os.open` that looks at a path together with the folder it is relative to."""

    @functools.wraps(opened)
    def open_(
        path: Any, flags: int, *mode: Any, dir_fd: Any = None, **more: Any
    ) -> int:
        if dir_fd is not None:
            look("open", (absolute(path, dir_fd), None, flags))
        return opened(path, flags, *mode, dir_fd=dir_fd, **more)

    return open_


def places(event: str, given: tuple) -> list[tuple[Any, Any]]:
    """Each path of an event, with the open folder that it is relative to, or None."""
    found = []
    for at, folder_at in CHANGING[event]:
        known = folder_at is not None and folder_at < len(given)
        folder = given[folder_at] if known else None
        found.append((given[at], None if folder in (None, -1) else folder))
    return found


def within(path: Any, folder: str, relative_to: int | None = None) -> bool:
    """Whether a path, or what an open file's number leads to, lies in a folder."""
    return (absolute(path, relative_to) + "/").startswith(folder + "/")


def absolute(path: Any, relative_to: int | None = None) -> str:
    """A path without links, from the root; "" for what leads nowhere."""
    if isinstance(path, int):
        return opened_at(path)
    try:
        path = os.fsdecode(path)
    except TypeError:
        return ""
    if relative_to is not None and not os.path.isabs(path):
        path = os.path.join(opened_at(relative_to), path)
    return os.path.realpath(path)


def opened_at(number: int) -> str:
    """Where the file or folder lies that a process has opened under a number."""
    try:
        if sys.platform == "darwin":
            import fcntl

            told = fcntl.fcntl(number, fcntl.F_GETPATH, bytes(1024))
            return os.fsdecode(told.rstrip(b"\0"))
        return os.path.realpath(f"/proc/self/fd/{number}")
    except OSError:
        return ""
