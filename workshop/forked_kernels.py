"""Kernels forked from a process that has imported TensorFlow: a small pytest plugin.

A page begins with imports that take seconds: a tenth or more of what cores do for all
pages. `make test` saves that. Forked before TensorFlow starts, a kernel is as free as
any to choose devices, threads and allocator. `make book`, `pytest --nbmake book` and a
reader's Jupyter start each kernel by itself.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import forkserver
from typing import Any
from unittest import mock

import pytest
from jupyter_client.launcher import launch_kernel

from manygpu.processes.waits import ENDING_S, LateError, has_ended, state_of, within

# No matplotlib: a kernel says where figures go before it imports that.
PRELOADED = ["tensorflow", "keras", "pandas", "requests", "ipykernel.kernelapp"]
JUPYTERS = "jupyter_client.provisioning.local_provisioner.launch_kernel"
# Until what kernels are forked from has imported all that on a busy machine, and then
# until a kernel has begun: both are less than a cell may take.
FIRST_S, PATIENCE_S = 240.0, 60.0


def can_fork() -> bool:
    """Whether kernels can be forked, as for `Worker`: Linux, and no NVIDIA driver."""
    return sys.platform == "linux" and not shutil.which("nvidia-smi")


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Iterator[None]:
    """Fork the kernels of all notebooks that this process runs."""
    if not hasattr(session.config, "workerinput") or not can_fork():
        return (yield)
    forkserver.set_forkserver_preload(PRELOADED)
    said = os.dup(2)
    with open(os.devnull, "wb") as nowhere:  # TensorFlow's greetings
        os.dup2(nowhere.fileno(), 2)
        forkserver.ensure_running()  # now: it belongs to no notebook, and outlives each
        os.dup2(said, 2)
    os.close(said)
    with mock.patch(JUPYTERS, begin):
        return (yield)


def begin(
    command: Sequence[str], env: Mapping, cwd: str, **more: Any
) -> Forked | subprocess.Popen:
    """Fork a kernel; if it doesn't begin, start one by itself, as Jupyter does."""
    try:
        return Forked(command, env, cwd)
    except LateError as late:
        warnings.warn(f"{late}; one is started by itself", stacklevel=1)
        return launch_kernel(list(command), env=dict(env), cwd=cwd, **more)


class Forked:
    """A kernel's process, with what Jupyter uses of a `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, command: Sequence[str], env: Mapping, cwd: str):
        words = command[command.index("-m") + 2 :]  # after: -m ipykernel_launcher
        context = multiprocessing.get_context("forkserver")
        begun = context.Event()
        job = (words, env, cwd, os.getpid(), begun)
        self.process = context.Process(target=be_kernel, args=job)
        late = f"a forked kernel did not begin within {FIRST_S:g} s: nothing forked it"
        try:
            within(FIRST_S, self.process.start)
        except TimeoutError:
            raise LateError(late) from None
        self.pid = self.process.pid
        # Jupyter sends signals to a kernel's group, which must be its own by then.
        if not begun.wait(PATIENCE_S):
            how = state_of(self.pid)
            self.process.kill()
            late = f"a forked kernel did not begin within {PATIENCE_S:g} s: {how}"
            raise LateError(late)

    def poll(self) -> int | None:
        """Its exit status; None while it lives. 255 if nobody tells how it ended."""
        status = self.process.exitcode
        return 255 if status is None and has_ended(self.pid) else status

    def wait(self) -> int | None:
        """Wait for its end, which Jupyter has seen, or asked for by a signal."""
        self.process.join(ENDING_S)
        if self.poll() is None:
            raise LateError(
                f"a kernel did not end within {ENDING_S:g} s: {state_of(self.pid)}"
            )
        return self.poll()

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended: where its group can't be reached."""
        if self.poll() is None:
            os.kill(self.pid, number)


def be_kernel(words: list[str], variables: Mapping, folder: str, asker: int, begun):
    """In the new process: be a kernel that says what it says where the asker does."""
    os.setsid()
    begun.set()
    os.environ.clear()
    # A kernel ends when its parent does: that is not the asker, but who forked it.
    os.environ.update(variables, JPY_PARENT_PID=str(os.getppid()))
    os.chdir(folder)
    for number in (1, 2):
        place = os.open(f"/proc/{asker}/fd/{number}", os.O_WRONLY | os.O_APPEND)
        os.dup2(place, number)
        os.close(place)
    sys.argv = ["ipykernel_launcher", *words]
    from ipykernel import kernelapp

    kernelapp.launch_new_instance()
