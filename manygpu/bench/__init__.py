"""Time kinds of training steps against each other, each in a process of its own.

TensorFlow fixes devices and threads when it starts, so a fair comparison of one
device with two needs two processes. `compare` starts one for each case and lets them
take turns of a few steps: when the machine slows down, it slows all of them.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

import manygpu
from manygpu import _devices
from manygpu.bench import chains, own, strategies
from manygpu.bench.running import Running, UnfitError, step_distance, tolerance_of
from manygpu.checks import check_count
from manygpu.comparison import LENET, UNCLEAR
from manygpu.comparison import ratio as ratio  # bench.ratio: for what `compare` gives
from manygpu.processes.workers import Worker
from manygpu.scratch.splitting.recomputation import peak_bytes

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
        variant: a key of `VARIANTS`, or of `own.STRATEGIES` for another model.
        devices: how many.
        inter_op: inter-op threads, to show what an unfair baseline does; None for
            as many as devices, see `manygpu.devices`.
        batch: samples in a batch; None for as many as `BATCHES` says.
        model: "lenet", or another that `models.load` finds.
        cuts: where such a model is cut, see `own.Task`.

    Raises:
        TypeError: a count that is no whole number.
        ValueError: no such variant, or a count below 1.
    """

    variant: str
    devices: int
    inter_op: int | None = None
    batch: int | None = None
    model: str = LENET
    cuts: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        known = VARIANTS if self.model == LENET else own.STRATEGIES
        if self.variant not in known:
            names = sorted(known)
            raise ValueError(f"variant must be one of {names}, got {self.variant!r}")
        check_count("devices", self.devices)
        for name in ("inter_op", "batch"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))

    @property
    def samples(self) -> int | None:
        """How many samples its batch has; None where only its model knows."""
        usual = BATCHES[self.variant] if self.model == LENET else None
        return usual if self.batch is None else self.batch

    def make(self, devices: list[str]) -> Running:
        """Return what is timed, at work on `devices`."""
        if self.model == LENET:
            return VARIANTS[self.variant](devices)
        task = own.Task(self.model, self.batch, self.cuts)
        return own.STRATEGIES[self.variant](task, devices)


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


@contextmanager
def _workers(cases: Mapping[str, Case]) -> Iterator[dict[str, Worker]]:
    """A process for each case, started side by side."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(_worker(case)) for name, case in cases.items()}


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


def _worker(case: Case) -> Worker:
    """A process that takes the steps of `case` when it is told to."""
    name = f"{case.variant} on {case.devices} device(s), batch {case.samples}"
    return Worker(serve, case, variables=variables_of(case), name=name)


def variables_of(case: Case) -> dict[str, str | None]:
    """Return the environment variables by which a process gets its case's devices."""
    inter_op = None if case.inter_op is None else str(case.inter_op)
    return {"MANYGPU_DEVICES": str(case.devices), "MANYGPU_INTER_OP": inter_op}


def serve(case: Case) -> Callable[[int | str], Any]:
    """In the worker: make what is to be timed; return what answers questions.

    A number asks for the seconds of so many steps, "facts" for what a row of a
    comparison holds besides.
    """
    devices = manygpu.devices(quiet=True)
    running = case.make(devices)
    X, y = running.batch(case.samples)

    def answer(question: int | str) -> Any:
        if question == "facts":
            return facts_of(running, X, y, devices)
        return [_seconds(running, X, y) for _ in range(question)]

    return answer


def _seconds(running: Running, X: tf.Tensor, y: tf.Tensor) -> float:
    """How long a step takes."""
    start = time.perf_counter()
    running.take(X, y)
    return time.perf_counter() - start


def facts_of(
    running: Running, X: Any, y: Any, devices: list[str]
) -> dict[str, float | str]:
    """Return what a row of `manygpu.comparison` holds besides times.

    What is not known, such as the bytes of an engine's messages, is left out.
    """
    found: dict[str, Any] = _compared(running, X, y)
    gc.collect()  # other forms of the step, and their variables
    held = running.held()
    found["held"] = sum(held.values())
    found["shared"] = ":CPU:" in devices[0]
    found["hardware"] = _devices.describe(len(devices))
    if running.sent is not None:
        found["sent"] = running.sent(X, y)
    found |= _memory(running, X, y, devices, held)
    return found


def _compared(running: Running, X: Any, y: Any) -> dict[str, float | str]:
    """How far the first step was from one device's, in the first form that tells.

    `trained` is the distance of the step as it is trained, if that is another form.
    """
    found = _apart(running, X, y)
    if _equal(found):
        return found
    seen = [found]
    for remark, form in running.alike():
        seen.append({**_apart(form, X, y), "remark": remark})
        if _equal(seen[-1]):
            return {**seen[-1], "trained": found["distance"]}
    return next((one for one in seen if one["tolerance"] <= UNCLEAR), found)


def _apart(running: Running, X: Any, y: Any) -> dict[str, float]:
    """How far the next step is from one device's, and how far it may be."""
    tolerance = tolerance_of(running, X, y)  # before the step, which moves weights
    distance = step_distance(running, X, y)
    if not math.isfinite(distance):
        raise UnfitError("its step is not finite, and one device's is")
    return {"distance": distance, "tolerance": tolerance}


def _equal(found: Mapping[str, float]) -> bool:
    return found["distance"] <= found["tolerance"] <= UNCLEAR


def _memory(
    running: Running, X: Any, y: Any, devices: Sequence[str], held: Mapping[str, int]
) -> dict[str, int]:
    """Bytes that a device needs, if TensorFlow counts them; see `peak_bytes`.

    GPUs are looked at one by one, and the fullest counts. Logical CPU devices share an
    allocator, so each is said to need its share of what all need together.
    """
    shared = ":CPU:" in devices[0]
    try:
        peaks = [
            peak_bytes(lambda: running.take(X, y), device)[0]
            for device in (devices[:1] if shared else devices)
        ]
    except ValueError:  # an allocator that doesn't count
        return {}
    if shared:
        return {"memory": (sum(held.values()) + peaks[0]) // len(devices)}
    each = zip(devices, peaks, strict=True)
    return {"memory": max(held.get(device, 0) + peak for device, peak in each)}
