"""A timeline: it records pieces of work as spans, draws them, and exports them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manygpu.trace.gantt import gantt
from manygpu.trace.spans import (
    Span,
    by_device,
    covered,
    length,
    not_empty,
    overlap_share,
    sorted_rows,
)


@dataclass
class Timeline:
    """Pieces of work on devices. Times are `time.perf_counter` seconds."""

    spans: list[Span] = field(default_factory=list)

    def add(self, device: str, name: str, start: float, end: float) -> None:
        """Add a piece of work; what `Span` refuses is not added."""
        self.spans.append(Span(device, name, float(start), float(end)))

    @contextmanager
    def span(self, device: str, name: str) -> Iterator[None]:
        """Record what runs inside the `with` block (eager code, CPU devices)."""
        start = time.perf_counter()
        yield
        self.add(device, name, start, time.perf_counter())

    @property
    def length(self) -> float:
        """Seconds from the first start to the last end."""
        return length(self.spans)

    def busy(self, device: str) -> float:
        """Seconds in which `device` had at least one piece of work under way."""
        return covered(s for s in self.spans if s.device == device)

    def overlap(self) -> float:
        """Share of the length in which at least two devices were at work."""
        return overlap_share(self.spans)

    def chrome_trace(self) -> dict[str, Any]:
        """Return the spans in Chrome's trace event format.

        Open the JSON at chrome://tracing or ui.perfetto.dev. Times there are
        microseconds; one row a device.
        """
        origin = min(s.start for s in not_empty(self.spans))
        rows = {
            name: row for row, name in enumerate(sorted_rows(by_device(self.spans)))
        }
        names = [
            {
                "ph": "M",
                "pid": 0,
                "tid": row,
                "name": "thread_name",
                "args": {"name": str(name)},
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
                "dur": s.seconds * 1e6,
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

    def draw(
        self,
        alt: str,
        title: str = "",
        ax: Any = None,
        caption: str = "",
        name: str = "",
    ) -> None:
        """Draw a Gantt chart, one row a device, one colour a kind of work.

        Args:
            alt: what the chart shows, for readers who can't see it.
            title: above the chart.
            ax: draw there and don't show; else a figure of its own is shown.
            caption, name: of that figure, see `figures.show`.
        """
        told = {"title": title, "alt": alt, "caption": caption, "name": name}
        gantt(not_empty(self.spans), ax, **told)
