"""Buckets and packing: what must hold for any gradients, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch import allreduce_buckets, allreduce_gradients, make_buckets
from manygpu.scratch.data_parallel.hiding_communication import flatten, unflatten
from tests.unit.helpers import EIGHT, close, upstream

SHAPES = st.lists(st.lists(st.integers(0, 4), max_size=4).map(tuple), min_size=1)
DTYPES = st.sampled_from(["float16", "float32", "float64", "int32", "int64"])
SIZES = st.lists(st.integers(0, 100), min_size=1, max_size=30)


def tensors(shapes: list, dtype: str, seed: int = 0) -> list[tf.Tensor]:
    rng = np.random.default_rng(seed)
    return [tf.constant(rng.integers(-99, 99, s).astype(dtype)) for s in shapes]


def per_device(shapes: list, k: int) -> list[list[tf.Tensor]]:
    grads = []
    for i, device in enumerate(EIGHT[:k]):
        with tf.device(device):
            grads.append([tf.identity(t) for t in tensors(shapes, "float64", i)])
    return grads


# make_buckets


@given(sizes=SIZES, limit=st.integers(1, 150))
def test_every_gradient_is_in_one_bucket_and_the_last_comes_first(sizes, limit):
    buckets = make_buckets(sizes, limit)
    assert [i for b in buckets for i in b] == list(range(len(sizes)))[::-1]


@given(sizes=SIZES, limit=st.integers(1, 150))
def test_only_a_single_gradient_is_over_the_limit(sizes, limit):
    for bucket in make_buckets(sizes, limit):
        assert bucket
        assert sum(sizes[i] for i in bucket) <= limit or len(bucket) == 1


@given(sizes=SIZES, limit=st.integers(1, 150))
def test_a_bucket_is_closed_only_when_the_next_gradient_has_no_room(sizes, limit):
    buckets = make_buckets(sizes, limit)
    for bucket, following in zip(buckets, buckets[1:], strict=False):
        assert sum(sizes[i] for i in bucket) + sizes[following[0]] > limit


@pytest.mark.parametrize(
    "sizes, limit, error, says",
    [
        ([], 1, ValueError, "sizes is empty"),
        (7, 1, TypeError, "sizes must be a list"),
        (
            [4, 2.5],
            1,
            TypeError,
            r"sizes\[1\] must be a whole number of bytes, got 2.5",
        ),
        ([4, -1], 1, ValueError, r"sizes\[1\] must not be negative, got -1"),
        ([4], 0, ValueError, "limit must be at least 1, got 0"),
        ([4], -3, ValueError, "limit must be at least 1"),
        ([4], 1.5, TypeError, "limit must be a whole number"),
        ([4], True, TypeError, "limit must be a whole number"),
    ],
)
def test_sizes_and_limits_that_make_no_sense_are_refused(sizes, limit, error, says):
    with pytest.raises(error, match=says):
        make_buckets(sizes, limit)


# flatten and unflatten


@given(shapes=SHAPES, dtype=DTYPES)
@settings(deadline=None, max_examples=60)
def test_unflatten_undoes_flatten(shapes, dtype):
    given_tensors = tensors(shapes, dtype)
    buffer = flatten(given_tensors)
    assert buffer.shape == (sum(int(np.prod(s)) for s in shapes),)
    assert buffer.dtype == dtype
    for back, one in zip(unflatten(buffer, given_tensors), given_tensors, strict=True):
        assert back.dtype == one.dtype
        assert back.shape == one.shape
        np.testing.assert_array_equal(back, one)


def test_flatten_keeps_the_order_and_takes_variables():
    two = [tf.Variable([[1.0, 2.0], [3.0, 4.0]]), tf.Variable(5.0)]
    assert flatten(two).numpy().tolist() == [1, 2, 3, 4, 5]


def test_packing_works_in_a_graph_too():
    given_tensors = tensors([(2, 3), (), (0, 4), (5,)], "float32")
    there_and_back = tf.function(lambda *t: unflatten(flatten(list(t)), list(t)))
    for back, one in zip(there_and_back(*given_tensors), given_tensors, strict=True):
        np.testing.assert_array_equal(back, one)


@pytest.mark.parametrize("function", [flatten, lambda t: unflatten(tf.zeros(4), t)])
@pytest.mark.parametrize(
    "wrong, error, says",
    [
        ([], ValueError, "is empty"),
        (tf.zeros(4), TypeError, "must be a list"),
        ([tf.zeros(2), tf.zeros(2, tf.float64)], TypeError, "must have one dtype"),
        ([tf.zeros(2), [1.0, 2.0]], TypeError, r"\[1\] must be a tensor or variable"),
    ],
)
def test_lists_that_can_not_be_packed_are_refused(function, wrong, error, says):
    with pytest.raises(error, match=says):
        function(wrong)


@pytest.mark.parametrize(
    "buffer, error, says",
    [
        (tf.zeros(5), ValueError, r"buffer must have shape \(6,\) to fill like"),
        (tf.zeros(7), ValueError, r"buffer must have shape \(6,\)"),
        (tf.zeros((2, 3)), ValueError, r"buffer must have shape \(6,\)"),
        (tf.zeros(6, tf.float64), TypeError, "buffer is float64, like float32"),
        ([0.0] * 6, TypeError, "buffer must be a tensor, got list"),
    ],
)
def test_a_buffer_that_does_not_fit_is_refused(buffer, error, says):
    with pytest.raises(error, match=says):
        unflatten(buffer, [tf.zeros((2, 2)), tf.zeros(2)])


# allreduce_buckets


@given(
    shapes=st.lists(st.sampled_from([(), (3,), (2, 2), (0,)]), min_size=1, max_size=6),
    k=st.integers(1, 8),
    limit=st.integers(1, 120),
)
@settings(deadline=None, max_examples=40)
def test_buckets_sum_in_every_bit_as_one_message_a_tensor(shapes, k, limit):
    grads = per_device(shapes, k)
    before = [[g.numpy() for g in own] for own in grads]
    buckets = make_buckets([8 * int(np.prod(s)) for s in shapes], limit)
    sums, plain = allreduce_buckets(grads, buckets), allreduce_gradients(grads)
    for mine, theirs, own, was, device in zip(
        sums, plain, grads, before, EIGHT, strict=False
    ):
        for a, b, g, then in zip(mine, theirs, own, was, strict=True):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(g, then)  # the input is untouched
            assert a.device.endswith(device)
            assert a.shape == g.shape


def test_buckets_are_sent_one_after_the_other_in_their_order():
    sent = []

    def send(buffers):
        sent.append([b.numpy().tolist() for (b,) in buffers])
        return buffers

    grads = [[tf.constant([1.0]), tf.constant([2.0]), tf.constant([3.0])]]
    allreduce_buckets(grads, [[2], [1, 0]], send)
    assert sent == [[[3.0]], [[2.0, 1.0]]]


def test_each_device_packs_its_own_buffers():
    places = []

    def noted(buffers):
        places.append([buffer.device for (buffer,) in buffers])
        return allreduce_gradients(buffers)

    allreduce_buckets(per_device([(2,), (3,)], 3), [[1], [0]], noted)
    assert len(places) == 2
    for found in places:
        assert [d[-len(e) :] for d, e in zip(found, EIGHT, strict=False)] == EIGHT[:3]


@pytest.mark.parametrize(
    "buckets",
    [[[0]], [[0], [1], [1]], [[0, 1, 2]], [[1], [1]], [[0.0, 1]], [["a"], [0, 1]]],
)
def test_buckets_that_lose_or_double_a_gradient_are_refused(buckets):
    with pytest.raises(ValueError, match="each of the 2 must be in one bucket"):
        allreduce_buckets(per_device([(2,), (3,)], 2), buckets)


def test_no_gradients_and_no_buckets_are_refused():
    with pytest.raises(ValueError, match="grads is empty"):
        allreduce_buckets([], [[0]])
    with pytest.raises(ValueError, match="buckets is empty"):
        allreduce_buckets(per_device([(2,)], 2), [])
    with pytest.raises(ValueError, match=r"buckets\[1\] is empty"):
        allreduce_buckets(per_device([(2,)], 2), [[0], []])
    with pytest.raises(TypeError, match=r"buckets\[0\] must be a list"):
        allreduce_buckets(per_device([(2,)], 2), [0])


@pytest.mark.parametrize(
    "second",
    [[tf.ones(3), tf.ones(2)], [tf.ones(2)], [tf.ones(2), None]],
    ids=["in another order", "one missing", "one none"],
)
def test_lists_of_other_parameters_are_refused_before_any_message(second):
    """Of the same size altogether, they would be added to each other silently."""
    sent = []
    with pytest.raises((TypeError, ValueError), match=r"grads\[1\]"):
        allreduce_buckets([[tf.ones(2), tf.ones(3)], second], [[0, 1]], sent.append)
    assert sent == []


def test_buckets_may_be_numbered_by_numpy():
    grads = per_device([(2,), (3,)], 2)
    sums = allreduce_buckets(grads, [list(np.array([1, 0]))])
    assert close(sums[0], allreduce_gradients(grads)[0], 0)


def test_a_bucket_may_be_summed_in_fewer_bits():
    """Its sums come back in the dtype of the gradients."""
    grads = [[tf.constant([1.0, 2.0]), tf.constant(3.0)]] * 2

    def sixteen(buffers):
        return allreduce_gradients([[tf.cast(b, tf.float16)] for (b,) in buffers])

    sums = allreduce_buckets(grads, [[1, 0]], sixteen)
    assert [s.numpy().tolist() for s in sums[1]] == [[2.0, 4.0], 6.0]
    assert {s.dtype for s in sums[1]} == {tf.float32}


def test_a_message_waits_for_the_one_before_it():
    """Devices that sent two buckets in different order would wait for each other."""
    messages = []

    def noted(buffers):
        summed = allreduce_gradients(buffers)
        messages.append([buffer for (buffer,) in summed])
        return summed

    @tf.function
    def send_all():
        grads = []
        for device in EIGHT[:2]:
            with tf.device(device):
                grads.append([tf.ones(2), tf.ones(3)])
        return allreduce_buckets(grads, [[1], [0]], noted)

    send_all.get_concrete_function()
    first, second = messages
    for later in second:
        assert {t.op for t in first} <= upstream(later.op)
    for earlier in first:
        assert not {t.op for t in second} & upstream(earlier.op)
