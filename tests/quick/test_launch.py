"""The launcher: what each process gets and says, how a cluster ends, what is left.

MANYGPU_TRIALS=50 tries 50 moments to end it at; without it there are two.
"""

import json
import math
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest

from manygpu.processes import launch as launcher
from tests import refusals
from tests.refusals import good

TRIALS = range(int(os.environ.get("MANYGPU_TRIALS", "2")))
WAIT_S = 60  # no test waits so long, unless something hangs
SECONDS = str(WAIT_S)
pytestmark = pytest.mark.skipif(os.name != "posix", reason="it speaks of groups")


@pytest.fixture(autouse=True)
def less_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "GRACE_S", 1.0)


# A process of the cluster: it has a child of its own, says so, and ends as it is told.
SCRIPT = """
import json, os, signal, subprocess, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
me, (how, *more) = f"{task['type']} {task['index']}", sys.argv[1:]
if how == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "SECONDS"])
print("up")
if how == "ends" or me == "chief 0" and how == "serves":
    sys.exit()
if me in more:
    print("the last words", file=sys.stderr)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(7)
time.sleep(SECONDS)
sys.exit("nobody ended this")
""".replace("SECONDS", SECONDS)


def write(folder: Path, code: str) -> str:
    file = folder / "own.py"
    file.write_text(code, encoding="utf-8")
    return str(file)


@pytest.fixture
def script(tmp_path: Path) -> str:
    return write(tmp_path, SCRIPT)


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Marks all that the test starts; after it, none of that may be left."""
    mark = f"MANYGPU_TRIAL={uuid.uuid4()}"
    monkeypatch.setenv(*mark.split("="))
    yield mark
    until = time.monotonic() + 10  # what was killed takes a moment to go
    while (found := marked(mark)) and time.monotonic() < until:
        time.sleep(0.01)
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    assert not found


def marked(mark: str) -> list[int]:
    """The processes, not this one, with the mark in their environment; on Linux."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone, or not ours
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return [pid for pid in found if pid != os.getpid()]


def heard() -> None:
    """Ctrl-C and a closed terminal end a program, also where a shell took that away."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def started(*words: object) -> subprocess.Popen:
    """The command, which hears each signal from its first moment on."""
    command = [sys.executable, launcher.__file__, *map(str, words)]
    told = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, preexec_fn=heard, encoding="utf-8", **told)


def ran(*words: object) -> tuple[int, str, str]:
    process = started(*words)
    out, err = process.communicate(timeout=WAIT_S)
    return process.returncode, out, err


def asked_to_end(*words: object, number=signal.SIGTERM) -> tuple:
    """A launcher that got a signal once both workers ran; what each said so far."""
    process = started("--workers", 2, *words)
    lines = {process.stdout.readline() for _ in range(2)}
    process.send_signal(number)
    return process, lines


def said_by(name: str, text: str) -> list[str]:
    start = f"[{name}] "
    return [x.removeprefix(start) for x in text.splitlines() if x.startswith(start)]


# What each process gets


@pytest.mark.parametrize(
    "kinds", [{"worker": 2}, {"chief": 1, "worker": 2, "ps": 3}], ids=["2", "6"]
)
def test_each_process_knows_the_cluster_and_its_place(tmp_path, capfd, kinds):
    code = """
import os, sys, time
from pathlib import Path
print(os.environ["TF_CONFIG"])
folder, count = Path(sys.argv[1]), int(sys.argv[2])
(folder / str(os.getpid())).touch()
while len(list(folder.iterdir())) < count:
    time.sleep(0.01)
"""
    (tmp_path / "spoke").mkdir()
    tasks = [launcher.Task(kind, i) for kind, n in kinds.items() for i in range(n)]
    file, options = write(tmp_path, code), {"workers": 2, "servers": kinds.get("ps", 0)}
    launcher.launch(file, tmp_path / "spoke", len(tasks), **options)
    out = capfd.readouterr().out
    found = [json.loads(*said_by(task.name, out)) for task in tasks]
    cluster = found[0]["cluster"]
    for task, config in zip(tasks, found, strict=True):
        place = {"type": task.kind, "index": task.index}
        assert config == {"cluster": cluster, "task": place}
    assert {kind: len(own) for kind, own in cluster.items()} == kinds
    addresses = [address for own in cluster.values() for address in own]
    assert len(set(addresses)) == len(addresses)
    assert all(address.startswith("127.0.0.1:") for address in addresses)


@pytest.mark.parametrize(
    ("readers", "given", "theirs"),
    [
        (None, {}, "'1'"),  # one device a process, unless the reader says more
        ("4", {}, "'4'"),
        ("4", {"MANYGPU_DEVICES": "7"}, "'7'"),
        ("4", {"MANYGPU_DEVICES": None}, "None"),  # taken away
    ],
)
def test_a_process_has_the_readers_variables_and_those_it_is_given(
    tmp_path, capsys, monkeypatch, readers, given, theirs
):
    monkeypatch.delenv("MANYGPU_DEVICES", raising=False)
    if readers:
        monkeypatch.setenv("MANYGPU_DEVICES", readers)
    file = write(tmp_path, "import os; print(repr(os.environ.get('MANYGPU_DEVICES')))")
    launcher.launch(file, workers=1, variables=given)
    assert capsys.readouterr().out == f"[worker 0] {theirs}\n"


@pytest.mark.parametrize(
    ("visible", "shown"),
    [
        ("", [None] * 4),
        ("-1", [None] * 4),
        ("1", ["1", "1", "1", "-1"]),
        ("2,1", ["2", "1", "2", "-1"]),
        ("GPU-a,GPU-b,GPU-c,GPU-d", ["GPU-a", "GPU-b", "GPU-c", "-1"]),
    ],
)
def test_workers_take_the_gpus_in_turns(monkeypatch, visible, shown):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    gpus = launcher.visible_gpus()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    tasks = [launcher.Task("worker", i) for i in range(3)] + [launcher.Task("ps", 0)]
    found = [launcher.environment(task, tasks, gpus) for task in tasks]
    assert [one.get("CUDA_VISIBLE_DEVICES") for one in found] == shown
    grows = "true" if gpus else None  # those that share one leave each other room
    assert {one.get("TF_FORCE_GPU_ALLOW_GROWTH") for one in found} == {grows}


def test_gpus_are_counted_by_nvidias_own_tool(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'GPU 0: A'\necho 'GPU 1: B'\n", encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert launcher.visible_gpus() == ["0", "1"]
    monkeypatch.setenv("PATH", "")
    assert launcher.visible_gpus() == []


# What is shown


@pytest.mark.parametrize(("terminal", "lost"), [("utf-8", "\ufffd"), ("ascii", "?")])
def test_lines_are_shown_by_name_on_the_stream_where_they_were_said(
    tmp_path, monkeypatch, terminal, lost
):
    """Letters that they or a terminal lack end nothing."""
    monkeypatch.setenv("PYTHONIOENCODING", terminal)
    code = r"""
import sys
sys.stdout.buffer.write("größe\nbad \xff\n".encode("latin-1"))
sys.stdout.buffer.write(b"\n10% \r20%\r\nno end")
print("a warning", file=sys.stderr)
"""
    status, out, err = ran("--workers", 1, write(tmp_path, code))
    shown = [f"gr{lost}{lost}e", f"bad {lost}", "", "10% ", "20%", "no end"]
    assert said_by("worker 0", out) == shown
    assert (status, err) == (0, "[worker 0] a warning\n")


def test_no_two_lines_mix(tmp_path):
    """Of three processes on two streams, half lines and long ones among them."""
    code = """
import sys
for i in range(300):
    for stream in (sys.stdout, sys.stderr):
        stream.write(f"begun {i} ")
        stream.flush()
        stream.write("x" * (9000 if i % 100 == 0 else 9) + " ended\\n")
"""
    file = write(tmp_path, code)
    status, out, err = ran("--workers", 3, file)
    assert status == 0
    for text in (out, err):
        assert len(text.splitlines()) == 900
        for k in range(3):
            lines = said_by(f"worker {k}", text)
            found = [re.fullmatch(r"begun (\d+) x+ ended", line) for line in lines]
            assert [int(m.group(1)) for m in found] == list(range(300))


def test_a_line_without_end_is_shown_in_pieces(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(launcher, "LONGEST_LINE", 1000)
    launcher.launch(write(tmp_path, "print('é' * 2500)"), workers=1)
    pieces = said_by("worker 0", capsys.readouterr().out)
    assert [len(piece) for piece in pieces] == [1000, 1000, 500]
    assert set("".join(pieces)) == {"é"}


# How it ends. Each test with a mark also checks that nothing is left.


BY_9 = f"was ended by signal 9 ({signal.strsignal(9)})"


@pytest.mark.parametrize(
    ("how", "who", "servers", "said", "status"),
    [
        ("fails", "worker 1", 0, "failed with exit code 7", 7),
        ("fails", "worker 0", 1, "failed with exit code 7", 7),
        ("fails", "ps 0", 1, "failed with exit code 7", 7),
        ("killed", "worker 0", 0, BY_9, 137),
    ],
)
def test_one_that_fails_is_named_and_ends_all(
    script, mark, how, who, servers, said, status
):
    with pytest.raises(launcher.ClusterError) as failed:
        launcher.launch(script, how, who, workers=2, servers=servers)
    head, *more, ended = str(failed.value).splitlines()
    assert head == f"{who} {said}; its last lines:"
    assert sorted(more) == ["  the last words", "  up"]
    everyone = ["chief"] * servers + ["worker 0", "worker 1"] + ["ps 0"] * servers
    others = [name for name in everyone if name != who]
    assert ended == f"ended with it: {', '.join(others)}"
    assert failed.value.status == status


def test_workers_that_hang_are_named(script, mark):
    status, _, err = ran("--workers", 2, "--timeout", "0.7", script, "hangs")
    assert status == 124
    head, *rest = err.splitlines()
    assert head.endswith("not done after 0.7 s; still running, and now ended:")
    said = "(last said: up|silent)"  # silent on a machine too busy to start it
    for k, line in enumerate(rest):
        assert re.fullmatch(rf"  worker {k}, {said}", line)
    assert len(rest) == 2


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL]
)
def test_ctrl_c_and_its_kin_end_all(script, mark, monkeypatch, number):
    """By kill -9, too, of those that won't end when they are asked to."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # the launcher sets it
    how = "stubborn" if number == signal.SIGKILL else "hangs"
    process, lines = asked_to_end(script, how, number=0)
    assert lines == {"[worker 0] up\n", "[worker 1] up\n"}  # shown as they are said
    if Path("/proc/self/environ").exists():
        assert len(marked(mark)) >= 5  # the launcher, two workers, a child of each
    process.send_signal(number)
    _, err = process.communicate(timeout=WAIT_S)
    if number == signal.SIGKILL:
        assert process.returncode == -number
    else:
        assert process.returncode == 128 + number
        ended = f"stopped by {number.name}; all processes were ended"
        assert err == f"manygpu launch: {ended}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--workers"),
        (["--workers", "two"], "--workers"),
        (["--workers", "0", launcher.__file__], "--workers: must be"),
        (["--workers", "2", "absent.py"], "script 'absent.py' is no file"),
    ],
)
def test_a_wrong_command_starts_nothing_and_has_the_status_of_one(mark, words, said):
    status, out, err = ran(*words)
    assert (status, out) == (2, "")
    assert said in err


def test_a_port_in_use_is_named_before_anything_starts(script, mark):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        status, out, err = ran("--workers", 2, "--port", port, script, "ends")
    assert (status, out) == (2, "")
    assert f"port {port} is in use" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("trial", TRIALS)
def test_ended_at_any_moment_it_leaves_nothing(script, mark, number, trial):
    """By kill -9, too, and while it starts its processes."""
    process = started("--workers", 3, script, "hangs")
    time.sleep(random.uniform(0, 0.6))
    process.send_signal(number)
    try:
        process.communicate(timeout=WAIT_S / 4)
    except subprocess.TimeoutExpired:
        assert number == signal.SIGINT, "only Ctrl-C is an exception in Python"
        process.send_signal(number)  # the first was lost before the launcher's first
        process.communicate(timeout=WAIT_S / 4)  # line: in one of 1,200 runs
    assert process.returncode != 0


SWALLOWS = f"""
import os, signal, sys
sys.argv[0] = {launcher.__file__!r}
from manygpu.processes import launch

class Callback:
    def __del__(self):  # what is raised in here is printed, and lost
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass

start = launch._Cluster._start
def then_stopped(cluster, task, gpus):
    start(cluster, task, gpus)
    if task.index == 1:
        Callback()
launch._Cluster._start = then_stopped
sys.exit(launch.main())
"""


def test_a_signal_whose_exception_python_swallows_ends_it_too(script, mark):
    """One run in 600 ignored Ctrl-C: it came in a callback of an import."""
    words = ["--workers", "2", "--grace", "1", script, "hangs"]
    done = subprocess.run(
        [sys.executable, "-c", SWALLOWS, *words],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        capture_output=True,
        text=True,
        timeout=WAIT_S / 2,
    )
    assert "Exception ignored in" in done.stderr
    assert done.stderr.endswith("stopped by SIGINT; all processes were ended\n")
    assert done.returncode == 128 + signal.SIGINT


def test_who_does_not_end_when_asked_is_ended(script, mark, monkeypatch):
    """By the launcher itself: its guard is for when there is no launcher."""
    monkeypatch.setattr(launcher, "GUARD", "import sys; sys.stdin.read()")
    with pytest.raises(launcher.ClusterError, match="silent|last said: up") as late:
        launcher.launch(script, "stubborn", workers=2, timeout_s=0.7, grace_s=0.3)
    assert late.value.status == 124


SAVES = f"""
import json, os, signal, sys, time
from pathlib import Path
ended, saves = [], sys.argv[1:]
signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
print("up")
while not ended:
    time.sleep(0.01)
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
if str(index) in saves:
    print("saves")
    while not Path(__file__).with_name("go on").exists():
        time.sleep(0.01)
    print("saved")
    sys.exit({launcher.PREEMPTED})
sys.exit(1)
"""


@pytest.mark.parametrize("saves", ["0", "1"])
def test_who_is_asked_to_end_has_time_to_save_and_its_status_is_the_launchers(
    tmp_path, mark, saves
):
    """The grace is forever, as it seems: nothing else lets it save."""
    process, _ = asked_to_end("--grace", WAIT_S, write(tmp_path, SAVES), saves)
    assert process.stdout.readline() == f"[worker {saves}] saves\n"
    (tmp_path / "go on").touch()
    out, err = process.communicate(timeout=WAIT_S)
    assert out == f"[worker {saves}] saved\n"
    assert process.returncode == launcher.PREEMPTED
    assert "stopped by SIGTERM" in err and "started again (status 75)" in err


def test_when_another_fails_the_grace_is_as_long_as_was_asked_for(
    tmp_path, mark, monkeypatch, capsys
):
    """Longer than the default here, and than a save; what it says then is shown."""
    monkeypatch.setattr(launcher, "GRACE_S", 0.01)
    code = f"""
import json, os, signal, sys, time
from pathlib import Path
up = Path(__file__).with_name("up")

def save(*_):
    time.sleep(0.5)
    sys.exit("saved")

if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
    while not up.exists():
        time.sleep(0.01)
    sys.exit(1)
signal.signal(signal.SIGTERM, save)
up.touch()
time.sleep({SECONDS})
"""
    with pytest.raises(launcher.ClusterError, match="worker 0 failed with exit code 1"):
        launcher.launch(write(tmp_path, code), workers=2, grace_s=WAIT_S)
    assert said_by("worker 1", capsys.readouterr().err) == ["saved"]


def test_when_the_grace_is_over_a_save_is_killed_and_that_is_no_75(tmp_path, mark):
    process, _ = asked_to_end("--grace", 0.5, write(tmp_path, SAVES), "0", "1")
    out, _ = process.communicate(timeout=WAIT_S)
    assert "saved" not in out
    assert process.returncode == 128 + signal.SIGTERM


def test_the_guard_is_told_of_each_group_that_has_ended(tmp_path, mark, monkeypatch):
    """Its number may be another's by the time that the launcher ends."""
    heard = tmp_path / "heard"
    writes = f"import sys; open({str(heard)!r}, 'w').write(sys.stdin.read())"
    monkeypatch.setattr(launcher, "GUARD", writes)
    launcher.launch(write(tmp_path, "print('up')"), workers=2)
    groups = [int(line) for line in heard.read_text(encoding="ascii").split()]
    began = {group for group in groups if group > 0}
    assert len(began) == 2 and {-group for group in groups if group < 0} == began


def test_a_port_that_a_server_has_just_left_is_free():
    """Its connection stays for a while after both ends are gone (TIME_WAIT)."""
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            ours, _ = server.accept()
            ours.close()  # this side first: it is the one that waits
            assert client.recv(1) == b""
    assert launcher.free_ports(1, port) == [port]


def test_all_that_a_failed_worker_said_is_shown(tmp_path, mark, capsys):
    """What is in the pipe when it ends, too."""
    lines = [str(i) for i in range(9000)]
    code = "import os; print('\\n'.join(map(str, range(9000)))); os._exit(3)"
    with pytest.raises(launcher.ClusterError) as failed:
        launcher.launch(write(tmp_path, code), workers=1)
    assert said_by("worker 0", capsys.readouterr().out) == lines
    assert str(failed.value).splitlines()[1:] == [f"  {x}" for x in lines[-20:]]


def test_a_process_that_can_not_be_started_ends_those_that_were(
    script, mark, monkeypatch
):
    start = launcher._Cluster._start

    def fails(self, task, gpus):
        if task.index == 2:
            raise OSError("too many processes")
        start(self, task, gpus)

    monkeypatch.setattr(launcher._Cluster, "_start", fails)
    with pytest.raises(OSError, match="too many"):
        launcher.launch(script, "hangs", workers=3)


@pytest.mark.parametrize(
    ("how", "servers", "who"), [("serves", 2, "chief"), ("ends", 0, "worker 1")]
)
def test_what_a_chief_or_a_worker_left_behind_ends_with_it(
    script, mark, capsys, how, servers, who
):
    launcher.launch(script, how, workers=2, servers=servers)
    assert said_by(who, capsys.readouterr().out) == ["up"]


def test_what_left_its_group_and_holds_the_pipe_is_not_waited_for(
    tmp_path, monkeypatch
):
    code = "import subprocess as s; s.Popen(['sleep', '20'], start_new_session=True)"
    file, begin = write(tmp_path, code), time.monotonic()
    launcher.launch(file, workers=1)
    assert time.monotonic() - begin < 15  # it still sleeps: GRACE_S was enough


def test_an_interrupted_cell_leaves_nothing(script, mark, monkeypatch):
    interrupts = Mock(write=Mock(side_effect=KeyboardInterrupt))
    monkeypatch.setattr(sys, "stdout", interrupts)
    with pytest.raises(KeyboardInterrupt):
        launcher.launch(script, "hangs", workers=2)


def test_a_reader_that_goes_away_ends_all(script, mark):
    process = started("--workers", 2, script, "hangs")
    process.stdout.close()
    err = process.stderr.read()
    assert (process.wait(WAIT_S), err) == (128 + signal.SIGPIPE, "")


WHOLE = "{} must be a whole number of at least {}, got {{!r}}"
REFUSED = good(launcher.launch, script=__file__).refuses(
    ("workers", [0, True, 2.0], ValueError, WHOLE.format("workers", 1)),
    ("servers", [-1], ValueError, WHOLE.format("servers", 0)),
    ("port", [0], ValueError, WHOLE.format("port", 1)),
    ("port", [65_535], ValueError, "port must be at most 65534, got 65535"),
    ("timeout_s", [0, math.nan], ValueError, "timeout_s must be above 0 seconds, got "),
    (
        "grace_s",
        [-1, math.nan, math.inf],
        ValueError,
        "grace_s must be at least 0 and finite",
    ),
)


@pytest.mark.parametrize("refusal", REFUSED, ids=str)
def test_bad_numbers_are_refused_by_name(mark, refusal):
    refusals.is_refused(refusal)
