"""One model under every strategy: what `manygpu bench` does.

Each strategy gets a process of its own, is compared with one device, looked into, and
timed in turns with all others. One that can't run here says why and leaves; the others
go on.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import tensorflow as tf

import manygpu
from manygpu import _devices
from manygpu.bench import WARMUP, Case, own, serve, variables_of
from manygpu.bench.models import first_line
from manygpu.bench.running import UnfitError
from manygpu.bench.strategies import BATCH
from manygpu.comparison import LENET, WAYS, Comparison, Row
from manygpu.costs import layer_costs
from manygpu.measure import nbytes
from manygpu.processes.workers import Worker
from manygpu.scratch.splitting.network import lenet_layers
from manygpu.scratch.splitting.pipeline import balanced_cuts
from manygpu.scratch.start.one_device import init_params

CHAINS = ("recomputation", "network", "pipeline")  # these need layers in a row
Tell = Callable[[str, int, int], None]


def survey(
    comparison: Comparison, rounds: int, keep: Callable[[], None], tell: Tell
) -> None:
    """Fill a comparison until each row that can run has had so many rounds.

    Args:
        comparison: a new one, or one to go on with.
        rounds: in each, every strategy takes its turn of some steps.
        keep: called whenever something new is in it.
        tell: called before each piece of work, with what it is, how many pieces are
            done, and how many there are.

    Raises:
        UnfitError: the model can't be had; the message says why.
    """
    if not comparison.experiment["about"]:
        tell("looks at the model", 0, 0)
        comparison.experiment["about"] = about = _look(comparison.experiment)
        for name in CHAINS if about["uncut"] else ():
            if name in comparison.rows:
                comparison.rows[name].cannot = about["uncut"]
    unknown = [row for row in comparison.running.values() if not row.facts]
    left = range(comparison.rounds, rounds)
    if not left and not unknown:
        return
    comparison.cut()
    rows = len(comparison.running)
    total = len(unknown) + rows * (1 + len(left))
    steps = _Steps(tell, total)
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(_worker(comparison.experiment, row))
            for name, row in comparison.running.items()
        }
        size = comparison.experiment["about"]["bytes"]
        _find_facts(unknown, size, workers, keep, steps)
        _take_turns(comparison, left, workers, keep, steps)


class _Steps:
    """Counts pieces of work as they are told."""

    def __init__(self, tell: Tell, total: int) -> None:
        self.tell, self.total, self.done = tell, total, 0

    def __call__(self, what: str) -> None:
        self.tell(what, self.done, self.total)
        self.done += 1


def _find_facts(
    unknown: list[Row],
    size: int,
    workers: dict[str, Worker],
    keep: Callable,
    steps: _Steps,
) -> None:
    """Compare and look into the rows of which nothing is known.

    An engine that hides its messages has to add as many gradients as there are
    parameters, `size` bytes: that sends twice as much for each device but one.
    """
    for row in unknown:
        workers[row.strategy].send("facts")  # all at once: each traces for seconds
    for row in unknown:
        steps(f"compares: {row.title}")
        row.facts = _answer(row, workers[row.strategy].receive) or {}
        if row.facts and WAYS[row.strategy].said:
            row.facts["sent"] = 2 * (row.devices - 1) * size
        keep()


def _take_turns(
    comparison: Comparison,
    left: range,
    workers: dict[str, Worker],
    keep: Callable,
    steps: _Steps,
) -> None:
    """Time the rows that run, in turns; the first turn counts for nothing."""
    for row in [*comparison.running.values()]:
        steps(f"warms up: {row.title}")
        _answer(row, lambda: workers[row.strategy].ask(WARMUP))  # noqa: B023
    size = comparison.experiment["steps"]
    for number in left:
        for row in [*comparison.running.values()]:
            steps(f"round {number + 1}: {row.title}")
            seconds = _answer(row, lambda: workers[row.strategy].ask(size))  # noqa: B023
            if seconds:
                row.times.append(1e3 * statistics.median(seconds))
        keep()


def _answer(row: Row, ask: Callable[[], tuple[Any, str]]) -> Any:
    """What a row's process answers; None if it can't, and then the row says why."""
    try:
        found, row.cannot = ask()
    except RuntimeError as gone:  # it died, as of too little memory
        found, row.cannot = None, str(gone).splitlines()[0]
    return found


def _worker(experiment: dict[str, Any], row: Row) -> Worker:
    """A process for a row."""
    case = _case(experiment, row)
    variables = variables_of(case)
    variables["TF_CPU_ALLOCATOR_USE_BFC"] = "true"  # the only one that counts on CPUs
    return Worker(serve_safely, serve, case, variables=variables, name=row.title)


def _case(experiment: dict[str, Any], row: Row) -> Case:
    """What the process of a row times."""
    model, way = experiment["model"], WAYS[row.strategy]
    threads = experiment["devices"] if way.threads else None
    batch = experiment["about"]["samples"]
    if model == LENET:
        return Case(way.variant, row.devices, threads, batch)
    seconds = [time for _, time in experiment["about"]["layers"]]
    stages = min(row.devices, len(seconds))
    cuts = tuple(balanced_cuts(seconds, stages)) if stages else None
    return Case(way.variant, row.devices, threads, batch, model, cuts)


def _look(experiment: dict[str, Any]) -> dict[str, Any]:
    """What must be known of the model before all else, found by a process."""
    question = [experiment[name] for name in ("model", "batch", "devices")]
    name = experiment["model"]
    variables = {"MANYGPU_DEVICES": "1", "MANYGPU_INTER_OP": None}
    look = Worker(serve_safely, serve_look, variables=variables, name=name)
    with look as worker:
        try:
            found, why = worker.ask(question)
        except RuntimeError as gone:
            raise UnfitError(str(gone)) from gone
    if why:
        raise UnfitError(why)
    return found


def serve_look() -> Callable[[tuple[str, int, int]], dict[str, Any]]:
    """In a worker: say of a model what `own.look_at` does, and how large a GPU is."""

    def answer(question: tuple[str, int, int]) -> dict[str, Any]:
        (device,), (name, batch, count) = manygpu.devices(1, quiet=True), question
        if name == LENET:
            found = _look_at_lenet(batch or BATCH)
        else:
            found = own.look_at(own.Task(name, batch or None), device)
        memory = _devices.gpu_bytes(count)
        if memory is None:
            found["unknown"]["memory"] = "nvidia-smi isn't there to tell a GPU's"
        return {**found, "gpu_bytes": memory or 0}

    return answer


def _look_at_lenet(samples: int) -> dict[str, Any]:
    """The same of the book's model; its cuts need no seconds."""
    params = init_params()
    found = {"samples": samples, "bytes": nbytes(params), "layers": [], "uncut": ""}
    found["parameters"] = sum(p.shape.num_elements() for p in params)
    costs = layer_costs(lenet_layers(params))
    asked = {"layers": len(costs), "flops": sum(cost.flops for cost in costs)}
    asked["kept"] = sum(cost.activations for cost in costs)
    asked["handed"] = sum(cost.output for cost in costs[:-1]) / (len(costs) - 1)
    return {**found, "asked": asked, "unknown": {}}


def serve_safely(make: Callable, *arguments: Any) -> Callable[[Any], tuple[Any, str]]:
    """In a worker: `make(*arguments)` answers, or "why not" stands beside None."""
    made: list[Callable] = []

    def answer(question: Any) -> tuple[Any, str]:
        try:
            if not made:
                made.append(make(*arguments))
            return made[0](question), ""
        except Exception as error:
            return None, reason(error)

    return answer


def reason(error: Exception) -> str:
    """Return in a line why something can't run."""
    if isinstance(error, UnfitError):
        return str(error)
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return "it doesn't fit into a device's memory"
    return first_line(error)
