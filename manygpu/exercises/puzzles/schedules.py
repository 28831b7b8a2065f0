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
    Each of {P} devices holds one stage of the model, and the batch is cut into
    micro-batches 0 to {M - 1}. A forward pass takes 1 unit of time, and a backward pass
    takes 2. A forward pass needs the same micro-batch's forward pass in the stage
    before. A backward pass needs the same micro-batch's backward pass in the stage
    after. `answer` has one list per device: its passes in order,
    `("F", micro_batch)` and `("B", micro_batch)`. A pass runs as soon as its device is
    free and the pass that it needs has ended.
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
    "A pipeline with a small bubble",
    SCHEDULES,
    f"""{PASSES}
    The score is the time at which the last pass ends. Make it early.
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
    "The same step with less memory",
    SCHEDULES,
    f"""{PASSES}
    A stage keeps the activations of a micro-batch from its forward pass to its
    backward pass. For each device, count the micro-batches whose activations it keeps
    at the same time. The score is the largest of these numbers. Make it small. The last
    pass must end at {SHORTEST}, which is the earliest possible time.
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
    "Backward passes cut in two",
    SCHEDULES,
    f"""
    Each of {P} devices holds one stage of the model, and the batch is cut into
    micro-batches 0 to {M - 1}. The backward pass is cut in two: `("B", m)` computes the
    gradient that the stage before needs, and `("W", m)` computes the gradients of the
    weights, at any time after it. Each of `("F", m)`, `("B", m)` and `("W", m)` takes 1
    unit of time. A stage's "F" needs the "F" of the stage before. Its "B" needs its own
    "F", and the "B" of the stage after. `answer` has one list per device: its passes in
    order.

    A device keeps the activations of a micro-batch from "F" to "W", and has room for
    {P} micro-batches. The score is the time at which the last pass ends. Make it early.
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
    label = f"a pipeline of {P} devices with separate W passes that ends after {end}"
    return end, passes.drawn(ran, APART, label, Line(3 * M + P - 1, "the bound"))


@add(
    "interleaved",
    "Two stages per device",
    SCHEDULES,
    f"""
    The model is cut into {2 * P} stages on {P} devices, and device d has the stages d
    and d + {P}. The batch is cut into micro-batches 0 to {M - 1}. In each stage, a
    forward pass takes 1 unit of time, and a backward pass takes 2. A forward pass needs
    the same micro-batch's forward pass in the stage before. A backward pass needs the
    same micro-batch's backward pass in the stage after. `answer` has one list per
    device: its passes in order, `("F", micro_batch, stage)` and
    `("B", micro_batch, stage)`.

    A stage keeps the activations of a micro-batch from its forward pass to its
    backward pass. A device has room for {HALVES} of these, over both of its stages. The
    score is the time at which the last pass ends. Make it early.
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
