"""The executor: gradients of any plan, the order that ran; the page measures memory."""

from collections import Counter
from dataclasses import replace

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch.data_parallel.collectives import MessageLog
from manygpu.scratch.splitting.network import make_stages
from manygpu.scratch.splitting.pipeline import (
    dense_chain,
    gpipe,
    one_forward_one_backward,
    planned,
)
from manygpu.scratch.splitting.running_a_pipeline import (
    check_what_ran,
    kept_bytes,
    measured_peak,
    pipeline_gradients,
    run_plan,
)
from manygpu.scratch.splitting.smaller_bubble import interleaved, zero_bubble
from tests.unit.helpers import EIGHT, distance, in_graph, runs_on
from tests.unit.scratch.splitting.helpers import vectors, whole_gradients

few = settings(deadline=None, max_examples=6)


@st.composite
def runs(draw):
    """A chain cut anywhere, a plan for it, on any number of devices."""
    layers = draw(st.integers(1, 6))
    cuts = [cut for cut in range(1, layers) if draw(st.booleans())]
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
    X, y = vectors(2 * m, 5, 5, dtype)
    stages = make_stages(chain, cuts, EIGHT[:devices])
    log = MessageLog()
    loss, grads = pipeline_gradients(plan, stages, X, y, send=log)
    expected, reference = whole_gradients(X, y, chain)
    assert float(loss) == pytest.approx(float(expected), rel=bound)
    assert distance(sum(grads, []), reference) <= bound
    for stage, own in zip(stages, grads, strict=True):
        assert all(runs_on(g, stage.device) for g in own)
    # A message each way, for each micro-batch, wherever the device changes.
    ways = [(s, s + 1) for s in range(len(cuts)) if devices > 1]
    both = Counter({way: m for one in ways for way in (one, one[::-1])})
    assert Counter((hop.source, hop.target) for hop, _ in log.messages) == both
    assert {size for _, size in log.messages} <= {2 * 5 * dtype.size}
    assert all(hop.device == stages[hop.target].device for hop, _ in log.messages)


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

    given_ = gpipe(2, 2), stages, *vectors(4, 4, 4, "float32")
    assert measured_peak(*given_, counting) == 7 and asked == [EIGHT[0]]
    assert measured_peak(*given_, not_counting) is None


def test_nobody_looks_at_the_clock_unless_asked():
    stages = make_stages(dense_chain(2, 4), [1], EIGHT)
    _, times = run_plan(gpipe(2, 2), stages, *vectors(4, 4, 4, "float32"))
    assert times is None


def test_an_operation_waits_for_the_one_before_it_and_not_for_each_gradient():
    """With an edge to each, a GPT's graph on a mesh had 15 edges per operation."""

    def most_edges(layers: int) -> int:
        plan, half = one_forward_one_backward(2, 3), layers // 2
        stages = make_stages(dense_chain(layers, 4), [half], EIGHT[:2])
        X, y = vectors(6, 4, 4)
        take = in_graph(lambda: pipeline_gradients(plan, stages, X, y))
        ops = take.get_concrete_function().graph.get_operations()
        ends = [op for op in ops if op.type == "NoOp"]
        # The last operation of a stage: its end waits for all of its gradients.
        assert max(len(op.control_inputs) for op in ends) > layers
        return max(len(op.control_inputs) for op in ops if op not in ends)

    assert most_edges(2) == most_edges(8)
