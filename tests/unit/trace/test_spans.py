"""Timelines: what they record, count, export; and that clocks change nothing."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
import tensorflow as tf

import manygpu
from manygpu.scratch import get_params, gradients, init_params
from manygpu.trace.spans import Span, Timeline, clocked

A, B, C = "/device:CPU:0", "/device:CPU:1", "/device:CPU:2"


def line(*spans: tuple[str, float, float]) -> Timeline:
    """A timeline of pieces of work: (device, start, end)."""
    made = Timeline()
    for device, start, end in spans:
        made.add(device, "work", start, end)
    return made


# Recording


def test_add_keeps_what_it_is_given():
    made = Timeline()
    made.add(A, "forward", np.float64(1), 3)
    assert made.spans == [Span(A, "forward", 1.0, 3.0)]


def test_two_timelines_share_nothing():
    first = line((A, 0, 1))
    assert len(first.spans) == 1
    assert Timeline().spans == []


def test_a_span_that_ends_before_it_starts_is_refused():
    made = Timeline()
    with pytest.raises(ValueError, match="before start, got 2.0 and 1.0"):
        made.add(A, "work", 2, 1)
    assert made.spans == []


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_time_that_is_not_finite_is_refused(bad):
    made = Timeline()
    for start, end in ((bad, 1.0), (0.0, bad)):
        with pytest.raises(ValueError, match="must be finite"):
            made.add(A, "work", start, end)
    assert made.spans == []


def test_span_holds_what_ran_inside_it():
    made, before = Timeline(), time.perf_counter()
    with made.span(A, "forward"):
        inside = time.perf_counter()
    [span] = made.spans
    assert (span.device, span.name) == (A, "forward")
    assert before <= span.start <= inside <= span.end <= time.perf_counter()


def test_span_does_not_record_work_that_failed():
    made = Timeline()
    with pytest.raises(KeyError), made.span(A, "forward"):
        raise KeyError
    assert made.spans == []


# Counting


def test_length_is_from_the_first_start_to_the_last_end():
    assert line((A, 5, 6), (B, 2, 3), (A, 3, 9)).length == 7


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([(A, 0, 1), (A, 3, 5)], 3),
        ([(A, 0, 4), (A, 1, 2)], 4),  # one inside another
        ([(A, 1, 3), (A, 0, 2)], 3),  # overlapping, recorded in reverse
        ([(A, 0, 1), (A, 1, 2)], 2),
        ([(A, 0, 1), (B, 0, 9)], 1),  # another device's work is not its own
        ([(B, 0, 9)], 0),
    ],
)
def test_busy_counts_no_second_twice(spans, seconds):
    assert line(*spans).busy(A) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("spans", "share"),
    [
        ([(A, 0, 1), (B, 1, 2)], 0),  # they touch
        ([(A, 0, 1), (B, 0, 1)], 1),
        ([(A, 0, 2), (B, 1, 4)], 1 / 4),
        ([(A, 0, 4), (B, 1, 2), (B, 3, 4)], 2 / 4),
        ([(A, 0, 4), (A, 1, 3)], 0),  # twice the same device
        ([(A, 0, 2), (B, 0, 2), (C, 0, 2)], 1),  # three count no more than two
        ([(A, 0, 2), (B, 1, 3), (C, 2, 4)], 2 / 4),
        ([(A, 0, 1), (B, 9, 10)], 0),
        ([(A, 1, 1)], 0),  # no length at all
        ([(A, 0, 4), (B, 2, 2)], 0),
    ],
)
def test_overlap_is_the_share_with_two_devices_at_work(spans, share):
    assert line(*spans).overlap() == pytest.approx(share)


@pytest.mark.parametrize("ask", ["length", "overlap", "chrome_trace", "draw", "save"])
def test_an_empty_timeline_says_what_to_do(ask, tmp_path):
    arguments = {"draw": ["some words of alt text"], "save": [tmp_path / "t.json"]}
    with pytest.raises(ValueError, match="empty: record some work first"):
        answer = getattr(Timeline(), ask)
        answer(*arguments.get(ask, []))
    assert list(tmp_path.iterdir()) == []


# Exporting


def test_the_chrome_trace_has_a_named_row_a_device_and_microseconds():
    trace = line((B, 10.5, 11), (A, 10, 10.25), (B, 11, 12)).chrome_trace()
    events = trace["traceEvents"]
    rows = {e["args"]["name"]: e["tid"] for e in events if e["ph"] == "M"}
    assert rows == {A: 0, B: 1}
    work = [(e["tid"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert work == [(1, 5e5, 5e5), (0, 0.0, 2.5e5), (1, 1e6, 1e6)]
    assert {e["name"] for e in events if e["ph"] == "X"} == {"work"}
    assert {e["pid"] for e in events} == {0}
    assert len(events) == 2 + 3


def test_save_writes_the_trace_and_returns_the_path(tmp_path):
    made = line((A, 0, 1), (B, 0, 2))
    path = made.save(str(tmp_path / "step.json"))
    assert path == tmp_path / "step.json"
    assert json.loads(path.read_text(encoding="utf-8")) == made.chrome_trace()


def test_numpy_times_can_be_written(tmp_path):
    made = Timeline()
    made.add(A, "work", *np.array([1.0, 2.0], np.float64))
    assert made.save(tmp_path / "t.json").exists()


# Drawing


def test_draw_puts_the_first_device_on_top_and_names_each_kind_once():
    from manygpu import figures

    made = line((B, 1, 2), (A, 0, 1), (A, 2, 4))
    made.add(B, "update", 4, 5)
    fig, ax = figures.subplots()
    made.draw("", "A title", ax=ax)
    assert [t.get_text() for t in ax.get_yticklabels()] == ["CPU:0", "CPU:1"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["work", "update"]
    lefts_and_widths = [(p.get_x(), p.get_width()) for p in ax.patches]
    assert lefts_and_widths == [(1e3, 1e3), (0, 1e3), (2e3, 2e3), (4e3, 1e3)]
    assert ax.get_title(loc="left") == "A title"


def test_draw_alone_shows_one_figure_with_its_alt_text(monkeypatch):
    from manygpu import figures

    shown = []
    monkeypatch.setattr(figures, "display", shown.append)
    line((A, 0, 1)).draw("one device works for a second")
    [html] = shown
    assert "one device works for a second" in html.data
    assert figures.plt.get_fignums() == []


# The clock in a graph


def test_clocked_returns_what_the_work_returns_and_when_it_ran():
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])

    @tf.function
    def step(x):
        return clocked(lambda a: [a @ a, (a + 1, [a * 2])], x)

    before = time.perf_counter()
    (product, (more, [double])), times = step(x)
    after = time.perf_counter()
    assert np.array_equal(product, x @ x)
    assert np.array_equal(more, x + 1)
    assert np.array_equal(double, x * 2)
    assert times.dtype == tf.float64
    start, end = times.numpy()
    assert before <= start <= end <= after


def test_clocked_works_on_a_scalar_and_on_several_inputs():
    @tf.function
    def step(a, b):
        return clocked(lambda a, b: a + b, a, b)

    total, _ = step(tf.constant(2.0), tf.constant(3.0))
    assert total.shape == ()
    assert total.numpy() == 5.0


def test_clocked_gradients_are_the_gradients_bit_for_bit():
    replica = get_params(init_params(), manygpu.devices(8, quiet=True)[-1])
    X = tf.random.stateless_normal((6, 28, 28, 1), (0, 1))
    y = tf.constant([0, 1, 2, 3, 4, 5])

    def work(X, y):
        with tf.device(replica[0].device):
            return gradients(X, y, replica)

    loss, grads = tf.function(work)(X, y)
    (timed_loss, timed), _ = tf.function(lambda X, y: clocked(work, X, y))(X, y)
    assert np.array_equal(loss, timed_loss)
    for g, t in zip(grads, timed, strict=True):
        assert np.array_equal(g, t)


def test_the_clock_is_read_anew_in_each_call():
    @tf.function
    def step(x):
        return clocked(tf.square, x)[1]

    first, second = step(tf.constant(1.0)).numpy(), step(tf.constant(1.0)).numpy()
    assert step.experimental_get_tracing_count() == 1
    assert first[1] <= second[0]
    assert first[0] < second[1]


def test_work_that_needs_other_work_starts_after_it():
    @tf.function
    def step(x):
        y, first = clocked(tf.linalg.matmul, x, x)
        _, second = clocked(tf.linalg.matmul, y, y)
        return first, second

    first, second = step(tf.ones((200, 200)))
    assert first[1] <= second[0]


def test_no_piece_waits_for_one_it_does_not_need():
    """In the graph, not by the clock: a machine may have one core."""

    @tf.function
    def step(a, b):
        pieces = []
        for i, x in enumerate((a, b)):
            with tf.device(f"/device:CPU:{i}"):
                pieces.append(clocked(lambda x: tf.sin(x) @ x, x)[1])
        return tf.stack(pieces)

    x = tf.ones((4, 4))
    graph = step.get_concrete_function(x, x).graph
    sines = [op for op in graph.get_operations() if op.type == "Sin"]
    assert len(sines) == 2
    for sine, other in (sines, sines[::-1]):
        assert other not in _all_before(sine)
        kinds = [op.type for op in _all_before(sine)]
        assert kinds.count("PyFuncStateless") == 1  # only its own start


def _all_before(op: tf.Operation) -> set[tf.Operation]:
    """Everything that must run before `op`."""
    found, ahead = set(), [op]
    while ahead:
        now = ahead.pop()
        before = {*now.control_inputs, *(t.op for t in now.inputs)} - found
        found |= before
        ahead += before
    return found
