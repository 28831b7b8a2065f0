"""Processes that answer questions: each has TensorFlow, devices and threads of its own.

TensorFlow fixes its devices when it starts, so what needs other devices needs another
process. Importing TensorFlow takes seconds, though. Where it is safe, workers are
therefore forked from one process that has imported it and started nothing yet.
"""

from __future__ import annotations

import contextlib
import gc
import io
import multiprocessing
import os
import re
import runpy
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

from manygpu.processes.launch import HOST, KILL, POSIX, Task, environment, free_ports

ON_CPU = {"CUDA_VISIBLE_DEVICES": "-1"}  # variables of a worker that needs no GPU
TIMEOUT_S = 600.0
LOOK_S = 0.2  # between two looks whether a process that gives no answer still lives
LAST_WORDS = 3000  # characters of what a dead worker said
# What TensorFlow writes whenever it starts: no answer to why a process died.
AT_START = re.compile(
    r"absl::InitializeLog|cudart_stub|cuda_platform|cpu_feature_guard|port\.cc"
    r"|^To enable the following instructions"
)


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
        self.name = name
        handle, path = tempfile.mkstemp(prefix="manygpu-worker-", suffix=".log")
        os.close(handle)
        self.log = Path(path)
        environment = {**os.environ, **(variables or {})}
        environment = {k: v for k, v in environment.items() if v is not None}
        self.connection, theirs = multiprocessing.Pipe()
        job = (serve, arguments, environment, path, theirs)
        try:
            self.process = _start(job, self.log, without_tensorflow)
        except BaseException:
            self.log.unlink()
            raise
        theirs.close()  # so that its end is seen here when the process is gone

    def ask(self, question: Any, timeout_s: float = TIMEOUT_S) -> Any:
        """Send a question and wait for its answer; errors: see `receive`."""
        self.send(question)
        return self.receive(timeout_s)

    def send(self, question: Any) -> None:
        """Send a question without waiting."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(question)  # if it died, `receive` tells what it said

    def receive(self, timeout_s: float = TIMEOUT_S) -> Any:
        """Wait for the answer to the oldest question without one.

        Raises:
            RuntimeError: the worker failed, died or gave no answer in `timeout_s`
                seconds. The message holds what it said.
        """
        try:
            if not self._answers(timeout_s):
                raise RuntimeError(
                    f"{self.name} gave no answer in {timeout_s:g} s and was ended"
                    f"{self._said()}"
                )
            worked, answer = self.connection.recv()
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
        """
        try:
            with contextlib.suppress(OSError):  # it has no group, or not yet
                _end_group(self.process.pid)
            self.process.kill()
            self.process.join()
            self.connection.close()
        finally:
            self.log.unlink(missing_ok=True)

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


def everywhere(workers: Sequence[Worker], question: Any) -> list[Any]:
    """Ask all workers the same thing at once; return their answers, in order.

    Raises RuntimeError for a worker that failed, see `Worker.receive`.
    """
    for worker in workers:
        worker.send(question)
    return [worker.receive() for worker in workers]


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


def _start(job: tuple, log: Path, afresh: bool) -> multiprocessing.Process:
    """Start a process for `job`; it ends with this one, however this one ends.

    What it says on standard error before it serves, TensorFlow's greetings and why an
    import failed, goes into its log, not onto the reader's page.
    """
    context = multiprocessing.get_context("spawn") if afresh else _context()
    process = context.Process(target=_live, args=job, daemon=True)
    own = os.dup(2)
    with open(log, "ab", buffering=0) as file:
        os.dup2(file.fileno(), 2)
        try:
            process.start()
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


def _live(
    serve: Callable, arguments: tuple, environment: dict, log: str, asked: Connection
) -> None:
    """What the process does: answer until nobody asks any more."""
    if POSIX:
        os.setsid()  # a group of its own, with all that it starts
    gc.freeze()  # what was imported is no garbage: looking through it takes long
    os.environ.clear()
    os.environ.update(environment)
    with open(log, "ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        answer = serve(*arguments)
    except Exception:
        asked.send((False, traceback.format_exc()))
        return
    while True:
        try:
            question = asked.recv()
        except EOFError:
            _end_group(0)  # whoever asked is gone
            return
        try:
            asked.send((True, answer(question)))
        except Exception:
            asked.send((False, traceback.format_exc()))
