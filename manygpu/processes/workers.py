"""Processes that answer questions: each has TensorFlow, devices and threads of its own.

TensorFlow fixes its devices when it starts, so what needs other devices needs another
process. Importing TensorFlow takes seconds, though. Where it is safe, workers are
therefore forked from one process that has imported it and started nothing yet.

No wait for a worker is without end: see `manygpu.processes.waits`.
"""

from __future__ import annotations

import contextlib
import gc
import io
import multiprocessing
import os
import runpy
import shutil
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from manygpu.processes.greetings import AT_START
from manygpu.processes.launch import HOST, KILL, POSIX, Task, environment, free_ports
from manygpu.processes.waits import (
    ENDING_S,
    TIMEOUT_S,
    LateError,
    has_ended,
    show_stacks_in,
    stacks_of,
    state_of,
    within,
)

ON_CPU = {"CUDA_VISIBLE_DEVICES": "-1"}  # variables of a worker that needs no GPU
# Until a new process says that it is alive, before it imports anything large. Where
# nothing has been forked yet, what it is forked from must import TensorFlow first: that
# took 100 s on two cores where twenty processes wanted one.
FIRST_S, FORKED_S, AFRESH_S = 180.0, 30.0, 60.0
ALIVE = b"alive"
LOOK_S = 0.2  # between two looks whether a process that gives no answer still lives
LAST_WORDS = 3000  # characters of what a dead worker said


class Worker:
    """A process in which `serve(*arguments)` made a function that answers questions.

    Use it in a `with` statement: its end is the process's end.

    Args:
        serve: a function of a module, called in the new process; it returns
            `answer(question)`.
        arguments: for `serve`; they travel by pickle, as questions and answers do.
        variables: environment variables of the process, beside the reader's own;
            None takes one away.
        name: what it is called in an error.
        without_tensorflow: for a process with another framework: it is never forked
            from one that has imported TensorFlow.
    """

    def __init__(
        self,
        serve: Callable[..., Callable[[Any], Any]],
        *arguments: Any,
        variables: Mapping[str, str | None] | None = None,
        name: str = "worker",
        without_tensorflow: bool = False,
    ) -> None:
        self.name, self.owed = name, 0  # answers that are still to come
        handle, path = tempfile.mkstemp(prefix="manygpu-worker-", suffix=".log")
        os.close(handle)
        self.log = Path(path)
        environment = {**os.environ, **(variables or {})}
        environment = {k: v for k, v in environment.items() if v is not None}
        try:
            job = environment, bytes(ForkingPickler.dumps((serve, arguments)))
            try:
                self._begin(job, without_tensorflow)
            except LateError as first:
                warnings.warn(f"{first}; it is started afresh", stacklevel=2)
                self._begin(job, afresh=True)
        except BaseException:
            self.log.unlink()
            raise

    def _begin(self, job: tuple, afresh: bool) -> None:
        """Start a process and hand it its job as soon as it has said that it is alive.

        Raises LateError if it doesn't say so; then nothing of it is left. If it dies
        before, `receive` tells.
        """
        self.connection, theirs = multiprocessing.Pipe()
        self.process, patience_s = None, _patience_s(afresh)
        until = time.monotonic() + patience_s
        try:
            with theirs:  # closed, so that its end is seen when the process is gone
                path = str(self.log)
                self.process = _start((path, theirs), self.log, afresh, patience_s)
            with contextlib.suppress(EOFError, ConnectionError):
                if not self._answers(max(0.0, until - time.monotonic())):
                    raise TimeoutError
                self.connection.recv_bytes()  # ALIVE
                _HEARD.add(_fork_server() or 0)
                self.send(job)
                self.owed = 0  # to a job there is none
        except BaseException as wrong:
            how = "its fork server gave no process"
            if self.process:
                how = state_of(self.process.pid)
            self._end()
            if not isinstance(wrong, TimeoutError):
                raise
            late = f"{self.name} did not begin within {patience_s:g} s: {how}"
            raise LateError(late) from None

    def ask(self, question: Any, timeout_s: float = TIMEOUT_S) -> Any:
        """Send a question and wait for its answer; errors: see `receive`."""
        until = time.monotonic() + timeout_s
        self.send(question, timeout_s)
        return self._receive(until, timeout_s)

    def send(self, question: Any, timeout_s: float = TIMEOUT_S) -> None:
        """Send a question; wait only while it is too large for those before it.

        Raises:
            LateError: the worker didn't take it in `timeout_s` seconds, and was ended.
        """
        if self.connection.closed:
            return  # `receive` tells
        told = ForkingPickler.dumps(question)  # here: an error is the caller's
        self.owed += 1
        try:
            within(timeout_s, self.connection.send_bytes, told)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it died: `receive` tells what it said
        except TimeoutError:
            raise self.give_up(f"took no question in {timeout_s:.3g} s") from None

    def receive(self, timeout_s: float = TIMEOUT_S) -> Any:
        """Wait for the answer to the oldest question without one.

        Raises:
            RuntimeError: the worker failed or died. The message holds what it said.
            LateError: it gave no answer in `timeout_s` seconds, and was ended. The
                message says where in its program it was, too.
        """
        return self._receive(time.monotonic() + timeout_s, timeout_s)

    def _receive(self, until: float, timeout_s: float) -> Any:
        """Wait for an answer until a moment; `timeout_s` is what the caller gave."""
        if self.connection.closed:
            raise RuntimeError(f"{self.name} was ended before: start a new one")
        try:
            if not self._answers(max(0.0, until - time.monotonic())):
                raise TimeoutError
            left = max(LOOK_S, until - time.monotonic())
            told = within(left, self.connection.recv_bytes)  # it may stop in the middle
            worked, answer = ForkingPickler.loads(told)
            self.owed -= 1
        except TimeoutError:
            raise self.give_up(f"gave no answer in {timeout_s:.3g} s") from None
        except (EOFError, ConnectionResetError) as gone:
            self.process.join(5)
            raise RuntimeError(
                f"{self.name} died (exit code {self.process.exitcode}){self._said()}"
            ) from gone
        if not worked:
            raise RuntimeError(f"{self.name} failed:\n{answer}")
        return answer

    def close(self) -> None:
        """End the process and all it started; nothing of it is left.

        Only what leaves its group on purpose (a daemon) stays. On Windows there are
        no such groups: there, what it started stays.

        Raises:
            LateError: it was killed, and the system has not ended it.
        """
        try:
            self._end()
        finally:
            self.log.unlink(missing_ok=True)

    def give_up(self, why: str) -> LateError:
        """End it because it is late; return the error that says where it was.

        why: what it did not do, as "gave no answer in 60 s".
        """
        said = self._said()  # without the stacks, which go into its log, too
        where = stacks_of(self.process.pid, self.log)
        self._end()
        return LateError(f"{self.name} {why} and was ended{said}\n{where}")

    def _end(self) -> None:
        """End the process and the connection, if that has not been done."""
        if self.connection.closed:
            return
        try:
            if self.process is None:
                return
            with contextlib.suppress(OSError):  # it has no group, or not yet
                _end_group(self.process.pid)
            self.process.kill()
            self.process.join(ENDING_S)
            if self.process.is_alive() and not has_ended(self.process.pid):
                raise LateError(
                    f"{self.name} was killed and did not end within {ENDING_S:g} s: "
                    f"{state_of(self.process.pid)}"
                )
        finally:
            self.connection.close()

    def _answers(self, timeout_s: float) -> bool:
        """Whether an answer comes in time; EOFError if the process died before.

        What it started may hold its end of the connection, so that is no sign of life.
        """
        until = time.monotonic() + timeout_s
        while not self.connection.poll(min(LOOK_S, timeout_s)):
            if not self.process.is_alive() and not self.connection.poll():
                raise EOFError
            if time.monotonic() > until:
                return False
        return True

    def _said(self) -> str:
        """The end of what the process wrote, to go below a message."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:  # what it ran has deleted it
            lines = []
        text = "\n".join(line for line in lines if not AT_START.search(line)).strip()
        return f"; it said:\n{text[-LAST_WORDS:]}" if text else "; it said nothing"

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def everywhere(
    workers: Sequence[Worker], question: Any, timeout_s: float = TIMEOUT_S
) -> list[Any]:
    """Ask all workers the same thing at once; return their answers, in order.

    timeout_s: seconds that all of them have together.

    Raises RuntimeError for the first worker that failed, see `Worker.receive`: others
    may wait for it. Raises LateError with what each was doing that was late.
    """
    until = time.monotonic() + timeout_s
    with naming_all(workers):
        for worker in workers:
            worker.send(question, max(0.0, until - time.monotonic()))
        left, answers = dict(enumerate(workers)), {}
        while left:
            for number in _ready(left, until):
                answers[number] = left.pop(number)._receive(until, timeout_s)
        return [answers[number] for number in sorted(answers)]


def _ready(asked: Mapping[int, Worker], until: float) -> list[int]:
    """Which have answered, or never will; all when the time is up."""
    over = [n for n, worker in asked.items() if worker.connection.closed]
    if over or time.monotonic() > until:
        return over or [*asked]
    numbers = {worker.connection: n for n, worker in asked.items()}
    if ready := wait([*numbers], LOOK_S):
        return [numbers[connection] for connection in ready]
    # What a dead one started may hold its end of the connection.
    return [n for n, worker in asked.items() if not worker.process.is_alive()]


@contextlib.contextmanager
def naming_all(workers: Sequence[Worker]) -> Iterator[None]:
    """In the block, a LateError of one worker says where all others are that are late.

    They are ended, too: an answer to an old question must not be taken for a new one's.
    """
    try:
        yield
    except LateError as first:
        told = [str(first)]
        for worker in workers:
            late = worker.owed and not worker.connection.closed
            if late and not worker.connection.poll(0):
                told.append(str(worker.give_up("had not answered by then")))
        raise LateError("\n".join(told)) from None


@contextlib.contextmanager
def cluster_of_workers(
    size: int, serve: Callable[..., Callable[[Any], Any]], *arguments: Any
) -> Iterator[list[Worker]]:
    """Start workers that find in TF_CONFIG who is in their cluster; see `Worker`.

    They run on this machine's CPU and end with the block. `launch.launch` is for a
    script, and imports TensorFlow anew in each process.
    """
    tasks = [
        Task("worker", i, f"{HOST}:{port}") for i, port in enumerate(free_ports(size))
    ]
    with contextlib.ExitStack() as stack:
        workers = []
        for task in tasks:
            variables = environment(task, tasks) | ON_CPU
            worker = Worker(serve, *arguments, variables=variables, name=task.name)
            workers.append(stack.enter_context(worker))
        yield workers


def serve_scripts() -> Callable[[Sequence[Any]], str]:
    """In a new process: run scripts when asked; answer what each said.

    A question is a script's path and its arguments. A script finds the names that
    those before it left, as a notebook's cell does.
    """
    names: dict[str, Any] = {}

    def answer(words: Sequence[Any]) -> str:
        sys.argv = [str(word) for word in words]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            left = runpy.run_path(sys.argv[0], names, run_name="__main__")
        names.update(left)
        return said.getvalue()

    return answer


def _end_group(number: int) -> None:
    """End all processes of a group; 0 is this one's own."""
    if POSIX:
        os.killpg(number, KILL)


_STARTS = threading.Lock()  # standard error is one for all threads
_HEARD: set[int] = set()  # the fork servers that have given a process


def _fork_server() -> int | None:
    """The number of the process that workers are forked from; None if none runs."""
    module = sys.modules.get("multiprocessing.forkserver")  # imported when it's used
    return module._forkserver._forkserver_pid if module else None  # no public way


def _patience_s(afresh: bool) -> float:
    """How long a new process may take until it says that it is alive."""
    if afresh or _context().get_start_method() != "forkserver":
        return AFRESH_S
    return FORKED_S if _fork_server() in _HEARD else FIRST_S


def _start(
    job: tuple, log: Path, afresh: bool, patience_s: float
) -> multiprocessing.Process:
    """Start a process for `job`; it ends with this one, however this one ends.

    What it says on standard error before it serves, TensorFlow's greetings and why an
    import failed, goes into its log, not onto the reader's page.

    Raises TimeoutError if the fork server gives none; it is ended, and the next start
    has a new one.
    """
    context = multiprocessing.get_context("spawn") if afresh else _context()
    process = context.Process(target=_live, args=job, daemon=True)
    with _STARTS, open(log, "ab", buffering=0) as file:
        own = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            within(patience_s, process.start)
        except TimeoutError:
            with contextlib.suppress(OSError, TypeError):  # it has gone, or never was
                os.kill(_fork_server(), KILL)
            raise
        finally:
            os.dup2(own, 2)
            os.close(own)
    return process


def _context() -> BaseContext:
    """Fork from a process that has imported TensorFlow, or start afresh.

    Forking is for Linux, and for machines without NVIDIA's driver: what a CUDA
    library did at its import need not survive it.
    """
    if sys.platform != "linux" or shutil.which("nvidia-smi"):
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # The chapters that this process has, the first time, each of them has too, and what
    # most of them serve.
    chapters = [name for name in sys.modules if name.startswith("manygpu.scratch.")]
    context.set_forkserver_preload(["tensorflow", "manygpu.bench.serve", *chapters])
    return context


def _live(log: str, asked: Connection) -> None:
    """What the process does: answer until nobody asks any more."""
    if POSIX:
        os.setsid()  # a group of its own, with all that it starts
    with open(log, "ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        show_stacks_in(file)
        asked.send_bytes(ALIVE)
        gc.freeze()  # what was imported is no garbage: looking through it takes long
        try:
            _answer(asked)
        except (EOFError, ConnectionError):
            _end_group(0)  # whoever asked is gone


def _answer(asked: Connection) -> None:
    """Take the job, then answer questions; EOFError when nobody asks more."""
    environment, job = asked.recv()
    os.environ.clear()
    os.environ.update(environment)
    try:
        serve, arguments = ForkingPickler.loads(job)  # this imports their modules
        answer = serve(*arguments)
    except Exception:
        asked.send((False, traceback.format_exc()))
        return
    while True:
        question = asked.recv()
        try:
            asked.send((True, answer(question)))
        except Exception:
            asked.send((False, traceback.format_exc()))
