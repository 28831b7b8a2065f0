"""Texts that lie on a solid fill are black or white, whichever stands out more.

Elsewhere a text has the page's own ink, which suits a light and a dark page alike. A
solid fill keeps its colour on both, so its text must, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Text

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
    """Let each text that lies wholly on a solid fill be readable, while this lasts."""
    before = []
    for text, fill in _on_fills(fig):
        before.append((text, text.get_color()))
        text.set_color(ink_on(fill))
    try:
        yield
    finally:
        for text, color in before:
            text.set_color(color)


def _on_fills(fig: Figure) -> list[tuple[Text, object]]:
    """Find the texts that lie wholly on a solid patch, and the patch's colour."""
    charts = [(ax, [p for p in ax.patches if _is_solid(p)]) for ax in fig.axes]
    charts = [(ax, patches) for ax, patches in charts if ax.texts and patches]
    if not charts:
        return []
    fig.draw_without_rendering()  # so that all is laid out
    found = []
    for ax, patches in charts:
        above = sorted(patches, key=lambda patch: patch.get_zorder(), reverse=True)
        for text in filter(Text.get_text, ax.texts):
            fill = _below(text, above)
            found += [(text, fill)] if fill is not None else []
    return found


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
