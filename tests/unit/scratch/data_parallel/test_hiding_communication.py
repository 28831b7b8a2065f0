"""Buckets and packing: what must hold for any gradients."""

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch import allreduce_buckets, allreduce_gradients, make_buckets
from manygpu.scratch.data_parallel.hiding_communication import flatten, unflatten
from tests.unit.helpers import EIGHT, in_graph, runs_on, same, values

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


@given(sizes=SIZES, limit=st.integers(1, 150))
def test_buckets_take_the_last_gradient_first_and_fill_up_to_the_limit(sizes, limit):
    buckets = make_buckets(sizes, limit)
    assert [i for b in buckets for i in b] == list(range(len(sizes)))[::-1]
    for bucket in buckets:
        assert sum(sizes[i] for i in bucket) <= limit or len(bucket) == 1
    for bucket, following in zip(buckets, buckets[1:], strict=False):
        assert sum(sizes[i] for i in bucket) + sizes[following[0]] > limit


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


def test_packing_keeps_the_order_takes_variables_and_works_in_a_graph():
    two = [tf.Variable([[1.0, 2.0], [3.0, 4.0]]), tf.Variable(5.0)]
    packed = in_graph(lambda: flatten(two))()
    assert packed.numpy().tolist() == [1, 2, 3, 4, 5]
    back = in_graph(unflatten)(packed, two)
    assert same(values(back), values(two))


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


def test_buckets_are_packed_on_their_devices_and_sent_in_their_order():
    """They may be numbered by NumPy."""
    sent, grads = [], per_device([(2,), (3,), ()], 3)

    def noted(buffers):
        sent.append([buffer for (buffer,) in buffers])
        return allreduce_gradients(buffers)

    allreduce_buckets(grads, [[2], list(np.array([1, 0]))], noted)
    for bucket, buffers in zip([[2], [1, 0]], sent, strict=True):
        for own, buffer, device in zip(grads, buffers, EIGHT, strict=False):
            assert runs_on(buffer, device)
            np.testing.assert_array_equal(buffer, flatten([own[i] for i in bucket]))


def test_a_bucket_may_be_summed_in_fewer_bits():
    """Its sums come back in the dtype of the gradients."""
    grads = [[tf.constant([1.0, 2.0]), tf.constant(3.0)]] * 2

    def sixteen(buffers):
        return allreduce_gradients([[tf.cast(b, tf.float16)] for (b,) in buffers])

    sums = allreduce_buckets(grads, [[1, 0]], sixteen)
    assert [s.numpy().tolist() for s in sums[1]] == [[2.0, 4.0], 6.0]
    assert {s.dtype for s in sums[1]} == {tf.float32}
