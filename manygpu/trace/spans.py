"""Record when each piece of work ran on each device, draw it, export it.

In eager code, put the work into `Timeline.span`. Inside a `tf.function`, where Python
runs once and the graph runs many times, put it through `clocked`: it reads the clock
as part of the graph, before and after the work, and does not put the work in order.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from manygpu import figures


@dataclass(frozen=True)
class Span:
    """One piece of work: what, on which device, from when to when (seconds)."""

    device: str
    name: str
    start: float
    end: float


@dataclass
class Timeline:
    """Pieces of work on devices. Times are `time.perf_counter` seconds."""

    spans: list[Span] = field(default_factory=list)

    def add(self, device: str, name: str, start: float, end: float) -> None:
        """Add a piece of work.

        Raises:
            ValueError: it ends before it starts, or a time is not finite.
        """
        start, end = float(start), float(end)
        if not (np.isfinite(start) and np.isfinite(end)):
            raise ValueError(f"start and end must be finite, got {start} and {end}")
        if end < start:
            raise ValueError(f"end must not be before start, got {start} and {end}")
        self.spans.append(Span(device, name, start, end))

    @contextmanager
    def span(self, device: str, name: str) -> Iterator[None]:
        """Record what runs inside the `with` block (eager code, CPU devices)."""
        start = time.perf_counter()
        yield
        self.add(device, name, start, time.perf_counter())

    @property
    def length(self) -> float:
        """Seconds from the first start to the last end."""
        self._refuse_empty()
        return max(s.end for s in self.spans) - min(s.start for s in self.spans)

    def busy(self, device: str) -> float:
        """Seconds in which `device` had at least one piece of work under way."""
        total, reached = 0.0, -np.inf
        for s in sorted(self.spans, key=lambda s: s.start):
            if s.device == device:
                total += max(0.0, s.end - max(s.start, reached))
                reached = max(reached, s.end)
        return total

    def overlap(self) -> float:
        """Share of the length in which at least two devices were at work."""
        names = {s.device for s in self.spans}
        edges = sorted({t for s in self.spans for t in (s.start, s.end)})
        both = 0.0
        for a, b in zip(edges, edges[1:], strict=False):
            active = {s.device for s in self.spans if s.start <= a and s.end >= b}
            both += (b - a) * (len(active & names) > 1)
        return both / self.length if self.length else 0.0

    def chrome_trace(self) -> dict[str, Any]:
        """Return the spans in Chrome's trace event format.

        Open the JSON at chrome://tracing or ui.perfetto.dev. Times there are
        microseconds; one row a device.
        """
        self._refuse_empty()
        origin = min(s.start for s in self.spans)
        rows = {name: row for row, name in enumerate(self._devices())}
        names = [
            {
                "ph": "M",
                "pid": 0,
                "tid": row,
                "name": "thread_name",
                "args": {"name": name},
            }
            for name, row in rows.items()
        ]
        events = [
            {
                "ph": "X",
                "pid": 0,
                "tid": rows[s.device],
                "name": s.name,
                "ts": (s.start - origin) * 1e6,
                "dur": (s.end - s.start) * 1e6,
            }
            for s in self.spans
        ]
        return {"traceEvents": names + events, "displayTimeUnit": "ms"}

    def save(self, path: str | Path) -> Path:
        """Write the Chrome trace as JSON; return the path."""
        text = json.dumps(self.chrome_trace())
        path = Path(path)
        path.write_text(text, encoding="utf-8")
        return path

    def draw(self, alt: str, title: str = "", ax: Any = None) -> None:
        """Draw a Gantt chart, one row a device, one colour a kind of work.

        Args:
            alt: what the chart shows, for readers who can't see it.
            title: above the chart.
            ax: draw there and don't show; else a figure of its own is shown.
        """
        self._refuse_empty()
        rows = self._devices()
        fig = None
        if ax is None:
            fig, ax = figures.subplots(size=(7, 1.1 + 0.45 * len(rows)))
        origin = min(s.start for s in self.spans)
        kinds = list(dict.fromkeys(s.name for s in self.spans))
        for s in self.spans:
            ax.barh(
                rows.index(s.device),
                (s.end - s.start) * 1e3,
                left=(s.start - origin) * 1e3,
                height=0.6,
                color=figures.color(kinds.index(s.name)),
                edgecolor=figures.INK,
                linewidth=0.6,
                label=s.name,
            )
        ax.set_yticks(range(len(rows)), [r.removeprefix("/device:") for r in rows])
        ax.set_ylim(len(rows) - 0.5, -0.5)  # the first device on top
        ax.set_xlabel("milliseconds")
        ax.set_title(title)
        ax.grid(axis="y", visible=False)
        handles, labels = ax.get_legend_handles_labels()
        once = dict(zip(labels, handles, strict=True))
        ax.legend(
            once.values(), once, loc="upper left", bbox_to_anchor=(1, 1), fontsize=9
        )
        if fig is not None:
            figures.show(fig, alt)

    def _devices(self) -> list[str]:
        return sorted({s.device for s in self.spans})

    def _refuse_empty(self) -> None:
        if not self.spans:
            raise ValueError("the timeline is empty: record some work first")


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

    tf.timestamp would not do: it is stateful, so a `tf.function` puts all of them
    into program order and the devices wait for each other.
    """
    start = _read_clock(tf.nest.flatten(inputs))
    with tf.control_dependencies([start]):
        inputs = tf.nest.map_structure(tf.identity, inputs)
    outputs = work(*inputs)
    end = _read_clock(tf.nest.flatten(outputs))
    with tf.control_dependencies([end]):
        outputs = tf.nest.map_structure(tf.identity, outputs)
    return outputs, tf.stack([start, end])


def _read_clock(ready: list[tf.Tensor]) -> tf.Tensor:
    """The time at which all of `ready` are there, as a float64 scalar tensor."""

    def now(_: np.ndarray) -> np.float64:
        return np.float64(time.perf_counter())

    with tf.control_dependencies(ready):
        # One number of the last one travels to the host: on a GPU, where the host
        # runs ahead of the device, that copy waits for the device to be done.
        probe = tf.reshape(ready[-1], [-1])[:1]
    return tf.numpy_function(now, [probe], tf.float64, stateful=False)
