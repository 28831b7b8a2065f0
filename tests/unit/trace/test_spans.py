"""Timelines: what they record, count, export; and that clocks change nothing."""

import json
import time

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import manygpu
from manygpu.scratch import get_params, gradients, init_params
from manygpu.trace import spans
from manygpu.trace.spans import Span, clocked
from manygpu.trace.timeline import Timeline
from tests.unit.helpers import in_graph, same, upstream

A, B, C = "/device:CPU:0", "/device:CPU:1", "/device:CPU:2"
CLOCK = "PyFuncStateless"


def some(*times: tuple[str | int, float, float]) -> list[Span]:
    """Pieces of work: (device, start, end)."""
    return [Span(device, "work", start, end) for device, start, end in times]


def test_add_keeps_what_it_is_given_and_for_itself():
    made = Timeline()
    made.add(A, "forward", np.float64(1), 3)
    assert made.spans == [Span(A, "forward", 1.0, 3.0)]
    assert Timeline().spans == []
    span = Span(0, "F", 1.5, 4, work=("F", 0, 2))
    assert (span.seconds, span.work) == (2.5, ("F", 0, 2))


def test_span_holds_what_ran_inside_it_unless_it_failed():
    made, before = Timeline(), time.perf_counter()
    with made.span(A, "forward"):
        inside = time.perf_counter()
    with pytest.raises(KeyError), made.span(B, "forward"):
        raise KeyError
    [span] = made.spans
    assert (span.device, span.name) == (A, "forward")
    assert before <= span.start <= inside <= span.end <= time.perf_counter()


def test_length_is_of_all_devices_and_busy_of_one():
    made = Timeline(some((A, 5, 6), (B, 2, 3), (A, 3, 9)))
    assert (made.length, made.busy(B), made.busy(C)) == (7, 1, 0)


@pytest.mark.parametrize(
    ("times", "share"),
    [
        ([(A, 0, 1), (B, 1, 2)], 0),  # they touch
        ([(A, 0, 1), (B, 0, 1)], 1),
        ([(A, 0, 2), (B, 1, 4)], 1 / 4),
        ([(A, 0, 4), (B, 1, 2), (B, 3, 4)], 2 / 4),
        ([(A, 0, 4), (A, 1, 3)], 0),  # twice the same device
        ([(A, 0, 2), (B, 0, 2), (C, 0, 2)], 1),  # three count no more than two
        ([(A, 0, 2), (B, 1, 3), (C, 2, 4)], 2 / 4),
        ([(A, 1, 1)], 0),  # no length at all
        ([(A, 0, 4), (B, 2, 2)], 0),
    ],
)
def test_overlap_is_the_share_with_two_devices_at_work(times, share):
    assert Timeline(some(*times)).overlap() == pytest.approx(share)


TIMES = st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(0, 9))


@given(st.lists(TIMES, max_size=12))
def test_covered_is_the_length_of_the_union(times):
    found = {t for _, start, n in times for t in range(start, start + n)}
    assert spans.covered(some(*((d, s, s + n) for d, s, n in times))) == len(found)


@given(st.lists(TIMES, min_size=1, max_size=12))
def test_work_and_gaps_fill_each_devices_time(times):
    work = some(*((d, s, s + n) for d, s, n in times))
    whole, idle = spans.length(work), spans.gaps(work)
    assert all(s.name == "waiting" and s.seconds > 0 for s in idle)
    for device, own in spans.by_device([*work, *idle]).items():
        waits = [s for s in idle if s.device == device]
        busy = spans.covered(s for s in work if s.device == device)
        assert busy + sum(s.seconds for s in waits) == whole
        assert spans.covered(own) == whole
    if whole:
        devices = len({s.device for s in work})
        share = 1 - sum(s.seconds for s in idle) / (devices * whole)
        assert spans.busy_share(work) == pytest.approx(share)


def test_by_device_keeps_the_order():
    work = some((1, 5, 6), (0, 1, 2), (1, 3, 4))
    assert spans.by_device(work) == {1: [work[0], work[2]], 0: [work[1]]}


def rows_of(trace: dict) -> dict[str, int]:
    """Which row of a Chrome trace a device has."""
    events = trace["traceEvents"]
    return {e["args"]["name"]: e["tid"] for e in events if e["ph"] == "M"}


def test_the_chrome_trace_has_a_named_row_a_device_and_microseconds():
    trace = Timeline(some((B, 10.5, 11), (A, 10, 10.25), (B, 11, 12))).chrome_trace()
    events = trace["traceEvents"]
    assert rows_of(trace) == {A: 0, B: 1}
    work = [(e["tid"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert work == [(1, 5e5, 5e5), (0, 0.0, 2.5e5), (1, 1e6, 1e6)]
    assert {e["name"] for e in events if e["ph"] == "X"} == {"work"}
    assert {e["pid"] for e in events} == {0}
    assert len(events) == 2 + 3
    numbered = rows_of(Timeline(some((10, 0, 1), (2, 1, 2))).chrome_trace())
    assert numbered["2"] < numbered["10"]


def test_save_writes_the_trace_and_returns_the_path(tmp_path):
    made = Timeline(some((A, 0, 1), (B, 0, 2)))
    made.add(A, "work", *np.array([1.0, 2.0], np.float64))
    path = made.save(str(tmp_path / "step.json"))
    assert path == tmp_path / "step.json"
    assert json.loads(path.read_text(encoding="utf-8")) == made.chrome_trace()


def test_clocked_returns_what_the_work_returns_and_when_it_ran():
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])

    @in_graph
    def step(x, scalar):
        return clocked(lambda a, b: [a @ a, (a + b, [b * 2])], x, scalar)

    before = time.perf_counter()
    (product, (more, [double])), times = step(x, tf.constant(1.0))
    after = time.perf_counter()
    assert same([product, more, double], [x @ x, x + 1, 2.0])
    assert times.dtype == tf.float64
    start, end = times.numpy()
    assert before <= start <= end <= after


def test_clocked_gradients_are_the_gradients_bit_for_bit():
    replica = get_params(init_params(), manygpu.devices(8, quiet=True)[-1])
    X = tf.random.stateless_normal((6, 28, 28, 1), (0, 1))
    y = tf.constant([0, 1, 2, 3, 4, 5])

    def work(X, y):
        with tf.device(replica[0].device):
            return gradients(X, y, replica)

    plain = in_graph(work)(X, y)
    timed, _ = in_graph(lambda X, y: clocked(work, X, y))(X, y)
    assert same(tf.nest.flatten(plain), tf.nest.flatten(timed))


def test_the_clock_is_read_anew_in_each_call():
    @in_graph
    def step(x):
        return clocked(tf.square, x)[1]

    first, second = step(tf.constant(1.0)).numpy(), step(tf.constant(1.0)).numpy()
    assert step.experimental_get_tracing_count() == 1
    assert first[1] <= second[0]
    assert first[0] < second[1]


def test_work_that_needs_other_work_starts_after_it():
    @in_graph
    def step(x):
        y, first = clocked(tf.linalg.matmul, x, x)
        _, second = clocked(tf.linalg.matmul, y, y)
        return first, second

    first, second = step(tf.ones((200, 200)))
    assert first[1] <= second[0]


def test_no_piece_waits_for_one_it_does_not_need():
    """In the graph, not by the clock: a machine may have one core."""

    @in_graph
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
        assert other not in upstream(sine)
        kinds = [op.type for op in upstream(sine)]
        assert kinds.count(CLOCK) == 1  # only its own start


def test_a_clock_waits_for_all_outputs_and_not_only_for_the_last():
    step = in_graph(lambda x: clocked(lambda x: [tf.sin(x), tf.cos(x)], x))
    graph = step.get_concrete_function(tf.ones(3)).graph
    clocks = [op for op in graph.get_operations() if op.type == CLOCK]
    waits_for = [{op.type for op in upstream(clock)} for clock in clocks]
    assert [{"Sin", "Cos"} <= kinds for kinds in waits_for].count(True) == 1
