"""Accumulation: the gradients of the whole batch, one micro-batch after the other.

That steps of them are those of one device is in trainings/test_one_device.py. The page
counts what such a step sends.
"""

from functools import partial

import tensorflow as tf

from manygpu import scratch
from tests.unit.helpers import EIGHT, batch, in_graph, upstream

MODEL = scratch.get_params(scratch.init_params(dtype=tf.float64), EIGHT[0])


def test_micro_batches_run_one_after_the_other_in_a_graph():
    seen = []

    def of(X, y, params):
        loss, grads = scratch.gradients(X, y, params)
        seen.append((X, grads))
        return loss, grads

    step = in_graph(lambda X, y: scratch.accumulate(X, y, MODEL, 3, of))
    step.get_concrete_function(*batch(9))
    assert len(seen) == 3
    for (_, grads), (images, _) in zip(seen, seen[1:], strict=False):
        assert {g.op for g in grads} <= upstream(images.op)


def test_no_device_waits_for_anothers_micro_batches():
    """Checks of labels run in one row, so they must not wait for what was computed."""
    start = scratch.init_params()
    own = [scratch.get_params(start, device) for device in EIGHT[:2]]
    of = partial(scratch.accumulate, micro_batches=2)
    step = in_graph(partial(scratch.train_batch, of=of))
    graph = step.get_concrete_function(*batch(8), own, EIGHT[:2], 0.1).graph
    sums = [op for op in graph.get_operations() if op.type == "Conv2DBackpropFilter"]
    assert len({op.device for op in sums}) == 2
    for op in sums:
        others = {one.device for one in upstream(op) if one.type == op.type}
        assert others <= {op.device}
