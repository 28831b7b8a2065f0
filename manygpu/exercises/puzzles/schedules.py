"""Puzzles of pipelines: in which order each device does its passes."""

from __future__ import annotations

from typing import Any

from manygpu.exercises.puzzles import passes
from manygpu.exercises.puzzles.drawing import Line
from manygpu.exercises.puzzles.passes import Pipeline
from manygpu.exercises.puzzles.plans import FITS
from manygpu.exercises.puzzles.scoring import Refused, add
from manygpu.scratch.splitting import pipeline

SCHEDULES = "Schedules"
P, M = 4, 8  # devices, micro-batches
PLAIN = Pipeline(P, P, M, {"F": 1, "B": 2})
APART = Pipeline(P, P, M, {"F": 1, "B": 1, "W": 1})
LOOPED = Pipeline(P, 2 * P, M, {"F": 1, "B": 2})
HALVES = 3 * P - 1  # stages' activations that a device has room for
SHORTEST = (M + P - 1) * 3
IN_TIME = "The step is as short as it can be"

PASSES = f"""
    {P} devices hold a stage of the model each; a batch is cut into micro-batches 0 to
    {M - 1}. A forward pass takes 1, a backward pass 2. A stage's forward pass needs
    that of the stage before it; its backward pass needs that of the stage after it.
    `answer` has a list for each device: its passes in order, `("F", micro_batch)` and
    `("B", micro_batch)`. Each runs as soon as its device is free and what it needs is
    there.
"""
GPIPE = f"""
    forward = [("F", m) for m in range({M})]
    backward = [("B", m) for m in range({M})]
    answer = [forward + backward for device in range({P})]
"""


def check_room(orders: passes.Orders, room: int) -> None:
    """Refuse orders in which a device keeps more than it has room for."""
    for device, held in enumerate(pipeline.in_flight(orders)):
        if held > room:
            said = f"device {device} keeps the activations of {held} passes"
            raise Refused(FITS, f"{said} at a time, but has room for {room} only")


@add(
    "bubble",
    "Don't let them wait",
    SCHEDULES,
    f"""{PASSES}
    The score is when the last pass ends: make it early.
    """,
    f"""
    order = []
    for m in range({M}):
        order += [("F", m), ("B", m)]
    answer = [order for device in range({P})]
    """,
    "units of time",
    SHORTEST,
)
def bubble(plan: Any) -> tuple[float, str]:
    """The last device gets nothing before 3 forward passes have run, has 8
    micro-batches of 3 to do, and after the last one 3 backward passes run: 3 + 24 + 6
    = 33, of which a device waits (p - 1) / (m + p - 1). (Y. Huang et al., "GPipe",
    2019.)
    """
    orders = passes.orders_of(plan, PLAIN)
    ran = passes.played(orders, PLAIN)
    end = max(one.end for one in ran)
    label = f"a pipeline of {P} devices that ends after {end}"
    return end, passes.drawn(ran, PLAIN, label, Line(SHORTEST, "the bound"))


@add(
    "in-flight",
    "As short, with less in memory",
    SCHEDULES,
    f"""{PASSES}
    From its forward to its backward pass, a stage keeps the micro-batch's activations.
    The score is how many micro-batches' a device keeps at the same time, the one that
    keeps most: make it small. The last pass must end at {SHORTEST}, the earliest time
    that there is.
    """,
    GPIPE,
    "micro-batches' activations on one device",
    min(P, M),
)
def in_flight(plan: Any) -> tuple[float, str]:
    """Let device 0 keep at most 3. Then its fourth forward pass follows its first
    backward pass, which ends at 4 F + 4 B = 12 or later, and the fourth micro-batch
    reaches the last device at 15 or later. That one has had three micro-batches until
    then, from 3 to 12 at best: it waits, and the step takes longer than 33. So device 0
    keeps min(p, m) = 4. (D. Narayanan et al., "Memory-efficient pipeline-parallel DNN
    training", 2021.)
    """
    orders = passes.orders_of(plan, PLAIN)
    ran = passes.played(orders, PLAIN)
    end = max(one.end for one in ran)
    if end > SHORTEST:
        raise Refused(IN_TIME, f"the last pass ends at {end}, not at {SHORTEST}")
    most = max(pipeline.in_flight(orders))
    label = f"a pipeline of {P} devices that keep {most} micro-batches at most"
    return most, passes.drawn(ran, PLAIN, label, Line(SHORTEST, "as early as can be"))


@add(
    "split-backward",
    "The weights can wait",
    SCHEDULES,
    f"""
    {P} devices hold a stage of the model each; a batch is cut into micro-batches 0 to
    {M - 1}. The backward pass is cut in two: `("B", m)` finds the gradient for the
    stage before, `("W", m)` the weights' gradients, any time after it. `("F", m)`,
    `("B", m)` and `("W", m)` take 1 each. A stage's forward pass needs that of the
    stage before; its "B" needs its own forward pass and the "B" of the stage after.
    `answer` has a list for each device: its passes in order.

    A device keeps a micro-batch's activations from "F" to "W", and has room for {P}.
    The score is when the last pass ends: make it early.
    """,
    f"""
    answer = []
    for device in range({P}):
        ahead = {P - 1} - device
        order = [("F", m) for m in range(ahead)]
        for m in range({M}):
            if m + ahead < {M}:
                order.append(("F", m + ahead))
            order += [("B", m), ("W", m)]
        answer.append(order)
    """,
    "units of time",
    3 * M + P - 1,
)
def split_backward(plan: Any) -> tuple[float, str]:
    """The last device gets nothing before p - 1 = 3 forward passes have run, and has 3
    m = 24 to do: 27. (P. Qi et al., "Zero bubble pipeline parallelism", 2024, ZB-H1.)
    """
    orders = passes.orders_of(plan, APART)
    ran = passes.played(orders, APART)
    check_room(orders, P)
    end = max(one.end for one in ran)
    label = f"a pipeline of {P} devices with W apart, that ends after {end}"
    return end, passes.drawn(ran, APART, label, Line(3 * M + P - 1, "the bound"))


@add(
    "interleaved",
    "Two stages each",
    SCHEDULES,
    f"""
    The model is cut into {2 * P} stages on {P} devices: device d has the stages d and
    d + {P}. A batch is cut into micro-batches 0 to {M - 1}. Each stage's forward pass
    takes 1, its backward pass 2. A forward pass needs that of the stage before; a
    backward pass needs that of the stage after. `answer` has a list for each
    device: its passes in order, `("F", micro_batch, stage)` and
    `("B", micro_batch, stage)`.

    From its forward to its backward pass, a stage keeps the micro-batch's activations;
    a device has room for {HALVES} of them. The score is when the last pass ends: make
    it early.
    """,
    f"""
    answer = []
    for device in range({P}):
        first, second = device, device + {P}
        order = []
        for m in range({M}):
            order += [("F", m, first), ("F", m, second)]
            order += [("B", m, second), ("B", m, first)]
        answer.append(order)
    """,
    "units of time",
    (2 * M + P - 1) * 3,
)
def interleaved(plan: Any) -> tuple[float, str]:
    """The last device, 3, gets nothing before 3 forward passes have run, and has 8
    micro-batches of two stages to do: 48. Its last pass is the backward pass of stage
    3, and after that run those of stages 2, 1 and 0: 6. Together 57: the bubble is
    halved. (D. Narayanan et al., "Efficient large-scale language model training on GPU
    clusters using Megatron-LM", 2021, section 2.2.2.)
    """
    orders = passes.orders_of(plan, LOOPED)
    ran = passes.played(orders, LOOPED)
    check_room(orders, HALVES)
    end = max(one.end for one in ran)
    label = f"a pipeline of {2 * P} stages on {P} devices that ends after {end}"
    line = Line((2 * M + P - 1) * 3, "the bound")
    return end, passes.drawn(ran, LOOPED, label, line)
