"""Plans and schedules: who does what when, and cuts; the page has the formulas."""

from itertools import combinations, pairwise

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import assume, given
from hypothesis import strategies as st

from manygpu import figures
from manygpu.scratch.splitting.network import Model
from manygpu.scratch.splitting.pipeline import (
    Op,
    Slot,
    balanced_cuts,
    bubble,
    check_order,
    check_plan,
    dense_layers,
    draw_ops,
    earliest_spans,
    forward_only,
    gpipe,
    in_flight,
    in_ticks,
    needs,
    one_forward_one_backward,
    orders_of,
    planned,
)
from manygpu.trace.spans import Span, length
from tests.unit.scratch.splitting.helpers import (
    MICRO,
    STAGES,
    assert_sound,
    many,
    nowhere,
)

PLAIN = {
    "forward": (forward_only, "F"),
    "gpipe": (gpipe, "FB"),
    "1f1b": (one_forward_one_backward, "FB"),
}
EACH = pytest.mark.parametrize("make, kinds", PLAIN.values(), ids=PLAIN)


@EACH
@given(p=STAGES, m=MICRO)
@many
def test_a_schedule_does_each_operation_once_in_an_order_that_works(make, kinds, p, m):
    assert_sound(make(p, m), kinds, p, m, p)


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
    assert in_flight(orders_of(forward_only(3, 5))) == [1] * 3


@given(p=STAGES, m=MICRO, transfer=st.sampled_from([0, 0.25, 1, 3]))
@many
def test_a_message_takes_time_to_another_device_and_none_to_the_own(p, m, transfer):
    alone = [[op for order in orders_of(gpipe(p, m)) for op in order]]
    alone[0].sort(
        key=lambda op: ("FB".index(op.kind), op.stage if op.kind == "F" else -op.stage)
    )
    assert length(earliest_spans(alone, transfer=transfer)) == 2 * p * m
    there_and_back = 2 * (p - 1) * transfer
    assert length(planned(gpipe(p, m), transfer)) == 3 * (m + p - 1) + there_and_back
    late = length(planned(one_forward_one_backward(p, m), transfer))
    assert late >= 3 * (m + p - 1) + there_and_back


def test_a_message_takes_as_long_as_what_it_brings_says():
    took = 0.25, 2  # by the stage that sends
    spans = earliest_spans(orders_of(gpipe(2, 1)), transfer=lambda op: took[op.stage])
    assert [span.start for span in spans] == [0, 1.25, 2.25, 5.25]


def met_before(op: Op, ranks: int) -> list[Op]:
    """The keys of rank `micro_batch` come to rank `stage` from the rank before it."""
    _, rank, keys = op
    return [] if rank == keys else [Op("meeting", (rank - 1) % ranks, keys)]


@given(n=st.integers(1, 8), transfer=st.sampled_from([0, 0.25, 1]))
@many
def test_the_meetings_of_a_ring_of_attention_are_played_by_their_own_needs(n, transfer):
    """Each rank's queries meet each rank's keys, its own first."""
    orders = [[Op("meeting", r, (r - k) % n) for k in range(n)] for r in range(n)]
    spans = earliest_spans(orders, transfer=transfer, needs=met_before)
    assert length(spans) == n + (n - 1) * transfer
    assert {span.name for span in spans} == {"meeting"}
    plan = in_ticks(orders, met_before)
    assert [slot.tick for slot in plan] == [k for k in range(n) for _ in range(n)]
    check_order(plan, n, met_before)
    causal = [[op for op in own if op.micro_batch <= op.stage] for own in orders]
    waits = bubble(earliest_spans(causal, needs=met_before))
    assert waits == pytest.approx((n - 1) / (2 * n))


def test_a_meeting_before_the_keys_arrive_is_refused():
    orders = [[Op("meeting", r, (r - k) % 3) for k in range(3)] for r in range(3)]
    plan = in_ticks(orders, met_before)
    soon = [slot._replace(tick=0) if slot.tick == 1 else slot for slot in plan]
    for wrong in (soon, [slot for slot in plan if slot.tick]):  # early, or without
        with pytest.raises(ValueError, match="before what it needs"):
            check_order(wrong, 3, met_before)
    said = "device 0 can't begin meeting2 of stage 0 before meeting2 of stage 2"
    with pytest.raises(ValueError, match=f"deadlock: {said} has ended"):
        earliest_spans([own[1:] + own[:1] for own in orders], needs=met_before)


def test_a_deadlock_names_a_device_and_what_it_waits_for():
    orders = orders_of(gpipe(2, 2))
    with pytest.raises(ValueError, match="device 0 can't begin B0 of stage 0 before F"):
        earliest_spans([own[::-1] for own in orders])


def test_a_drawn_plan_has_a_box_an_operation_and_a_row_a_device():
    fig, ax = figures.subplots()
    draw_ops(planned(one_forward_one_backward(3, 5)), ax, "ticks", "a plan")
    assert len(ax.patches) == 2 * 3 * 5
    assert [t.get_text() for t in ax.get_yticklabels()] == ["0", "1", "2"]
    svg = figures.to_svg(fig, "a plan of three devices")
    assert figures.color("forward") in svg and figures.color("backward") in svg


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


IN_TIME = {("F", 0): 0, ("F", 1): 1, ("B", 1): 2, ("B", 0): 3, ("W", 1): 3, ("W", 0): 4}


@pytest.mark.parametrize(
    "early",
    [
        {("F", 1): 0},  # in the tick of what it needs, on another device
        {("B", 0): 2},
        {("W", 1): 2, ("B", 1): 3, ("B", 0): 5},  # the weights' gradients first
        {("W", 0): 1},
    ],
)
def test_an_operation_waits_for_what_it_needs(early):
    """One micro-batch on two stages; `IN_TIME` and `early` say when."""

    def plan(ticks):
        return [Slot(s, tick, Op(kind, s, 0)) for (kind, s), tick in ticks.items()]

    assert check_plan(plan(IN_TIME), nowhere(2))
    with pytest.raises(ValueError, match="before what it needs"):
        check_plan(plan(IN_TIME | early), nowhere(2))


def largest(costs, cuts) -> float:
    return max(sum(costs[a:b]) for a, b in pairwise([0, *cuts, len(costs)]))


@given(
    costs=st.lists(st.integers(0, 20), min_size=1, max_size=9), stages=st.integers(1, 9)
)
@many
def test_balanced_cuts_are_as_good_as_the_best_of_all_cuts(costs, stages):
    n = len(costs)
    assume(stages <= n)
    cuts = balanced_cuts(costs, stages)
    assert len(cuts) == stages - 1
    assert sorted(set(cuts)) == cuts
    assert all(0 < c < n for c in cuts)
    every = combinations(range(1, n), stages - 1)
    assert largest(costs, cuts) == min(largest(costs, some) for some in every)


def test_the_perceptron_is_products_with_relus_between():
    model = Model(dense_layers([3, 5, 4, 6, 2], dtype=tf.float64))
    h = X = np.random.default_rng(0).normal(size=(7, 3))
    for i in range(0, 8, 2):
        h = h @ model.params[i].numpy() + model.params[i + 1].numpy()
        h = np.maximum(h, 0) if i < 6 else h
    found = model.outputs(tf.constant(X), model.params)
    np.testing.assert_allclose(found, h, rtol=1e-12)
    assert model.classes == 2


@given(p=STAGES, m=MICRO, backward=st.sampled_from([0.5, 1, 3]))
@many
def test_the_bubble_is_the_same_however_long_a_backward_pass_is(p, m, backward):
    for make in (gpipe, one_forward_one_backward):
        spans = planned(make(p, m), forward=2, backward=backward)
        assert length(spans) == (m + p - 1) * (2 + backward)
        assert bubble(spans) == pytest.approx((p - 1) / (m + p - 1))


@given(p=STAGES, m=MICRO)
@many
def test_activations_of_unequal_sizes_are_counted_stage_by_stage(p, m):
    sizes = [3 * s + 1 for s in range(p)]
    held = in_flight(orders_of(one_forward_one_backward(p, m)), size=sizes.__getitem__)
    assert held == [min(m, p - s) * sizes[s] for s in range(p)]
    alone = in_flight(orders_of(forward_only(p, m)), size=sizes.__getitem__)
    assert alone == sizes
