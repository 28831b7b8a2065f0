"""Waits end, and what is waited for can be asked where it is."""

import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from manygpu.processes import waits
from manygpu.processes.waits import has_ended, stacks_of, state_of, within

asks = pytest.mark.skipif(waits.ASK is None, reason="nobody can be asked here")
linux = pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")

ASKED = """
import sys, time
from manygpu.processes.waits import show_stacks_in
log = open(sys.argv[1], "ab", buffering=0)
show_stacks_in(log)
def reads_a_file():
    print("ready", flush=True)
    time.sleep(60)
reads_a_file()
"""


def test_work_in_time_gives_what_it_gives_and_raises_what_it_raises():
    assert within(60, divmod, 7, 2) == (3, 1)
    with pytest.raises(KeyError, match="x"):
        within(60, {}.__getitem__, "x")


def test_work_that_is_late_is_left_to_itself():
    never = threading.Event()
    with pytest.raises(TimeoutError, match="not done within 0.05 s"):
        within(0.05, never.wait, 60)
    never.set()


@asks
def test_a_process_shows_where_it_is_without_what_it_said_before(tmp_path):
    log = tmp_path / "log"
    log.write_text("what it said before")
    words = [sys.executable, "-c", ASKED, str(log)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        shown = stacks_of(process.pid, log)
        process.kill()
    assert "in reads_a_file" in shown and "said before" not in shown


@linux
def test_of_one_that_is_stopped_the_state_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(waits, "STACKS_S", 0.3)
    (tmp_path / "log").touch()
    with subprocess.Popen(["sleep", "60"]) as process:
        process.send_signal(signal.SIGSTOP)
        until = time.monotonic() + 60
        while "stopped" not in state_of(process.pid) and time.monotonic() < until:
            time.sleep(0.01)
        said = stacks_of(process.pid, tmp_path / "log")
        process.kill()
    assert said == "it shows no stack: it is stopped (SIGSTOP)"


@linux
def test_a_process_has_ended_before_somebody_asks_how_and_after():
    with subprocess.Popen(["sleep", "60"]) as process:
        assert not has_ended(process.pid)
        process.kill()
        until = time.monotonic() + 60
        while not has_ended(process.pid):
            assert time.monotonic() < until, "it still runs"
            time.sleep(0.01)
    assert has_ended(process.pid)
    assert state_of(process.pid) == "how it is can't be read"


def test_where_nobody_can_be_asked_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(waits, "ASK", None)
    monkeypatch.setattr(faulthandler, "register", None, raising=False)
    waits.show_stacks_in(None)  # does nothing
    assert "can't ask" in stacks_of(os.getpid(), tmp_path)


@asks
def test_one_that_has_gone_or_has_no_log_can_not_be_asked(tmp_path):
    assert "can't be asked" in stacks_of(os.getpid(), tmp_path / "none")
