"""Processes that answer questions: what they get, how they fail, what they leave."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from manygpu.processes import waits, workers
from manygpu.processes.waits import LateError
from manygpu.processes.workers import (
    Worker,
    cluster_of_workers,
    everywhere,
    serve_scripts,
)


def echo(before):
    """Answers with what it was made with and what it was asked."""
    return lambda question: (before, question, os.getpid())


def variable(name):
    return lambda _: os.environ.get(name)


def trouble(kind):
    """Fails in each way a worker can fail, when asked or before."""
    if kind == "before":
        raise ValueError("no such device")

    def answer(question):
        if question == "are you there?":
            return "yes"
        print("the last words", file=sys.stderr, flush=True)
        if kind == "raises":
            raise ValueError("a label that is no class")
        if kind == "dies":
            os._exit(7)
        return time.sleep(60)

    return answer


def noise():
    """Dies after TensorFlow's usual lines, and one that is not usual."""
    absl = "WARNING: All log messages before absl::InitializeLog() is called"
    start = "E0000 00:00:1 742 cuda_platform.cc:52] failed call to cuInit"
    end = "E0000 00:00:2 742 grpc_server.cc:7] the last words"
    print(absl, start, end, sep="\n", file=sys.stderr, flush=True)
    os._exit(7)


def test_a_worker_is_another_process_answers_in_turn_and_leaves_nothing():
    with Worker(echo, "made") as worker:
        worker.send(1)
        worker.send(2)
        answers = [worker.receive(), worker.receive()]
        assert worker.log.exists()
    assert [a[:2] for a in answers] == [("made", 1), ("made", 2)]
    assert answers[0][2] != os.getpid()
    assert worker.process.exitcode is not None
    assert not worker.log.exists()


def test_one_that_deletes_its_log_dies_with_an_exit_code():
    with Worker(trouble, "dies") as worker:
        assert worker.ask("are you there?") == "yes"
        worker.log.unlink()
        with pytest.raises(RuntimeError, match=r"exit code 7\); it said nothing"):
            worker.ask("and now?")


@pytest.mark.parametrize("given", [{"MANYGPU_DATA": "3"}, {"MANYGPU_DATA": None}, {}])
def test_it_has_the_readers_variables_of_now_and_those_it_is_given(monkeypatch, given):
    """Not those of when the process was started from which workers are forked."""
    monkeypatch.setenv("MANYGPU_DATA", "of now")
    with Worker(variable, "MANYGPU_DATA", variables=given) as worker:
        assert worker.ask("?") == given.get("MANYGPU_DATA", "of now")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("before", r"(?s)it failed:.*ValueError: no such device"),
        ("raises", r"(?s)it failed:.*ValueError: a label that is no class"),
        ("dies", r"(?s)it died \(exit code 7\); it said:.*the last words"),
    ],
)
def test_a_worker_that_fails_says_why(kind, said):
    refused = pytest.raises(RuntimeError, match=said)
    with Worker(trouble, kind, name="it") as worker, refused:
        worker.ask("?")
    assert worker.process.exitcode is not None


def family(path):
    """Starts a process, and forks another, that won't end when they are asked to.

    Their numbers go into a file.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # theirs, too
    child = subprocess.Popen(["sleep", "300"])
    fork = os.fork()
    if not fork:
        time.sleep(300)
    Path(path).write_text(f"{child.pid} {fork}", encoding="ascii")
    return trouble("dies")


def gone(process: int) -> bool:
    """Whether a process has ended, whoever has yet to ask how."""
    stat = Path(f"/proc/{process}/stat")
    try:
        return stat.read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def await_end(processes: list[int]) -> None:
    until = time.monotonic() + 60
    while not all(map(gone, processes)):
        assert time.monotonic() < until, "they still run"
        time.sleep(0.01)


def members(file: Path) -> list[int]:
    """The processes that `family` has started."""
    return [int(one) for one in file.read_text(encoding="ascii").split()]


linux = pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")


@linux
@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_what_it_started_ends_with_it_and_hides_no_death(
    tmp_path, monkeypatch, dies, method
):
    """It starts afresh, too, as on Windows and macOS."""
    context = multiprocessing.get_context(method)
    monkeypatch.setattr(workers, "_context", lambda: context)
    with Worker(family, tmp_path / "family", name="it") as worker:
        assert worker.ask("are you there?") == "yes"
        left = members(tmp_path / "family")
        assert len(left) == 2 and not any(map(gone, left))
        if dies:  # and both still hold its end of the pipe
            with pytest.raises(RuntimeError, match=r"it died \(exit code 7\)"):
                worker.ask("?", timeout_s=60)
    await_end(left)


@linux
def test_if_whoever_asked_is_killed_nothing_of_it_is_left(tmp_path):
    code = """
import multiprocessing, os, signal, sys
from tests.unit.processes.test_workers import Worker, family, workers
context = multiprocessing.get_context("forkserver")  # which imports no TensorFlow
workers._context = lambda: context
worker = Worker(family, sys.argv[1])
worker.ask("are you there?")
os.kill(os.getpid(), signal.SIGKILL)
"""
    path = tmp_path / "family"
    subprocess.run([sys.executable, "-c", code, path], check=False)
    await_end(members(path))


def farewell(path):
    """Would write a word if it were asked to end."""

    def wave(*_: object) -> None:
        Path(path).touch()
        os._exit(0)

    signal.signal(signal.SIGTERM, wave)
    return lambda _: "ready"


@pytest.mark.skipif(os.name != "posix", reason="no signal to ask with there")
@pytest.mark.parametrize("group", [True, False])
def test_it_is_ended_and_not_asked_to_end(tmp_path, monkeypatch, group):
    """Whoever is asked may refuse. So it is where it has no group of its own."""
    no_group = Mock(side_effect=ProcessLookupError)
    with Worker(farewell, tmp_path / "waved") as worker:
        assert worker.ask("?") == "ready"
        if not group:
            monkeypatch.setattr(workers, "_end_group", no_group)
    assert not (tmp_path / "waved").exists()


def test_an_interrupt_at_its_start_leaves_no_log(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(workers, "_start", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        Worker(echo, "made")
    assert list(tmp_path.iterdir()) == []


def test_what_tensorflow_says_at_its_start_is_not_its_last_word():
    said = r"(?s)it said:.{,3}E0000 .* the last words$"
    with Worker(noise) as worker, pytest.raises(RuntimeError, match=said):
        worker.ask("go on")


def test_a_worker_that_is_late_is_ended_and_says_what_it_said():
    with Worker(trouble, "sleeps", name="it") as worker:
        assert worker.ask("are you there?") == "yes"  # busy machines take a while
        with pytest.raises(RuntimeError, match=r"(?s)no answer in 1 s.*last words"):
            worker.ask("?", timeout_s=1)
    assert worker.process.exitcode is not None


def test_one_that_failed_once_still_answers():
    with Worker(int) as worker:  # int() is 0, which can't be called
        for _ in range(2):
            with pytest.raises(RuntimeError, match="not callable"):
                worker.ask("?")


@pytest.mark.parametrize(
    ("platform", "driver", "method"),
    [
        ("linux", None, "forkserver"),
        ("linux", "a place", "spawn"),
        ("darwin", None, "spawn"),
        ("win32", None, "spawn"),
    ],
)
def test_workers_are_forked_only_where_that_is_safe(
    monkeypatch, platform, driver, method
):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(shutil, "which", lambda _: driver)
    assert workers._context().get_start_method() == method


def test_each_worker_of_a_cluster_finds_its_place_and_ends_with_the_block():
    with cluster_of_workers(2, variable, "TF_CONFIG") as workers:
        configs = [json.loads(said) for said in everywhere(workers, None)]
    assert configs[0]["cluster"] == configs[1]["cluster"]
    assert len(set(configs[0]["cluster"]["worker"])) == 2
    assert [c["task"] for c in configs] == [
        {"type": "worker", "index": index} for index in range(2)
    ]
    assert all(worker.process.exitcode is not None for worker in workers)


def test_a_script_gets_its_words_and_the_names_of_those_before(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", [])
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text("import sys\nname = sys.argv[1:]\nprint(__name__)\n")
    second.write_text("name.append(len(name))\nprint(name)\n")
    answer = serve_scripts()
    assert answer([first, "a", 2]) == "__main__\n"
    assert answer([second]) == "['a', '2', 2]\n"


# What is late: a start, a question, an answer, an end.


def stands_still(*_: object) -> None:
    """In a new process, in place of what it does: it is stopped before it says so."""
    os.kill(os.getpid(), signal.SIGSTOP)


@pytest.fixture
def stopped(monkeypatch):
    """Say of the next starts which are stopped before they are heard of.

    It gives the numbers of the processes. A start afresh has the time it needs.
    """
    own, start, numbers = workers._live, workers._start, []
    with Worker(echo, "first") as worker:  # what others are forked from is there
        worker.ask("?")
    monkeypatch.setattr(workers, "_patience_s", lambda afresh: 60.0 if afresh else 3.0)

    def stop(*which: bool) -> list[int]:
        does = iter([stands_still if one else own for one in which])

        def begin(*job: object) -> multiprocessing.Process:
            monkeypatch.setattr(workers, "_live", next(does))
            process = start(*job)
            numbers.append(process.pid)
            return process

        monkeypatch.setattr(workers, "_start", begin)
        return numbers

    return stop


@linux
def test_a_start_that_is_not_heard_of_is_ended_and_repeated_once(stopped):
    begun = stopped(True, False)
    late = pytest.warns(UserWarning, match="it did not begin .*: it ")
    with late:
        worker = Worker(echo, "made", name="it")
    with worker:
        assert gone(begun[0])
        assert worker.ask("?", timeout_s=60)[2] == begun[1]


@linux
def test_two_starts_that_are_not_heard_of_are_an_error(stopped, monkeypatch, tmp_path):
    begun = stopped(True, True)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(workers, "_patience_s", lambda _: 3.0)
    late = pytest.raises(LateError, match="it did not begin within 3 s: it ")
    with pytest.warns(UserWarning, match="started afresh"), late:
        Worker(echo, "made", name="it")
    await_end(begun)
    assert list(tmp_path.iterdir()) == []


@linux
def test_a_fork_server_that_is_stopped_holds_nobody_up():
    """It is ended; the next worker has a new one."""
    code = """
import multiprocessing, os, signal, warnings
from multiprocessing import forkserver
from tests.unit.processes.test_workers import Worker, echo, workers
warnings.simplefilter("ignore")
context = multiprocessing.get_context("forkserver")  # which imports no TensorFlow
workers._context = lambda: context
workers._patience_s = lambda afresh: 60.0 if afresh else 5.0
with Worker(echo, "first") as worker:
    worker.ask("?")
os.kill(forkserver._forkserver._forkserver_pid, signal.SIGSTOP)
for name in ("second", "third"):
    with Worker(echo, name) as worker:
        print(worker.ask("?")[0], type(worker.process).__name__)
"""
    run = [sys.executable, "-c", code]
    ran = subprocess.run(run, capture_output=True, text=True, timeout=180)
    said = ran.stdout.split()
    assert said == ["second", "SpawnProcess", "third", "ForkServerProcess"], ran.stderr


def test_an_interrupt_while_it_begins_leaves_no_process(monkeypatch):
    begun, start = [], workers._start

    def noted(*job: object) -> multiprocessing.Process:
        begun.append(start(*job))
        return begun[-1]

    monkeypatch.setattr(workers, "_start", noted)
    monkeypatch.setattr(Worker, "_answers", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        Worker(echo, "made")
    assert begun[0].exitcode is not None


def test_one_that_is_late_shows_where_it_was_and_is_no_more():
    with Worker(trouble, "sleeps", name="it") as worker:
        assert worker.ask("are you there?") == "yes"
        with pytest.raises(LateError, match=r"(?s)last words.*main thread.*in answer"):
            worker.ask("?", timeout_s=1)
        assert worker.process.exitcode is not None
        with pytest.raises(RuntimeError, match="it was ended before: start a new one"):
            worker.ask("?")


@linux
def test_one_that_is_stopped_is_called_so(monkeypatch):
    monkeypatch.setattr(waits, "STACKS_S", 0.5)
    with Worker(echo, "made", name="it") as worker:
        worker.ask("?")
        os.kill(worker.process.pid, signal.SIGSTOP)
        with pytest.raises(
            LateError, match=r"(?s)no answer in 0.5 s.*no stack.*stopped"
        ):
            worker.ask("?", timeout_s=0.5)


@linux
def test_a_large_question_to_one_that_is_stopped_does_not_block(monkeypatch):
    monkeypatch.setattr(waits, "STACKS_S", 0.5)
    with Worker(echo, "made", name="it") as worker:
        worker.ask("?")
        os.kill(worker.process.pid, signal.SIGSTOP)
        late = pytest.raises(LateError, match="it took no question in 0.5 s")
        ended = threading.Timer(30, worker.process.kill)  # however that may fail
        ended.start()
        with late:
            worker.send(bytes(10**7), timeout_s=0.5)
        ended.cancel()


def test_half_an_answer_is_none():
    with Worker(echo, "made", name="it") as worker:
        worker.ask("?")
        worker.connection.close()
        worker.connection, theirs = multiprocessing.Pipe()
        with theirs:
            os.write(theirs.fileno(), b"\0\0\0\x10half")  # of 16 bytes
            ended = threading.Timer(30, theirs.close)
            ended.start()
            with pytest.raises(LateError, match="it gave no answer in 0.5 s"):
                worker.receive(timeout_s=0.5)
            ended.cancel()


def test_of_several_all_are_named_that_are_late_and_asked_where_they_were():
    with (
        Worker(trouble, "sleeps", name="one") as one,
        Worker(echo, "made", name="quick") as quick,
        Worker(trouble, "sleeps", name="other") as other,
    ):
        asked = one, quick, other
        everywhere(asked, "are you there?")
        with pytest.raises(LateError) as late:
            everywhere(asked, "?", timeout_s=1)
        assert other.process.exitcode is not None
    first, second = str(late.value).split("other had not answered by then")
    assert first.startswith("one gave no answer in 1 s") and "quick" not in first
    assert all("in answer" in said for said in (first, second))


def test_the_first_that_fails_ends_the_wait_for_those_who_may_wait_for_it():
    with (
        Worker(trouble, "sleeps", name="one") as one,
        Worker(trouble, "raises", name="other") as other,
    ):
        assert everywhere([one, other], "are you there?") == ["yes", "yes"]
        with pytest.raises(RuntimeError, match="(?s)other failed.*a label that is no"):
            everywhere([one, other], "?", timeout_s=50)
        assert one.process.exitcode is None
        one.close()
        with pytest.raises(RuntimeError, match="one was ended before"):
            everywhere([other, one], "are you there?")


@linux
def test_of_several_a_death_is_noticed_though_others_hold_its_connection(tmp_path):
    with Worker(family, tmp_path / "family", name="it") as one:
        assert everywhere([one], "are you there?") == ["yes"]
        with pytest.raises(RuntimeError, match=r"it died \(exit code 7\)"):
            everywhere([one], "?", timeout_s=60)


def test_an_answer_that_came_just_before_the_death_is_heard():
    """It arrives after a look, and before the next question whether it lives."""
    gone = Mock(**{"process.is_alive.return_value": False})
    gone.connection.poll.side_effect = [False, True, True]
    assert Worker._answers(gone, 1.0)
    gone.connection.poll.side_effect = [False, False]
    with pytest.raises(EOFError):
        Worker._answers(gone, 1.0)


def test_one_that_was_killed_and_does_not_end_is_named(monkeypatch):
    with Worker(echo, "made", name="it") as worker:
        real, still_here = worker.process, Mock(pid=os.getpid())
        worker.process = still_here
        monkeypatch.setattr(workers, "_end_group", Mock())
        with pytest.raises(LateError, match="it was killed and did not end within"):
            worker.close()
        assert still_here.kill.called
        real.kill()


def test_two_threads_that_start_workers_leave_standard_error_alone(monkeypatch):
    """Each has it for a while; the second must not give back what the first has."""
    inside, done, begun = [], [], threading.Barrier(2)

    def start() -> None:
        inside.append(1)
        until = time.monotonic() + (1 if len(inside) == 1 else 2)
        while time.monotonic() < until and len(inside) < 2:
            time.sleep(0.01)
        time.sleep(0.1 * len(inside))

    context = Mock()
    context.Process.side_effect = lambda **_: Mock(start=start)
    monkeypatch.setattr(workers, "_context", lambda: context)

    def begin(log: Path) -> None:
        begun.wait(60)
        workers._start((), log, False, 60.0)
        done.append(log)

    before = os.fstat(2)
    with tempfile.TemporaryDirectory() as folder:
        jobs = [(Path(folder) / name,) for name in ("one", "other")]
        threads = [threading.Thread(target=begin, args=job) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        after = os.fstat(2)
    assert len(done) == 2
    assert (after.st_dev, after.st_ino) == (before.st_dev, before.st_ino)
