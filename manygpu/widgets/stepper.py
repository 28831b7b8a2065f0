"""Small interactive figures that need no kernel, no network and no server.

A stepper shows a computation frame by frame: devices in columns, what they hold in
rows, messages between them as arrows. Python draws the picture and writes the frames
beside it, as JSON; a few lines of plain JavaScript in the same output step through
them. Where no JavaScript runs, the last frame and the text of all steps are seen::

    frames = [
        Frame("Both hold their own.", {"CPU:0": [1], "CPU:1": [2]}),
        Frame("1 sends to 0.", {"CPU:0": [3], "CPU:1": [2]}, [("CPU:1", "CPU:0", "2")]),
    ]
    stepper(frames, "Device 1 sends its number to device 0, which adds it.")
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from IPython.display import HTML, display

from manygpu import _page, figures
from manygpu.checks import check_not_empty
from manygpu.widgets.parts import data_script, script, static_text

# Sizes in the units of the SVG's viewBox, which are pixels where it is not shrunk.
HEADER, ROW, MARGIN = 28, 36, 6
NARROWEST = 112  # column
CHARACTER = 8  # width of a character, generously
SMALLEST = 0.75  # a picture shrinks so far on a narrow page, then it scrolls


@dataclass(frozen=True)
class Frame:
    """What each device holds at one moment, and the messages that led there.

    Attributes:
        caption: one sentence that says what happened.
        cells: for each device, from left to right, what it holds, from top to
            bottom: numbers or short texts, "" for nothing. All of one length.
        messages: (from, to, text) each; from and to are keys of `cells`.

    Raises:
        TypeError: a value of another kind than those.
        ValueError: no caption, no devices, columns of different length, a message
            from or to a device that is not there, or from one to itself.
    """

    caption: str
    cells: Mapping[str, Sequence[str | float]]
    messages: Sequence[tuple[str, str, str]] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.caption, str) or not self.caption.strip():
            raise ValueError(f"caption must say what happened, got {self.caption!r}")
        # Copies, as text: what the caller changes later doesn't change the frame.
        object.__setattr__(self, "cells", _as_texts(self.cells))
        messages = tuple(_as_message(m, self.cells) for m in self.messages)
        object.__setattr__(self, "messages", messages)


def stepper(
    frames: Sequence[Frame], alt: str, caption: str = "", name: str = ""
) -> None:
    """Show `frames` as a figure that the reader steps through.

    Args:
        frames: in order of time; the same devices and rows in each.
        alt: what the figure shows, in a sentence or two.
        caption: what all readers are told below it; the book numbers it.
        name: prose links to [Figure](#figure-name); the book adds the number.

    Raises:
        TypeError, ValueError: see `stepper_html`.
    """
    display(HTML(stepper_html(frames, alt, caption, name)))


def stepper_html(
    frames: Sequence[Frame], alt: str, caption: str = "", name: str = ""
) -> str:
    """Return the figure: picture, buttons, text of all steps, data and script.

    What is read aloud counts pictures: the first shows the start, before any step.

    Raises:
        TypeError: `frames` is not a list of `Frame`.
        ValueError: no frames, frames of different devices or rows, an `alt` too
            short to tell a reader anything, or a name that no link could hold.
    """
    _check_frames(frames)
    if not isinstance(alt, str) or len(alt.split()) < 4:
        raise ValueError(f"alt must say what the figure shows, got {alt!r}")
    layout = _Layout(frames)
    data = {"frames": [layout.frame_data(k) for k in range(len(frames))]}
    steps = "".join(f"<li>{html.escape(f.caption)}</li>" for f in frames)
    label = html.escape(" ".join(alt.split()), quote=True)
    title = re.split(r"[.:]", label)[0]
    return f"""\
<figure class="manygpu-figure manygpu-stepper"{_page.named(name)} tabindex="0"
 data-lm-suppress-shortcuts="true" aria-label="{title}, in {len(frames)} pictures">
<style>{static_text("stepper.css")}</style>
<div class="stepper-picture">{layout.svg(label)}</div>
<p class="stepper-caption" aria-live="polite">The last of {len(frames)} pictures. \
{html.escape(frames[-1].caption)}</p>
<div class="stepper-buttons" hidden>
<button type="button" data-step="previous" aria-label="Previous picture">\
Previous</button>
<button type="button" data-step="play" aria-label="Play all pictures">Play</button>
<button type="button" data-step="next" aria-label="Next picture">Next</button>
</div>
<ol class="stepper-steps">{steps}</ol>
{data_script(data)}
{script("stepper.js")}
{_page.caption("figcaption", caption)}</figure>"""


class _Layout:
    """Where everything stands. The script only fills in what is computed here."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        self.frames = frames
        self.names = list(frames[0].cells)
        self.rows = len(frames[0].cells[self.names[0]])
        messages = [m for f in frames for m in f.messages]
        texts = [m[2] for m in messages] + self.names
        texts += [v for f in frames for column in f.cells.values() for v in column]
        self.column = max(NARROWEST, CHARACTER * max(map(len, texts)) + 24)
        right = [d - s for s, d in map(self._ends, messages) if d > s]
        left = [s - d for s, d in map(self._ends, messages) if d < s]
        # To the right above the columns, to the left below them.
        self.top = MARGIN + (_rise(max(right)) + 22 if right else 0)
        self.bottom = self.top + HEADER + self.rows * ROW
        below = _rise(max(left)) + 22 if left else 0
        self.width = self.column * len(self.names)
        self.height = self.bottom + below + MARGIN

    def frame_data(self, k: int) -> dict[str, Any]:
        """One frame as the script needs it: texts, what changed, arrows as SVG."""
        values, before = self._flat(k), self._flat(max(k - 1, 0))
        return {
            "caption": self.frames[k].caption,
            "values": values,
            "changed": [i for i, v in enumerate(values) if v != before[i]],
            "messages": "".join(map(self._arrow, self.frames[k].messages)),
        }

    def svg(self, label: str) -> str:
        """The picture, showing the last frame."""
        last = self.frame_data(len(self.frames) - 1)
        columns = "".join(self._column(i, last) for i in range(len(self.names)))
        # All ways that messages ever take stay in sight, faintly: no empty space.
        ways = {self._way(*self._ends(m)) for f in self.frames for m in f.messages}
        routes = f'<path class="stepper-routes" d="{"".join(sorted(ways))}"/>'
        drawn = routes * bool(ways) + columns
        least = int(SMALLEST * self.width)
        return (
            f'<svg role="img" aria-label="{label}" xmlns="http://www.w3.org/2000/svg" '
            f'viewBox="0 0 {self.width} {self.height}" '
            f'style="width:100%;min-width:{least}px;max-width:{self.width}px">'
            f'{drawn}<g class="stepper-messages">{last["messages"]}</g></svg>'
        )

    def _column(self, i: int, frame: Mapping[str, Any]) -> str:
        """A device: its name and its cells."""
        middle = self._middle(i)
        name, fill = html.escape(self.names[i]), figures.color(i)
        style = f"--device:{fill};--edge:{figures.edge(fill)}"
        out = [f'<text x="{middle}" y="{self.top + 19}">{name}</text>']
        for row in range(self.rows):
            k = i * self.rows + row
            y = self.top + HEADER + row * ROW
            kind = "stepper-cell" + (" changed" if k in frame["changed"] else "")
            out.append(
                f'<g class="{kind}" style="{style}">'
                f'<rect x="{i * self.column + 8}" y="{y + 2}" rx="4" '
                f'width="{self.column - 16}" height="{ROW - 4}"/>'
                f'<text x="{middle}" y="{y + ROW / 2 + 5:g}">'
                f"{html.escape(frame['values'][k])}</text></g>"
            )
        return "".join(out)

    def _arrow(self, message: tuple[str, str, str]) -> str:
        """An arc from column to column, and its text where it bends."""
        source, target = self._ends(message)
        x = (self._middle(source) + self._middle(target)) / 2
        rise = _rise(abs(target - source))
        y = self.top - rise - 6 if target > source else self.bottom + rise + 21
        text = f'<text x="{x:g}" y="{y}">{html.escape(message[2])}</text>'
        return f'<path d="{self._way(source, target)}"/>{text}'

    def _way(self, source: int, target: int) -> str:
        """The path of an arc with an open head: above to the right, below to the left.

        Side by side, so that what a device gets and sends don't touch.
        """
        away = 1 if source > target else -1  # from the columns: up is negative in SVG
        x1, x2 = self._middle(source) - 8 * away, self._middle(target) + 8 * away
        y = self.bottom + 4 if source > target else self.top
        # A cubic reaches 3/4 of its handles.
        bend = y + away * _rise(abs(target - source)) * 4 / 3
        head = y + away * 8
        path = f"M{x1:g} {y}C{x1:g} {bend:g} {x2:g} {bend:g} {x2:g} {y}"
        return f"{path}M{x2 - 5:g} {head}L{x2:g} {y}L{x2 + 5:g} {head}"

    def _flat(self, k: int) -> list[str]:
        """All values of frame k, column by column."""
        return [v for column in self.frames[k].cells.values() for v in column]

    def _ends(self, message: tuple[str, str, str]) -> tuple[int, int]:
        return self.names.index(message[0]), self.names.index(message[1])

    def _middle(self, i: int) -> float:
        return (i + 0.5) * self.column


def _rise(columns: int) -> int:
    """How far an arc over so many columns leaves them."""
    return 14 + 12 * columns


def _as_texts(cells: Any) -> dict[str, tuple[str, ...]]:
    """Return `cells` with each value as text."""
    if not isinstance(cells, Mapping):
        raise TypeError(
            f"cells must map each device to what it holds, got {type(cells).__name__}"
        )
    texts = {}
    for name, column in cells.items():
        if not isinstance(name, str):
            raise TypeError(f"cells must have device names as keys, got {name!r}")
        if isinstance(column, str) or not hasattr(column, "__iter__"):
            raise TypeError(f"cells[{name!r}] must be a list, got {column!r}")
        texts[name] = tuple(_as_text(name, value) for value in column)
    rows = {name: len(column) for name, column in texts.items()}
    if not rows or 0 in rows.values() or len(set(rows.values())) > 1:
        raise ValueError(
            f"cells must hold devices with equally many rows, at least one, got "
            f'{rows}: write "" where a device holds nothing'
        )
    return texts


def _as_text(name: str, value: Any) -> str:
    """Return a text as it is, a number in its shortest form."""
    if isinstance(value, str):
        return value
    try:
        return f"{float(value):g}"
    except (TypeError, ValueError) as no_number:
        raise TypeError(
            f"cells[{name!r}] must hold numbers or texts, got {value!r}"
        ) from no_number


def _as_message(message: Any, cells: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return `message` if it is (from, to, text) between two of the devices."""
    match message:
        case [str(source), str(target), str(text)]:
            pass
        case _:
            raise TypeError(f"messages must be (from, to, text), got {message!r}")
    for end in (source, target):
        if end not in cells:
            raise ValueError(
                f"messages names {end!r}, which is none of {sorted(cells)}"
            )
    if source == target:
        raise ValueError(f"messages has one from {source!r} to itself")
    return source, target, text


def _check_frames(frames: Any) -> None:
    """Refuse what is not a list of frames with the same devices and rows."""
    check_not_empty("frames", frames)
    for k, frame in enumerate(frames):
        if not isinstance(frame, Frame):
            raise TypeError(f"frames[{k}] must be a Frame, got {type(frame).__name__}")
        shape, first = (
            [(name, len(column)) for name, column in of.cells.items()]
            for of in (frame, frames[0])
        )
        if shape != first:
            raise ValueError(
                f"frames[{k}] has devices and rows {dict(shape)}, frames[0] "
                f"{dict(first)}: they must be the same, in the same order"
            )
