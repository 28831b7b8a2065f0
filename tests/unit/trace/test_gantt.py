"""The one Gantt chart: rows, bars, colours, labels, legend, for every kind of span."""

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


@pytest.mark.parametrize(
    ("devices", "given", "shown"),
    [
        ([3, 1], None, ["0", "1", "2", "3"]),  # idle ones, too
        (["CPU:10", "CPU:2", "CPU:1"], None, ["CPU:1", "CPU:2", "CPU:10"]),
        ([B], [A, "wire", B], ["CPU:0", "wire", "CPU:1"]),
    ],
)
def test_rows_are_sorted_by_number_or_given(devices, given, shown):
    ax = drawn([Span(device, "F", 0, 1) for device in devices], rows=given)
    assert rows(ax) == shown
    places = [shown.index(str(device).removeprefix("/device:")) for device in devices]
    assert [row for row, _, _ in bars(ax)] == places


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
    assert named(ax) == ["F"]  # soft or strong, it is one kind
    [bar, _] = drawn(plan, label=lambda s: s.work).patches
    assert bar.get_facecolor()[3] == soft  # not strong unless told
    assert to_hex(bar.get_edgecolor()) == to_hex(bar.get_facecolor())


def test_labels_are_left_out_where_the_longest_would_not_fit():
    plan = [Span(0, "F", 0, 100, work="long text"), Span(0, "F", 100, 102, work="x")]
    shown = drawn(plan, label=lambda s: s.work).texts
    assert [t.get_text() for t in shown] == ["long text"]
    short = [Span(0, "F", i, i + 1) for i in range(20)]  # of 21 points each
    assert len(drawn(short, label=lambda s: "123").texts) == 20
    assert len(drawn(short, label=lambda s: "1234").texts) == 0


def test_waiting_is_dashed_and_empty_and_takes_no_colour():
    waiting, work = drawn([Span(0, WAITING, 0, 1), Span(0, "F", 1, 2)]).patches
    assert waiting.get_facecolor()[3] == 0
    assert to_hex(waiting.get_edgecolor()) == figures.INK
    assert waiting.get_linestyle() != work.get_linestyle()
    assert work.get_facecolor() == to_rgba(figures.color(0))


def test_bars_that_would_be_all_edge_have_none_of_another_colour():
    long, short = drawn([Span(A, "work", 0, 1), Span(A, "work", 1, 1.001)]).patches
    assert to_hex(long.get_edgecolor()) == figures.INK
    assert to_hex(short.get_edgecolor()) == to_hex(short.get_facecolor())


def test_only_a_figure_of_its_own_has_a_legend(monkeypatch):
    ax = drawn([Span(0, "F", 0, 1)])
    assert ax.get_legend() is None and not ax.figure.legends
    shown = []
    monkeypatch.setattr(figures, "show", lambda fig, *words: shown.append(fig))
    gantt([Span(0, "F", 0, 1)], alt="One forward pass on one device.")
    [legend] = shown[0].legends
    assert [t.get_text() for t in legend.get_texts()] == ["F"]


def test_a_timeline_shows_one_figure_with_its_texts_or_draws_on_axes(monkeypatch):
    shown = []
    monkeypatch.setattr(figures, "display", shown.append)
    timeline, said = Timeline([Span(A, "work", 0, 1)]), "A second of work."
    timeline.draw("one device works for a second", "A title", caption=said, name="work")
    [html] = shown
    assert said in html.data and 'data-name="work"' in html.data
    assert "one device works for a second" in html.data and "A title" in html.data
    assert figures.plt.get_fignums() == []
    _, ax = figures.subplots()
    timeline.draw("", "A title", ax=ax)
    assert bars(ax) == [(0, 0, 1e3)]
    assert ax.get_title(loc="left") == "A title"


def test_a_kind_has_the_colour_of_what_it_means_in_every_figure():
    means = {"update": "weights", "forward": "forward", "gradients": "backward"}
    means |= {"all-reduce": "communication", "step": None, "other": None}
    ax = drawn([Span("A", name, i, i + 1) for i, name in enumerate(means)])
    assert len(set(fills(ax))) == len(means)
    for found, meaning in zip(fills(ax), means.values(), strict=True):
        assert meaning is None or found == figures.color(meaning)
