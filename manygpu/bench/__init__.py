"""Time kinds of training steps against each other, each in a process of its own.

TensorFlow fixes devices and threads when it starts, so a fair comparison of one
device with two needs two processes. `compare` starts one for each case and lets them
take turns of a few steps: when the machine slows down, it slows all of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

import manygpu
from manygpu.bench import chains, strategies
from manygpu.bench.running import Running, step_distance
from manygpu.checks import check_count
from manygpu.scratch.splitting.recomputation import peak_bytes
from manygpu.workers import Worker

WARMUP = 2  # untimed steps: the first traces
# What a process can time: LeNet by every strategy, and a chain of equal layers.
VARIANTS = {**strategies.STRATEGIES, **chains.CHAINS}
# How many samples a batch has unless a case says otherwise.
BATCHES = dict.fromkeys(strategies.STRATEGIES, strategies.BATCH)
BATCHES |= dict.fromkeys(chains.CHAINS, chains.BATCH)


@dataclass(frozen=True)
class Case:
    """What one process times.

    Attributes:
        variant: a key of `VARIANTS`.
        devices: how many.
        inter_op: inter-op threads, to show what an unfair baseline does; None for
            as many as devices, see `manygpu.devices`.
        batch: samples in a batch; None for as many as `BATCHES` says.

    Raises:
        TypeError: a count that is no whole number.
        ValueError: no such variant, or a count below 1.
    """

    variant: str
    devices: int
    inter_op: int | None = None
    batch: int | None = None

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            names = sorted(VARIANTS)
            raise ValueError(f"variant must be one of {names}, got {self.variant!r}")
        check_count("devices", self.devices)
        for name in ("inter_op", "batch"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))

    @property
    def samples(self) -> int:
        """How many samples its batch has."""
        return BATCHES[self.variant] if self.batch is None else self.batch


def compare(
    cases: Mapping[str, Case], rounds: int = 10, steps: int = 5
) -> dict[str, list[float]]:
    """Return for each case its median milliseconds a step, one number a round.

    Args:
        cases: by name.
        rounds: in each, every case takes its turn.
        steps: how many a turn.

    Raises:
        ValueError, TypeError: a count below 1 or not whole.
        RuntimeError: a process failed; the message holds what it said.
    """
    check_count("rounds", rounds)
    check_count("steps", steps)
    with _workers(cases) as workers:
        return _take_turns(workers, rounds, steps)


@dataclass(frozen=True)
class Measured:
    """What `side_by_side` finds out about a case.

    Attributes:
        times: median milliseconds a step, one number a round.
        distance: how far its first step was from one device's, see
            `running.step_distance`.
        held: bytes of parameters on each device.
        peak: most bytes that a step held at once, on all devices together, beyond
            the parameters; None where TensorFlow doesn't count them.
    """

    times: list[float]
    distance: float
    held: dict[str, int]
    peak: int | None


def side_by_side(
    cases: Mapping[str, Case], rounds: int = 10, steps: int = 5
) -> dict[str, Measured]:
    """Check each case against one device, look at its memory, then time all in turns.

    Arguments and errors: see `compare`.
    """
    check_count("rounds", rounds)
    check_count("steps", steps)
    with _workers(cases, count_memory=True) as workers:
        for worker in workers.values():
            worker.send("check")  # all at once: each traces its step for seconds
        facts = {name: worker.receive() for name, worker in workers.items()}
        times = _take_turns(workers, rounds, steps)
    return {name: Measured(times[name], **found) for name, found in facts.items()}


@contextmanager
def _workers(
    cases: Mapping[str, Case], count_memory: bool = False
) -> Iterator[dict[str, Worker]]:
    """A process for each case, started side by side."""
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(_worker(case, count_memory))
            for name, case in cases.items()
        }


def _take_turns(
    workers: Mapping[str, Worker], rounds: int, steps: int
) -> dict[str, list[float]]:
    """Median milliseconds a step, one number a round."""
    for worker in workers.values():
        worker.ask(WARMUP)
    times: dict[str, list[float]] = {name: [] for name in workers}
    for _ in range(rounds):
        for name, worker in workers.items():
            times[name].append(1e3 * statistics.median(worker.ask(steps)))
    return times


def ratio(
    times: Mapping[str, list[float]], measured: str, against: str
) -> tuple[float, float, float]:
    """Return the median, least and largest of the rounds' ratios of two cases.

    Raises:
        ValueError: a case that was not timed, no rounds, not as many of both, or a
            time of 0 to divide by.
    """
    for name in (measured, against):
        if name not in times:
            raise ValueError(f"{name!r} was not timed: choose from {[*times]}")
    pairs = [*zip(times[measured], times[against], strict=True)]
    if not pairs or min(times[against]) <= 0:
        raise ValueError(f"{against!r} must have times above 0, got {times[against]}")
    ratios = sorted(a / b for a, b in pairs)
    return statistics.median(ratios), ratios[0], ratios[-1]


def _worker(case: Case, count_memory: bool = False) -> Worker:
    """A process that takes the steps of `case` when it is told to."""
    inter_op = None if case.inter_op is None else str(case.inter_op)
    variables = {"MANYGPU_DEVICES": str(case.devices), "MANYGPU_INTER_OP": inter_op}
    if count_memory:  # on CPUs, only this allocator counts what it hands out
        variables["TF_CPU_ALLOCATOR_USE_BFC"] = "true"
    name = f"{case.variant} on {case.devices} device(s), batch {case.samples}"
    return Worker(serve, case, variables=variables, name=name)


def serve(case: Case) -> Callable[[int | str], Any]:
    """In the worker: make what is to be timed; return what answers questions.

    A number asks for the seconds of so many steps, "check" for what `Measured` holds
    besides.
    """
    devices = manygpu.devices(quiet=True)
    running = VARIANTS[case.variant](devices)
    X, y = running.batch(case.samples)

    def answer(question: int | str) -> Any:
        if question == "check":
            return _check(running, X, y, devices)
        return [_seconds(running, X, y) for _ in range(question)]

    return answer


def _seconds(running: Running, X: tf.Tensor, y: tf.Tensor) -> float:
    """How long a step takes."""
    start = time.perf_counter()
    running.take(X, y)
    return time.perf_counter() - start


def _check(
    running: Running, X: tf.Tensor, y: tf.Tensor, devices: list[str]
) -> dict[str, Any]:
    """The first step against one device's, then the memory of the next."""
    found = {"distance": step_distance(running, X, y), "held": running.held()}
    try:
        found["peak"], _ = peak_bytes(lambda: running.take(X, y), devices[0])
    except ValueError:  # an allocator that doesn't count
        found["peak"] = None
    return found
