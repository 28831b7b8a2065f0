"""Time strategies against each other, each in a process of its own, in turns.

TensorFlow fixes devices and threads when it starts, so a fair comparison of one device
with two needs two processes. They take turns of a few steps: when the machine slows
down, it slows all of them. `compare` times cases, `survey` is `manygpu bench`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from manygpu.bench.case import Case
from manygpu.bench.result import Comparison, Row
from manygpu.measure import in_turns
from manygpu.processes.workers import Worker
from manygpu.simulate.works import whole
from manygpu.trainings.table import BASE, STRATEGIES, UnfitError, unfit

WARMUP = 2  # untimed steps: the first traces
PATIENCE_S = 540.0  # for an answer: a reader's model may be large; less than a cell's


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
    whole("rounds", rounds)
    whole("steps", steps)
    with ExitStack() as stack:
        workers = {n: stack.enter_context(start(c)) for n, c in cases.items()}
        for worker in workers.values():
            worker.ask(WARMUP, PATIENCE_S)

        def take(worker: Worker) -> float:
            return _milliseconds(worker.ask(steps, PATIENCE_S))

        return in_turns(workers, rounds, warm_up=0, take=take) if workers else {}


def _milliseconds(seconds: list[float]) -> float:
    """What a turn counts as: the median of its steps."""
    return 1e3 * statistics.median(seconds)


def start(case: Case, name: str = "", safe: bool = False, **variables: str) -> Worker:
    """Return a process that takes steps of `case` when it is told how many.

    Args:
        case: what it times.
        name: what it is called in an error.
        safe: whether it answers with a pair, of which the second says why not.
        variables: more environment variables of the process.
    """
    devices = f"{case.devices} device{'s' * (case.devices != 1)}"
    name = name or f"{case.strategy} on {devices}, batch {case.samples}"
    inter_op = None if case.inter_op is None else str(case.inter_op)
    own = {"MANYGPU_DEVICES": str(case.devices), "MANYGPU_INTER_OP": inter_op}
    row = STRATEGIES[case.strategy]
    return Worker(in_worker, case, row, safe, variables=own | variables, name=name)


def in_worker(case: Case, *more: Any) -> Callable[[Any], Any]:
    """In a worker, which imports TensorFlow: see `serve.answers`."""
    from manygpu.bench import serve

    return serve.answers(case, *more)


def survey(
    comparison: Comparison,
    rounds: int,
    keep: Callable[[], None],
    tell: Callable[[str], None],
) -> None:
    """Fill a comparison until each row that can run has had so many rounds.

    Each strategy is compared with one device, looked into, and timed in turns with all
    others. One that can't run here says why and leaves; the others go on.

    Args:
        comparison: a new one, or one to go on with.
        rounds: in each, every strategy takes its turn of some steps.
        keep: called whenever something new is in it.
        tell: called with what comes next.

    Raises:
        UnfitError: the model can't be had; the message says why.
    """
    asked = comparison.experiment
    if not asked["about"]:
        tell("looks at the model")
        asked["about"] = _look(asked)
        known = {**asked["about"], "model": asked["model"]}
        for row in comparison.running.values():
            row.cannot = unfit(STRATEGIES[row.strategy], known, row.devices)
    unknown = [row for row in comparison.running.values() if not row.facts]
    left = range(comparison.rounds, rounds)
    if not left and not unknown:
        return
    for row in comparison.running.values():
        del row.times[left.start :]  # of a round that not all have had
    counts = {"TF_CPU_ALLOCATOR_USE_BFC": "true"}  # no other allocator does, on CPUs
    with ExitStack() as stack:
        workers = {}
        for name, row in comparison.running.items():
            worker = start(_case(asked, row), row.title, True, **counts)
            workers[name] = stack.enter_context(worker)

        for row in unknown:
            workers[row.strategy].send("facts")  # all at once: each traces for seconds
        for row in unknown:
            tell(f"compares: {row.title}")
            row.facts = _heard(row, workers[row.strategy]) or {}
            if row.facts and STRATEGIES[row.strategy].hides:
                # What the same sum sends: all parameters' gradients, there and back.
                row.facts["sent"] = 2 * (row.devices - 1) * asked["about"]["bytes"]
            keep()
        turns = [("warms up", WARMUP)]
        turns += [(f"round {n + 1} of {rounds}", asked["steps"]) for n in left]
        for number, (what, steps) in enumerate(turns):
            for row in [*comparison.running.values()]:
                tell(f"{what}: {row.title}")
                workers[row.strategy].send(steps)
                seconds = _heard(row, workers[row.strategy])
                if number and seconds:
                    row.times.append(_milliseconds(seconds))
            keep()


def _heard(row: Row, worker: Worker) -> Any:
    """What a row's process answers; None if it can't, and then the row says why."""
    try:
        found, row.cannot = worker.receive(PATIENCE_S)
    except RuntimeError as gone:  # it died, as of too little memory
        found, row.cannot = None, str(gone).splitlines()[0]
    return found


def _case(experiment: Mapping[str, Any], row: Row) -> Case:
    """What the process of a row times."""
    threads = experiment["devices"] if STRATEGIES[row.strategy].threads else None
    about = experiment["about"]
    seconds = tuple(time for _, time in about["layers"])
    batch, model = about["samples"], experiment["model"]
    return Case(row.strategy, row.devices, threads, batch, model, seconds)


def _look(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """What must be known of the model before all else, found by a process."""
    model, batch = experiment["model"], experiment["batch"] or None
    with start(Case(BASE, 1, None, batch, model), model, safe=True) as worker:
        try:
            found, why = worker.ask(("look", experiment["devices"]), PATIENCE_S)
        except RuntimeError as gone:
            raise UnfitError(str(gone)) from gone
    if why:
        raise UnfitError(why)
    return found
