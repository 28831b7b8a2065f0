"""One drawing of pieces of work: plans, clocks, profiles and simulations alike.

`gantt(spans)` draws a row for each device and a bar for each `Span`. What the chart
shows of a span (its row, its colour, the text in its bar) can be told otherwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from manygpu import figures
from manygpu.trace.spans import WAITING, Span, sorted_rows

# The axis' label for times in seconds, and how many of the unit are a second.
UNITS = {"s": ("seconds", 1), "ms": ("milliseconds", 1e3), "us": ("microseconds", 1e6)}
# Kinds of work that mean what figures.MEANINGS has a colour for, by another name.
MEANING_OF = {"gradients": "backward", "update": "weights"}
MEANING_OF |= dict.fromkeys(("all-reduce", "message", "transfer"), "communication")
MOST_EDGES = 200  # more bars than that are drawn without edges: they would be all edge
THINNEST = 0.01  # of all time; a shorter bar within a dark edge would be all edge
HEIGHT, SOFT, STRONG = 0.8, 0.3, 0.6  # of a bar; opacity of bars that hold text
POINTS_A_LETTER, FONT = 5, 8


def gantt(
    spans: Iterable[Span],
    ax: Axes | None = None,
    *,
    row: Callable[[Span], str | int] = lambda span: span.device,
    kind: Callable[[Span], str] = lambda span: span.name,
    color: Callable[[str], str] | None = None,
    label: Callable[[Span], Any] | None = None,
    strong: Callable[[Span], bool] = lambda span: False,
    rows: Sequence[str | int] | None = None,
    unit: str = "ms",
    title: str = "",
    alt: str = "",
    caption: str = "",
    name: str = "",
) -> None:
    """Draw a Gantt chart: a row a device, a bar a span, a colour a kind of work.

    Time runs to the right, from 0 where the first span starts.

    Args:
        spans: at least one; those of kind `WAITING` become dashed boxes.
        ax: draw there, without a legend, and don't show: `figures.legend` adds one when
            all charts are drawn. None shows a figure of its own, with a legend.
        row: a span's row; its device unless told otherwise.
        kind: what a span is, a name in the legend; its own unless told otherwise.
        color: a kind's colour; None takes that of its meaning, see
            `figures.MEANINGS`, or, for kinds without one, the next that is free.
        label: text in a span's bar, left out where the longest text wouldn't fit;
            bars with text are drawn softly, so that it can be read.
        strong: which of these soft bars to draw stronger.
        rows: from top to bottom, to show idle ones too; None sorts those that occur,
            and shows every number up to the largest where they are numbers.
        unit: "s", "ms" or "us" where times are seconds; else times are drawn as they
            are, and this names their unit.
        title: above the chart.
        alt: what the chart shows, for readers who can't see it; only without `ax`, as
            are the next two.
        caption, name: see `figures.show`.

    Raises:
        ValueError: no spans, a span in none of `rows`, or, without `ax`, an `alt`
            too short to tell a reader anything.
    """
    spans = list(spans)
    if not spans:
        raise ValueError("spans is empty: record or plan some work first")
    rows = sorted_rows(map(row, spans)) if rows is None else list(rows)
    lost = {row(s) for s in spans} - {*rows}
    if lost:
        raise ValueError(f"rows must name every span's row, {sorted(lost)} is missing")
    fig = None
    if ax is None:
        fig, ax = figures.subplots(size=(7, 1.1 + 0.45 * len(rows)))
    words, scale = UNITS.get(unit, (unit, 1))
    bars = _bars(spans, lambda s: rows.index(row(s)), scale)
    _draw_bars(ax, spans, bars, kind, color, label and strong)
    if label is not None:
        _write_labels(ax, bars, [str(label(s)) for s in spans])
    ax.set_yticks(range(len(rows)), [str(r).removeprefix("/device:") for r in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)  # the first row on top
    ax.set(xlabel=words, title=title)
    if unit not in UNITS:  # a plan's own unit, of which no half is marked
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(axis="y", visible=False)
    if fig is not None:
        figures.legend(fig)
        figures.show(fig, alt, caption, name)


def _bars(
    spans: Sequence[Span], place: Callable[[Span], int], scale: float
) -> list[tuple[int, float, float]]:
    """Each span's (row, left, width)."""
    origin = min(s.start for s in spans)
    return [
        (place(s), scale * (s.start - origin), scale * (s.end - s.start)) for s in spans
    ]


def _draw_bars(
    ax: Axes,
    spans: Sequence[Span],
    bars: Sequence[tuple[int, float, float]],
    kind: Callable[[Span], str],
    color: Callable[[str], str] | None,
    strong: Callable[[Span], bool] | None,
) -> None:
    """Draw the bars of each kind and strength at once; `strong` is for soft ones."""
    together: dict[tuple[str, float], list] = {}
    for span, bar in zip(spans, bars, strict=True):
        opacity = 1.0 if strong is None else STRONG if strong(span) else SOFT
        together.setdefault((kind(span), opacity), []).append(bar)
    kinds = (k for k, _ in together if k != WAITING)
    color = color or _colors(kinds).__getitem__
    told = set()
    least = max(left + width for _, left, width in bars) * THINNEST
    for (name, opacity), own in together.items():
        places, lefts, widths = zip(*own, strict=True)
        fill = figures.PAPER
        if name != WAITING:
            fill = color(name)
        style = _style(fill, opacity, len(spans))
        if style["edgecolor"] == figures.INK and fill != figures.PAPER:
            style["edgecolor"] = [figures.INK if w > least else fill for w in widths]
        # A label that begins with '_' stays out of the legend.
        style["label"] = "_" * (name in told) + name
        told.add(name)
        ax.barh(places, widths, HEIGHT, lefts, **style)


def _colors(kinds: Iterable[str]) -> dict[str, str]:
    """Each kind's colour: that of what it means, else the next one nobody has."""
    meant = {kind: MEANING_OF.get(kind, kind) for kind in kinds}
    known = {k: figures.color(m) for k, m in meant.items() if m in figures.MEANINGS}
    free = [c for c in figures.COLORS if c not in known.values()] or figures.COLORS
    rest = zip((k for k in meant if k not in known), itertools.cycle(free))  # noqa: B905
    return known | dict(rest)


def _style(fill: str, opacity: float, bars: int) -> dict[str, Any]:
    """How bars look: those that wait dashed, soft ones within an edge of their own."""
    style: dict[str, Any] = {"linewidth": 0.6 if bars <= MOST_EDGES else 0}
    if fill == figures.PAPER:
        return style | {"color": fill, "edgecolor": figures.INK, "linestyle": ":"}
    if opacity == 1:
        return style | {"color": fill, "edgecolor": figures.INK}
    return style | {"color": (fill, opacity), "edgecolor": fill}


def _write_labels(
    ax: Axes, bars: Sequence[tuple[int, float, float]], labels: Sequence[str]
) -> None:
    """Write each label into its bar, where the longest label would fit as well."""
    length = max(left + width for _, left, width in bars)
    points = 72 * ax.figure.get_figwidth() * 0.85  # less the names of the rows
    need = POINTS_A_LETTER * max(map(len, labels)) + 2
    style = {"ha": "center", "va": "center_baseline", "fontsize": FONT}
    style["in_layout"] = False  # it lies in its bar: nothing makes room for it
    for (place, left, width), text in zip(bars, labels, strict=True):
        if width and width / length * points >= need:
            ax.text(left + width / 2, place, text, **style)
