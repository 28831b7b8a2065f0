"""Interleaved and zero bubble: sound plans; the page has the papers' formulas."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manygpu import scratch
from manygpu.scratch.splitting.pipeline import (
    check_plan,
    in_flight,
    in_ticks,
    orders_of,
    planned,
)
from manygpu.scratch.splitting.smaller_bubble import (
    bubble_without_flush,
    interleaved,
    zero_bubble,
    zero_bubble_v,
)
from manygpu.trace.spans import length
from tests.unit.scratch.splitting.helpers import (
    MICRO,
    STAGES,
    assert_sound,
    many,
    nowhere,
    spans_of,
)

AHEAD = st.integers(1, 3)


@given(p=STAGES, m=MICRO, ahead=AHEAD)
@many
def test_zero_bubble_does_each_operation_once_in_an_order_that_works(p, m, ahead):
    assert_sound(zero_bubble(p, m, ahead), "FBW", p, m, p)


@given(p=STAGES, m=MICRO)
@many
def test_zb_h1_is_never_longer_than_1f1b_and_keeps_no_more_activations(p, m):
    late = zero_bubble(p, m)
    assert max(in_flight(orders_of(late))) <= p
    assert length(planned(late)) <= 3 * (m + p - 1)
    if m >= p:
        assert length(planned(late)) == 3 * m + p - 1


@given(p=STAGES, m=st.integers(1, 12), ahead=st.integers(1, 2))
@many
def test_without_a_flush_steps_follow_each_other_in_one_period(p, m, ahead):
    orders = orders_of(zero_bubble(p, m, ahead))
    chained = [
        [op._replace(micro_batch=op.micro_batch + i * m) for i in range(4) for op in o]
        for o in orders
    ]
    lengths = [
        length(scratch.earliest_spans([o[: 3 * m * n] for o in chained]))
        for n in (3, 4)
    ]
    share = scratch.bubble_without_flush(scratch.earliest_spans(orders))
    assert share == pytest.approx(1 - 3 * m / (lengths[1] - lengths[0]))


@pytest.mark.parametrize("make", [scratch.gpipe, scratch.one_forward_one_backward])
def test_a_plan_that_ends_straight_gains_nothing_without_a_flush(make):
    spans = planned(make(4, 7))
    assert scratch.bubble_without_flush(spans) == scratch.bubble(spans)


@given(k=STAGES, v=st.integers(1, 4), m=MICRO)
@many
def test_interleaved_does_so_too_for_any_number_of_rounds(k, v, m):
    assert_sound(interleaved(v * k, m, k), "FB", v * k, m, k)


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
    plain = orders_of(scratch.one_forward_one_backward(p, m))
    assert in_flight(plain, gradients=1) == in_flight(plain)


@given(p=STAGES, m=MICRO)
@many
def test_one_round_interleaved_is_1f1b(p, m):
    assert interleaved(p, m, p) == scratch.one_forward_one_backward(p, m)


@given(p=STAGES, m=MICRO)
@many
def test_a_v_goes_down_the_devices_and_up_again(p, m):
    plan = zero_bubble_v(p, m)
    assert all(
        slot.device in (slot.op.stage, 2 * p - 1 - slot.op.stage) for slot in plan
    )
    assert len(plan) == 3 * 2 * p * m
    assert check_plan(plan, nowhere(2 * p)) == plan == in_ticks(orders_of(plan))
    assert max(in_flight(orders_of(plan))) <= 2 * p  # of small stages: as 1F1B
    if m >= 2 * p - 1:
        assert bubble_without_flush(planned(plan)) == pytest.approx(0)
