"""What lies on a solid fill can be seen on a light and on a dark page.

A text that lies wholly on a fill is black or white, whichever stands out more.
Elsewhere a text has the page's own ink, which suits both kinds of pages. A solid fill
keeps its colour on both, so its text must, too. A line in the page's ink may run on
over a fill and beyond it, so it gets a rim in the colour of the page.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib import patheffects, rcParams
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import same_color, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

# Stands for the page's own colour until the SVG is written.
PAGE = "#fdfcfe"
BESIDE = 1.2  # points of a rim on each side of its line
BLACK, WHITE = "#000000", "#ffffff"
RIM = 1.0  # pixels by which a letter's box may leave its fill, where nothing is drawn


def luminance(fill: object) -> float:
    """Return WCAG's relative luminance of a colour, from 0 (black) to 1 (white)."""
    red, green, blue = (
        c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4
        for c in to_rgba(fill)[:3]
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def ink_on(fill: object) -> str:
    """Return black or white: the one with the larger contrast on `fill`.

    Args:
        fill: a colour, as Matplotlib names it.
    """
    bright = luminance(fill)
    return BLACK if (bright + 0.05) / 0.05 >= 1.05 / (bright + 0.05) else WHITE


@contextlib.contextmanager
def inked(fig: Figure) -> Iterator[None]:
    """Let texts and lines on solid fills be seen, while this lasts."""
    colors, effects = [], []
    for ax, patches in _filled(fig):
        for text, fill in _on_fills(ax, patches):
            colors.append((text, text.get_color()))
            text.set_color(ink_on(fill))
        for line in _across(ax, patches):
            effects.append((line, line.get_path_effects()))
            wide = float(np.max(line.get_linewidth())) + 2 * BESIDE
            rim = patheffects.withStroke(linewidth=wide, foreground=PAGE)
            line.set_path_effects([rim])
    try:
        yield
    finally:
        for text, color in colors:
            text.set_color(color)
        for line, effect in effects:
            line.set_path_effects(effect)


def _filled(fig: Figure) -> list[tuple[Axes, list[Patch]]]:
    """Find the charts with solid patches; what lies on top of others comes first."""
    found = [(ax, [p for p in ax.patches if _is_solid(p)]) for ax in fig.axes]
    found = [(ax, patches) for ax, patches in found if patches]
    if found:
        fig.draw_without_rendering()  # so that all is laid out
    for _, patches in found:
        patches.sort(key=lambda patch: patch.get_zorder(), reverse=True)
    return found


def _on_fills(ax: Axes, patches: Sequence[Patch]) -> list[tuple[Text, object]]:
    """Find the texts that lie wholly on a solid patch, and the patch's colour."""
    pairs = [(text, _below(text, patches)) for text in filter(Text.get_text, ax.texts)]
    return [(text, fill) for text, fill in pairs if fill is not None]


def _across(ax: Axes, patches: Sequence[Patch]) -> list[Artist]:
    """Find the lines in the page's ink that may run over a solid patch."""
    lines = [line for line in [*ax.lines, *ax.collections] if _is_ink(line)]
    areas = [patch.get_window_extent() for patch in patches]
    return [
        line
        for line in lines
        if any(line.get_window_extent().padded(RIM).overlaps(area) for area in areas)
    ]


def _is_ink(line: Artist) -> bool:
    """Tell whether a line, or each one of several, has the page's ink."""
    ink = rcParams["text.color"]
    if isinstance(line, Line2D):
        return line.get_linestyle() != "None" and same_color(line.get_color(), ink)
    return isinstance(line, LineCollection) and all(
        same_color(color, ink) for color in line.get_color()
    )


def _is_solid(patch: Patch) -> bool:
    """Tell whether nothing shines through a patch."""
    return patch.get_visible() and patch.get_fill() and patch.get_facecolor()[3] == 1


def _below(text: Text, patches: Sequence[Patch]) -> object:
    """Return the colour of the first patch below a text and its whole box, or None."""
    box = text.get_window_extent()
    middle = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2
    for patch in patches:
        around = patch.get_window_extent().padded(RIM)
        inside = around.contains(box.x0, box.y0) and around.contains(box.x1, box.y1)
        if inside and patch.contains_point(middle):
            return patch.get_facecolor()
    return None
