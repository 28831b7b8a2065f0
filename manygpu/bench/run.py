"""Time strategies against each other, each in a process of its own, in turns.

TensorFlow fixes devices and threads when it starts, so a fair comparison of one device
with two needs two processes. They take turns of a few steps: when the machine slows
down, it slows all of them. `compare` times cases, `survey` is `manygpu bench`.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from manygpu.bench.case import Case
from manygpu.bench.result import Comparison, Row
from manygpu.bench.table import STRATEGIES, UnfitError, unfit
from manygpu.measure import in_turns
from manygpu.processes.workers import Worker
from manygpu.simulate.works import whole

WARMUP = 2  # untimed steps: the first traces
Tell = Callable[[str, int, int], None]


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
        return _take_turns(workers, rounds, steps)


def _take_turns(
    workers: Mapping[str, Worker], rounds: int, steps: int
) -> dict[str, list[float]]:
    """Median milliseconds a step, one number a round."""

    def take(worker: Worker) -> float:
        return 1e3 * statistics.median(worker.ask(steps))

    for worker in workers.values():
        worker.ask(WARMUP)
    return in_turns(workers, rounds, warm_up=0, take=take) if workers else {}


def start(case: Case, name: str = "", safe: bool = False, **variables: str) -> Worker:
    """Return a process that takes steps of `case` when it is told how many.

    Args:
        case: what it times.
        name: what it is called in an error.
        safe: whether it answers with a pair, of which the second says why not.
        variables: more environment variables of the process.
    """
    name = name or (
        f"{case.strategy} on {case.devices} device(s), batch {case.samples}"
    )
    row, variables = STRATEGIES[case.strategy], {**case.variables, **variables}
    question = safe, "answers", case, row
    return Worker(in_worker, *question, variables=variables, name=name)


def in_worker(safe: bool, name: str, *arguments: Any) -> Callable[[Any], Any]:
    """In a worker, which imports TensorFlow: what a function of `serve` makes."""
    from manygpu.bench import serve

    make = getattr(serve, name)
    return serve.safely(make, *arguments) if safe else make(*arguments)


def survey(
    comparison: Comparison, rounds: int, keep: Callable[[], None], tell: Tell
) -> None:
    """Fill a comparison until each row that can run has had so many rounds.

    Each strategy is compared with one device, looked into, and timed in turns with all
    others. One that can't run here says why and leaves; the others go on.

    Args:
        comparison: a new one, or one to go on with.
        rounds: in each, every strategy takes its turn of some steps.
        keep: called whenever something new is in it.
        tell: called before each piece of work, with what it is, how many pieces are
            done, and how many there are.

    Raises:
        UnfitError: the model can't be had; the message says why.
    """
    asked = comparison.experiment
    if not asked["about"]:
        tell("looks at the model", 0, 0)
        asked["about"] = _look(asked)
        known = {**asked["about"], "model": asked["model"]}
        for row in comparison.running.values():
            row.cannot = unfit(STRATEGIES[row.strategy], known, row.devices)
    unknown = [row for row in comparison.running.values() if not row.facts]
    left = range(comparison.rounds, rounds)
    if not left and not unknown:
        return
    comparison.cut()
    total = len(unknown) + len(comparison.running) * (1 + len(left))
    done = itertools.count()

    def say(what: str) -> None:
        tell(what, next(done), total)

    counts = {"TF_CPU_ALLOCATOR_USE_BFC": "true"}  # no other allocator does, on CPUs
    with ExitStack() as stack:
        workers = {}
        for name, row in comparison.running.items():
            worker = start(_case(asked, row), row.title, True, **counts)
            workers[name] = stack.enter_context(worker)
        _find_facts(unknown, asked["about"]["bytes"], workers, keep, say)
        _fill_rounds(comparison, left, workers, keep, say)


def _find_facts(
    unknown: list[Row],
    size: int,
    workers: dict[str, Worker],
    keep: Callable,
    say: Callable[[str], None],
) -> None:
    """Compare and look into the rows of which nothing is known.

    An engine that hides its messages has to add as many gradients as there are
    parameters, `size` bytes: that sends twice as much for each device but one.
    """
    for row in unknown:
        workers[row.strategy].send("facts")  # all at once: each traces for seconds
    for row in unknown:
        say(f"compares: {row.title}")
        row.facts = _answer(row, workers[row.strategy].receive) or {}
        if row.facts and STRATEGIES[row.strategy].hides:
            row.facts["sent"] = 2 * (row.devices - 1) * size
        keep()


def _fill_rounds(
    comparison: Comparison,
    left: range,
    workers: dict[str, Worker],
    keep: Callable,
    say: Callable[[str], None],
) -> None:
    """Time the rows that run, in turns; the first turn counts for nothing."""
    for row in [*comparison.running.values()]:
        say(f"warms up: {row.title}")
        _answer(row, lambda: workers[row.strategy].ask(WARMUP))  # noqa: B023
    size = comparison.experiment["steps"]
    for number in left:
        for row in [*comparison.running.values()]:
            say(f"round {number + 1}: {row.title}")
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


def _case(experiment: Mapping[str, Any], row: Row) -> Case:
    """What the process of a row times."""
    threads = experiment["devices"] if STRATEGIES[row.strategy].threads else None
    about = experiment["about"]
    seconds = tuple(time for _, time in about["layers"])
    batch, model = about["samples"], experiment["model"]
    return Case(row.strategy, row.devices, threads, batch, model, seconds)


def _look(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """What must be known of the model before all else, found by a process."""
    question = [experiment[name] for name in ("model", "batch", "devices")]
    name = experiment["model"]
    variables = {"MANYGPU_DEVICES": "1", "MANYGPU_INTER_OP": None}
    with Worker(in_worker, True, "look", variables=variables, name=name) as worker:
        try:
            found, why = worker.ask(question)
        except RuntimeError as gone:
            raise UnfitError(str(gone)) from gone
    if why:
        raise UnfitError(why)
    return found
