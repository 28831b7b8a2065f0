"""A figure's SVG: readable on any page, by any reader, beside any other figure."""

import re
import xml.etree.ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest
from d2l import tensorflow as d2l
from IPython.display import HTML
from matplotlib import pyplot as plt

from manygpu import _narrow, figures
from tests.quick.test_colors import contrast, rgb

ALT = "A line that rises from zero to two."


@pytest.fixture(autouse=True)
def leave_matplotlib_as_it_was():
    with mpl.rc_context():
        yield


def lines(legend: bool = False) -> plt.Figure:
    fig, ax = figures.subplots()
    ax.plot([0, 1, 2], label="a")
    ax.scatter([0, 1], [1, 0])
    ax.set(title="title", xlabel="x", ylabel="y")
    if legend:
        ax.legend()
    return fig


def drawing() -> plt.Figure:
    fig, ax = figures.canvas((7, 2), 10, 4)
    figures.box(ax, (1, 1), (3, 2), "GPU:0", figures.color(0))
    figures.box(ax, (6, 1), (3, 2), "idle", dashed=True)
    figures.arrow(ax, (4, 2), (6, 2), "gradients", bend=0.2)
    return fig


def chart() -> plt.Figure:
    fig, ax = figures.subplots(size=(7, 2))
    figures.bars(ax, ["parameters", "gradients"], [1.25, 3.0], "{:.2f} MB")
    return fig


def animation() -> plt.Figure:
    figures.use_style()
    animator = d2l.Animator("epoch", "loss", legend=["a"])
    animator.add(1, 0.5)
    animator.add(2, 0.25)
    return animator.fig


MADE = [lines, drawing, chart]


@pytest.fixture(scope="module", params=[*MADE, animation])
def svg(request) -> str:
    with mpl.rc_context():
        return figures.to_svg(request.param(), ALT)


def test_a_figure_is_an_image_in_the_pages_ink_with_a_text_beside(svg):
    root = ET.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert (root.get("role"), root.get("aria-label")) == ("img", ALT)
    assert (root.get("width"), root.get("height")) == (None, None)  # gives way
    assert "currentColor" in svg and figures.INK not in svg
    assert not re.search(r"fill: ?(#ffffff|white)", svg)  # the paper is transparent
    assert "<metadata" not in svg and "dc:date" not in svg
    assert root.findall(".//{http://www.w3.org/2000/svg}text")  # text stays text


def test_the_alternative_text_is_escaped_and_put_on_one_line():
    alt = 'Loss < 1 & "accuracy"\n   above all else.'
    root = ET.fromstring(figures.to_svg(lines(), alt))
    assert root.get("aria-label") == 'Loss < 1 & "accuracy" above all else.'


@pytest.mark.parametrize("make", MADE)
def test_a_figure_is_the_same_each_time_in_no_colour_but_ink_and_palette(make):
    """Black or white would vanish on a dark or on a light page."""
    svg = figures.to_svg(make(), ALT)
    found = set(re.findall(r"(?:fill|stroke|color): ?([^;\"]+)", svg))
    palette = {*figures.COLORS, *figures.EDGES.values()}
    assert found <= {"none", "currentColor", *palette}
    assert figures.to_svg(make(), ALT) == svg


@pytest.mark.parametrize(
    ("text", "points", "drawn", "least"),
    [
        ("small", 10, 10, 9),
        ("small", 8, 8, 9),
        ("$10^{-3}$", 10, 7, 8),  # an exponent is drawn at seven tenths
        ("", 10, 1, 0),  # without letters it may be as narrow as the page
    ],
)
def test_the_smallest_letters_can_be_read_on_any_page(text, points, drawn, least):
    """Nine pixels, of exponents eight: a page may make a figure no narrower."""
    fig, ax = figures.canvas((4, 3), 10, 4)
    ax.set_title(text, fontsize=points)
    found = re.search(r"min-width:(\d+)px", figures.to_svg(fig, ALT)).group(1)
    assert int(found) == round(least * 72 * 4 / drawn)


def ids(svg: str) -> list[str]:
    return re.findall(r'\bid="([^"]*)"', svg)


def test_each_id_stands_once_and_what_is_referred_to_is_there(svg):
    found = ids(svg)
    assert len(found) == len(set(found))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg)) <= set(found)


def test_figures_on_one_page_share_no_ids():
    """Else the second figure would be clipped by the first one's paths."""
    one = ids(figures.to_svg(lines(), "The first line, which rises."))
    other = ids(figures.to_svg(lines(), "The second line, which rises."))
    assert one
    assert not set(one) & set(other)


# Texts on fills


def on_a_bar(fill: str, text: str, said: str = "w", alpha: float = 1) -> plt.Figure:
    fig, ax = figures.canvas((4, 2), 10, 4)
    ax.add_patch(figures.plt.Rectangle((1, 1), 6, 2, fc=fill, ec="w", alpha=alpha))
    ax.text(4, 2, text, ha="center", va="center", color=said)
    return fig


def ink_of(svg: str, text: str) -> str:
    """The colour in which a drawing writes a text; "" if its parents say it."""
    (found,) = re.findall(rf'<text style="([^"]*)"[^>]*>{text}</text>', svg)
    return "".join(re.findall(r"fill: ?([^;]+)", found))


@pytest.mark.parametrize("fill", [*figures.COLORS, figures.GREY])
def test_a_text_on_a_solid_fill_can_be_read(fill):
    """WCAG 2.2, 1.4.3: 4.5 to 1, whatever the notebook asks for, on every page."""
    fig = on_a_bar(fill, "mean")
    ink = (
        ink_of(figures.to_svg(fig, ALT), "mean") or "#000000"
    )  # what an SVG begins with
    assert contrast(rgb(ink), rgb(fill)) >= 4.5
    assert fig.axes[0].texts[0].get_color() == "w"  # its phone's form is asked anew


@pytest.mark.parametrize(
    ("text", "alpha"), [("as long as the board is wide, and longer", 1), ("mean", 0.25)]
)
def test_a_text_that_leaves_its_fill_or_shines_through_keeps_the_pages_ink(text, alpha):
    svg = figures.to_svg(on_a_bar(figures.ORANGE, text, figures.INK, alpha), ALT)
    assert ink_of(svg, text) == "currentColor"


def with_lines(*lines: str, fill: str = figures.SKY, alpha: float = 1) -> plt.Figure:
    """A bar from 0 to 2, and lines in ink: across it, or beyond it."""
    fig, ax = figures.subplots(size=(4, 2))
    ax.barh([0], [2], color=fill, alpha=alpha)
    draw = {
        "across": lambda: ax.plot([1, 3], [0, 0], color=figures.INK),
        "several": lambda: ax.hlines([0, 0.1], [1, 1], [3, 3], color=figures.INK),
        "beyond": lambda: ax.plot([3, 4], [0, 0], color=figures.INK),
        "coloured": lambda: ax.plot([1, 3], [0, 0], color=figures.BLUE),
    }
    for line in lines:
        draw[line]()
    return fig


@pytest.mark.parametrize("line", ["across", "several"])
def test_a_line_of_ink_across_a_fill_has_a_rim_in_the_pages_colour(line):
    """The page's ink is pale on a dark page, and so are some fills."""
    fig = with_lines(line)
    assert f"stroke: {figures.PAGE}" in figures.to_svg(fig, ALT)
    lines = [*fig.axes[0].lines, *fig.axes[0].collections]
    assert not any(line.get_path_effects() for line in lines)  # as it was before


@pytest.mark.parametrize(
    ("line", "alpha"), [("beyond", 1), ("coloured", 1), ("across", 0.3)]
)
def test_a_line_that_meets_no_solid_fill_or_has_a_colour_has_no_rim(line, alpha):
    assert figures.PAGE not in figures.to_svg(with_lines(line, alpha=alpha), ALT)


# show


@pytest.fixture
def shown(monkeypatch) -> list[HTML]:
    found: list[HTML] = []
    monkeypatch.setattr(figures, "display", found.append)
    return found


def test_show_shows_the_svg_above_its_escaped_caption_and_closes_the_figure(shown):
    figures.show(lines(), ALT, "Loss < 1,\n  after all.", name="loss")
    (page,) = shown
    assert page.data.startswith('<figure class="manygpu-figure" data-name="loss"><svg ')
    caption = "Loss &lt; 1, after all."
    assert page.data.endswith(
        f'<figcaption class="manygpu-caption">{caption}</figcaption></figure>'
    )
    assert plt.get_fignums() == []


def test_a_figure_that_is_not_done_is_not_shown_at_a_cells_end():
    figures.canvas((7, 3), 100, 40)
    figures.subplots(2, 1)
    assert plt.get_fignums() == []  # what a notebook's cell shows when it ends


def test_a_refused_figure_is_not_shown(shown):
    with pytest.raises(ValueError):
        figures.show(lines(), "short")
    with pytest.raises(ValueError, match="name must be of small letters"):
        figures.show(lines(), ALT, name="a name")
    assert shown == []


# The narrow form, for a phone.


def narrow(fig: plt.Figure) -> plt.Figure:
    fig.draw_without_rendering()
    assert _narrow.narrow(fig, figures.legend)
    return fig


def read(texts) -> list[str]:
    return [text.get_text() for text in texts if _narrow.seen(text)]


def test_a_figure_has_a_second_drawing_for_a_phone_which_nobody_sees_before(shown):
    figures.show(lines(), ALT)
    (page,) = shown
    wide, small = re.fullmatch(
        r"<figure[^>]*>(<svg.*</svg>)\s*<template>(<svg.*</svg>)\s*</template></figure>",
        page.data,
        re.S,
    ).groups()
    assert "max-width:358px" in small
    assert not set(ids(wide)) & set(ids(small))


def exponents() -> plt.Figure:
    fig, ax = figures.subplots()
    ax.loglog([1e-6, 1], [1, 1e6])
    return fig


@pytest.mark.parametrize("make", [*MADE, exponents])
def test_its_letters_have_eleven_pixels_on_a_phone_and_exponents_nine(make):
    svg = figures.to_svg(narrow(make()), ALT)
    sizes = re.findall(r"font(?:-size)?: (?:\w+ )*([\d.]+)px", svg)
    least = 9 if make is exponents else 11
    assert min(map(float, sizes)) * 4 / 3 >= least  # in points of the drawing


def test_what_fits_a_phone_needs_no_second_drawing(shown):
    fig, _ = figures.subplots(size=(3.7, 2))
    figures.show(fig, ALT)
    assert "<template" not in shown[0].data


def test_panels_lie_below_one_another_and_say_what_their_neighbour_said():
    fig, axes = figures.subplots(1, 2, sharey=True)
    axes[0].set(ylabel="loss", ylim=(0, 1))
    narrow(fig)
    first, second = (ax.get_position() for ax in axes)
    assert first.y0 > second.y1 and first.x0 == pytest.approx(second.x0)
    assert axes[1].get_ylabel() == "loss"
    assert read(axes[1].get_yticklabels())
    assert fig.get_size_inches()[1] == 6


def test_small_panels_stay_beside_each_other_as_far_as_they_have_room():
    fig, axes = figures.subplots(1, 4)
    narrow(fig)
    places = [ax.get_position() for ax in axes]
    assert places[0].x1 < places[1].x0 and places[1].y0 > places[2].y1


def test_what_is_said_below_a_panel_is_no_part_of_the_next_ones_title():
    fig, axes = figures.subplots(1, 4)
    for ax in axes:
        ax.set(xlabel="idle: 1", title="a split")
        ax.set_xticks([])
    narrow(fig)
    fig.draw_without_rendering()
    said, title = axes[0].xaxis.label.get_window_extent(), axes[2].title
    assert said.y0 - title.get_window_extent().y1 > 2 * said.height


def test_the_legend_of_a_chart_moves_above():
    fig = narrow(lines(legend=True))
    assert fig.axes[0].get_legend() is None
    assert read(fig.legends[0].get_texts()) == ["a"]


def test_a_legend_takes_no_height_from_the_charts():
    fig = labelled(*[f"a label of line {i}" for i in range(4)])
    figures.legend(fig)
    fig.draw_without_rendering()
    before = fig.axes[0].bbox.height
    narrow(fig)
    [legend] = fig.legends
    assert legend.get_window_extent().width <= fig.bbox.width
    assert fig.axes[0].bbox.height == pytest.approx(before, rel=0.1)


def test_long_names_and_the_texts_of_boxes_are_broken_into_lines():
    fig, axes = figures.subplots(2, 1)
    figures.bars(axes[0], ["the state of the optimizer, sharded", "none"], [1, 2])
    axes[0].set(xlabel="a long name " * 9)
    axes[1].axis("off")
    axes[1].set(xlim=(0, 10), ylim=(0, 4))
    figures.box(axes[1], (1, 1), (3, 2), "in the\nmiddle of a box")
    narrow(fig)
    assert "the state of the" in read(axes[0].get_yticklabels())[-1].split("\n")
    assert "\n" in axes[0].get_xlabel()
    assert axes[1].texts[0].get_text() == "in the\nmiddle\nof a\nbox"


def test_a_drawing_grows_until_its_boxes_hold_their_texts():
    fig, ax = figures.canvas((7, 0.6), 10, 4)
    figures.box(ax, (1, 1), (2, 2), "as many as three or four lines")
    narrow(fig)
    assert fig.get_figheight() > 0.9
    boxes, text = _narrow.boxes_in(ax), ax.texts[0]
    assert boxes[_narrow.home(text, boxes)].height > text.get_window_extent().height


def test_numbers_at_an_axis_stand_apart():
    fig, ax = figures.subplots()
    ax.plot([0, 1])
    ax.set_xticks([i / 20 for i in range(21)], [f"{i * 50_000:,}" for i in range(21)])
    narrow(fig)
    left = [text for text in ax.get_xticklabels() if _narrow.seen(text)]
    assert not _narrow.touching(left)
    step = read(left)[1].replace(",", "")
    assert read(left) == [f"{n:,}" for n in range(0, 1_000_001, int(step))]


def test_a_number_leaves_a_bar_that_is_too_narrow_for_it():
    fig, ax = figures.subplots()
    ax.barh([0, 0], [1, 9], left=[0, 1])
    for x, text in ((0.5, "1234567"), (5, "12345678")):
        ax.text(x, 0, text, ha="center", va="center", fontsize=8)
    narrow(fig)
    assert read(ax.texts) == ["12345678"]


@pytest.mark.parametrize(
    ("where", "text"),
    [((1, 1), "incomprehensibilities"), ((8, 3), "transcontinental")],
)
def test_a_drawing_whose_words_have_no_room_has_no_narrow_form(shown, where, text):
    """In a box; and on another text."""
    fig, ax = figures.canvas((7, 2), 10, 4)
    figures.box(ax, (1, 1), (2, 2))
    ax.text(8, 3, "another", ha="center")
    ax.text(where[0] + 1, where[1], text, ha="center")
    assert not _narrow.narrow(fig, figures.legend)
    figures.show(fig, ALT)
    assert "<template" not in shown[0].data


def test_charts_of_several_grids_keep_their_form():
    fig = plt.figure(figsize=(7, 3))
    fig.add_axes((0.1, 0.1, 0.3, 0.8))
    fig.add_subplot(1, 2, 2)
    assert not _narrow.narrow(fig, figures.legend)


# The parts.


def test_lines_and_bars_of_a_pale_color_have_its_edge():
    fig, ax = figures.subplots()
    ax.bar([0], [1], color=figures.ORANGE)
    ax.plot([0, 1], color=figures.SKY)
    svg = figures.to_svg(fig, ALT)
    orange, sky = (figures.EDGES[c] for c in (figures.ORANGE, figures.SKY))
    rim = orange.replace("-edge", "-rim")
    assert rim != orange and f"fill: {figures.ORANGE}; stroke: {rim}" in svg
    assert f"stroke: {sky}" in svg
    assert f"stroke: {figures.SKY}" not in svg


def test_lines_take_the_devices_colors_in_turn():
    _, ax = figures.subplots()
    turns = range(len(figures.COLORS) + 1)
    drawn = [ax.plot([0, i])[0].get_color() for i in turns]
    assert drawn == [figures.color(i) for i in turns]


def test_a_box_is_where_it_was_put_with_its_text_in_the_middle():
    _, ax = figures.canvas((7, 2), 10, 4)
    assert (ax.get_xlim(), ax.get_ylim(), ax.axison) == ((0, 10), (0, 4), False)
    figures.box(ax, (1, 0.5), (3, 2), "GPU:0", figures.color(1))
    for patch in ax.patches:
        corner = ax.transData.inverted().transform(patch.get_extents()).ravel()
        np.testing.assert_allclose(corner, (1, 0.5, 4, 2.5))
    (text,) = ax.texts
    assert (text.get_text(), text.get_position()) == ("GPU:0", (2.5, 1.5))
    filled = [p for p in ax.patches if p.get_facecolor()[3] > 0]
    assert [p.get_alpha() for p in filled] == [figures.SOFT]  # text is read on it
    figures.box(ax, (7, 1), (2, 2), dashed=True)
    assert [p.get_linestyle() for p in ax.patches[1:]] == ["-", "--"]


def test_an_arrow_points_from_start_to_end():
    _, ax = figures.canvas((7, 2), 10, 4)
    figures.arrow(ax, (1, 2), (6, 3), "sum")
    arrow, label = ax.texts
    assert arrow.xy == (6, 3)
    assert arrow.get_position() == (1, 2)
    assert (label.get_text(), label.xy) == ("sum", (3.5, 2.5))


def test_bars_are_as_long_as_their_values_first_on_top():
    _, ax = figures.subplots()
    fills = [figures.color(i) for i in (2, 3, 4)]
    figures.bars(ax, ["a", "b", "c"], [3.0, 1.0, 2.0], "{:.0f} ms", fills)
    bars = sorted(ax.patches, key=lambda bar: -bar.get_y())
    assert [bar.get_width() for bar in bars] == [3, 1, 2]
    assert [mpl.colors.to_hex(bar.get_facecolor()) for bar in bars] == fills
    names = sorted(ax.get_yticklabels(), key=lambda t: -t.get_position()[1])
    assert read(names) == ["a", "b", "c"]
    said = sorted(ax.texts, key=lambda text: -text.xy[1])
    assert [text.xy[0] for text in said] == [3, 1, 2]
    assert read(said) == ["3 ms", "1 ms", "2 ms"]


def labelled(*labels: str, charts: int = 1, width: float = 7.0) -> plt.Figure:
    """A line with each of these labels in every chart."""
    fig, axes = figures.subplots(1, charts, size=(width, 2), squeeze=False)
    for ax in axes.flat:
        for label in labels:
            ax.plot([0, 1], label=label)
    return fig


def test_a_legend_names_each_label_of_all_charts_once():
    fig = labelled("a", "b", charts=2)
    fig.axes[1].plot([1, 0], label="c")
    fig.axes[1].plot([1, 0])
    figures.legend(fig)
    [legend] = fig.legends
    assert [t.get_text() for t in legend.get_texts()] == ["a", "b", "c"]
    assert not any(ax.get_legend() for ax in fig.axes)


@pytest.mark.parametrize("width", [2.5, 4.0, 7.0])
def test_a_legend_is_no_wider_than_its_figure(width):
    fig = labelled(*[f"label number {i}" for i in range(7)], width=width)
    figures.legend(fig)
    [legend] = fig.legends
    fig.canvas.draw()
    box = legend.get_window_extent()
    assert box.x0 >= 0 and box.x1 <= fig.bbox.width
    first = {t.get_window_extent().y0 for t in legend.get_texts()}
    assert (len(first) == 7) == (width == 2.5)  # a label a line only where it must be
    figures.legend(labelled("word " * 30, "short", width=width))  # wider than it


def test_on_a_phone_panels_that_share_an_axis_keep_its_numbers():
    fig, axes = figures.subplots(1, 4, size=(7, 3), sharey=True)
    for ax in axes:
        ax.plot([0, 7], [0, 7])
    figures.to_svg(fig, "four panels of one line each")
    assert _narrow.narrow(fig, figures.legend)
    for ax in axes[::2]:  # two beside each other: the left one speaks for both
        assert len(_narrow.numbers_of(ax.yaxis)) > 2
