"""Processes that are killed, or refused by the system: what is left of their work?

For the chapter on workers that die, and for `make faults`. What is trained, and what
must be left of it, is theirs. Here is how a process ends, when, and how it is watched.
Nothing of this needs TensorFlow.
"""

from __future__ import annotations

import errno
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manygpu.processes.workers import Worker

CALLS = ("open", "write", "fsync", "replace", "unlink")  # of os, which change a disk
LOOK_S = 0.002  # between two looks whether a process has come so far
LAST_WORDS = 4000  # bytes of a child's error; they fit into a pipe that nobody reads


class Killed(KeyboardInterrupt):
    """Where no process can be forked: the work that ends here would be killed."""


def die() -> None:
    """End this process as `kill -9` does: no handler, no `finally`, no last words."""
    if not hasattr(os, "fork"):
        raise Killed
    os.kill(os.getpid(), signal.SIGKILL)


def in_child(
    work: Callable[..., Any], *arguments: Any, after_s: float | None = None
) -> bool:
    """Run `work` in a copy of this process; return whether it lived to the end.

    Args:
        work, arguments: what to run. It may call `die`.
        after_s: seconds after which it is killed; None: it is not. It needs `fork`.

    Raises:
        RuntimeError: it failed, or ended in a way that is neither.
    """
    if not hasattr(os, "fork"):
        with suppress(Killed):
            work(*arguments)
            return True
        return False
    said, say = os.pipe()
    child = os.fork()
    if not child:
        _end_with(say, work, *arguments)
    os.close(say)
    if after_s is not None:
        time.sleep(after_s)
        os.kill(child, signal.SIGKILL)  # if it has ended, its number is still its own
    with open(said, "rb") as pipe:
        error = pipe.read().decode(errors="replace")
    ended = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(ended) and os.WTERMSIG(ended) == signal.SIGKILL:
        return False
    if ended:
        raise RuntimeError(f"work failed in the child, status {ended}:\n{error}")
    return True


def _end_with(say: int, work: Callable[..., Any], *arguments: Any) -> None:
    """In the child: run `work` and end; the error, if there is one, goes to `say`."""
    status = 1
    try:
        work(*arguments)
        status = 0
    except BaseException:
        os.write(say, traceback.format_exc().encode()[-LAST_WORDS:])
    finally:
        os._exit(status)  # what the parent would do at its end is not for the child


@contextmanager
def before_each(happens: Callable[[str], Any]) -> Iterator[None]:
    """In the block, call `happens` with the name of each of CALLS, just before it."""
    own = {name: getattr(os, name) for name in CALLS}

    def watched(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            happens(name)
            return own[name](*arguments, **named)

        return call

    try:
        for name in CALLS:
            setattr(os, name, watched(name))
        yield
    finally:
        for name in CALLS:
            setattr(os, name, own[name])


@contextmanager
def at_call(number: int, happens: Callable[[], Any]) -> Iterator[None]:
    """In the block, call `happens` just before the `number`-th of CALLS; 0: never."""
    left = number

    def count(_: str) -> None:
        nonlocal left
        left -= 1
        if not left:
            happens()

    with before_each(count):
        yield


def mortal() -> Callable[[tuple], bool]:
    """In a new process: answer whether work in a child of it came to its end.

    A question is `(call, work, *arguments)`: the child dies just before the call with
    this number; with 0 it may live, unless `work` itself makes it die.
    """

    def attempt(call: int, work: Callable[..., Any], *arguments: Any) -> None:
        with at_call(call, die):
            work(*arguments)

    return lambda question: in_child(attempt, *question)


def limited(most: int) -> Callable[[tuple], str]:
    """In a new process, where no file may have over `most` bytes: what work says.

    A question is `(work, *arguments)`; the answer is the OSError, or what was returned.
    Where there is no such limit, the second call is refused as by a full disk.
    """
    refused_at = 0
    try:
        import resource

        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # an error, not a death
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    except ImportError:  # Windows
        refused_at = 2  # the first `write`, after `open`

    def answer(question: tuple) -> str:
        work, *arguments = question
        try:
            with at_call(refused_at, refuse):
                return f"returned {work(*arguments)}"
        except OSError as wrong:
            return f"{type(wrong).__name__}: {wrong.strerror}"

    return answer


def refuse() -> None:
    """Say what a system says whose disk is full."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@dataclass
class Ticks:
    """A clock that is a counter: time passes when it is called, and `left` ticks kill.

    left: the process dies when so many have passed, with the last of them.
    """

    left: int

    def __call__(self, count: int) -> None:
        """Let `count` ticks pass."""
        self.left -= count
        if self.left <= 0:
            die()


def note(path: Path, step: int) -> None:
    """Add a line to a file, in one call: a process that dies leaves no half of it."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        os.write(file, b"%08d\n" % step)
    finally:
        os.close(file)


def noted(path: Path) -> list[int]:
    """The steps that a file notes, oldest first; none if there is no file."""
    return [int(line) for line in path.read_bytes().split()] if path.exists() else []


def has_noted(path: Path, count: int) -> bool:
    """Whether a file notes so many steps or more."""
    return len(noted(path)) >= count


def end_when(
    worker: Worker, reached: Callable[[], Any], pause_s: float = 0, end: str = "kill"
) -> bool:
    """End a worker a while after it has come so far; return whether it was at work.

    Args:
        worker: one that was sent a question.
        reached: looked at again and again, until it is true or the answer is there.
        pause_s: seconds from then to the end.
        end: kill (signal 9), or terminate (SIGTERM: it may do something yet).
    """
    while not reached() and not worker.connection.poll(LOOK_S):
        pass
    time.sleep(pause_s)
    at_work = not worker.connection.poll(0)
    getattr(worker.process, end)()
    return at_work
