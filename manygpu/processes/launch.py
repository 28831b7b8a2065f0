"""Start a cluster on this machine, as a scheduler starts one on many.

This runs a script in two processes, as MultiWorkerMirroredStrategy wants them; worker
0 also has the chief's duties::

    python -m manygpu launch --workers 2 script.py --steps 100

With ``--servers M`` there are M parameter servers and a chief (the coordinator) too,
as ParameterServerStrategy wants them.

Each process has in its environment:

- TF_CONFIG: who is in the cluster, and which of them it is; all on 127.0.0.1;
- MANYGPU_DEVICES: the reader's own, or 1: here each process drives one device;
- CUDA_VISIBLE_DEVICES: one GPU for each worker, taken in turns (workers that share
  one need `CommunicationImplementation.RING`: NCCL refuses), none for the others.

Each line a process says is shown behind its name. The end of all workers, or of the
chief where there is one, is the end of the cluster: parameter servers, and workers
that serve a chief, never end by themselves. When a process fails, all others are
ended, and its exit status becomes the launcher's.

Whoever is ended gets SIGTERM first, and then ``--grace`` seconds, 5 unless you say
more, to save what it has; so do all when the launcher gets SIGTERM itself, as from
Slurm. Its own status is then 128 and the signal's number, or 75 if one of them ended
with that: not done, nothing is wrong, start it again.

Nothing is left running, whatever happens. Each process has a group of its own, and
all it starts is in that group and ends with it; only what leaves the group on purpose
(a daemon) stays. If the launcher itself is ended by ``kill -9``, a small guard notices
and ends the groups. Windows has no such groups: there each process is ended, but not
what it started, and a launcher that is killed leaves its processes behind.

A `manygpu.processes.workers.Worker` is another thing: it answers this process's
questions, one by one. The processes here run a script by themselves and talk to each
other.
"""

from __future__ import annotations

import signal

if __name__ == "__main__":  # until `run` takes over, Ctrl-C simply ends this process:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # an import can swallow an exception

import argparse
import contextlib
import json
import os
import queue
import random
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manygpu import options

HOST = "127.0.0.1"
PORTS = range(20_000, 32_000)  # below those that systems lend to outgoing connections
GRACE_S = 5.0  # between asking a process to end and ending it, unless told otherwise
PREEMPTED = 75  # EX_TEMPFAIL of sysexits.h: not done, and nothing is wrong; try again
LISTEN_S = 0.5  # between two looks whether a signal came whose exception was lost
MOST = 1024  # workers, or servers, of the command
LAST_LINES = 20  # of a process that failed, in the error
LONGEST_LINE = 65_536  # characters; what is longer is shown in pieces
REFUSED = 2  # the status of words that can't be used
TIMED_OUT = 124  # the status that the command `timeout` gives, too
POSIX = os.name == "posix"
KILL = signal.SIGKILL if POSIX else signal.SIGTERM
STOPPING = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if POSIX else [])]

# The guard reads which groups there are (12) and which are no more (-12). Its input
# ends when the launcher does, in whatever way: then it ends the groups that are left.
GUARD = """
import os, signal, sys
groups = set()
for line in sys.stdin:
    group = int(line)
    groups.add(group) if group > 0 else groups.discard(-group)
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""
# What a process does first: it tells the guard its group, then becomes the script.
# The launcher would tell it too late if it were ended between the two.
JOIN = """
import os, sys
guard = int(sys.argv[1])
os.write(guard, b"%d\\n" % os.getpid())
os.close(guard)
os.execv(sys.argv[2], sys.argv[2:])
"""


class ClusterError(RuntimeError):
    """A process failed, or the time was up; `status` is the launcher's own."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(eq=False)
class Task:
    """One process of a cluster: what TF_CONFIG calls its task."""

    kind: str  # worker, chief or ps
    index: int
    address: str = ""  # host:port
    process: subprocess.Popen | None = None
    last: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES))

    @property
    def name(self) -> str:
        return self.kind if self.kind == "chief" else f"{self.kind} {self.index}"

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def signal(self, number: int) -> None:
        """Send a signal to it and all it started."""
        with contextlib.suppress(OSError):  # it is gone
            if POSIX:
                os.killpg(self.process.pid, number)
            else:
                self.process.kill()


def launch(
    script: str | Path,
    *arguments: str,
    workers: int = 2,
    servers: int = 0,
    port: int | None = None,
    timeout_s: float | None = None,
    variables: Mapping[str, str | None] | None = None,
    grace_s: float = GRACE_S,
) -> None:
    """Run a script on a cluster of this machine; return when all ended well.

    However this ends, by an interrupt too, no process of the cluster is left.

    Args:
        script: path of a Python file, which each process runs.
        arguments: what the script finds in sys.argv[1:].
        workers: how many.
        servers: how many parameter servers; with any, there is a chief as well.
        port: the processes get this port and those after it; None finds free ones.
        timeout_s: seconds all may take together; None waits forever.
        variables: environment variables of each process, beside the reader's own;
            None takes one away.
        grace_s: seconds between asking a process to end (SIGTERM) and ending it.

    Raises:
        FileNotFoundError: no such script; nothing was started.
        OSError: a port is in use; nothing was started.
        ValueError: a number out of its range; nothing was started.
        ClusterError: a process failed, or they took longer than `timeout_s`.
    """
    if not Path(script).is_file():
        raise FileNotFoundError(f"script {str(script)!r} is no file: name one")
    _check_whole("workers", workers, 1)
    _check_whole("servers", servers, 0)
    if timeout_s is not None and not timeout_s > 0:
        raise ValueError(f"timeout_s must be above 0 seconds, got {timeout_s!r}")
    if not 0 <= grace_s < float("inf"):
        raise ValueError(f"grace_s must be at least 0 and finite, got {grace_s!r}")
    counts = {"chief": int(servers > 0), "worker": workers, "ps": servers}
    tasks = [Task(k, i) for k, count in counts.items() for i in range(count)]
    for task, number in zip(tasks, free_ports(len(tasks), port), strict=True):
        task.address = f"{HOST}:{number}"
    command = [sys.executable, str(script), *map(str, arguments)]
    try:
        with _Cluster(tasks, command, variables or {}, grace_s) as cluster:
            cluster.wait(float("inf") if timeout_s is None else timeout_s)
    except _Stopped as stopped:
        ends = [task.process.returncode for task in tasks if task.process]
        stopped.status = PREEMPTED if PREEMPTED in ends else stopped.status
        raise


def environment(
    task: Task, tasks: Sequence[Task], gpus: Sequence[str] = ()
) -> dict[str, str]:
    """The environment variables of one task of a cluster, the reader's own included.

    Args:
        task: whose.
        tasks: all of the cluster, each with its address.
        gpus: those of this machine, as CUDA_VISIBLE_DEVICES names them.
    """
    cluster: dict[str, list[str]] = {}
    for one in tasks:
        cluster.setdefault(one.kind, []).append(one.address)
    place = {"type": task.kind, "index": task.index}
    variables = {
        "MANYGPU_DEVICES": "1",
        **os.environ,
        "TF_CONFIG": json.dumps({"cluster": cluster, "task": place}),
        "PYTHONUNBUFFERED": "1",  # a line is shown when it is said
    }
    if gpus:
        own = gpus[task.index % len(gpus)] if task.kind == "worker" else "-1"
        variables["CUDA_VISIBLE_DEVICES"] = own
        variables.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # they may share it
    return variables


class _Cluster:
    """The processes of `launch`. They run in the `with` block: its end is theirs."""

    def __init__(
        self,
        tasks: Sequence[Task],
        command: Sequence[str],
        variables: Mapping[str, str | None],
        grace_s: float,
    ) -> None:
        self._tasks, self._command, self._variables = tasks, command, variables
        self._grace_s = grace_s
        self._said: queue.Queue = queue.Queue(maxsize=1000)  # who, stream, line
        self._threads: list[threading.Thread] = []
        self._guard: subprocess.Popen | None = None

    def __enter__(self) -> _Cluster:
        try:
            if POSIX:
                self._guard = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", GUARD],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    bufsize=0,
                    start_new_session=True,
                )
            gpus = visible_gpus()
            for task in self._tasks:
                self._start(task, gpus)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self, timeout_s: float) -> None:
        """Show what they say until the cluster's work is done; raises: `launch`."""
        until = time.monotonic() + timeout_s
        chief = [task for task in self._tasks if task.kind == "chief"]
        left = set(chief or (task for task in self._tasks if task.kind == "worker"))
        while left:
            _check_stopped()
            ended = self._show(min(until, time.monotonic() + LISTEN_S))
            if ended is None and time.monotonic() < until:
                continue
            if ended is None:
                raise ClusterError(self._late(timeout_s), TIMED_OUT)
            if ended.process.returncode:
                others = [task.name for task in self._tasks if task.runs]
                self.close()  # shows what is still to be said, too
                raise _failure(ended, others)
            left.discard(ended)

    def close(self) -> None:
        """End all processes, at first politely, and show what they still say."""
        try:
            self._end(signal.SIGTERM, self._grace_s)
        finally:
            try:
                self._end(KILL, GRACE_S)
                self._show_rest()
            finally:
                if self._guard:
                    self._guard.stdin.close()
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self._guard.wait(GRACE_S)

    def _start(self, task: Task, gpus: Sequence[str]) -> None:
        variables = {**environment(task, self._tasks, gpus), **self._variables}
        command, options = self._command, {}
        if self._guard:
            pipe = self._guard.stdin.fileno()
            command = [sys.executable, "-I", "-S", "-c", JOIN, str(pipe), *command]
            options = {"start_new_session": True, "pass_fds": [pipe]}
        task.process = subprocess.Popen(
            command,
            env={k: v for k, v in variables.items() if v is not None},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            **options,
        )
        jobs = [(self._read, "stdout"), (self._read, "stderr"), (self._watch,)]
        for job, *more in jobs:
            thread = threading.Thread(target=job, args=(task, *more), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _read(self, task: Task, stream: str) -> None:
        """Hand over what a process says, line by line, until it says no more."""
        with getattr(task.process, stream) as pipe:
            while line := pipe.readline(LONGEST_LINE):
                self._said.put((task, stream, line.rstrip("\n")))

    def _watch(self, task: Task) -> None:
        """Wait for a process's end, end what it started and left, and tell so."""
        task.process.wait()
        task.signal(KILL)
        if self._guard:
            with contextlib.suppress(OSError, ValueError):  # the guard is gone
                self._guard.stdin.write(b"-%d\n" % task.process.pid)
        self._said.put((task, None, None))

    def _show(self, until: float) -> Task | None:
        """Show lines till a process ends, and return it; None when the time is up.

        All is shown by the thread that calls this, so that no two lines mix.
        """
        while (left := until - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                task, stream, line = self._said.get(timeout=left)
                if stream is None:
                    return task
                task.last.append(line)
                print(f"[{task.name}] {line}", file=getattr(sys, stream), flush=True)
        return None

    def _end(self, number: int, seconds: float) -> None:
        """Send a signal to all that run, and wait so long for their end."""
        for task in self._tasks:
            if task.runs:
                task.signal(number)
        until = time.monotonic() + seconds
        while any(task.runs for task in self._tasks) and self._show(until):
            pass

    def _show_rest(self) -> None:
        """Show what was said and not yet shown; a daemon may hold a pipe open."""
        until = time.monotonic() + GRACE_S
        while any(t.is_alive() for t in self._threads) and time.monotonic() < until:
            self._show(time.monotonic() + 0.02)
        while not self._said.empty():
            self._show(time.monotonic() + 0.02)

    def _late(self, timeout_s: float) -> str:
        said = [
            f"{task.name}, {'last said: ' + task.last[-1] if task.last else 'silent'}"
            for task in self._tasks
            if task.runs
        ]
        names = "\n  ".join(said)
        return (
            f"not done after {timeout_s:g} s; still running, and now ended:\n  {names}"
        )


def _failure(task: Task, others: Sequence[str]) -> ClusterError:
    """Which process failed, how, what it said last, and who was ended for it."""
    code = task.process.returncode
    how, status = f"failed with exit code {code}", code
    if code < 0:
        how = f"was ended by signal {-code} ({signal.strsignal(-code)})"
        status = 128 - code  # as shells have it
    said = "\n  ".join(["; its last lines:", *task.last] if task.last else ["; silent"])
    ended = f"\nended with it: {', '.join(others)}" if others else ""
    return ClusterError(f"{task.name} {how}{said}{ended}", status)


def _check_whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(
            f"{name} must be a whole number of at least {least}, got {value!r}"
        )


def free_ports(count: int, first: int | None = None) -> list[int]:
    """Return so many ports that nobody uses: `first` and those after it, or any.

    Raises OSError, with the port's number, if one of those asked for is in use.
    """
    tried: Sequence[int] = random.SystemRandom().sample(PORTS, len(PORTS))
    if first is not None:
        _check_whole("port", first, 1)
        tried = range(first, first + count)
        if tried[-1] > 65_535:
            raise ValueError(f"port must be at most {65_536 - count}, got {first}")
    free: list[int] = []
    for port in tried:
        with socket.socket() as probe:
            if POSIX:  # what a server left in TIME_WAIT is free, as for TensorFlow
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))  # TensorFlow's servers take all interfaces
            except OSError as taken:
                if first is None:
                    continue
                raise OSError(
                    f"port {port} is in use ({taken.strerror}): choose other ports, "
                    f"or name none and free ones are found"
                ) from taken
        free.append(port)
        if len(free) == count:
            return free
    raise OSError(f"fewer than {count} ports of {PORTS[0]} to {PORTS[-1]} are free")


def visible_gpus() -> list[str]:
    """The GPUs that a process here may use, as CUDA_VISIBLE_DEVICES names them."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name for name in chosen.split(",") if name.strip() not in ("", "-1")]
    if not shutil.which("nvidia-smi"):
        return []
    ask = ["nvidia-smi", "--list-gpus"]
    found = subprocess.run(ask, capture_output=True, text=True, check=False).stdout
    return [str(i) for i, _ in enumerate(re.findall(r"^GPU ", found, flags=re.M))]


class _Stopped(KeyboardInterrupt):
    """A signal asks the launcher to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


_stops: list[_Stopped] = []  # the signals that came, the first one first


def _stop(number: int, _: Any) -> None:
    _stops.append(_Stopped(number))
    raise _stops[-1]


def _check_stopped() -> None:
    """Raise what a signal raised, in case that Python swallowed it.

    An exception is only printed ("Exception ignored in ...") where nobody can catch
    it: in a `__del__`, in a callback of a weak reference.
    """
    if _stops:
        raise _stops[0]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Let a parser read the command's words, and tell what it is for."""
    parser.description, _, more = __doc__.partition("\n")
    parser.epilog = more.replace("::", ":").replace("``", "")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.allow_abbrev = False
    add = parser.add_argument
    some, seconds = options.whole(1, MOST), options.number(0.001, 10**9)
    grace = options.number(0, 10**9)
    add("--workers", type=some, required=True, metavar="N", help="how many workers")
    add("--servers", type=options.whole(0, MOST), default=0, metavar="M", help="how "
        "many parameter servers")  # fmt: skip
    add("--port", type=options.whole(1, 65_535), help="the first port; without it "
        "free ones are found")  # fmt: skip
    add("--timeout", type=seconds, metavar="S", help="end all after S seconds")
    add("--grace", type=grace, default=GRACE_S, metavar="S", help="seconds that "
        f"a process has to save in when it must end; default: {GRACE_S:g}")  # fmt: skip
    add("script", help="what each process runs")
    add("arguments", nargs=argparse.REMAINDER, help="the script's own")


def run(given: argparse.Namespace) -> int:
    """Run the command with what its words say; return its exit status."""
    for number in STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    try:
        launch(
            given.script,
            *given.arguments,
            workers=given.workers,
            servers=given.servers,
            port=given.port,
            timeout_s=given.timeout,
            grace_s=given.grace,
        )
    except ClusterError as failed:
        message, status = str(failed), failed.status
    except _Stopped as stopped:
        message = f"stopped by {stopped}; all processes were ended"
        status = stopped.status
        if status == PREEMPTED:
            message += f", and may be started again (status {PREEMPTED})"
    except BrokenPipeError:  # nobody reads any more, as after `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (OSError, ValueError) as wrong:  # before anything was started
        message, status = str(wrong), REFUSED
    else:
        return 0
    print(f"manygpu launch: {message}", file=sys.stderr, flush=True)
    return status


def main() -> int:
    """Run the command where there is only this module, as in a chapter's one file."""
    parser = argparse.ArgumentParser(prog="python -m manygpu.processes.launch")
    add_options(parser)
    given = parser.parse_args()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # whatever the terminal's encoding
    return run(given)


if __name__ == "__main__":
    sys.exit(main())
