"""Accumulation: the gradients of the whole batch, one micro-batch after the other."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch import (
    MessageLog,
    accumulate,
    allreduce_with,
    get_params,
    gradients,
    init_params,
    naive_allreduce,
    train_batch,
)
from tests.unit.helpers import EIGHT, batch, close, upstream

MODEL = get_params(init_params(dtype=tf.float64), EIGHT[0])


@given(samples=st.integers(1, 12), micro_batches=st.integers(1, 12))
@settings(deadline=None, max_examples=15)
def test_accumulated_gradients_are_those_of_the_whole_batch(samples, micro_batches):
    X, y = batch(samples)
    if micro_batches > samples:
        with pytest.raises(ValueError, match=f"parts is {micro_batches} for"):
            accumulate(X, y, MODEL, micro_batches)
        return
    loss, grads = accumulate(X, y, MODEL, micro_batches)
    whole_loss, whole = gradients(X, y, MODEL)
    np.testing.assert_allclose(loss, whole_loss, rtol=1e-12)
    assert close(grads, whole, 1e-12)


def test_accumulation_in_a_graph_for_any_batch_size():
    signature = [
        tf.TensorSpec((None, 28, 28, 1), tf.float32),
        tf.TensorSpec((None,), tf.int32),
    ]
    three = tf.function(
        lambda X, y: accumulate(X, y, MODEL, 3), input_signature=signature
    )
    for samples in (7, 10):
        X, y = batch(samples)
        assert close(three(X, y)[1], gradients(X, y, MODEL)[1], 1e-12)


def test_micro_batches_run_one_after_the_other_in_a_graph():
    seen = []

    def of(X, y, params):
        loss, grads = gradients(X, y, params)
        seen.append((X, grads))
        return loss, grads

    step = tf.function(lambda X, y: accumulate(X, y, MODEL, 3, of))
    step.get_concrete_function(*batch(9))
    assert len(seen) == 3
    for (_, grads), (images, _) in zip(seen, seen[1:], strict=False):
        assert {g.op for g in grads} <= upstream(images.op)


@pytest.mark.parametrize(
    "micro_batches, error, says",
    [
        (0, ValueError, "micro_batches must be at least 1, got 0"),
        (1.5, TypeError, "micro_batches must be a whole number, got 1.5"),
        (5, ValueError, "parts is 5 for 4 samples"),
    ],
)
def test_numbers_of_micro_batches_that_make_no_sense_are_refused(
    micro_batches, error, says
):
    with pytest.raises(error, match=says):
        accumulate(*batch(4), MODEL, micro_batches)


def test_too_many_for_an_open_batch_are_refused_when_it_runs_by_their_name():
    """A graph for any number of samples knows theirs late."""
    kinds = [
        tf.TensorSpec([None, *batch(4)[0].shape[1:]]),
        tf.TensorSpec([None], tf.int32),
    ]
    step = tf.function(lambda X, y: accumulate(X, y, MODEL, 5), input_signature=kinds)
    with pytest.raises(tf.errors.InvalidArgumentError, match="parts is 5 for"):
        step(*batch(4))
    loss, _ = step(*batch(5))
    assert float(loss) == pytest.approx(float(accumulate(*batch(5), MODEL, 5)[0]))


def test_labels_of_another_length_are_refused():
    X, y = batch(4)
    with pytest.raises(ValueError, match="the same length, got 4 samples and 3"):
        accumulate(X, y[:3], MODEL, 2)


def test_a_step_sends_as_much_with_any_number_of_micro_batches():
    """Gradients are summed on their device first, and over the devices once."""
    sent = []
    for micro_batches in (1, 2, 3):
        replicas = [get_params(MODEL, device) for device in EIGHT[:2]]
        log = MessageLog()
        train_batch(
            *batch(9),
            replicas,
            EIGHT[:2],
            0.1,
            allreduce_with(naive_allreduce, log),
            lambda X, y, params, m=micro_batches: accumulate(X, y, params, m),
        )
        sent.append([size for _, size in log.messages])
    assert sent[0] == sent[1] == sent[2]
