"""Pipelines as orders of passes: when each runs, and what a device holds meanwhile.

A device does its own passes in the order that the plan says, each as early as it can.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from manygpu.exercises.puzzles import drawing
from manygpu.exercises.puzzles.plans import index, listed, one_of, row
from manygpu.exercises.puzzles.scoring import Refused

EACH = "Each device does each of its passes once"
COMES = "No pass waits for one that comes later"
MEANING = {"F": "forward", "B": "backward", "W": "weights"}


class Pass(NamedTuple):
    """A stage's pass for one micro-batch.

    kind: "F" forward; "B" backward; "W" the weights' gradients, where they are a pass
    of their own.
    """

    kind: str
    stage: int
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.kind}{self.micro_batch} of stage {self.stage}"


class Ran(NamedTuple):
    """When a pass ran, and on which device."""

    device: int
    start: int
    end: int
    work: Pass


Orders = list[list[Pass]]


class Pipeline(NamedTuple):
    """What there is to do.

    Attributes:
        devices: stage s is on device s % devices.
        stages: their number.
        micro_batches: their number.
        cost: how long a pass of each kind takes.
    """

    devices: int
    stages: int
    micro_batches: int
    cost: dict[str, int]


def orders_of(plan: Any, pipeline: Pipeline) -> Orders:
    """Read a plan: for each device its passes, in order.

    A pass is (kind, micro-batch), or (kind, micro-batch, stage) where a device has more
    stages than one.

    Raises:
        Refused: it is none, or a device lacks a pass or does one twice.
    """
    devices, stages, count, cost = pipeline
    many = stages > devices
    found = []
    for device, passes in enumerate(row(plan, devices, "answer")):
        own = []
        for value in listed(passes, f"device {device}"):
            parts = row(value, 2 + many, f"a pass of device {device}")
            kind = one_of(parts[0], [*cost], f"a pass of device {device}")
            micro_batch = index(parts[1], count, f"device {device}'s micro-batch")
            stage = index(parts[2], stages, "a stage") if many else device
            if stage % devices != device:
                raise Refused(EACH, f"stage {stage} isn't on device {device}")
            own.append(Pass(kind, stage, micro_batch))
        _complete(own, device, pipeline)
        found.append(own)
    return found


def _complete(own: Sequence[Pass], device: int, pipeline: Pipeline) -> None:
    times = Counter(own)
    for kind in pipeline.cost:
        for stage in range(device, pipeline.stages, pipeline.devices):
            for micro_batch in range(pipeline.micro_batches):
                one = Pass(kind, stage, micro_batch)
                if times[one] != 1:
                    does = f"does {one} {times[one]} times"
                    does = does if times[one] else f"never does {one}"
                    raise Refused(EACH, f"device {device} {does}")


def needs(one: Pass, stages: int) -> Iterable[Pass]:
    """The passes whose results a pass uses."""
    kind, stage, micro_batch = one
    if kind == "F":
        return [Pass("F", stage - 1, micro_batch)] if stage else []
    if kind == "W":
        return [Pass("B", stage, micro_batch)]
    own = [Pass("F", stage, micro_batch)]
    last = stage == stages - 1
    return own if last else [*own, Pass("B", stage + 1, micro_batch)]


def played(orders: Orders, pipeline: Pipeline) -> list[Ran]:
    """When each pass runs.

    Raises:
        Refused: all that are left wait for each other.
    """
    ends: dict[Pass, int] = {}
    free, left, ran = [0] * len(orders), [list(order) for order in orders], []
    moved = True
    while moved:
        moved = False
        for device, order in enumerate(left):
            while order and all(n in ends for n in needs(order[0], pipeline.stages)):
                one = order.pop(0)
                ready = [ends[need] for need in needs(one, pipeline.stages)]
                start = max([free[device], *ready])
                ends[one] = free[device] = start + pipeline.cost[one.kind]
                ran.append(Ran(device, start, free[device], one))
                moved = True
    for device, order in enumerate(left):
        for need in needs(order[0], pipeline.stages) if order else ():
            if need not in ends:
                said = f"device {device} waits forever before {order[0]}"
                raise Refused(COMES, f"{said}, because that needs {need}")
    return ran


def peak(order: Sequence[Pass], last: str) -> int:
    """The most micro-batches that a device holds: from "F" to the pass that is last."""
    held, most = 0, 0
    for one in order:
        held += (one.kind == "F") - (one.kind == last)
        most = max(most, held)
    return most


def drawn(
    ran: Iterable[Ran], pipeline: Pipeline, label: str, line: drawing.Line
) -> str:
    """The passes in a lane for each device; a box has its micro-batch's number."""
    bars = [
        drawing.Bar(
            one.device,
            one.start,
            one.end,
            MEANING[one.work.kind],
            str(one.work.micro_batch),
            f"{one.work}: {one.start} to {one.end}",
        )
        for one in ran
    ]
    names = [f"device {device}" for device in range(pipeline.devices)]
    return drawing.lanes(bars, names, "time", label, line)
