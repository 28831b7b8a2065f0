"""Schedules and their executor: who does what when, what is kept, which gradients."""

from __future__ import annotations

import json
from collections import Counter
from itertools import combinations, pairwise

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch.splitting.network import Stage, even_cuts, make_stages
from manygpu.scratch.splitting.pipeline import (
    Op,
    Slot,
    balanced_cuts,
    bubble,
    check_plan,
    cut_batch,
    dense_chain,
    earliest_spans,
    forward_only,
    gpipe,
    in_flight,
    in_ticks,
    interleaved,
    measured_spans,
    needs,
    one_forward_one_backward,
    orders_of,
    pipeline_gradients,
    pipeline_step,
    run_plan,
    zero_bubble,
)
from manygpu.trace.spans import Span, length
from tests.unit.helpers import EIGHT, distance

PLAIN = {
    "forward": (forward_only, "F"),
    "gpipe": (gpipe, "FB"),
    "1f1b": (one_forward_one_backward, "FB"),
    "zero": (zero_bubble, "FBW"),
}
STAGES, MICRO = st.integers(1, 8), st.integers(1, 32)
EACH = pytest.mark.parametrize("make, kinds", PLAIN.values(), ids=PLAIN)
many = settings(deadline=None, max_examples=60)
few = settings(deadline=None, max_examples=6)


def nowhere(count: int) -> list[Stage]:
    """Stages for checks that run nothing."""
    return [Stage(EIGHT[s % 8], ()) for s in range(count)]


def spans_of(plan, share: float = 1.0):
    """Forward 1, backward 2, in units of a device's share of the network."""
    backward = 1 if any(slot.op.kind == "W" for slot in plan) else 2
    cost = {"F": share, "B": backward * share, "W": share}
    return earliest_spans(orders_of(plan), lambda op: cost[op.kind])


def assert_sound(plan, kinds: str, stages: int, micro_batches: int, devices: int):
    ops = [slot.op for slot in plan]
    wanted = {
        (k, s, m) for k in kinds for s in range(stages) for m in range(micro_batches)
    }
    assert Counter(ops) == Counter(wanted)
    assert max(Counter((slot.device, slot.tick) for slot in plan).values()) == 1
    assert all(slot.device == slot.op.stage % devices for slot in plan)
    at = {slot.op: slot.tick for slot in plan}
    for kind, s, m in ops:  # not by `needs`: that is tested here as well
        if kind == "F" and s > 0:
            assert at["F", s, m] > at["F", s - 1, m]
        if kind == "B":
            assert at["B", s, m] > at["F", s, m]
        if kind == "B" and s < stages - 1:
            assert at["B", s, m] > at["B", s + 1, m]
        if kind == "W":
            assert at["W", s, m] > at["B", s, m]
    assert check_plan(plan, nowhere(stages)) == sorted(plan, key=lambda slot: slot.tick)
    assert in_ticks(orders_of(plan)) == plan


# Schedules.


@EACH
@given(p=STAGES, m=MICRO)
@many
def test_a_schedule_does_each_operation_once_in_an_order_that_works(make, kinds, p, m):
    assert_sound(make(p, m), kinds, p, m, p)


@given(k=STAGES, v=st.integers(1, 4), m=MICRO)
@many
def test_so_does_the_interleaved_one_for_any_number_of_rounds(k, v, m):
    assert_sound(interleaved(v * k, m, k), "FB", v * k, m, k)


@given(p=STAGES, m=MICRO)
@many
def test_lengths_bubbles_and_in_flight_follow_their_formulas(p, m):
    ideal = (p - 1) / (m + p - 1)
    forward = spans_of(forward_only(p, m))
    assert (length(forward), bubble(forward)) == (m + p - 1, pytest.approx(ideal))
    for make in (gpipe, one_forward_one_backward):
        spans = spans_of(make(p, m))
        assert (length(spans), bubble(spans)) == (3 * (m + p - 1), pytest.approx(ideal))
    assert in_flight(orders_of(forward_only(p, m))) == [1] * p
    assert in_flight(orders_of(gpipe(p, m))) == [m] * p
    ahead = in_flight(orders_of(one_forward_one_backward(p, m)))
    assert ahead == [min(m, p - s) for s in range(p)]
    assert max(in_flight(orders_of(zero_bubble(p, m)))) <= p
    late = spans_of(zero_bubble(p, m))
    assert length(late) <= 3 * (m + p - 1)
    if m >= p:
        assert length(late) == 3 * m + p - 1


@given(k=STAGES, v=st.integers(2, 4), groups=st.integers(1, 4))
@many
def test_more_rounds_make_the_interleaved_bubble_smaller(k, v, groups):
    m = groups * k
    share = bubble(spans_of(interleaved(v * k, m, k), 1 / v))
    assert share == pytest.approx((k - 1) / (v * m + k - 1))


@pytest.mark.parametrize(
    "p, m, v, ours, pytorchs", [(3, 5, 4, 72, 66), (4, 5, 4, 88, 69)]
)
def test_a_larger_group_is_shorter_than_a_padded_one_and_holds_more(
    p, m, v, ours, pytorchs
):
    plans = interleaved(v * p, m, p), interleaved(v * p, m, p, group=m)
    assert [length(spans_of(plan)) for plan in plans] == [ours, pytorchs]
    padded, one = (max(in_flight(orders_of(plan))) for plan in plans)
    assert padded < one
    assert_sound(plans[1], "FB", v * p, m, p)
    with pytest.raises(ValueError, match=f"group must be at least the {p} devices"):
        interleaved(v * p, m, p, group=p - 1)


@given(p=STAGES, m=MICRO)
@many
def test_what_waits_for_w_is_counted_too(p, m):
    orders = orders_of(zero_bubble(p, m))
    for order, both in zip(orders, in_flight(orders, gradients=0.5), strict=True):
        held = [
            sum((1, 0.5, -1.5)["FBW".index(op.kind)] for op in order[: i + 1])
            for i in range(len(order))
        ]
        assert both == max(held)
    plain = orders_of(one_forward_one_backward(p, m))
    assert in_flight(plain, gradients=1) == in_flight(plain)
    if m >= p:
        assert in_flight(orders, gradients=1) == [p + s + (m > s) for s in range(p)]


@given(p=STAGES, m=MICRO)
@many
def test_one_round_interleaved_is_1f1b(p, m):
    assert interleaved(p, m, p) == one_forward_one_backward(p, m)


@pytest.mark.parametrize("make", [f for f, _ in PLAIN.values()])
@pytest.mark.parametrize(
    "bad, kind", [(0, ValueError), (-1, ValueError), (1.5, TypeError)]
)
def test_schedules_refuse_bad_counts_by_name(make, bad, kind):
    with pytest.raises(kind, match="stages"):
        make(bad, 2)
    with pytest.raises(kind, match="micro_batches"):
        make(2, bad)
    with pytest.raises(kind, match="devices"):
        interleaved(2, 2, bad)


@pytest.mark.parametrize("stages, devices", [(6, 4), (1, 2), (7, 3)])
def test_interleaved_refuses_stages_that_devices_cant_share(stages, devices):
    with pytest.raises(ValueError, match=f"stages is {stages}, which {devices} dev"):
        interleaved(stages, 4, devices)


# Time.


def test_an_operation_starts_when_its_device_and_what_it_needs_are_ready():
    spans = earliest_spans(
        orders_of(gpipe(2, 1)), lambda op: {"F": 1.5, "B": 4}[op.kind]
    )
    assert spans == [
        Span(0, "forward", 0, 1.5, Op("F", 0, 0)),
        Span(1, "forward", 1.5, 3.0, Op("F", 1, 0)),
        Span(1, "backward", 3.0, 7.0, Op("B", 1, 0)),
        Span(0, "backward", 7.0, 11.0, Op("B", 0, 0)),
    ]
    assert bubble(spans) == 0.5


def test_devices_that_wait_for_each_other_are_noticed_and_named():
    first, second = orders_of(forward_only(2, 2))
    crossed = [[first[1], first[0]], [Op("B", 1, 0), *second]]
    with pytest.raises(ValueError, match=r"nobody can begin.*kind='B', stage=1"):
        earliest_spans(crossed)


def test_empty_input_is_refused_by_name():
    for call, name in (
        (earliest_spans, "orders"),
        (orders_of, "plan"),
        (bubble, "spans"),
    ):
        with pytest.raises(ValueError, match=name):
            call([])


# Broken schedules.


@given(p=st.integers(2, 8), m=st.integers(2, 8), data=st.data())
@many
def test_a_schedule_with_an_operation_lost_doubled_or_early_is_refused(p, m, data):
    make, _ = data.draw(st.sampled_from(list(PLAIN.values())))
    plan = make(p, m)
    i = data.draw(st.integers(0, len(plan) - 1))
    slot, others = plan[i], plan[:i] + plan[i + 1 :]
    late = slot._replace(tick=1000)
    broken = [[*plan, late], others]  # twice, never
    if any(slot.op in needs(other.op, p) for other in others):
        broken.append([*others, late])
    for other in others:
        if other.device == slot.device and other.tick < slot.tick:
            broken.append([*others, slot._replace(tick=other.tick)])
            break
    for wrong in broken:
        with pytest.raises(ValueError, match="plan"):
            check_plan(wrong, nowhere(p))


@pytest.mark.parametrize(
    "plan, kind",
    [
        (None, TypeError),
        ([], ValueError),
        ([Op("F", 0, 0)], TypeError),
        ([Slot(0, 0, Op("B", 0, 0))], ValueError),
        ([Slot(0, 0, Op("X", 0, 0))], ValueError),
        ([Slot(0, 0, Op("F", 0, 0)), Slot(0, 1, Op("W", 0, 0))], ValueError),
        ([Slot(0, 0, Op("F", 0, -1)), Slot(0, 1, Op("F", 0, 0))], ValueError),
        (gpipe(2, 2), ValueError),
    ],
)
def test_what_is_no_schedule_for_these_stages_is_refused(plan, kind):
    with pytest.raises(kind, match="plan"):
        check_plan(plan, nowhere(1))


# The executor.


def dense_reference(layers, X, y):
    """Loss and gradients by one tape over all layers."""
    params = [p for one in layers for p in one.params]
    with tf.GradientTape() as tape:
        for one in layers:
            X = one.apply(X, *one.params)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=X)
        loss = tf.reduce_sum(losses)
    return float(loss), tape.gradient(loss, params)


def samples(count: int, width: int, dtype=tf.float64):
    rng = np.random.default_rng(3)
    X = tf.constant(rng.normal(size=(count, width)), dtype)
    return X, tf.constant(rng.integers(0, width, count), tf.int32)


@st.composite
def runs(draw):
    """A chain cut anywhere, a plan for it, on any number of devices."""
    layers = draw(st.integers(1, 6))
    cuts = sorted(
        draw(st.sets(st.integers(1, max(1, layers - 1)), max_size=layers - 1))
    )
    cuts = cuts if layers > 1 else []
    p, m = len(cuts) + 1, draw(st.integers(1, 4))
    k = draw(st.sampled_from([d for d in range(1, p + 1) if p % d == 0]))
    made = [gpipe(p, m), one_forward_one_backward(p, m), zero_bubble(p, m)]
    return layers, cuts, draw(st.sampled_from([*made, interleaved(p, m, k)])), m


@pytest.mark.parametrize("dtype, bound", [(tf.float64, 1e-12), (tf.float32, 1e-5)])
@given(run=runs(), devices=st.integers(1, 8))
@few
def test_gradients_are_the_unsplit_networks(dtype, bound, run, devices):
    layers, cuts, plan, m = run
    chain = dense_chain(layers, 5, dtype)
    X, y = samples(2 * m, 5, dtype)
    stages = make_stages(chain, cuts, EIGHT[:devices])
    loss, grads = pipeline_gradients(plan, stages, X, y)
    expected, reference = dense_reference(chain, X, y)
    assert float(loss) == pytest.approx(expected, rel=bound)
    assert distance(sum(grads, []), reference) <= bound


@pytest.mark.parametrize("make", [gpipe, one_forward_one_backward, zero_bubble])
def test_what_ran_in_a_graph_kept_order_place_and_promise(make):
    p, m = 3, 5
    plan = make(p, m)
    stages = make_stages(dense_chain(p, 8), even_cuts(p, p), EIGHT)
    X, y = samples(2 * m, 8, tf.float32)

    @tf.function
    def run():
        step, times = run_plan(plan, stages, X, y, clock=True)
        assert [g.device[-5:] for own in step.grads for g in own[:1]] == [
            d[-5:] for d in EIGHT[:p]
        ]
        return step.grads, times  # without them, what they need would not be run

    spans = measured_spans(plan, run()[1])
    assert {(span.device, span.work) for span in spans} == {
        (d, op) for d, _, op in plan
    }
    at = {span.work: span for span in spans}
    for order in orders_of(plan):
        assert all(at[a].end <= at[b].start for a, b in pairwise(order))
    for op in at:
        assert all(at[n].end <= at[op].start for n in needs(op, p))


def test_a_step_moves_every_stage_by_the_mean_gradient():
    chain = dense_chain(3, 4, tf.float64)
    X, y = samples(6, 4)
    loss, reference = dense_reference(chain, X, y)
    stages = make_stages(chain, [1, 2], EIGHT[:2])
    before = [p.numpy() for stage in stages for p in stage.params]
    assert float(pipeline_step(gpipe(3, 2), stages, X, y, 0.5)) == pytest.approx(
        loss / 6
    )
    moved = [p.numpy() for stage in stages for p in stage.params]
    for now, old, g in zip(moved, before, reference, strict=True):
        np.testing.assert_allclose(now, old - 0.5 / 6 * g.numpy(), atol=1e-14)


def test_a_micro_batch_is_the_batchs_part_in_order():
    parts = cut_batch(tf.range(12)[:, None], tf.range(12), 3)
    for m, (X, y) in enumerate(parts):
        expected = list(range(4 * m, 4 * m + 4))
        assert X.numpy().ravel().tolist() == y.numpy().tolist() == expected


def test_bad_batches_are_refused_by_name():
    X, y = samples(6, 4)
    stages = make_stages(dense_chain(2, 4, tf.float64), [1], EIGHT)
    with pytest.raises(ValueError, match="micro_batches is 4.*batch of 6"):
        pipeline_gradients(gpipe(2, 4), stages, X, y)
    with pytest.raises(ValueError, match="X has no samples"):
        pipeline_gradients(gpipe(2, 2), stages, X[:0], y[:0])
    unknown = [tf.TensorSpec([None, 4], tf.float64), tf.TensorSpec([None], tf.int32)]
    step = tf.function(lambda X, y: pipeline_gradients(gpipe(2, 2), stages, X, y))
    with pytest.raises(ValueError, match="X has no fixed number"):
        step.get_concrete_function(*unknown)
    with pytest.raises(ValueError, match="forward passes only"):
        pipeline_gradients(forward_only(2, 2), stages, X, y)


# Memory: a graph must hold what the plan says, and one sum of the gradients.
PEAKS = """
import json
import tensorflow as tf, manygpu
from manygpu.scratch import *
from manygpu.scratch.splitting.pipeline import dense_chain

devices = manygpu.devices(quiet=True)
width, rows, m = 128, 256, 16
stages = make_stages(dense_chain(2, width), [1], devices)
X, y = tf.ones((m * rows, width)), tf.zeros(m * rows, tf.int32)
found = {}
for make in (gpipe, one_forward_one_backward, zero_bubble):
    step = tf.function(lambda: pipeline_gradients(make(2, m), stages, X, y))
    step()
    found[make.__name__] = peak_bytes(step, devices[0])[0] / (4 * width * rows)
print(json.dumps(found))
"""


def test_1f1b_really_needs_less_memory_than_gpipe(run_python):
    answer = run_python(PEAKS, MANYGPU_DEVICES="2", TF_CPU_ALLOCATOR_USE_BFC="true")
    assert answer.returncode == 0, answer.stderr
    peak = json.loads(answer.stdout.splitlines()[-1])
    # In activations. One a micro-batch on the first stage, and on the last, with the
    # gradient of its loss, two: 16 * 3 against 2 + 2; the input has 16 in all.
    saved = peak["gpipe"] - peak["one_forward_one_backward"]
    assert 0.6 * 44 <= saved <= 1.4 * 44
    assert peak["zero_bubble"] < peak["gpipe"] - 20


# Cuts.


def largest(costs, cuts) -> float:
    return max(sum(costs[a:b]) for a, b in pairwise([0, *cuts, len(costs)]))


@given(
    costs=st.lists(st.integers(0, 20), min_size=1, max_size=9), stages=st.integers(1, 9)
)
@many
def test_balanced_cuts_are_as_good_as_the_best_of_all_cuts(costs, stages):
    n = len(costs)
    if stages > n:
        with pytest.raises(ValueError, match=f"stages is {stages}"):
            balanced_cuts(costs, stages)
        return
    cuts = balanced_cuts(costs, stages)
    assert len(cuts) == stages - 1
    assert sorted(set(cuts)) == cuts
    assert all(0 < c < n for c in cuts)
    every = combinations(range(1, n), stages - 1)
    assert largest(costs, cuts) == min(largest(costs, some) for some in every)


@pytest.mark.parametrize(
    "costs, stages, kind, name",
    [
        ([], 1, ValueError, "costs"),
        (3.0, 1, TypeError, "costs"),
        ([1, -1], 1, ValueError, "costs"),
        ([1, float("nan")], 1, ValueError, "costs"),
        ([1, float("inf")], 1, ValueError, "costs"),
        ([1, 2], 0, ValueError, "stages"),
        ([1, 2], 1.5, TypeError, "stages"),
    ],
)
def test_bad_costs_are_refused_by_name(costs, stages, kind, name):
    with pytest.raises(kind, match=name):
        balanced_cuts(costs, stages)


# What is timed.


def test_nobody_looks_at_the_clock_unless_asked():
    plan, stages = gpipe(2, 2), make_stages(dense_chain(2, 4), even_cuts(2, 2), EIGHT)
    told = []

    @tf.function(autograph=False)
    def run():
        step, times = run_plan(plan, stages, *samples(4, 4, tf.float32))
        told.append(times)
        return step.grads

    run()
    assert told == [None]
