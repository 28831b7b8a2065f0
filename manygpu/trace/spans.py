"""When each piece of work ran on each device: the book's one `Span`.

`Span` is a piece of work; functions on lists of them count (`length`, `covered`,
`busy_share`, `overlap_share`, `gaps`). A `Timeline` records them, draws them, exports
them. Plans, clocks, the profiler and simulations all give spans, so that comparing two
of them is comparing two lists. A span itself needs nothing but Python's own library.

In eager code, put the work into `Timeline.span`. Inside a `tf.function`, where Python
runs once and the graph runs many times, put it through `clocked`: it reads the clock
as part of the graph, before and after the work, and does not put the work in order.
"""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

WAITING = "waiting"  # a span in which nothing was done: `gantt` draws its edge, dashed


@dataclass(frozen=True)
class Span:
    """One piece of work: planned, measured or simulated.

    Attributes:
        device: who did it: a device's name or number, a thread, a wire.
        name: what kind of work it was, such as "forward".
        start, end: in seconds, or in another unit of time that its maker names.
        work: what exactly was done, such as an operation of a schedule.

    Raises:
        ValueError: it ends before it starts, or a time is not finite.
    """

    device: str | int
    name: str
    start: float
    end: float
    work: Any = None

    def __post_init__(self) -> None:
        start, end = self.start, self.end
        if not (math.isfinite(start) and math.isfinite(end)):
            raise ValueError(f"start and end must be finite, got {start} and {end}")
        if end < start:
            raise ValueError(f"end must not be before start, got {start} and {end}")

    @property
    def seconds(self) -> float:
        """How long it took, in the unit of `start` and `end`."""
        return self.end - self.start


def length(spans: Iterable[Span]) -> float:
    """Return the time from the first start to the last end.

    Raises:
        ValueError: there are no spans.
    """
    spans = not_empty(spans)
    return max(s.end for s in spans) - min(s.start for s in spans)


def covered(spans: Iterable[Span]) -> float:
    """Return the time in which at least one of `spans` was under way; 0 for none."""
    total, reached = 0.0, -math.inf
    for s in sorted(spans, key=lambda s: s.start):
        total += max(0.0, s.end - max(s.start, reached))
        reached = max(reached, s.end)
    return total


def by_device(spans: Iterable[Span]) -> dict[str | int, list[Span]]:
    """Return each device's spans, in the order given."""
    found: dict[str | int, list[Span]] = {}
    for s in spans:
        found.setdefault(s.device, []).append(s)
    return found


def sorted_rows(found: Iterable[str | int]) -> list[str | int]:
    """Numbers from 0 to the largest, then names: those with smaller numbers first."""
    found = set(found)
    numbers = [r for r in found if not isinstance(r, str)]
    names = [r for r in found if isinstance(r, str)]

    def by_number(name: str) -> list[tuple[int, str]]:
        parts = re.split(r"(\d+)", name)  # 'CPU:10' comes after 'CPU:2'
        return [(int(p), "") if p.isdigit() else (-1, p) for p in parts]

    return [*range(1 + max(numbers, default=-1)), *sorted(names, key=by_number)]


def busy_share(spans: Iterable[Span]) -> float:
    """Return the share of all devices' time in which they were at work, 0 to 1.

    The time of each device that has a span runs from the first start of all to the
    last end of all; what is missing to 1 is the bubble.

    Raises:
        ValueError: there are no spans, or all are empty.
    """
    spans = not_empty(spans)
    whole = length(spans)
    if whole == 0:
        raise ValueError("spans take no time at all: a share of it means nothing")
    own = by_device(spans)
    return sum(covered(of_one) for of_one in own.values()) / (len(own) * whole)


def overlap_share(spans: Iterable[Span]) -> float:
    """Return the share of the length in which at least two devices were at work.

    Raises:
        ValueError: there are no spans.
    """
    spans = not_empty(spans)
    edges = sorted({t for s in spans for t in (s.start, s.end)})
    both = 0.0
    for a, b in itertools.pairwise(edges):
        active = {s.device for s in spans if s.start <= a and s.end >= b}
        both += (b - a) * (len(active) > 1)
    whole = length(spans)
    return both / whole if whole else 0.0


def gaps(spans: Iterable[Span]) -> list[Span]:
    """Return a span named `WAITING` for each time in which a device did nothing.

    From the first start of all to the last end of all; `gantt` draws them dashed.
    """
    spans = list(spans)
    found = []
    for device, own in by_device(spans).items():
        at = min(s.start for s in spans)
        for s in sorted(own, key=lambda s: s.start):
            if s.start > at:
                found.append(Span(device, WAITING, at, s.start))
            at = max(at, s.end)
        last = max(s.end for s in spans)
        if last > at:
            found.append(Span(device, WAITING, at, last))
    return found


def not_empty(spans: Iterable[Span]) -> list[Span]:
    """Return the spans as a list; refuses none, and what are no spans."""
    spans = list(spans)
    if not spans:
        raise ValueError("the timeline is empty: record some work first")
    for s in spans:
        if not isinstance(s, Span):
            raise TypeError(
                f"spans must hold Spans, got {type(s).__name__}: record work, or take "
                f"planned(plan) for a plan"
            )
    return spans


def clocked(work: Callable[..., Any], *inputs: Any) -> tuple[Any, tf.Tensor]:
    """Run `work(*inputs)` in a graph; return its outputs and when it ran.

    The clock is read once all inputs are there and `work` starts after that; it is
    read again once all outputs are there, and whatever uses them starts after that.
    `work` must use its inputs as given, not tensors of an outer scope.

    Args:
        work: takes and returns tensors, or nested lists of tensors.
        *inputs: its arguments.

    Returns:
        The outputs, and a float64 tensor [start, end] in `time.perf_counter` seconds.

    Raises:
        ValueError: no inputs, or `work` returns no tensor: nothing to wait for.

    tf.timestamp would not do: it is stateful, so a `tf.function` puts all of them
    into program order and the devices wait for each other.
    """
    import tensorflow as tf  # here: simulated spans need none

    if not tf.nest.flatten(inputs):
        raise ValueError("inputs must not be empty: work starts once they are there")
    start = _read_clock(tf.nest.flatten(inputs))
    with tf.control_dependencies([start]):
        inputs = tf.nest.map_structure(tf.identity, inputs)
    outputs = work(*inputs)
    if not tf.nest.flatten(outputs):
        raise ValueError("work must return a tensor: it ends once that is there")
    end = _read_clock(tf.nest.flatten(outputs))
    with tf.control_dependencies([end]):
        outputs = tf.nest.map_structure(tf.identity, outputs)
    return outputs, tf.stack([start, end])


def _read_clock(ready: list[tf.Tensor]) -> tf.Tensor:
    """The time at which all of `ready` are there, as a float64 scalar tensor."""
    import numpy as np
    import tensorflow as tf

    def now(_: np.ndarray) -> np.float64:
        return np.float64(time.perf_counter())

    with tf.control_dependencies(ready):
        # One number of the last one travels to the host: on a GPU, where the host
        # runs ahead of the device, that copy waits for the device to be done.
        probe = tf.reshape(ready[-1], [-1])[:1]
    return tf.numpy_function(now, [probe], tf.float64, stateful=False)
