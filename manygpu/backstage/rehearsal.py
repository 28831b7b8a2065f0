"""Processes that train together, again and again, each time with another failure.

For the chapter on steps that hang. `failing_job` has the training and its failures.
Here the processes start, meet, and are watched while they train, and two processes of
the engine are asked.
"""

from __future__ import annotations

import gc
import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from manygpu import devices
from manygpu.backstage.failing_job import KINDS, STEPS, Failure, train_watched
from manygpu.checks import check_count
from manygpu.processes.door import Door
from manygpu.processes.launch import HOST
from manygpu.processes.waits import LateError
from manygpu.processes.workers import Worker, everywhere, naming_all
from manygpu.scratch.beyond.many_workers import (
    SECRET_VARIABLE,
    PeerError,
    join_ring,
)
from manygpu.scratch.beyond.step_hangs import (
    DONE,
    Collector,
    DisagreementError,
    FlightLog,
    FlightRecorder,
    Reporter,
    Verdict,
    any_rank,
    compare_fingerprints,
)

# Seconds; what doesn't hang is over long before, on a busy machine too. A rank gives
# up before the rehearsal does, and that before a page's cell is ended.
LONG, RUN_S = 120.0, 240.0
LAST_S = 10.0  # at least, for a rank's last words once it has hung up
NEVER = "never comes"  # the one failure that is not the rank's own doing


class Rehearsed(NamedTuple):
    """What came of a rehearsal.

    Attributes:
        found: a verdict, or None, and its logs, for each call for help and the end.
        said: by each rank that came: "done", or its error.
        params: of each rank that was done, W and b.
    """

    found: list[tuple[Verdict | None, list[FlightLog]]]
    said: dict[int, str]
    params: dict[int, list[np.ndarray]]

    @property
    def verdict(self) -> Verdict | None:
        """What was wrong at the end; if nothing was, what held the run up longest.

        The link only if no other cause was found: somebody may have asked at the
        moment when a late rank had just come.
        """
        end, _ = self.found[-1]
        calls = [(v, logs) for v, logs in self.found if v]
        calls = [call for call in calls if call[0].cause != "link"] or calls
        return end or (max(calls, key=_longest_wait)[0] if calls else None)


class Rehearsal:
    """So many processes; they start when needed and end with the `with` block."""

    def __init__(self, size: int = 3) -> None:
        self.size = check_count("size", size)
        self._secret = secrets.token_bytes(32)
        self._workers: dict[int, Worker] = {}

    def run(
        self,
        kind: str = "",
        rank: int = 1,
        step: int = 3,
        patience_s: float = LONG,
        timeout_s: float = LONG,
        cured: bool = False,
        limit_s: float = RUN_S,
    ) -> Rehearsed:
        """Train, let one rank have one failure, and watch.

        Args:
            kind: of the failure, a key of `failing_job.KINDS`; "" for none.
            rank, step: whose, and when.
            patience_s: how long a rank is in one collective before it calls for help.
            timeout_s: how long joining, or an exchange, may take.
            cured: whether all ranks decide together what to do about a NaN.
            limit_s: how long all of it may take.

        Raises:
            ValueError: no such kind, rank or step.
            LateError: a rank gave no answer; the message says where each one was.
        """
        _check_failure(kind, rank, step, self.size)
        failure = Failure(kind, rank, step, cured)
        there = [r for r in range(self.size) if (kind, rank) != (NEVER, r)]
        try:
            return self._run(there, failure, patience_s, timeout_s, limit_s)
        except BaseException:
            self.close()  # an answer to this must not be taken for a later one's
            raise

    def _run(
        self,
        there: Sequence[int],
        failure: Failure,
        patience_s: float,
        timeout_s: float,
        limit_s: float,
    ) -> Rehearsed:
        workers = [self._worker(r) for r in there]
        end = time.monotonic() + limit_s
        with (
            naming_all(workers),
            Collector(self.size, self._secret) as collector,
            socket.create_server((HOST, 0)) as nobody,  # where the absent one should be
        ):
            question = "come", collector.address, patience_s
            found = everywhere(workers, question, limit_s)
            doors = dict(zip(there, found, strict=True))
            addresses = [doors.get(r, nobody.getsockname()) for r in range(self.size)]
            for r, worker in zip(there, workers, strict=True):
                own = failure if r == failure.rank else Failure(cured=failure.cured)
                worker.send(("go", addresses, own, timeout_s))
            found = list(collector.watch(limit_s / 4))
            last = [_last_words(worker, end) for worker in workers]
        answers = dict(zip(there, last, strict=True))
        said = {r: words for r, (words, _) in answers.items()}
        params = {r: own for r, (_, own) in answers.items() if own}
        return Rehearsed(found, said, params)

    def close(self) -> None:
        """End the processes; nothing of them is left."""
        while self._workers:
            self._workers.popitem()[1].close()

    def _worker(self, rank: int) -> Worker:
        """The process of a rank: a new one if there is none, or it died."""
        old = self._workers.get(rank)
        if old and old.process.is_alive():
            return old
        if old:
            old.close()
        own = {"MANYGPU_DEVICES": "1", SECRET_VARIABLE: self._secret.hex()}
        job = watched_member, rank, self.size
        self._workers[rank] = Worker(*job, variables=own, name=f"rank {rank}")
        return self._workers[rank]

    def __enter__(self) -> Rehearsal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _longest_wait(found: tuple[Verdict, list[FlightLog]]) -> float:
    """How long, in seconds, a rank had waited when its log was written."""
    _, logs = found
    return max((x.at - x.open_call.entered for x in logs if x.open_call), default=0.0)


def _check_failure(kind: str, rank: int, step: int, size: int) -> None:
    if kind and kind not in KINDS:
        raise ValueError(f"kind must be one of {list(KINDS)}, got {kind!r}")
    for name, value, end in (("rank", rank, size), ("step", step, STEPS)):
        if value not in range(end):
            raise ValueError(f"{name} must be 0 to {end - 1}, got {value!r}")


def _last_words(worker: Worker, end: float) -> tuple[str, list[np.ndarray]]:
    """A worker's answer, which comes by then; that it died is one, too."""
    try:
        return worker.receive(max(LAST_S, end - time.monotonic()))
    except LateError:
        raise
    except RuntimeError as error:
        return str(error).splitlines()[0], []


def watched_member(rank: int, size: int) -> Callable[[tuple], Any]:
    """In a new process: asked to ("come", ...), `come`; to ("go", ...), `go`."""
    devices(1, quiet=True)
    # A collection that frees TensorFlow's objects while another thread begins has hung
    # a rank for good. These processes live for seconds, so they do without.
    gc.disable()
    secret = bytes.fromhex(os.environ.pop(SECRET_VARIABLE))  # no child inherits it
    here: list = []

    def answer(question: tuple) -> Any:
        word, *arguments = question
        if word == "come":
            here[:] = come(rank, size, secret, *arguments)
            return here[0].address
        return go(*here, *arguments)

    return answer


def come(
    rank: int, size: int, secret: bytes, collector: tuple[str, int], patience_s: float
) -> tuple[Door, FlightRecorder, Reporter]:
    """Open a door and call the collector."""
    recorder = FlightRecorder(rank)
    reporter = Reporter(recorder, size, collector, secret, patience_s)
    return Door(rank, size, secret), recorder, reporter


def go(
    door: Door,
    recorder: FlightRecorder,
    reporter: Reporter,
    addresses: Sequence[tuple[str, int]],
    failure: Failure,
    timeout_s: float,
) -> tuple[str, list[np.ndarray]]:
    """Join and train; return "done" and the parameters, or an error and none.

    Raises what is neither a neighbour's failure nor a disagreement.
    """
    ring = None
    try:
        with recorder.call("join"):
            ring = join_ring(door, addresses, timeout_s)
        chapters = compare_fingerprints, any_rank
        params = train_watched(ring, recorder, failure, *chapters)
        recorder.ended = DONE
        return DONE, params
    except (PeerError, DisagreementError) as wrong:
        recorder.ended = recorder.ended or repr(wrong)
        return str(wrong), []
    except BaseException as wrong:  # this one is nobody else's doing: say so, and go
        recorder.ended = repr(wrong)
        raise
    finally:
        if ring:
            ring.close()
        reporter.close()


def engine_pair_member() -> Callable[[tuple[str, float]], Any]:
    """In one of two workers of a cluster: do what is asked, within so many seconds.

    "add": add up a matrix that counts from 0 to 23, and answer with the sum;
    `"add transposed"`: bring it transposed; "health": is everybody there? An error of
    the engine is an answer, too: its name and message.
    """
    from tensorflow.python.eager import context  # private: there is no public way

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @cache
    def adding(transposed: bool, timeout_s: float) -> Callable[[], tf.Tensor]:
        W = tf.reshape(tf.range(24.0), (6, 4))
        W = tf.transpose(W) if transposed else W
        options = tf.distribute.experimental.CommunicationOptions(0, timeout_s)

        def total() -> tf.Tensor:
            replica = tf.distribute.get_replica_context()
            return replica.all_reduce("SUM", tf.identity(W), options=options)

        return tf.function(lambda: strategy.run(total), autograph=False)

    def answer(question: tuple[str, float]) -> Any:
        word, timeout_s = question
        try:
            if word != "health":
                return adding(word == "add transposed", timeout_s)().numpy()
            for task in map("/job:worker/replica:0/task:{}".format, range(2)):
                milliseconds = int(timeout_s * 1000)
                context.context().check_collective_ops_peer_health(task, milliseconds)
            return "all are there"
        except tf.errors.OpError as error:
            return f"{type(error).__name__}: {error.message}"

    return answer
