"""A kernel that is forked and does not begin, or does not end, holds nobody up."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from unittest.mock import Mock

import pytest

from manygpu.processes import waits
from manygpu.processes.waits import LateError, has_ended
from workshop import forked_kernels
from workshop.forked_kernels import Forked, begin

COMMAND = [sys.executable, "-m", "ipykernel_launcher", "-f", "file"]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nothing is forked")


def stands_still(*_: object) -> None:
    """In place of a kernel: it is stopped before it begins."""
    os.kill(os.getpid(), signal.SIGSTOP)


def sleeps(words: list, variables: dict, folder: str, asker: int, begun) -> None:
    """In place of a kernel: it begins, and does nothing."""
    begun.set()
    time.sleep(120)


@pytest.fixture
def quickly(monkeypatch) -> None:
    """No process here takes long to be forked; whoever is late is given up soon."""
    with multiprocessing.get_context("forkserver").Manager():
        pass  # what others are forked from is there
    monkeypatch.setattr(forked_kernels, "PATIENCE_S", 2.0)
    monkeypatch.setattr(forked_kernels, "ENDING_S", 0.3)
    monkeypatch.setattr(waits, "STACKS_S", 0.3)


def test_a_kernel_that_does_not_begin_is_started_by_itself(monkeypatch, quickly):
    monkeypatch.setattr(forked_kernels, "be_kernel", stands_still)
    launched = Mock(return_value="a process")
    monkeypatch.setattr(forked_kernels, "launch_kernel", launched)
    with pytest.warns(UserWarning, match="did not begin within 2 s"):
        assert begin(COMMAND, {"A": "b"}, "/", stdin=1) == "a process"
    launched.assert_called_once_with(COMMAND, env={"A": "b"}, cwd="/", stdin=1)


def test_a_kernel_that_nothing_forks_is_started_by_itself(monkeypatch):
    monkeypatch.setattr(forked_kernels, "FIRST_S", 0.2)
    context = Mock()
    context.Process.return_value = Mock(start=lambda: time.sleep(5))
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: context)
    with pytest.raises(LateError, match="within 0.2 s: nothing forked it"):
        Forked(COMMAND, {}, "/")


def test_a_kernel_that_does_not_end_is_named_and_one_that_has_is_known(
    monkeypatch, quickly
):
    monkeypatch.setattr(forked_kernels, "PATIENCE_S", 60.0)
    monkeypatch.setattr(forked_kernels, "be_kernel", sleeps)
    kernel = Forked(COMMAND, {}, "/")
    assert kernel.poll() is None
    with pytest.raises(LateError, match="did not end within 0.3 s: it waits for"):
        kernel.wait()
    kernel.send_signal(signal.SIGKILL)
    until = time.monotonic() + 60
    while not has_ended(kernel.pid):
        assert time.monotonic() < until, "it still runs"
        time.sleep(0.01)
    assert kernel.poll() in (-signal.SIGKILL, 255)
    assert kernel.wait() is not None


def test_one_whose_end_nobody_tells_has_ended_all_the_same():
    """As where what forked it is stopped: its exit status never comes."""
    kernel = object.__new__(Forked)
    kernel.process, kernel.pid = Mock(exitcode=None), 2**22 + 1  # above all numbers
    assert kernel.poll() == 255
