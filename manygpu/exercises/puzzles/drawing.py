"""Pictures of plans, as SVG text: bars in lanes, messages between lanes.

The ink is the page's own text colour, so that a picture reads on a light and on a dark
page. It is drawn as wide as a phone's column, and grows a little where there is room.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from manygpu._inks import COLORS, EDGES, GREY, MEANINGS, MEMORY, STRATEGIES

WIDTH, LEFT, TOP = 358, 66, 6  # pixels; the names of the lanes stand on the left
LANE, LETTER = 24, 11
MEANT = MEANINGS | MEMORY | STRATEGIES
WIDEST = "28rem"


class Bar(NamedTuple):
    """A piece of a lane.

    Attributes:
        lane: its number, from 0 at the top.
        start, end: in the axis' unit.
        ink: a meaning, such as "forward", or the number of a colour.
        text: what stands in it, if it fits.
        title: what it says to whoever points at it.
    """

    lane: int
    start: float
    end: float
    ink: str | int
    text: str = ""
    title: str = ""


class Arrow(NamedTuple):
    """A message: from one lane to another in a round, in the colour of a number."""

    round: int
    sender: int
    receiver: int
    ink: int
    title: str = ""


class Line(NamedTuple):
    """A dashed line across all lanes, and what it is."""

    at: float
    text: str


def lanes(
    bars: Iterable[Bar], names: Sequence[str], unit: str, label: str, line: Line | None
) -> str:
    """Bars in lanes over an axis from 0; `line`: a bound or a limit.

    Args:
        bars: in any order.
        names: of the lanes, from the top.
        unit: of the axis.
        label: what the picture shows, for readers who can't see it.
        line: None for none.
    """
    bars = list(bars)
    most = max([bar.end for bar in bars] + ([line.at] if line else []), default=1) or 1
    scale = (WIDTH - LEFT - 14) / most
    foot = TOP + LANE * len(names)
    drawn = [_name(name, TOP + LANE * (i + 0.5)) for i, name in enumerate(names)]
    drawn += [_bar(bar, scale) for bar in bars if bar.end > bar.start]
    drawn += _axis(most, scale, foot)
    more = f"{unit}; dashed: {line.text}" if line else unit
    if line:
        x = LEFT + line.at * scale
        drawn.append(f'<path d="M{x:.1f} {TOP - 4}V{foot}" {_STROKE} {_DASHES}/>')
    drawn.append(_text(more, LEFT, foot + 30))
    return _picture(drawn, foot + 36, label)


def messages(
    arrows: Iterable[Arrow], names: Sequence[str], rounds: int, label: str
) -> str:
    """Messages between lanes, a column a round; a dot is where one arrives."""
    scale = (WIDTH - LEFT - 14) / max(rounds, 1)
    middle = [TOP + LANE * (i + 0.5) for i in range(len(names))]
    foot = TOP + LANE * len(names)
    drawn = [_name(name, y) for name, y in zip(names, middle, strict=True)]
    drawn += [
        f'<path d="M{LEFT} {y}H{WIDTH - 14}" {_STROKE} stroke-opacity="0.3"/>'
        for y in middle
    ]
    for sent in arrows:
        x, ends = (
            LEFT + sent.round * scale,
            (middle[sent.sender], middle[sent.receiver]),
        )
        ink = fill_of(sent.ink)
        ink = EDGES.get(ink, ink)
        drawn.append(
            f'<g style="stroke: {ink}; fill: {ink}">{_title(sent.title)}'
            f'<path d="M{x + 2:.1f} {ends[0]}L{x + scale - 3:.1f} {ends[1]}" '
            f'stroke-width="1.6"/>'
            f'<circle cx="{x + scale - 3:.1f}" cy="{ends[1]}" r="2.2"/></g>'
        )
    drawn += _axis(rounds, scale, foot, least=1)
    drawn.append(_text("rounds", LEFT, foot + 30))
    return _picture(drawn, foot + 36, label)


def fill_of(ink: str | int) -> str:
    """The colour of a meaning or of a number."""
    return COLORS[ink % len(COLORS)] if isinstance(ink, int) else MEANT.get(ink, GREY)


_STROKE = 'stroke="currentColor" fill="none"'
_DASHES = 'stroke-width="1.5" stroke-dasharray="5 4"'


def _picture(drawn: Sequence[str], height: float, label: str) -> str:
    style = f"width: 100%; max-width: {WIDEST}; height: auto; color: inherit"
    return (
        f'<svg class="manygpu-puzzle-picture" viewBox="0 0 {WIDTH} {height:g}" '
        f'role="img" aria-label="{html.escape(label)}" style="{style}" '
        f'font-family="sans-serif" font-size="{LETTER}" fill="currentColor">'
        f"{''.join(drawn)}</svg>"
    )


def _bar(bar: Bar, scale: float) -> str:
    fill = fill_of(bar.ink)
    x, y, width = (
        LEFT + bar.start * scale,
        TOP + LANE * bar.lane + 2,
        bar.end - bar.start,
    )
    fits = len(bar.text) * 0.58 * LETTER + 1 <= width * scale
    middle = x + width * scale / 2
    text = _text(bar.text, middle, y + 14, "middle") if bar.text and fits else ""
    thin = 1 if width * scale > 4 else 0.3
    return (
        f'<g>{_title(bar.title)}<rect x="{x:.1f}" y="{y}" width="{width * scale:.1f}" '
        f'height="{LANE - 4}" style="fill: {fill}; fill-opacity: 0.25; '
        f'stroke: {EDGES.get(fill, fill)}" stroke-width="{thin}"/>{text}</g>'
    )


def _axis(most: float, scale: float, foot: float, least: float = 0) -> list[str]:
    step = max(least, nice_step(most))
    ends = [i * step for i in range(int(most / step + 1e-9) + 1)]
    places = [LEFT + at * scale for at in ends]
    path = f"M{LEFT} {foot + 2}H{WIDTH - 14}" + "".join(
        f"M{x:.1f} {foot + 2}v4" for x in places
    )
    drawn = [f'<path d="{path}" {_STROKE}/>']
    pairs = zip(places, ends, strict=True)
    return drawn + [_text(f"{at:g}", x, foot + 17, "middle") for x, at in pairs]


def nice_step(most: float) -> float:
    """A step of 1, 2 or 5 times a power of ten, of which at most six fit."""
    base = 10 ** math.floor(math.log10(max(most, 1e-9) / 6))
    return next(k * base for k in (1, 2, 5, 10) if most / (k * base) <= 6 + 1e-9)


def _name(text: str, y: float) -> str:
    return _text(text, 0, y + 4)


def _text(text: str, x: float, y: float, anchor: str = "start") -> str:
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{where}>{html.escape(text)}</text>'


def _title(text: str) -> str:
    return f"<title>{html.escape(text)}</title>" if text else ""
