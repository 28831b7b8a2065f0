"""One style for every figure of the book.

A figure is shown as inline SVG. Its ink is the page's own text colour, so the same
figure reads on a light and on a dark page; its colours are Okabe and Ito's, which
colour-blind readers can tell apart, and each means one thing in the whole book. Every
figure carries a text that says what it shows, for readers who can't see it.
"""

from __future__ import annotations

import hashlib
import html
import io
import re
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from IPython.display import HTML, display
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from manygpu import _legible, _narrow, _page
from manygpu._inks import BLUE as BLUE
from manygpu._inks import COLORS, EDGES, MEANINGS, MEMORY, STRATEGIES
from manygpu._inks import GREY as GREY
from manygpu._inks import ORANGE as ORANGE
from manygpu._inks import SKY as SKY
from manygpu._inks import VERMILLION as VERMILLION
from manygpu.tables import Link as Link  # in cells of figures.table
from manygpu.tables import table as table  # figures.table: results that are no picture

# Stands for the page's text colour until the SVG is written. Matplotlib needs a
# colour it knows; this one reads on white where a figure is saved in another way.
INK = "#22242b"
PAPER = "none"
# The colour behind a figure: the book's, and on other pages the browser's.
PAGE = "var(--pst-color-background, Canvas)"
SOFT = 0.25  # opacity of a fill that carries text
SMALLEST = 9.0  # pixels of a letter on the narrowest page
SMALLEST_RAISED = 8.0  # of one that is raised or lowered, such as an exponent

STYLE = {
    "figure.facecolor": PAPER,
    "figure.constrained_layout.use": True,  # no label is cut off
    "savefig.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.prop_cycle": mpl.cycler(color=COLORS),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "grid.color": INK,
    "grid.alpha": 0.15,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "font.size": 10,
    "font.family": ["DejaVu Sans", "sans-serif"],
    "lines.linewidth": 2,
    "svg.fonttype": "none",
}


def color(what: int | str) -> str:
    """The colour of a device or of a meaning, the same in every figure of the book.

    Args:
        what: a device's index, or a key of `MEANINGS`: "forward", "backward",
            "weights", "communication", "idle", "measured", "predicted", or of `MEMORY`:
            "activations", "gradients", "parameters", "optimizer", "copy", or of
            `STRATEGIES`: "data", "layerwise", "pipeline", "network", "sharded".

    Raises:
        ValueError: no colour has this meaning.
    """
    if not isinstance(what, str):
        return COLORS[what % len(COLORS)]
    known = MEANINGS | MEMORY | STRATEGIES
    if what not in known:
        raise ValueError(f"what must be one of {list(known)}, got {what!r}")
    return known[what]


def edge(fill: str) -> str:
    """The colour of a fill's edge: the fill's own, or a darker one where it is pale."""
    return EDGES.get(fill, fill)


def use_style() -> None:
    """Let matplotlib draw in the book's style, for figures that d2l makes."""
    mpl.rcParams.update(STYLE)


def subplots(
    rows: int = 1, columns: int = 1, size: tuple[float, float] = (7.0, 3.0), **kwargs
) -> tuple[Figure, Axes | np.ndarray]:
    """`plt.subplots` in the book's style, of a figure that only `show` shows.

    Args:
        rows, columns: of axes.
        size: width and height in inches; 7 wide fills the page's column.
        **kwargs: for `Figure.subplots`.
    """
    use_style()
    fig = Figure(figsize=size)  # pyplot would show it at a cell's end, done or not
    FigureCanvasAgg(fig)
    return fig, fig.subplots(rows, columns, **kwargs)


def canvas(size: tuple[float, float], width: float, height: float):
    """An empty drawing board: no axes, `width` x `height` units, y pointing up."""
    fig, ax = subplots(size=size)
    ax.set(xlim=(0, width), ylim=(0, height))
    ax.axis("off")
    return fig, ax


def box(
    ax: Axes,
    xy: tuple[float, float],
    size: tuple[float, float],
    text: str = "",
    fill: str | None = None,
    fontsize: float = 10,
    dashed: bool = False,
) -> None:
    """Draw a rounded box with centred text.

    Args:
        ax: where.
        xy: lower left corner.
        size: width and height, in the axes' units.
        text: may have several lines.
        fill: a colour, softened so that the text stays readable; None for no fill.
        fontsize: in points.
        dashed: draw the edge dashed, for what is not there (idle, waiting).
    """
    (x, y), (w, h) = xy, size
    edge = fill or INK
    style = f"round,pad=0,rounding_size={0.12 * min(w, h)}"
    # A box at the board's rim keeps all of its edge.
    shape = {"boxstyle": style, "linewidth": 1.2, "clip_on": False}
    if fill:
        ax.add_patch(
            FancyBboxPatch(
                xy, w, h, facecolor=fill, alpha=SOFT, edgecolor=PAPER, **shape
            )
        )
    line = "--" if dashed else "-"
    ax.add_patch(
        FancyBboxPatch(
            xy, w, h, facecolor=PAPER, edgecolor=edge, linestyle=line, **shape
        )
    )
    if text:
        ax.text(x + w / 2, y + h / 2, text, ha="center", va="center", fontsize=fontsize)


def arrow(
    ax: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    text: str = "",
    fill: str = INK,
    bend: float = 0.0,
    fontsize: float = 9,
) -> None:
    """Draw an arrow, with text beside its middle if there is any."""
    ax.annotate(
        "",
        xy=end,
        xytext=start,
        arrowprops={
            "arrowstyle": "-|>",
            "color": fill,
            "linewidth": 1.5,
            "shrinkA": 2,
            "shrinkB": 2,
            "connectionstyle": f"arc3,rad={bend}",
        },
    )
    if text:
        middle = [(a + b) / 2 for a, b in zip(start, end, strict=True)]
        flat = start[1] == end[1]
        style = {"ha": "center", "xytext": (0, 3)} if flat else {"xytext": (5, 3)}
        ax.annotate(
            text, middle, textcoords="offset points", fontsize=fontsize, **style
        )


def legend(fig: Figure) -> None:
    """One legend above all charts of `fig`: what their labels name, each label once.

    It begins at the left, which is what a phone shows of a wide figure, and has as many
    columns as the figure has room for. Call it when all is drawn.

    Args:
        fig: at least one of its charts has a line, a bar or a patch with a label.

    Raises:
        ValueError: nothing in `fig` has a label.
    """
    named = {}
    for ax in fig.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    if not named:
        raise ValueError("fig must have something with a label: a legend names labels")
    for rows in range(1, len(named) + 1):
        columns = -(-len(named) // rows)
        style = {"loc": "outside upper left", "ncols": columns, "fontsize": 9}
        made = fig.legend(named.values(), named.keys(), **style)
        if columns == 1 or made.get_window_extent().width <= fig.bbox.width:
            return
        made.remove()


def show(fig: Figure, alt: str, caption: str = "", name: str = "") -> None:
    """Show `fig` as inline SVG that follows the page's colours, and close it.

    For a phone it is drawn a second time, as wide as a phone's column, if its texts
    have room there. That stands in a <template>, which nobody sees before the book is
    built (workshop/extensions/lean_figures.py).

    Args:
        fig: made with `subplots` or `canvas`, or d2l's.
        alt: what the figure shows, in a sentence or two, for those who can't see it.
        caption: what all readers are told below it; the book numbers it.
        name: prose links to [Figure](#figure-name); the book adds the number.

    Raises:
        ValueError: `alt` is too short to tell a reader anything, or no link could hold
            the name.
    """
    alt, link = _page.plain(alt), _page.named(name)
    svg = to_svg(fig, alt)
    if _narrow.narrow(fig, legend):
        svg += f"<template>{to_svg(fig, alt)}</template>"
    plt.close(fig)
    below = _page.caption("figcaption", caption)
    display(HTML(f'<figure class="manygpu-figure"{link}>{svg}{below}</figure>'))


def to_svg(fig: Figure, alt: str) -> str:
    """Return `fig` as an <svg> element whose ink is `currentColor`.

    A text that lies wholly on a solid fill is black or white, whichever can be read. A
    line in ink that runs over one has a rim in the colour of the page.
    It shrinks with the page until its smallest letters would be unreadable; a phone
    scrolls it from there on.
    """
    if len(alt.split()) < 4:
        raise ValueError(f"alt must say what the figure shows, got {alt!r}")
    # The narrow form has ids of its own.
    salt = hashlib.sha256(f"{fig.get_figwidth()} {alt}".encode()).hexdigest()[:8]
    style = {**STYLE, "svg.hashsalt": salt}
    with mpl.rc_context(style), _legible.inked(fig):
        svg = _drawn(fig)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    # 'figure_1' and the like stand in every figure; a page may hold many figures.
    svg = re.sub(r' id="[a-zA-Z0-9]+(\.[a-z]+)?_\d+"', "", svg)
    svg = _with_edges(svg.replace(INK, "currentColor").replace(_legible.PAGE, PAGE))
    # The size goes into a style, so that a narrow page can shrink the figure.
    width = float(re.search(r'width="([\d.]+)pt"', svg).group(1))
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)
    label = html.escape(" ".join(alt.split()), quote=True)
    opening = (
        f'<svg role="img" aria-label="{label}" '
        f'style="width:100%;max-width:{width * 4 / 3:.0f}px;height:auto;'
        f'min-width:{_least_width(svg, width):.0f}px"'
    )
    return svg.replace("<svg", opening, 1)


def _drawn(fig: Figure) -> str:
    """What `fig.savefig` writes as SVG. That draws twice: first only to lay out."""
    canvas, dpi, out = fig.canvas, fig.dpi, io.StringIO()
    try:
        FigureCanvasSVG(fig).print_svg(out, metadata={"Date": None, "Creator": None})
    finally:
        fig.set_canvas(canvas)
        fig.set_dpi(dpi)
    return out.getvalue()


def _with_edges(svg: str) -> str:
    """Lines and edges in the darker tones, and such an edge for fills without one."""
    for fill, edge in EDGES.items():
        svg = svg.replace(f"stroke: {fill}", f"stroke: {edge}")
        rim = edge.replace("-edge", "-rim")  # a dark page shows none: fills stay apart
        svg = svg.replace(
            f'style="fill: {fill}"', f'style="fill: {fill}; stroke: {rim}"'
        )
    return svg


def _least_width(svg: str, width: float) -> float:
    """The pixels of a page at which the smallest letters are still readable.

    `width` is that of the drawing, in whose units letters are measured too. A formula
    is a <text> of parts; those smaller than its largest are raised or lowered.
    """
    needed = [0.0]
    for text in re.findall(r"<text.*?</text>", svg, flags=re.S):
        sizes = re.findall(r"font(?:-size)?: (?:\w+ )*([\d.]+)px", text)
        letters = [float(size) for size in sizes]
        needed += [SMALLEST / max(letters)] if letters else []
        needed += [SMALLEST_RAISED / s for s in letters if s < max(letters)]
    return width * max(needed)


def bars(
    ax: Axes,
    labels: Sequence[str],
    values: Sequence[float],
    fmt: str = "{:.1f}",
    fills: Sequence[str] | None = None,
) -> None:
    """Horizontal bars, first on top, each with its value written at its end."""
    fills = fills or [color(0)] * len(values)
    places = range(len(values) - 1, -1, -1)
    ax.barh(places, values, color=fills, height=0.6)
    for place, value in zip(places, values, strict=True):
        ax.annotate(
            fmt.format(value),
            (value, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
        )
    ax.set_yticks(list(places), labels)
    ax.grid(axis="y", visible=False)
    ax.margins(x=0.15)
