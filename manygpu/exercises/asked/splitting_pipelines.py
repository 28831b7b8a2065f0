"""Exercises of part 4: what a pipeline plans, and when its stages are done."""

from __future__ import annotations

import random
from collections.abc import Iterator

from manygpu.exercises.checking import exercise
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import off, other
from manygpu.scratch.splitting import pipeline

FORWARD, BACKWARD = 1, 2  # how long each takes


def _pipes(draw: random.Random) -> Iterator[tuple]:
    yield from ((1, 1), (2, 1), (1, 4), (2, 4), (4, 7))
    for _ in range(4):
        yield draw.randint(2, 16), draw.randint(1, 64)


@exercise(
    "pipeline/bubble",
    '''
def my_bubble(stages, micro_batches):
    """Return the share of the total time in which a stage waits.

    The order is GPipe or 1F1B. All stages take equally long, and messages take
    no time.
    """
    raise NotImplementedError(
        "Count the turns of a whole step, and the busy turns of one stage."
    )
''',
    _pipes,
)
def judge_bubble(found, stages, micro_batches):
    right = (stages - 1) / (micro_batches + stages - 1)
    over = off(found, right) and not off(found, (stages - 1) / micro_batches)
    yield "it is a share of all time, not of the busy time", over and f"it is {found}"
    yield "one stage never waits", stages == 1 and off(found, 0)
    yield "it is the share that the picture shows", off(found, right)


def _schedules(draw: random.Random) -> Iterator[tuple]:
    yield from ((1, 1), (1, 3), (2, 1), (2, 2), (2, 5), (4, 2), (4, 7))
    yield draw.randint(2, 6), draw.randint(1, 12)


Orders = list[list[tuple[str, int]]]


def ops_of(orders: Orders) -> list[list[pipeline.Op]]:
    """Each stage's passes as the chapter writes them."""
    return [
        [pipeline.Op(kind, s, i) for kind, i in own] for s, own in enumerate(orders)
    ]


def ends_of(
    orders: Orders, seconds: list[float], message: float = 0, back: float | None = None
) -> list[float] | None:
    """When each stage ends; None if they wait forever.

    seconds: a forward pass of each stage, half of a backward pass. A message takes
    `message`, one that goes back `back`, if that is given.
    """
    takes = {"F": FORWARD, "B": BACKWARD}
    travels = {"F": message, "B": message if back is None else back}
    try:
        spans = pipeline.earliest_spans(
            ops_of(orders),
            lambda op: seconds[op.stage] * takes[op.kind],
            lambda op: travels[op.kind],
        )
    except ValueError:  # a deadlock
        return None
    ends = {span.device: span.end for span in spans}  # the last span's of each
    return [ends[s] for s in range(len(orders))]


@exercise(
    "pipeline/one-forward-one-backward",
    '''
def my_schedule(stages, micro_batches):
    """Return what each stage of a pipeline does, in order.

    A forward pass takes 1 and a backward pass takes 2. Stage s of p stages may
    keep at most p - s micro-batches between their F and their B. The step must
    end as early as possible.

    The result is one list per stage, with ("F", i) and ("B", i) for
    micro-batch i.
    """
    raise NotImplementedError(
        "With how many forward passes does stage s begin?",
    )
''',
    _schedules,
)
def judge_one_forward_one_backward(found, stages, micro_batches):
    yield "one order per stage", other(len(found), stages)
    wanted = sorted((kind, i) for kind in "FB" for i in range(micro_batches))
    short = [s for s, own in enumerate(found) if sorted(own) != wanted]
    yield "each stage does each pass once", short and f"stage {short[0]} doesn't"
    ends = ends_of(found, [1] * stages)
    yield (
        "no operation waits forever",
        ends is None and "all stages wait for each other",
    )
    kept = pipeline.in_flight(ops_of(found))
    full = [s for s, held in enumerate(kept) if held > stages - s]
    yield (
        "few micro-batches are kept",
        full and f"stage {full[0]} keeps {kept[full[0]]}",
    )
    best, end = (micro_batches + stages - 1) * (FORWARD + BACKWARD), max(ends or [0])
    late = end > best and f"it ends at {end:g}, not at {best}"
    yield "it ends as early as possible", late


def _shares_of_waiting(draw: random.Random) -> Iterator[tuple]:
    yield from ((1, 10), (2, 50), (2, 25), (2, 30), (4, 20))
    yield from ((22, 35), (43, 70), (58, 57))  # where floats round to the wrong side
    for _ in range(4):
        yield draw.randint(2, 64), draw.randint(1, 40)


@exercise(
    "pipeline/micro-batches",
    '''
def my_micro_batches(stages, percent):
    """Return the fewest micro-batches with which the bubble is small enough.

    The bubble may be at most `percent` percent of the total time. The order is
    GPipe or 1F1B. All stages take equally long, and messages take no time. The
    result is at least 1.

    percent: a whole number from 1 to 99.
    """
    raise NotImplementedError("Solve the formula for the bubble for m.")
''',
    _shares_of_waiting,
)
def judge_micro_batches(found, stages, percent):
    broken = isinstance(found, float) or found != int(found) or found < 1
    yield "it is a number of micro-batches", broken and f"it is {found}"

    def waits(m: int) -> bool:
        return 100 * (stages - 1) > percent * (m + stages - 1)

    most = f"with {found}, more than {percent}% is bubble"
    yield "the bubble is small enough", waits(found) and most
    busy = -(-100 * (stages - 1) // percent)
    of_work = found == busy and stages > 1 and not waits(found - 1)
    yield (
        "it is a share of all time, not of the busy time",
        of_work and f"it is {found}",
    )
    spare = found > 1 and not waits(found - 1)
    yield "fewer micro-batches aren't enough", spare and f"{found - 1} would be enough"


def pairs_of(plan: pipeline.Plan) -> Orders:
    """Each stage's passes as the exercises write them."""
    return [
        [(op.kind, op.micro_batch) for op in own] for own in pipeline.orders_of(plan)
    ]


def gpipe(stages: int, micro_batches: int) -> Orders:
    """The orders of the chapter's schedule of that name."""
    return pairs_of(pipeline.gpipe(stages, micro_batches))


def in_turns(stages: int, micro_batches: int) -> Orders:
    """The orders of 1F1B."""
    return pairs_of(pipeline.one_forward_one_backward(stages, micro_batches))


def _timed(draw: random.Random) -> Iterator[tuple]:
    yield gpipe(1, 1), [1], 0
    yield gpipe(2, 1), [1, 1], 0
    yield gpipe(2, 2), [1, 3], 0
    yield gpipe(2, 1), [1, 1], 1
    for plan in (in_turns, gpipe):
        yield plan(4, 7), [1, 1, 1, 1], 0.5
        p = draw.randint(2, 5)
        yield plan(p, 6), [draw.randint(1, 4) for _ in range(p)], draw.randint(0, 2)


@exercise(
    "pipeline/ends",
    '''
def my_ends(orders, seconds, message):
    """Return when each stage ends its last operation.

    Each operation begins as early as possible. A backward pass takes twice as
    long as a forward pass of the same stage.

    orders: for each stage, what it does, in order: ("F", i) and ("B", i).
    seconds: for each stage, the time of a forward pass.
    message: the time that it takes to send something to a neighbouring stage.
    """
    raise NotImplementedError(
        "When is the input of an operation ready? When is the stage free?"
    )
''',
    _timed,
    hunted=True,
)
def judge_ends(found, orders, seconds, message):
    yield "one number per stage", other(len(found), len(orders))
    pairs = range(len(orders) - 1)
    early = [s for s in pairs if found[s] < found[s + 1] + 2 * seconds[s] - 1e-9]
    end = early and f"stage {early[0]} ends at {found[early[0]]:g}, too early"
    yield "a backward pass waits for the next stage", end
    work = [
        t * sum(FORWARD if kind == "F" else BACKWARD for kind, _ in own)
        for t, own in zip(seconds, orders)
    ]
    full = [s for s in range(len(orders)) if found[s] < work[s] - 1e-9]
    at_once = full and f"stage {full[0]} ends at {found[full[0]]:g}, too early"
    yield "a stage does one thing at a time", at_once
    right = ends_of(orders, seconds, message)
    ways = off(found, right) and not off(found, ends_of(orders, seconds, message, 0))
    yield "messages take time in the backward pass, too", ways and off(found, right)
    yield (
        "it is the time at which all that an operation needs is ready",
        off(found, right),
    )


flaw(
    "pipeline/ends",
    """
def my_ends(orders, seconds, message):
    ends, clock, last = {}, [0] * len(orders), len(orders) - 1
    waiting = [list(order) for order in orders]
    while any(waiting):
        for s, order in enumerate(waiting):
            while order:
                kind, i = order[0]
                near = s - 1 if kind == "F" else s + 1
                needs = 0 <= near <= last
                if needs and (kind, near, i) not in ends:
                    break
                start = ends[kind, near, i] + message if needs else clock[s]
                clock[s] = start + seconds[s] * (1 if kind == "F" else 2)
                ends[kind, s, i] = clock[s]
                order.pop(0)
    return clock
""",
    lambda f: (
        f"a stage of 3 seconds has 7 micro-batches, 63 seconds of work. It ends "
        f"after {f(gpipe(2, 7), [1, 3], 0)[1]:g}"
    ),
    "a stage does one thing at a time",
)
flaw(
    "pipeline/ends",
    """
def my_ends(orders, seconds, message):
    ends, clock = {}, [0] * len(orders)
    waiting = [list(order) for order in orders]
    while any(waiting):
        for s, order in enumerate(waiting):
            while order:
                kind, i = order[0]
                needs = kind == "F" and s > 0
                if needs and (kind, s - 1, i) not in ends:
                    break
                there = ends[kind, s - 1, i] + message if needs else 0
                start = max(clock[s], there)
                clock[s] = start + seconds[s] * (1 if kind == "F" else 2)
                ends[kind, s, i] = clock[s]
                order.pop(0)
    return clock
""",
    lambda f: (
        f"one micro-batch goes through four stages of 1 second, and back. They end "
        f"after {f(gpipe(4, 1), [1] * 4, 0)} seconds"
    ),
    "a backward pass waits for the next stage",
)
flaw(
    "pipeline/ends",
    """
def my_ends(orders, seconds, message):
    ends, clock, last = {}, [0] * len(orders), len(orders) - 1
    waiting = [list(order) for order in orders]
    while any(waiting):
        for s, order in enumerate(waiting):
            while order:
                kind, i = order[0]
                near, cost = (s - 1, message) if kind == "F" else (s + 1, 0)
                needs = 0 <= near <= last
                if needs and (kind, near, i) not in ends:
                    break
                there = ends[kind, near, i] + cost if needs else 0
                start = max(clock[s], there)
                clock[s] = start + seconds[s] * (1 if kind == "F" else 2)
                ends[kind, s, i] = clock[s]
                order.pop(0)
    return clock
""",
    lambda f: (
        f"one micro-batch, two stages, messages of 1 second: a step of "
        f"{f(gpipe(2, 1), [1, 1], 1)[0]:g} seconds, of which 6 are passes"
    ),
    "messages take time in the backward pass, too",
)
