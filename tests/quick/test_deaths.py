"""Processes are killed when they are to be, and what else goes wrong is no death."""

import os
import signal
import sys
from contextlib import nullcontext
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, call

import pytest

from manygpu.processes import deaths
from manygpu.processes.waits import LateError

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no process can be forked")


def write(path: Path, words: str) -> None:
    """Three of the calls that are counted: open, write, unlink."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.write(file, words.encode())
    os.close(file)
    os.unlink(path)


def terminated() -> None:
    """End by another signal than `kill -9`."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


@forks
def test_work_lives_or_is_killed_and_an_error_is_neither():
    assert deaths.in_child(lambda: None)
    assert not deaths.in_child(deaths.die)
    assert not deaths.in_child(signal.pause, after_s=0.01)
    with pytest.raises(RuntimeError, match=r"(?s)status 256:.*KeyError: 'missing'"):
        deaths.in_child({}.__getitem__, "missing")
    with pytest.raises(RuntimeError, match="status 15"):
        deaths.in_child(terminated)


@forks
def test_work_in_a_child_that_is_late_is_killed_and_shows_where_it_was(monkeypatch):
    monkeypatch.setattr(deaths, "STACKS_S", 1.0)
    late = pytest.raises(LateError, match=r"(?s)within 0.3 s.*where it was.*_end_with")
    with late:
        deaths.in_child(signal.pause, limit_s=0.3)


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_work_in_a_child_that_is_stopped_is_called_so(monkeypatch):
    monkeypatch.setattr(deaths, "STACKS_S", 0.3)
    late = pytest.raises(LateError, match="was killed: it is stopped")
    with late:
        deaths.in_child(signal.raise_signal, signal.SIGSTOP, limit_s=0.3)


def test_where_nothing_forks_an_exception_ends_the_work(monkeypatch):
    monkeypatch.delattr(os, "fork", raising=False)
    assert not deaths.in_child(deaths.die)
    assert deaths.in_child(lambda: None)
    with pytest.raises(ZeroDivisionError):
        deaths.in_child(lambda: 1 / 0)
    with pytest.raises(deaths.Killed):
        deaths.die()


@pytest.mark.parametrize("fatal", range(5))
def test_something_happens_just_before_that_call_and_the_system_has_its_own_back(
    tmp_path, fatal
):
    made, own = [], [getattr(os, name) for name in deaths.CALLS]

    def happens():
        made.append(sorted(p.stat().st_size for p in tmp_path.iterdir()))
        deaths.refuse()

    refused = pytest.raises(OSError, match="No space left")
    with refused if 1 <= fatal <= 3 else nullcontext(), deaths.at_call(fatal, happens):
        write(tmp_path / "file", "words")
    assert made == {1: [[]], 2: [[0]], 3: [[5]]}.get(fatal, [])
    assert own == [getattr(os, name) for name in deaths.CALLS]


def test_without_such_limits_the_first_write_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)
    said = deaths.limited(100)((write, tmp_path / "file", "words"))
    assert said == "OSError: No space left on device"


def test_what_is_noted_is_read_in_order(tmp_path):
    path = tmp_path / "steps"
    assert deaths.noted(path) == [] and not deaths.has_noted(path, 1)
    for step in (5, 6, 100_000_000):
        deaths.note(path, step)
    assert deaths.noted(path) == [5, 6, 100_000_000]
    assert deaths.has_noted(path, 3) and not deaths.has_noted(path, 4)


def test_a_worker_is_ended_when_it_has_come_so_far_or_is_done():
    ours, theirs = Pipe()
    process, looks = Mock(), iter([False, False, True])
    worker = SimpleNamespace(connection=ours, process=process)
    assert deaths.end_when(worker, lambda: next(looks))
    assert list(looks) == []
    theirs.send("the answer")
    assert not deaths.end_when(worker, lambda: False, end="terminate")
    assert process.mock_calls == [call.kill(), call.terminate()]


def test_a_worker_that_never_comes_so_far_is_given_up():
    ours, theirs = Pipe()
    given_up = Mock(return_value=LateError("where it was"))
    worker = SimpleNamespace(connection=ours, give_up=given_up)
    with theirs, pytest.raises(LateError, match="where it was"):
        deaths.end_when(worker, lambda: False, limit_s=0.05)
    given_up.assert_called_once_with("did not come so far in 0.05 s")
