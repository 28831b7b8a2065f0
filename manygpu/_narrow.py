"""The same figure for a phone: as wide as its column, panels below one another.

A figure is drawn for the column of a page; a phone's is half as wide. So it is laid out
anew: panels below one another, the legend above in as many rows as it needs, names in
two lines, fewer numbers at an axis, and drawings as much higher as the texts in their
boxes need. Where texts would lie on each other even so, there is no narrow form, and a
phone scrolls the wide one.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.text import Text
from matplotlib.transforms import Bbox

WIDTH = 358 / 96  # inches: the column of a phone that is 390 pixels wide
LETTERS = 8.3  # points: 11 pixels
FORMULAS = 10.0  # points: raised and lowered letters are 0.7 of that
RAISED = re.compile(r"\$.*[\^_]")
NAMES = 0.35  # of the width, at most, is for the names at an axis
ROOM = 3  # pixels between texts, and around a text in its box
HIGHEST = 3  # times as high as it was
APART = 8 / 72  # inches around a panel: what is below one isn't the next one's title
Boxes = dict[FancyBboxPatch | Rectangle, Bbox]  # what may hold a text, and where


def narrow(fig: Figure, legend: Callable[[Figure], None]) -> bool:
    """Lay `fig` out anew for a phone; False if its texts have no room then.

    Args:
        fig: was drawn, so that its axes have their numbers; it keeps all that is in it.
        legend: puts one legend above all charts.
    """
    if fig.get_figwidth() <= WIDTH or not stack(fig):
        return False
    for text in fig.findobj(Text):
        text.set_fontsize(FORMULAS if RAISED.search(text.get_text()) else LETTERS)
    for axis in axes_of(fig):
        raised = any(RAISED.search(t.get_text()) for t in numbers_of(axis))
        axis.set_tick_params("both", labelsize=FORMULAS if raised else LETTERS)
    put_legend_above(fig, legend)
    highest = HIGHEST * fig.get_figheight()
    for _ in range(5):  # what is broken into lines moves the rest
        before = looks(fig)
        fig.draw_without_rendering()  # then an axis may have other numbers
        break_names(fig)
        for ax in fig.axes:
            thin(ax.xaxis)
            break_texts(ax)
        if not all(ax.axison for ax in fig.axes):
            grow(fig, highest)
        if looks(fig) == before:
            break
    return not clashes(fig)


def looks(fig: Figure) -> tuple[float, list[str]]:
    """What laying it out anew may change: its height, and what can be read in it."""
    return fig.get_figheight(), [t.get_text() for t in fig.findobj(Text) if seen(t)]


def stack(fig: Figure) -> bool:
    """As many panels beside each other as keep their width, the others below.

    False if they are not the cells of one grid.
    """
    width, height = fig.get_size_inches()
    grids = {ax.get_gridspec() for ax in fig.axes}
    grid = grids.pop()
    if grids or grid is None:
        return False
    rows, columns = grid.get_geometry()
    beside = max(1, int(columns * WIDTH / width))
    below = -(-columns // beside)
    fig.set_size_inches(WIDTH, height * below)
    ratios = np.repeat(grid.get_height_ratios(), below)
    new = GridSpec(rows * below, beside, fig, height_ratios=ratios)
    engine = fig.get_layout_engine()
    if below > 1 and isinstance(engine, ConstrainedLayoutEngine):
        engine.set(h_pad=APART)
    for ax in fig.axes if below > 1 else ():
        spec = ax.get_subplotspec()
        if spec.num1 != spec.num2:
            return False
        row, column = spec.rowspan.start, spec.colspan.start
        ax.set_subplotspec(new[row * below + column // beside, column % beside])
        if column % beside == 0 and ax.axison:  # its neighbour spoke for it
            ax.tick_params(axis="y", labelleft=True)
            shared = ax.get_shared_y_axes().get_siblings(ax)
            ax.set_ylabel(max((other.get_ylabel() for other in shared), key=len))
        shared = ax.get_shared_x_axes().get_siblings(ax)
        if ax.axison and len(shared) > 1:  # one further down spoke for it
            ax.tick_params(axis="x", labelbottom=True)
            ax.set_xlabel(max((other.get_xlabel() for other in shared), key=len))
    return True


def put_legend_above(fig: Figure, legend: Callable[[Figure], None]) -> None:
    """One legend for all: beside the lines there is no room."""
    there = [*filter(None, (ax.get_legend() for ax in fig.axes)), *fig.legends]
    if there and any(ax.get_legend_handles_labels()[1] for ax in fig.axes):
        before = sum(old.get_window_extent().height for old in fig.legends)
        for old in there:
            old.remove()
        legend(fig)
        more = fig.legends[0].get_window_extent().height - before
        fig.set_figheight(fig.get_figheight() + more / fig.dpi)


def break_names(fig: Figure) -> None:
    """Titles and names into lines that end within the figure."""
    width = fig.bbox.width
    for ax in fig.axes:
        middle = (ax.bbox.x0 + ax.bbox.x1) / 2
        rooms = {ax.xaxis.label: 2 * min(middle, width - middle)}
        rooms[ax.yaxis.label] = ax.bbox.height
        for title in titles_of(ax):
            rooms[title] = width - max(0, title.get_window_extent().x0)
        for text, room in rooms.items():
            if "$" not in text.get_text():
                text.set_text(" ".join(text.get_text().split()))
            break_lines(text, room)
        break_words(ax.yaxis, NAMES * width)


def thin(axis: Axis) -> None:
    """Every other number, until they stand apart; names in lines."""
    labels = numbers_of(axis)
    while len(labels) > 2 and touching(labels) and all(map(is_number, labels)):
        for text in labels[1::2]:
            text.set_visible(False)
        labels = labels[::2]
    if touching(labels):
        break_words(axis, axis.axes.bbox.width / len(labels) - ROOM)


def break_words(axis: Axis, pixels: float) -> None:
    """The names at an axis into lines."""
    labels = numbers_of(axis)
    # An axis whose neighbour speaks for it shares its ticks: it must not lose them.
    if labels and not any(map(is_number, labels)):
        for text in labels:
            break_lines(text, pixels)
        side = 0 if axis.axis_name == "x" else 1
        places = [text.get_position()[side] for text in labels]
        axis.set_ticks(places, [text.get_text() for text in labels])


def break_texts(ax: Axes) -> None:
    """Texts into lines as wide as their boxes; where a bar is too narrow, none.

    A text in no box is broken until it touches no other and no box.
    """
    boxes = boxes_in(ax)
    for text in texts_in(ax):
        own, box = home(text, boxes), text.get_window_extent()
        if isinstance(own, Rectangle):
            text.set_visible(box.width < boxes[own].width)
        elif own is not None:
            break_lines(text, boxes[own].width - ROOM)
        elif meets(text, boxes):
            break_lines(text, 0.7 * box.width)
            if meets(text, boxes):  # it has grown upwards: let it hang
                _, top = ax.transData.inverted().transform((0, box.y1))
                text.set(y=top, va="top")


def grow(fig: Figure, highest: float) -> None:
    """Make a drawing as much higher as its fullest box needs."""
    need = 1.0
    for ax in fig.axes:
        boxes = boxes_in(ax)
        for text in texts_in(ax):
            if isinstance(own := home(text, boxes), FancyBboxPatch):
                inside = text.get_window_extent().height + ROOM
                need = max(need, inside / boxes[own].height)
    fig.set_figheight(min(highest, fig.get_figheight() * need))


def break_lines(text: Text, pixels: float) -> None:
    """Break a text into more lines if it is longer than that; never within a word."""
    box, lines = text.get_window_extent(), text.get_text().split("\n")
    long = box.height if text.get_rotation() == 90 else box.width
    if long > pixels and "$" not in text.get_text():
        letters = max(1, int(max(map(len, lines)) * pixels / long))
        style = {"break_long_words": False, "break_on_hyphens": False}
        text.set_text("\n".join(textwrap.fill(x, letters, **style) for x in lines))


# What there is, and whether it has room


def axes_of(fig: Figure) -> list[Axis]:
    """Both axes of each chart that shows them."""
    return [axis for ax in fig.axes if ax.axison for axis in (ax.xaxis, ax.yaxis)]


def titles_of(ax: Axes) -> list[Text]:
    """A chart's titles, wherever they stand."""
    return [ax.title, ax._left_title, ax._right_title]


def numbers_of(axis: Axis) -> list[Text]:
    """What is written at an axis, in the order in which it stands there."""
    scale = axis.get_transform().transform
    low, high = sorted(scale(axis.get_view_interval()))
    edge = 1e-6 * (high - low)
    found = []
    for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
        place = scale(np.array([tick.get_loc()]))[0]
        if low - edge <= place <= high + edge and seen(tick.label1):
            found.append((place, tick.label1))
    return [text for _, text in sorted(found, key=lambda pair: pair[0])]


def texts_in(ax: Axes) -> list[Text]:
    """Texts among what is drawn."""
    return [text for text in ax.texts if seen(text)]


def seen(text: Text) -> bool:
    """Whether there is anything to read."""
    return text.get_visible() and bool(text.get_text().strip())


def is_number(text: Text) -> bool:
    """Whether its neighbours tell what it would say."""
    return re.fullmatch(r"[\d.,%\N{MINUS SIGN}-]+|\$.*\$", text.get_text()) is not None


def overlap(one: Bbox, other: Bbox, room: float = -1) -> bool:
    """Whether two boxes come nearer to each other than `room`; they may touch."""
    across = min(one.x1, other.x1) - max(one.x0, other.x0)
    return across > -room and min(one.y1, other.y1) - max(one.y0, other.y0) > -room


def touching(labels: Sequence[Text]) -> bool:
    """Whether two that stand beside each other could be read as one."""
    boxes = [text.get_window_extent() for text in labels]
    return any(overlap(a, b, ROOM) for a, b in itertools.pairwise(boxes))


def boxes_in(ax: Axes) -> Boxes:
    """Where a chart's boxes and bars lie: asked once, for there may be many."""
    kinds = FancyBboxPatch | Rectangle
    return {p: p.get_window_extent() for p in ax.patches if isinstance(p, kinds)}


def home(text: Text, boxes: Boxes) -> FancyBboxPatch | Rectangle | None:
    """The smallest box around a text's middle."""
    box = text.get_window_extent()
    x, y = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2
    around = {p: b.width * b.height for p, b in boxes.items() if b.contains(x, y)}
    return min(around, key=around.get, default=None)


def meets(text: Text, boxes: Boxes) -> bool:
    """Whether a text among what is drawn lies on another, or on the edge of a box."""
    box = text.get_window_extent()
    others = [t.get_window_extent() for t in texts_in(text.axes) if t is not text]
    return on_edge(box, boxes) or any(overlap(box, other) for other in others)


def on_edge(box: Bbox, boxes: Boxes) -> bool:
    """Whether a text's box lies on the edge of a rounded one."""
    edges = [place for p, place in boxes.items() if isinstance(p, FancyBboxPatch)]
    for edge in edges:
        inside = edge.x0 <= box.x0 and box.x1 <= edge.x1
        inside = inside and edge.y0 <= box.y0 and box.y1 <= edge.y1
        if not inside and overlap(box, edge):
            return True
    return False


def clashes(fig: Figure) -> list[str]:
    """Texts that have no room: on another, on the edge of a box, or outside."""
    texts, wrong = [], []
    for ax in fig.axes:
        boxes, inside = boxes_in(ax), texts_in(ax)
        texts += inside
        wrong += [t.get_text() for t in inside if on_edge(t.get_window_extent(), boxes)]
    texts += [title for ax in fig.axes for title in titles_of(ax)]
    for axis in axes_of(fig):
        texts += [axis.label, *numbers_of(axis)]
    texts += [text for legend in fig.legends for text in legend.get_texts()]
    boxes = [(t.get_text(), t.get_window_extent()) for t in texts if seen(t)]
    wrong += [t for t, box in boxes if box.x0 < -1 or box.x1 > fig.bbox.width + 1]
    pairs = itertools.combinations(boxes, 2)
    return wrong + [f"{a} | {b}" for (a, x), (b, y) in pairs if overlap(x, y)]
