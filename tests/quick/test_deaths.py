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


def test_each_call_is_named_just_before_it(tmp_path):
    named = []
    with deaths.before_each(named.append):
        write(tmp_path / "file", "words")
    assert named == ["open", "write", "unlink"]


@forks
def test_a_mortal_dies_before_its_call_and_lives_without_one(tmp_path):
    answer, path = deaths.mortal(), tmp_path / "file"
    assert not answer((2, write, path, "words"))
    assert path.read_bytes() == b""
    assert not answer((3, write, path, "words"))
    assert path.read_bytes() == b"words"
    assert answer((0, write, path, "words")) and not path.exists()
    assert answer((4, write, path, "words"))


@pytest.mark.skipif(os.name != "posix", reason="no limit for files there")
def test_a_file_may_not_grow_beyond_the_limit(tmp_path):
    def in_limits():
        answer = deaths.limited(100)
        assert answer((write, tmp_path / "small", "x" * 100)) == "returned None"
        (tmp_path / "large").write_bytes(b"x" * 100)
        with open(tmp_path / "large", "ab", buffering=0) as file:
            assert answer((os.write, file.fileno(), b"y")).startswith("OSError: File")

    assert deaths.in_child(in_limits)


def test_without_such_limits_the_first_write_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)
    said = deaths.limited(100)((write, tmp_path / "file", "words"))
    assert said == "OSError: No space left on device"


def test_ticks_kill_with_the_last_of_them(monkeypatch):
    monkeypatch.delattr(os, "fork", raising=False)
    clock = deaths.Ticks(10)
    clock(4)
    clock(5)
    with pytest.raises(deaths.Killed):
        clock(1)
    with pytest.raises(deaths.Killed):
        deaths.Ticks(3)(7)


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
