"""The executor: gradients of any plan, the order that ran, memory, bad batches."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch.data_parallel.collectives import MessageLog
from manygpu.scratch.splitting.network import even_cuts, make_stages
from manygpu.scratch.splitting.pipeline import (
    dense_chain,
    forward_only,
    gpipe,
    needs,
    one_forward_one_backward,
    orders_of,
    planned,
)
from manygpu.scratch.splitting.running_a_pipeline import (
    check_what_ran,
    kept_bytes,
    measured_peak,
    measured_spans,
    pipeline_gradients,
    pipeline_step,
    recorded,
    run_plan,
)
from manygpu.scratch.splitting.smaller_bubble import interleaved, zero_bubble
from tests.unit.helpers import EIGHT, distance
from tests.unit.scratch.splitting.helpers import whole_gradients

few = settings(deadline=None, max_examples=6)


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
    made += [zero_bubble(p, m, ahead=2), interleaved(p, m, k)]
    return layers, cuts, draw(st.sampled_from(made)), m


@pytest.mark.parametrize("dtype, bound", [(tf.float64, 1e-12), (tf.float32, 1e-5)])
@given(run=runs(), devices=st.integers(1, 8))
@few
def test_gradients_are_the_unsplit_networks(dtype, bound, run, devices):
    layers, cuts, plan, m = run
    chain = dense_chain(layers, 5, dtype)
    X, y = samples(2 * m, 5, dtype)
    stages = make_stages(chain, cuts, EIGHT[:devices])
    log = MessageLog()
    loss, grads = pipeline_gradients(plan, stages, X, y, send=log)
    expected, reference = whole_gradients(X, y, chain)
    assert float(loss) == pytest.approx(float(expected), rel=bound)
    assert distance(sum(grads, []), reference) <= bound
    # A message each way, for each micro-batch, wherever the device changes.
    ways = [(s, s + 1) for s in range(len(cuts)) if devices > 1]
    both = Counter({way: m for one in ways for way in (one, one[::-1])})
    assert Counter((hop.source, hop.target) for hop, _ in log.messages) == both
    assert {size for _, size in log.messages} <= {2 * 5 * dtype.size}
    assert all(hop.device == stages[hop.target].device for hop, _ in log.messages)


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
    loss, reference = whole_gradients(X, y, chain)
    stages = make_stages(chain, [1, 2], EIGHT[:2])
    before = [p.numpy() for stage in stages for p in stage.params]
    assert float(pipeline_step(gpipe(3, 2), stages, X, y, 0.5)) == pytest.approx(
        loss / 6
    )
    moved = [p.numpy() for stage in stages for p in stage.params]
    for now, old, g in zip(moved, before, reference, strict=True):
        np.testing.assert_allclose(now, old - 0.5 / 6 * g.numpy(), atol=1e-14)


@pytest.mark.parametrize("known", [True, False], ids=["known", "any"])
def test_micro_batches_of_two_sizes_give_the_step_of_one_device(known):
    """Of a batch of 7 in 4, whose length the graph knows, or learns when it runs."""
    chain = dense_chain(3, 4, tf.float64)
    X, y = samples(7, 4)
    loss, reference = whole_gradients(X, y, chain)
    stages = make_stages(chain, [1, 2], EIGHT[:2])
    before = [p.numpy() for stage in stages for p in stage.params]
    kinds = [tf.TensorSpec([None, 4], tf.float64), tf.TensorSpec([None], tf.int32)]
    step = tf.function(
        lambda X, y: pipeline_step(one_forward_one_backward(3, 4), stages, X, y, 0.5),
        input_signature=None if known else kinds,
    )
    assert float(step(X, y)) == pytest.approx(float(loss) / 7, rel=1e-12)
    moved = [p.numpy() for stage in stages for p in stage.params]
    right = [b - 0.5 / 7 * g for b, g in zip(before, reference, strict=True)]
    assert distance(moved, right) <= 1e-14


def test_bad_batches_are_refused_by_name():
    X, y = samples(6, 4)
    stages = make_stages(dense_chain(2, 4, tf.float64), [1], EIGHT)
    with pytest.raises(ValueError, match="parts is 7 for 6 samples"):
        pipeline_gradients(gpipe(2, 7), stages, X, y)
    with pytest.raises(ValueError, match="X has no samples"):
        pipeline_gradients(gpipe(2, 2), stages, X[:0], y[:0])
    with pytest.raises(ValueError, match="forward passes only"):
        pipeline_gradients(forward_only(2, 2), stages, X, y)


def test_what_ran_in_another_order_is_noticed():
    plan = one_forward_one_backward(2, 3)
    spans = planned(plan)
    check_what_ran(spans, plan)
    first, second = (s for s in spans if s.device == 1 and s.work.micro_batch == 0)
    swapped = [s for s in spans if s not in (first, second)]
    swapped += [replace(first, work=second.work), replace(second, work=first.work)]
    with pytest.raises(AssertionError):
        check_what_ran(swapped, plan)
    overlapping = [replace(s, end=s.end + 0.5) for s in spans]
    with pytest.raises(AssertionError):
        check_what_ran(overlapping, plan)


@pytest.mark.parametrize("graph", [True, False])
def test_a_recorded_run_is_the_plans_and_its_first_step_is_left_out(graph):
    plan, chain = gpipe(2, 2), dense_chain(2, 4)
    stages = make_stages(chain, [1], EIGHT[:2])
    X, y = samples(4, 4, tf.float32)
    tries, grads = recorded(plan, stages, X, y, graph=graph, repeats=3)
    assert len(tries) == 2
    for spans in tries:
        check_what_ran(spans, plan)
    assert distance(grads, whole_gradients(X, y, chain)[1]) <= 1e-5


def test_kept_bytes_are_those_in_flight_and_gradients_count_as_told():
    plan = zero_bubble(3, 6)
    assert kept_bytes(gpipe(2, 5), 10) == [50, 50]
    assert kept_bytes(plan, 10) == [30, 30, 30]
    assert kept_bytes(plan, 10, gradients=1) == [40, 50, 60]


def test_a_peak_that_nobody_counts_is_none():
    stages = make_stages(dense_chain(2, 4), [1], EIGHT[:2])
    asked = []

    def counting(step, device):
        asked.append(device)
        return 7, step()

    def not_counting(step, device):
        raise ValueError("an allocator that doesn't count")

    given_ = gpipe(2, 2), stages, *samples(4, 4, tf.float32)
    assert measured_peak(*given_, counting) == 7 and asked == [EIGHT[0]]
    assert measured_peak(*given_, not_counting) is None


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
