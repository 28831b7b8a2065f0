"""The loop plays the very plans and collectives of the chapters before."""

from __future__ import annotations

from functools import partial

import pytest
import tensorflow as tf

from manygpu.scratch import (
    MessageLog,
    earliest_spans,
    gpipe,
    halving_doubling_allreduce,
    hierarchical_allreduce,
    interleaved,
    naive_allreduce,
    needs,
    one_forward_one_backward,
    ring_allreduce,
    simulate,
    tree_allreduce,
    zero_bubble,
)
from manygpu.scratch.beyond.whole_cluster import row_of, speeds
from manygpu.scratch.splitting.pipeline import orders_of
from manygpu.simulate import collectives, published, steps, transformer
from manygpu.simulate.cluster import Cluster, Link
from manygpu.simulate.works import Agenda, Work, put_messages, put_plan
from manygpu.trace.spans import Span, length

LINK = Link(10e-6, 5e9)
COST = {"F": 1.0, "B": 2.0, "W": 0.5}


def messages_of(collective, n: int, size: int) -> list:
    log = MessageLog()
    with tf.Graph().as_default(), tf.device("CPU:0"):
        placeholder = tf.compat.v1.placeholder
        collective([placeholder(tf.int8, (size,)) for _ in range(n)], send=log)
    return log.messages


def played(messages, cluster: Cluster) -> list[Span]:
    agenda = Agenda()
    put_messages(agenda, messages, cluster.route)
    return simulate(agenda)


@pytest.mark.parametrize(
    "plan",
    [
        gpipe(4, 6),
        one_forward_one_backward(4, 6),
        one_forward_one_backward(3, 2),
        interleaved(8, 8, 4),
        zero_bubble(4, 8),
    ],
    ids=["gpipe", "1f1b", "few", "interleaved", "zero bubble"],
)
def test_a_plan_is_played_as_its_chapter_says(plan):
    agenda = Agenda()
    put_plan(agenda, plan, needs, lambda op: COST[op.kind])
    spans = simulate(agenda)
    known = earliest_spans(orders_of(plan), lambda op: COST[op.kind])
    begins = {span.work: span.start for span in known}
    assert {s.work.what: s.start for s in spans} == pytest.approx(begins, rel=1e-9)


def test_what_is_sent_between_stages_comes_on_top():
    agenda, plan = Agenda(), gpipe(2, 1)
    put_plan(agenda, plan, needs, lambda op: 1.0, lambda a, b, op: (0.25, 0.5, ()))
    spans = simulate(agenda)
    assert length(spans) == pytest.approx(4 + 2 * 0.75)
    assert sum(span.name == "communication" for span in spans) == 2


@pytest.mark.parametrize("n", [2, 4, 5, 8])
@pytest.mark.parametrize("name", ["naive", "ring", "tree"])
def test_a_collective_takes_what_its_formula_says(name, n):
    collective = {"naive": naive_allreduce, "ring": ring_allreduce}
    collective = collective.get(name, tree_allreduce)
    formula = getattr(collectives, f"{name}_seconds")
    size = 40 * 1000  # divisible by all n
    spans = played(messages_of(collective, n, size), Cluster(1, n, LINK, LINK))
    assert length(spans) == pytest.approx(formula(n, size, LINK), rel=1e-9)


@pytest.mark.parametrize("n", [2, 8])
def test_halving_and_doubling_takes_what_its_formula_says(n):
    messages = messages_of(halving_doubling_allreduce, n, 4096)
    formula = collectives.halving_doubling_seconds(n, 4096, LINK)
    spans = played(messages, Cluster(1, n, LINK, LINK))
    assert length(spans) == pytest.approx(formula, rel=1e-9)
    with pytest.raises(ValueError, match="power of two"):
        collectives.halving_doubling_seconds(6, 4096, LINK)


@pytest.mark.parametrize("cards", [1, 2, 4])
def test_two_levels_share_the_cards(cards):
    """Bandwidth is shared, latency isn't: both stand in the formula."""
    cluster = Cluster(3, 4, Link(0.0, 50e9), Link(0.0, 5e9), cards)
    groups = [list(range(4 * k, 4 * k + 4)) for k in range(3)]
    collective = partial(hierarchical_allreduce, groups=groups)
    spans = played(messages_of(collective, 12, 12 * 4096), cluster)
    formula = collectives.hierarchical_seconds(cluster, 12 * 4096)
    assert length(spans) == pytest.approx(formula, rel=1e-9)


def test_played_messages_are_those_that_were_noted():
    messages = messages_of(ring_allreduce, 4, 4000)
    spans = played(messages, Cluster(1, 4, LINK, LINK))
    assert sorted(span.work.what for span in spans) == sorted(h for h, _ in messages)
    sent = sum(span.work.seconds * LINK.bandwidth for span in spans)
    assert sent == pytest.approx(sum(size for _, size in messages))


def test_a_real_schedule_runs_on_sixteen_thousand():
    cluster = Cluster(2048, 8, Link(3e-6, 450e9), Link(5e-6, 50e9), cards=8)
    layers = steps.Layers(32, 1e-3, 2e-3, 1e8, 1e7, 1e-4)
    plan = one_forward_one_backward(16, 32)
    spans = simulate(steps.pipelined(layers, cluster, plan, needs, ways=8))
    one_stage = 2 * (
        3e-3 / 8 + 2 * 2 * collectives.ring_seconds(8, 1e7, cluster.inside)
    )
    assert length(spans) >= one_stage * (32 + 16 - 1)


def test_the_loop_meets_the_published_runs():
    """Each run's own 1F1B plan: near the formula, and as near to what was measured."""
    said, errors = published.each_size_from_the_others(), []
    for row, formula in zip(published.runs(), said.mfu, strict=True):
        run, hardware = row.run, said.hardware[row.size]
        plan = one_forward_one_backward(run.stages, run.accumulation)
        spans = simulate(transformer.works_of(run, hardware, plan, needs))
        played = transformer.utilization(run, hardware, length(spans))
        assert played == pytest.approx(formula, rel=0.02)
        errors.append(abs(played / row.mfu - 1))
    assert sorted(errors)[12] < 0.08
    assert sorted(errors)[-2] < 0.25


@pytest.mark.parametrize("cards", [1, 4])
@pytest.mark.parametrize("size", [8 * 2**10, 32 * 2**20], ids=["in time", "queueing"])
def test_one_stands_for_all_that_sum_in_two_levels(cards, size):
    cluster = Cluster(2, 4, Link(3e-6, 90e9), Link(5e-6, 10e9), cards)
    groups = [[0, 1, 2, 3], [4, 5, 6, 7]]
    messages = messages_of(partial(hierarchical_allreduce, groups=groups), 8, size)
    agenda = Agenda()
    for gpu in range(8):
        agenda.put("forward", [gpu], 3e-3)
    made = [{g: agenda.put("backward", [g], 2e-3) for g in range(8)} for _ in range(3)]
    for ready in made:
        put_messages(agenda, messages, cluster.route, ready)
    layers = steps.Layers(3, 1e-3, 2e-3, size, 0)
    short = steps.data_parallel(layers, cluster, collectives.hierarchical_seconds)
    full = length(simulate(agenda))
    assert full == pytest.approx(length(simulate(short)), rel=1e-9)


def test_parts_of_different_size_are_slowed_down_alike():
    parts = (1.0, 0.5, 0.5)
    works = [Work("a", (i,), 1.0, 0, (("l", p),)) for i, p in enumerate(parts)]
    assert speeds(works, range(3)) == pytest.approx(dict.fromkeys(range(3), 0.5))


def test_all_share_fairly():
    works = [Work("a", ("x",), 1.0, shares=(("l", 1.0),)) for _ in range(3)]
    works.append(Work("b", ("y",), 1.0))
    assert speeds(works, [0, 1, 2, 3]) == pytest.approx(
        {0: 1 / 3, 1: 1 / 3, 2: 1 / 3, 3: 1}
    )
    assert speeds(works, [1]) == {1: 1.0}


@pytest.mark.parametrize("lane, row", [(3, 3), ("GPU", "GPU"), (("out", 3), "out 3")])
def test_a_lane_is_a_row(lane, row):
    assert row_of(lane) == row
