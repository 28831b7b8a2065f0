"""A learner's process: runs a notebook's cells, then answers a grader's calls.

Started by `manygpu.exercises.grading` as `python -m manygpu.exercises.pupil`, in an
empty folder. It reads lines from its standard input and writes lines to a pipe of its
own. What the notebook prints goes nowhere.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from manygpu.exercises.checking import called
from manygpu.exercises.wire import from_line, to_line


class TooLong(BaseException):  # noqa: N818  # what `except Exception` doesn't catch
    """A cell, or a call, took more than its time."""


def limit(gigabytes: float) -> None:
    """Let this process take so much memory, and write no large file."""
    size = int(gigabytes * 1e9)
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))
    resource.setrlimit(resource.RLIMIT_FSIZE, (10**8, 10**8))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


# What a notebook has no need of while it is graded, by the names of Python's audit.
FORBIDDEN = {
    *("os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system"),
    *("subprocess.Popen", "socket.connect", "socket.bind", "os.kill", "os.killpg"),
}
CHANGING = {
    *("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink"),
    *("os.truncate", "os.chmod", "os.chown", "os.utime", "shutil.rmtree"),
}


def fence(graded: str) -> None:
    """Keep to this folder: no other file is changed, none of the graded ones read."""
    own, graded = os.path.realpath(os.getcwd()), os.path.realpath(graded)

    def within(path: Any, folder: str) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        return (os.path.realpath(os.fsdecode(path)) + "/").startswith(folder + "/")

    def look(event: str, given: tuple) -> None:
        if event == "open":
            path, _, flags = given
            changes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
            outside = changes and not within(path, own) and not within(path, "/dev")
            if within(path, graded) or (outside and not isinstance(path, int)):
                raise PermissionError(f"while it is graded, leave {path!r} alone")
        elif event in FORBIDDEN:
            raise PermissionError(f"{event} is not allowed while it is graded")
        elif event in CHANGING and not all(
            within(path, own) for path in given[:2] if isinstance(path, str | bytes)
        ):
            raise PermissionError(f"while it is graded, leave {given[0]!r} alone")

    sys.addaudithook(look)


def in_time(seconds: int, job: Any, *given: Any) -> Any:
    """What a job returns; TooLong if it takes more seconds."""

    def stop(*_: Any) -> None:
        raise TooLong(f"more than {seconds} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        return job(*given)
    finally:
        signal.alarm(0)


def run_cells(
    cells: Iterable[tuple[int, str]], seconds: int, out: TextIO
) -> dict[str, Any]:
    """Run cells as a notebook does, tell of each before it begins; return its names."""
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    for number, code in cells:
        code = re.sub(r"^%matplotlib.*", "", code, flags=re.MULTILINE)
        print(json.dumps({"cell": number}), file=out, flush=True)
        try:
            ran = in_time(seconds, shell.run_cell, code)
            error = ran.error_before_exec or ran.error_in_exec
        except TooLong as late:
            error = late
        if error is not None:
            said = f"{type(error).__name__}: {error!s:.200}"
            print(json.dumps({"failed": number, "said": said}), file=out, flush=True)
    return shell.user_ns


def main() -> None:
    """Read what is to be run, run it, and answer calls until there are no more."""
    lines, out = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    asked = json.loads(lines.readline())
    limit(asked["gigabytes"])
    fence(asked["graded"])
    names = run_cells(asked["cells"], asked["seconds"], out)
    print(json.dumps({"ready": True}), file=out, flush=True)
    for line in lines:
        function, in_place, given = from_line(line)
        try:
            answer = names[function]
            found = in_time(asked["seconds"], called, answer, given, in_place)
            said = {"found": to_line(found)}
        except KeyError:
            said = {"error": "NotImplementedError", "said": f"there is no {function}"}
        except BaseException as wrong:
            said = {"error": type(wrong).__name__, "said": f"{wrong!s:.200}"}
        print(json.dumps(said), file=out, flush=True)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
