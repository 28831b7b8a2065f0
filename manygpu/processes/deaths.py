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
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from manygpu.processes.waits import (
    ASK,
    ENDING_S,
    STACKS_S,
    TIMEOUT_S,
    LateError,
    show_stacks_in,
    state_of,
    within,
)
from manygpu.processes.workers import Worker

CALLS = ("open", "write", "fsync", "replace", "unlink")  # of os, which change a disk
LOOK_S = 0.002  # between two looks whether a process has come so far
LAST_WORDS = 4000  # bytes of a child's error
CHILD_S = 240.0  # for work in a child: less than its worker's asker waits


class Killed(KeyboardInterrupt):
    """Where no process can be forked: the work that ends here would be killed."""


def die() -> None:
    """End this process as `kill -9` does: no handler, no `finally`, no last words."""
    if not hasattr(os, "fork"):
        raise Killed
    os.kill(os.getpid(), signal.SIGKILL)


def in_child(
    work: Callable[..., Any],
    *arguments: Any,
    after_s: float | None = None,
    limit_s: float = CHILD_S,
) -> bool:
    """Run `work` in a copy of this process; return whether it lived to the end.

    Args:
        work, arguments: what to run. It may call `die`.
        after_s: seconds after which it is killed; None: it is not. It needs `fork`.
        limit_s: seconds that it may take.

    Raises:
        RuntimeError: it failed, or ended in a way that is neither.
        LateError: it took longer, and was killed; the message says where it was.
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
    try:
        error, is_over = _heard(said, limit_s)
        if not is_over:
            raise LateError(_give_up(child, said, limit_s))
    finally:
        os.close(said)
    ended = within(ENDING_S, os.waitpid, child, 0)[1]
    if os.WIFSIGNALED(ended) and os.WTERMSIG(ended) == signal.SIGKILL:
        return False
    if ended:
        raise RuntimeError(f"work failed in the child, status {ended}:\n{error}")
    return True


def _heard(said: int, seconds: float) -> tuple[str, bool]:
    """What a child says within so many seconds, and whether it has said all."""
    words, until = b"", time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if wait([said], left):
            more = os.read(said, 2**16)
            words += more
            if not more:
                return words.decode(errors="replace"), True
    return words.decode(errors="replace"), False


def _give_up(child: int, said: int, limit_s: float) -> str:
    """Ask a child where it is, and kill it; return what to say of it."""
    if ASK is not None:
        os.kill(child, ASK)
    stacks = _heard(said, STACKS_S)[0].strip()
    where = f"; where it was:\n{stacks}" if stacks else f": {state_of(child)}"
    os.kill(child, signal.SIGKILL)
    within(ENDING_S, os.waitpid, child, 0)
    return f"work in a child was not done within {limit_s:g} s and was killed{where}"


def _end_with(say: int, work: Callable[..., Any], *arguments: Any) -> None:
    """In the child: run `work` and end; the error, if there is one, goes to `say`."""
    status = 1
    try:
        show_stacks_in(say)
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
    worker: Worker,
    reached: Callable[[], Any],
    pause_s: float = 0,
    end: str = "kill",
    limit_s: float = TIMEOUT_S,
) -> bool:
    """End a worker a while after it has come so far; return whether it was at work.

    Args:
        worker: one that was sent a question.
        reached: looked at again and again, until it is true or the answer is there.
        pause_s: seconds from then to the end.
        end: kill (signal 9), or terminate (SIGTERM: it may do something yet).
        limit_s: seconds in which it must come so far.

    Raises:
        LateError: it didn't; the message says where it was. It was ended.
    """
    until = time.monotonic() + limit_s
    while not reached() and not worker.connection.poll(LOOK_S):
        if time.monotonic() > until:
            raise worker.give_up(f"did not come so far in {limit_s:g} s")
    time.sleep(pause_s)
    at_work = not worker.connection.poll(0)
    getattr(worker.process, end)()
    return at_work
