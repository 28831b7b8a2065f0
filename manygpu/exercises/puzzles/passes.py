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
from manygpu.scratch.splitting.pipeline import INKS, Op, earliest_spans
from manygpu.trace.spans import Span

EACH = "Each device does each of its passes once"
COMES = "No pass waits for one that comes later"
Orders = list[list[Op]]


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
            own.append(Op(kind, stage, micro_batch))
        _complete(own, device, pipeline)
        found.append(own)
    return found


def _complete(own: Sequence[Op], device: int, pipeline: Pipeline) -> None:
    times = Counter(own)
    for kind in pipeline.cost:
        for stage in range(device, pipeline.stages, pipeline.devices):
            for micro_batch in range(pipeline.micro_batches):
                one = Op(kind, stage, micro_batch)
                if times[one] != 1:
                    does = f"does {one} {times[one]} times"
                    does = does if times[one] else f"never does {one}"
                    raise Refused(EACH, f"device {device} {does}")


def played(orders: Orders, pipeline: Pipeline) -> list[Span]:
    """When each pass runs.

    Raises:
        Refused: all that are left wait for each other.
    """
    try:
        return earliest_spans(orders, lambda op: pipeline.cost[op.kind])
    except ValueError as deadlock:
        raise Refused(COMES, str(deadlock)) from None


def drawn(
    ran: Iterable[Span], pipeline: Pipeline, label: str, line: drawing.Line
) -> str:
    """The passes in a lane for each device; a box has its micro-batch's number."""
    bars = [
        drawing.Bar(
            one.device,
            one.start,
            one.end,
            INKS[one.work.kind],
            str(one.work.micro_batch),
            f"{one.work}: {one.start} to {one.end}",
        )
        for one in ran
    ]
    names = [f"device {device}" for device in range(pipeline.devices)]
    return drawing.lanes(bars, names, "time", label, line)
