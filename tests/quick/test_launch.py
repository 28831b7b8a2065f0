"""The launcher: what each process gets and says, how a cluster ends, what is left.

MANYGPU_TRIALS=50 repeats each way to end 50 times; without it there are a few.
A launcher of this file's own, loaded by its path, has less patience.
"""

from __future__ import annotations

import importlib.util
import io
import json
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
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).resolve().parents[2] / "manygpu" / "processes" / "launch.py"
TRIALS = range(int(os.environ.get("MANYGPU_TRIALS", "2")))
WAIT_S = 60  # no test waits so long, unless something hangs
SECONDS = str(WAIT_S)
pytestmark = pytest.mark.skipif(os.name != "posix", reason="it speaks of groups")


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("launch_by_its_path", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    module.GRACE_S = 1.0
    return module


launcher = load()

# A process of the cluster: it has a child of its own, says so, and ends as it is told.
SCRIPT = """
import json, os, signal, subprocess, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
me, (how, *more) = f"{task['type']} {task['index']}", sys.argv[1:]
if how == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if how != "alone":
    subprocess.Popen(["sleep", "SECONDS"])
print("up")
if how in ("ends", "alone") or me == "chief 0" and how == "serves":
    sys.exit()
if me in more:
    print("the last words", file=sys.stderr)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(7)
time.sleep(SECONDS)
sys.exit("nobody ended this")
""".replace("SECONDS", SECONDS)


@pytest.fixture
def script(tmp_path: Path) -> str:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT, encoding="utf-8")
    return str(file)


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
        try:
            theirs = (folder / "environ").read_bytes()
        except OSError:
            continue  # gone, or not ours
        if mark.encode() in theirs and int(folder.name) != os.getpid():
            found.append(int(folder.name))
    return found


def heard() -> None:
    """Ctrl-C and a closed terminal end a program, also where a shell took that away."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def started(*words: object, **options: object) -> subprocess.Popen:
    """The command, which hears each signal from its first moment on."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen(
        [sys.executable, str(FILE), *map(str, words)],
        encoding="utf-8",
        preexec_fn=heard,
        **pipes,
    )


def ran(*words: object) -> tuple[int, str, str]:
    process = started(*words)
    out, err = process.communicate(timeout=WAIT_S)
    return process.returncode, out, err


def said_by(name: str, text: str) -> list[str]:
    start = f"[{name}] "
    return [x.removeprefix(start) for x in text.splitlines() if x.startswith(start)]


def write(folder: Path, code: str) -> str:
    file = folder / "own.py"
    file.write_text(code, encoding="utf-8")
    return str(file)


# What each process gets


@pytest.mark.parametrize(
    ("servers", "kinds"),
    [
        (0, {"worker": 2}),
        (3, {"chief": 1, "worker": 2, "ps": 3}),
    ],
)
def test_each_process_knows_the_cluster_and_its_place(tmp_path, capfd, servers, kinds):
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
    options = {"workers": 2, "servers": servers}
    total = sum(kinds.values())
    launcher.launch(write(tmp_path, code), tmp_path / "spoke", total, **options)
    lines = capfd.readouterr().out.splitlines()
    found = {}
    for line in lines:
        name, config = re.fullmatch(r"\[(.*?)\] (.*)", line).groups()
        found[name] = json.loads(config)
    clusters = [config["cluster"] for config in found.values()]
    assert all(cluster == clusters[0] for cluster in clusters)
    assert {kind: len(all_of_it) for kind, all_of_it in clusters[0].items()} == kinds
    addresses = [a for all_of_it in clusters[0].values() for a in all_of_it]
    assert len(set(addresses)) == len(addresses) == len(found)
    assert all(a.startswith("127.0.0.1:") for a in addresses)
    for name, config in found.items():
        kind, index = config["task"]["type"], config["task"]["index"]
        assert name == ("chief" if kind == "chief" else f"{kind} {index}")
        assert index < kinds[kind]


def test_the_scripts_arguments_are_its_own(tmp_path):
    file = write(tmp_path, "import sys; print(sys.argv[1:])")
    status, out, _ = ran("--workers", 1, file, "--workers", "9", "-x", "a b")
    assert (status, out) == (0, "[worker 0] ['--workers', '9', '-x', 'a b']\n")


@pytest.mark.parametrize(("readers", "theirs"), [(None, "1"), ("4", "4")])
def test_one_device_a_process_unless_the_reader_says_more(
    tmp_path, capsys, monkeypatch, readers, theirs
):
    monkeypatch.delenv("MANYGPU_DEVICES", raising=False)
    if readers:
        monkeypatch.setenv("MANYGPU_DEVICES", readers)
    file = write(tmp_path, "import os; print(os.environ['MANYGPU_DEVICES'])")
    launcher.launch(file, workers=1)
    launcher.launch(file, workers=1, variables={"MANYGPU_DEVICES": "7"})
    assert capsys.readouterr().out == f"[worker 0] {theirs}\n[worker 0] 7\n"


def test_a_variable_is_taken_away_by_none(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MANYGPU_DATA", "of the reader")
    file = write(tmp_path, "import os; print(os.environ.get('MANYGPU_DATA'))")
    launcher.launch(file, workers=1, variables={"MANYGPU_DATA": None})
    assert capsys.readouterr().out == "[worker 0] None\n"


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


def test_lines_are_shown_by_name_on_the_stream_where_they_were_said(tmp_path):
    code = r"""
import sys
sys.stdout.buffer.write("größe\nbad \xff\n".encode("latin-1"))
sys.stdout.buffer.write(b"\n10% \r20%\r\nno end")
print("a warning", file=sys.stderr)
"""
    status, out, err = ran("--workers", 1, write(tmp_path, code))
    shown = ["gr\ufffd\ufffde", "bad \ufffd", "", "10% ", "20%", "no end"]
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


def test_a_terminal_that_lacks_letters_ends_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    code = "import sys; sys.stdout.buffer.write('größe'.encode())"
    assert ran("--workers", 1, write(tmp_path, code))[:2] == (0, "[worker 0] gr??e\n")


# How it ends. Each test with a mark also checks that nothing is left.


@pytest.mark.parametrize("trial", TRIALS)
def test_a_worker_that_fails_ends_all(script, mark, trial):
    status, out, err = ran("--workers", 3, script, "fails", "worker 1")
    assert status == 7
    assert said_by("worker 1", out) == ["up"]
    message = err[err.index("manygpu launch: ") :].splitlines()
    assert message[0].endswith("worker 1 failed with exit code 7; its last lines:")
    assert sorted(message[1:3]) == ["  the last words", "  up"]
    assert message[3:] == ["ended with it: worker 0, worker 2"]


@pytest.mark.parametrize("trial", TRIALS)
def test_workers_that_hang_are_named(script, mark, trial):
    status, _, err = ran("--workers", 2, "--timeout", "0.7", script, "hangs")
    assert status == 124
    head, *rest = err.splitlines()
    assert head.endswith("not done after 0.7 s; still running, and now ended:")
    said = "(last said: up|silent)"  # silent on a machine too busy to start it
    for k, line in enumerate(rest):
        assert re.fullmatch(rf"  worker {k}, {said}", line)
    assert len(rest) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("trial", TRIALS)
def test_ctrl_c_and_its_kin_end_all(script, mark, monkeypatch, number, trial):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # the launcher sets it
    process = started("--workers", 2, script, "hangs")
    lines = {process.stdout.readline() for _ in range(2)}  # shown as they are said
    assert lines == {"[worker 0] up\n", "[worker 1] up\n"}
    process.send_signal(number)
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 128 + number
    ended = f"stopped by {number.name}; all processes were ended"
    assert err == f"manygpu launch: {ended}\n"


@pytest.mark.parametrize("trial", TRIALS)
def test_a_missing_script_is_named_before_anything_starts(tmp_path, mark, trial):
    status, out, err = ran("--workers", 2, tmp_path / "absent.py")
    assert (status, out) == (2, "")
    assert f"script '{tmp_path / 'absent.py'}' is no file" in err


@pytest.mark.parametrize("trial", TRIALS)
def test_a_port_in_use_is_named_before_anything_starts(script, mark, trial):
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
    process.communicate(timeout=WAIT_S)
    assert process.returncode != 0


@pytest.mark.parametrize("trial", TRIALS)
def test_killed_while_all_run_it_leaves_nothing(script, mark, trial):
    process = started("--workers", 2, script, "stubborn")
    assert process.stdout.readline().endswith("up\n")
    assert process.stdout.readline().endswith("up\n")
    if Path("/proc/self/environ").exists():
        assert len(marked(mark)) >= 5  # the launcher, two workers, a child of each
    process.kill()
    process.communicate(timeout=WAIT_S)


@pytest.mark.parametrize("guard", [launcher.GUARD, "import sys; sys.stdin.read()"])
def test_who_does_not_end_when_asked_is_ended(script, mark, monkeypatch, guard):
    """By the launcher itself: its guard is for when there is no launcher."""
    monkeypatch.setattr(launcher, "GUARD", guard)
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


def asked_to_end(folder: Path, *words: object, number=signal.SIGTERM) -> tuple:
    """A launcher that got a signal once both workers ran; what each said so far."""
    process = started("--workers", 2, *words)
    lines = [process.stdout.readline() for _ in range(2)]
    process.send_signal(number)
    return process, lines


@pytest.mark.parametrize("saves", ["0", "1"])
def test_who_is_asked_to_end_has_time_to_save_and_its_status_is_the_launchers(
    tmp_path, mark, saves
):
    """The grace is for ever, as it seems: nothing else lets it save."""
    file = write(tmp_path, SAVES)
    process, _ = asked_to_end(tmp_path, "--grace", WAIT_S, file, saves)
    assert process.stdout.readline() == f"[worker {saves}] saves\n"
    (tmp_path / "go on").touch()
    out, err = process.communicate(timeout=WAIT_S)
    assert out == f"[worker {saves}] saved\n"
    assert process.returncode == launcher.PREEMPTED
    assert "stopped by SIGTERM" in err and "started again (status 75)" in err


def test_the_grace_is_as_long_as_was_asked_for(tmp_path, mark, monkeypatch):
    """Longer than the default here, and than a save."""
    monkeypatch.setattr(launcher, "GRACE_S", 0.01)
    code = f"""
import signal, sys, time
from pathlib import Path

def save(*_):
    time.sleep(1)
    Path(__file__).with_name("saved").touch()
    sys.exit({launcher.PREEMPTED})

signal.signal(signal.SIGTERM, save)
Path(__file__).with_name("up").touch()
time.sleep({SECONDS})
"""
    (tmp_path / "late").mkdir()
    file, late = write(tmp_path, code), tmp_path / "late"
    fails = f"""
import json, os, runpy, sys, time
from pathlib import Path
if json.loads(os.environ["TF_CONFIG"])["task"]["index"]:
    runpy.run_path({file!r})
while not Path({str(tmp_path / "up")!r}).exists():
    time.sleep(0.01)
sys.exit(1)
"""
    with pytest.raises(launcher.ClusterError, match="worker 0 failed"):
        launcher.launch(write(late, fails), workers=2, grace_s=WAIT_S)
    assert (tmp_path / "saved").exists()


def test_when_the_grace_is_over_a_save_is_killed_and_that_is_no_75(tmp_path, mark):
    file = write(tmp_path, SAVES)
    process, _ = asked_to_end(tmp_path, "--grace", 0.5, file, "0", "1")
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


def test_who_is_asked_to_end_may_say_goodbye(tmp_path, mark, capsys):
    code = f"""
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit("goodbye"))
print("up")
time.sleep({SECONDS} if "index\\": 1" in os.environ["TF_CONFIG"] else 0.5)
sys.exit("index\\": 0" in os.environ["TF_CONFIG"])
"""
    with pytest.raises(launcher.ClusterError, match="worker 0 failed with exit code 1"):
        launcher.launch(write(tmp_path, code), workers=2)
    out, err = capsys.readouterr()
    assert said_by("worker 1", err) == ["goodbye"] * len(said_by("worker 1", out))


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


def test_who_was_killed_is_named_with_the_signal(script, mark, capsys):
    said = r"worker 0 was ended by signal 9 \(.*\); its last lines:"
    with pytest.raises(launcher.ClusterError, match=said) as failed:
        launcher.launch(script, "killed", "worker 0", workers=2)
    assert failed.value.status == 137


def test_the_chiefs_end_is_that_of_its_servers_and_workers(script, mark, capsys):
    launcher.launch(script, "serves", workers=2, servers=2)
    assert said_by("chief", capsys.readouterr().out) == ["up"]


@pytest.mark.parametrize("who", ["ps 1", "worker 0"])
def test_a_server_that_fails_ends_all(script, mark, who):
    with pytest.raises(launcher.ClusterError, match=f"{who} failed") as failed:
        launcher.launch(script, "fails", who, workers=2, servers=2)
    assert failed.value.status == 7
    assert "ended with it: chief, " in str(failed.value)


def test_what_a_worker_left_behind_ends_with_it(script, mark):
    launcher.launch(script, "ends", workers=2)


def test_what_left_its_group_and_holds_the_pipe_is_not_waited_for(
    tmp_path, monkeypatch
):
    code = (
        "import subprocess; subprocess.Popen(['sleep', '20'], start_new_session=True)"
    )
    file, begin = write(tmp_path, code), time.monotonic()
    launcher.launch(file, workers=1)
    assert time.monotonic() - begin < 15  # it still sleeps: GRACE_S was enough


def test_an_interrupted_cell_leaves_nothing(script, mark, monkeypatch):
    class Interrupts(io.StringIO):
        def write(self, text: str) -> int:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdout", Interrupts())
    with pytest.raises(KeyboardInterrupt):
        launcher.launch(script, "hangs", workers=2)


def test_a_reader_that_goes_away_ends_all(script, mark):
    process = started("--workers", 2, script, "hangs")
    process.stdout.close()
    err = process.stderr.read()
    assert (process.wait(WAIT_S), err) == (128 + signal.SIGPIPE, "")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"workers": 0}, "workers must be a whole number of at least 1, got 0"),
        ({"workers": True}, "workers must be .*, got True"),
        ({"workers": 2.0}, "workers must be .*, got 2.0"),
        ({"servers": -1}, "servers must be a whole number of at least 0, got -1"),
        ({"port": 0}, "port must be a whole number of at least 1, got 0"),
        ({"port": 65_535}, "port must be at most 65534, got 65535"),
        ({"timeout_s": 0}, "timeout_s must be above 0 seconds, got 0"),
        ({"timeout_s": float("nan")}, "timeout_s must be above 0 seconds, got nan"),
        ({"grace_s": -1}, "grace_s must be at least 0 and finite, got -1"),
        ({"grace_s": float("nan")}, "grace_s must be at least 0 and finite, got nan"),
    ],
)
def test_bad_numbers_are_refused_by_name(script, mark, given, said):
    with pytest.raises(ValueError, match=said):
        launcher.launch(script, "hangs", **given)


@pytest.mark.parametrize("words", [[], ["--workers", "two"], ["--workers", "0", FILE]])
def test_a_wrong_command_has_the_status_of_one(words):
    status, out, err = ran(*words)
    assert (status, out) == (2, "")
    assert "workers" in err
