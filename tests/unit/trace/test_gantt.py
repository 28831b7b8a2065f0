"""The one Gantt chart: rows, bars, colours, labels, legend, for every kind of span."""

from __future__ import annotations

import pytest
from matplotlib.colors import to_hex, to_rgba

from manygpu import figures
from manygpu.trace.gantt import WAITING, gantt
from manygpu.trace.profile import Op
from manygpu.trace.spans import Span
from manygpu.trace.timeline import Timeline

A, B = "/device:CPU:0", "/device:CPU:1"


def drawn(spans, **named):
    """The axes on which `spans` were drawn."""
    _, ax = figures.subplots()
    gantt(spans, ax, **named)
    return ax


def bars(ax) -> list[tuple[float, float, float]]:
    """(row, left, width) of each bar."""
    middles = [p.get_y() + p.get_height() / 2 for p in ax.patches]
    found = zip(middles, ax.patches, strict=True)
    return [(round(y, 9), p.get_x(), p.get_width()) for y, p in found]


def fills(ax) -> list[str]:
    return [to_hex(p.get_facecolor()) for p in ax.patches]


def named(ax) -> list[str]:
    return ax.get_legend_handles_labels()[1]


def rows(ax) -> list[str]:
    return [t.get_text() for t in ax.get_yticklabels()]


def test_the_first_device_is_on_top_and_each_kind_named_once():
    work = [Span(B, "work", 1, 2), Span(A, "work", 0, 1), Span(A, "work", 2, 4)]
    ax = drawn([*work, Span(B, "update", 4, 5)], title="A title")
    assert rows(ax) == ["CPU:0", "CPU:1"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]
    assert named(ax) == ["work", "update"]
    whole = [(1, 1e3, 1e3), (0, 0, 1e3), (0, 2e3, 2e3), (1, 4e3, 1e3)]
    assert bars(ax) == whole
    assert fills(ax) == [figures.color(0)] * 3 + [figures.color("weights")]
    assert ax.get_title(loc="left") == "A title"
    assert ax.get_xlabel() == "milliseconds"


@pytest.mark.parametrize(
    ("unit", "scale", "words"),
    [("s", 1, "seconds"), ("us", 1e6, "microseconds"), ("ticks", 1, "ticks")],
)
def test_a_unit_scales_and_names_the_time(unit, scale, words):
    ax = drawn([Span(0, "F", 7, 9)], unit=unit)  # time begins with the first
    assert bars(ax) == [(0, 0, 2 * scale)]
    assert ax.get_xlabel() == words


def test_rows_are_sorted_by_number_and_idle_devices_between_them_shown():
    assert rows(drawn([Span(3, "F", 0, 1), Span(1, "F", 0, 1)])) == ["0", "1", "2", "3"]
    found = [Span(f"CPU:{i}", "F", 0, 1) for i in (10, 2, 1)]
    assert rows(drawn(found)) == ["CPU:1", "CPU:2", "CPU:10"]


def test_rows_can_be_given():
    ax = drawn([Span(B, "F", 0, 1)], rows=[B, "wire", A])
    assert rows(ax) == ["CPU:1", "wire", "CPU:0"]
    assert bars(ax)[0][0] == 0


def test_row_kind_and_color_can_be_told_otherwise():
    ops = [Op("thread 1", f"op{i}", i, i + 1, type=t) for i, t in enumerate("XYX")]
    ax = drawn(
        ops,
        row=lambda op: f"row {op.name[-1]}",
        kind=lambda op: op.type,
        color={"X": "#112233", "Y": "#445566"}.get,
    )
    assert rows(ax) == ["row 0", "row 1", "row 2"]
    assert fills(ax) == ["#112233", "#112233", "#445566"]
    assert named(ax) == ["X", "Y"]


def test_labels_stand_in_soft_bars_and_some_may_be_stronger():
    plan = [Span(0, "F", 0, 1, work=3), Span(0, "F", 1, 2, work=4)]
    ax = drawn(plan, label=lambda s: s.work, strong=lambda s: s.work == 4)
    assert [t.get_text() for t in ax.texts] == ["3", "4"]
    assert [t.get_position() for t in ax.texts] == [(500, 0), (1500, 0)]
    soft, strong = (p.get_facecolor()[3] for p in ax.patches)
    assert soft < strong < 1
    [bar] = drawn([Span(0, "F", 0, 1, work=3)], label=lambda s: s.work).patches
    assert bar.get_facecolor()[3] == soft  # not strong unless told
    assert to_hex(bar.get_edgecolor()) == to_hex(bar.get_facecolor())
    assert named(ax) == ["F"]  # soft or strong, it is one kind


def test_a_bar_too_short_for_the_longest_label_holds_none():
    plan = [Span(0, "F", 0, 100, work="long text"), Span(0, "F", 100, 102, work="x")]
    assert [t.get_text() for t in drawn(plan, label=lambda s: s.work).texts] == [
        "long text"
    ]


@pytest.mark.parametrize(("text", "fits"), [("123", True), ("1234", False)])
def test_labels_are_left_out_where_they_would_run_into_the_next(text, fits):
    plan = [Span(0, "F", i, i + 1) for i in range(20)]  # of 21 points each
    assert len(drawn(plan, label=lambda s: text).texts) == 20 * fits


def test_waiting_is_dashed_and_empty_and_takes_no_colour():
    spans = [Span(0, WAITING, 0, 1), Span(0, "F", 1, 2)]
    ax = drawn(spans)
    waiting, work = ax.patches
    assert waiting.get_facecolor()[3] == 0
    assert to_hex(waiting.get_edgecolor()) == figures.INK
    assert waiting.get_linestyle() != work.get_linestyle()
    assert work.get_facecolor() == to_rgba(figures.color(0))


def test_a_bar_that_would_be_all_edge_shows_its_own_colour():
    spans = [Span(A, "work", 0, 1), Span(A, "work", 1, 1.001)]
    long, short = drawn(spans).patches
    assert to_hex(long.get_edgecolor()) == figures.INK
    assert to_hex(short.get_edgecolor()) == to_hex(short.get_facecolor())


def test_many_bars_have_no_edges():
    def width(count: int) -> float:
        ax = drawn([Span(0, "F", i, i + 1) for i in range(count)])
        return ax.patches[0].get_linewidth()

    assert width(200) > 0 == width(201)


def test_only_a_figure_of_its_own_has_a_legend(monkeypatch):
    ax = drawn([Span(0, "F", 0, 1)])
    assert ax.get_legend() is None and not ax.figure.legends
    shown = []
    monkeypatch.setattr(figures, "show", lambda fig, *words: shown.append(fig))
    gantt([Span(0, "F", 0, 1)], alt="One forward pass on one device.")
    [legend] = shown[0].legends
    assert [t.get_text() for t in legend.get_texts()] == ["F"]


@pytest.mark.parametrize("timeline", [True, False])
def test_alone_it_shows_one_figure_with_its_alt_text(monkeypatch, timeline):
    shown = []
    monkeypatch.setattr(figures, "display", shown.append)
    spans, said = [Span(A, "work", 0, 1)], "A second of work."
    alt = "one device works for a second"
    if timeline:
        Timeline(spans).draw(alt, "A title", caption=said, name="work")
    else:
        gantt(spans, alt=alt, title="A title", caption=said, name="work")
    [html] = shown
    assert said in html.data and 'data-name="work"' in html.data
    assert alt in html.data and "A title" in html.data
    assert figures.plt.get_fignums() == []


def test_a_timeline_draws_on_the_axes_it_is_given():
    _, ax = figures.subplots()
    Timeline([Span(A, "work", 0, 1)]).draw("", "A title", ax=ax)
    assert bars(ax) == [(0, 0, 1e3)]
    assert ax.get_title(loc="left") == "A title"


def test_a_kind_has_the_colour_of_what_it_means_in_every_figure():
    names = ["update", "step", "forward", "all-reduce", "other", "gradients"]
    ax = drawn([Span("A", name, i, i + 1) for i, name in enumerate(names)])
    found = dict(zip(names, fills(ax), strict=True))
    assert found["update"] == figures.color("weights")
    assert found["forward"] == figures.color("forward")
    assert found["all-reduce"] == figures.color("communication")
    assert found["gradients"] == figures.color("backward")
    assert len(set(found.values())) == len(names)
