"""Collectives: sums, places and steps, for any number; the page counts the bytes."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from manygpu import checks, scratch
from manygpu.hops import Hop
from manygpu.scratch.data_parallel.collectives import MessageLog, deliver
from tests.unit.helpers import EIGHT, in_graph, places
from tests.unit.scratch.data_parallel.participants import (
    COUNTS,
    dealt,
    drawn,
    hierarchy,
    nearest_first,
    one_message_a_step,
    quick,
)

ALL = {
    "naive": scratch.naive_allreduce,
    "ring": scratch.ring_allreduce,
    "tree": scratch.tree_allreduce,
    "halving": scratch.halving_doubling_allreduce,
    "nearest": nearest_first,
    "pairs": hierarchy(2),
    "fours": hierarchy(4),
}
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
KINDS = st.sampled_from(["float16", "float32", "float64", "int32", "int64", "uint8"])
EACH = pytest.mark.parametrize("allreduce", ALL.values(), ids=ALL.keys())


@EACH
@given(n=COUNTS, shape=SHAPES, dtype=KINDS, seed=st.integers(0, 99))
@quick
def test_an_allreduce_gives_everybody_the_sum_step_by_step(
    allreduce, n, shape, dtype, seed
):
    values = drawn(n, shape, dtype, seed)
    data, log = dealt(values), MessageLog()
    results = allreduce(data, log)
    assert len(results) == n
    total = tf.add_n(dealt(values)).numpy()
    if np.issubdtype(dtype, np.integer):
        np.testing.assert_array_equal(results[0].numpy(), total)
    else:
        # Each addition rounds by half an epsilon of at most the sum of absolute
        # values; both sums do so n - 1 times.
        sizes = np.abs(values).sum(axis=0, dtype=np.float64)
        allowed = (n - 1) * np.finfo(dtype).eps * sizes
        off = np.abs(results[0].numpy().astype(np.float64) - total)
        assert np.all(off <= allowed)
    for result, entry, value in zip(results, data, values, strict=True):
        assert result.device == entry.device
        assert (result.dtype, result.shape) == (entry.dtype, entry.shape)
        np.testing.assert_array_equal(result.numpy(), results[0].numpy())
        np.testing.assert_array_equal(entry.numpy(), value)
    hops = [hop for hop, _ in log.messages]
    assert one_message_a_step(log)
    assert {hop.step for hop in hops} == set(range(log.steps))
    for hop in hops:
        assert hop.source != hop.target
        assert 0 <= hop.source < n
        assert hop.device.endswith(EIGHT[hop.target % 8])


@EACH
@pytest.mark.parametrize("n", [1, 2, 3, 6, 8, 9])
def test_all_that_travels_travels_by_send(allreduce, n):
    """Messages that arrive as zeros leave each number of the sum incomplete.

    Variables are read, and results are none.
    """

    def lose(tensor: tf.Tensor, hop: Hop) -> tf.Tensor:
        return tf.zeros_like(deliver(tensor, hop))

    results = allreduce([tf.Variable(one) for one in dealt(np.ones((n, 12)))], lose)
    assert not any(isinstance(result, tf.Variable) for result in results)
    most = max(result.numpy().max() for result in results)
    assert most == 1.0  # nobody's number reached anybody else


@EACH
@pytest.mark.parametrize("n", [1, 3, 8])
def test_a_graph_gives_all_one_sum_and_adds_on_their_devices(allreduce, n):
    values = drawn(n, (11,), "float32", 2)
    variables = [tf.Variable(value) for value in values]
    where = []

    @in_graph
    def compiled():
        data = []
        for variable, device in zip(variables, EIGHT, strict=False):
            with tf.device(device):
                data.append(tf.identity(variable))
        results = allreduce(data)
        where.extend(checks.short_device_name(r.device) for r in results)
        return results

    found = compiled()
    # The graph's optimizer may add in another order, but only once for all.
    sizes = np.abs(values).sum(axis=0, dtype=np.float64)
    allowed = 2 * (n - 1) * np.finfo(np.float32).eps * sizes
    assert np.all(np.abs(found[0] - allreduce(dealt(values))[0]) <= allowed)
    for result in found:
        np.testing.assert_array_equal(result.numpy(), found[0].numpy())
    assert where == EIGHT[:n]
    adds = places(compiled.get_concrete_function().graph, "AddV2")
    if allreduce is scratch.ring_allreduce and n > 1:
        assert adds == dict.fromkeys(EIGHT[:n], n - 1)
    if allreduce is scratch.naive_allreduce and n > 1:
        assert adds == {EIGHT[0]: n - 1}


@EACH
@pytest.mark.parametrize("second", [None, tf.ones(2)])
def test_each_allreduce_refuses_what_does_not_add_up_before_any_message(
    allreduce, second
):
    log = MessageLog()
    with pytest.raises((TypeError, ValueError), match="data"):
        allreduce([tf.ones(1), second], log)
    assert log.messages == []


@given(n=COUNTS, shape=SHAPES, seed=st.integers(0, 99), data=st.data())
@quick
def test_reduce_scatter_leaves_participant_i_with_chunk_i_of_the_sum(
    n, shape, seed, data
):
    owners = data.draw(st.none() | st.integers(1, n))
    values = drawn(n, shape, "int32", seed)
    entries, log = dealt(values), MessageLog()
    chunks = scratch.reduce_scatter(entries, log, owners)
    flat = values.sum(axis=0, dtype=np.int32).ravel()
    right = np.array_split(flat, owners or n) + [flat[:0]] * (n - (owners or n))
    for chunk, piece, entry, value in zip(chunks, right, entries, values, strict=True):
        np.testing.assert_array_equal(chunk.numpy(), piece)
        assert chunk.shape.rank == 1
        assert chunk.device == entry.device
        np.testing.assert_array_equal(entry.numpy(), value)
    assert log.steps == n - 1
    for i in range(n):
        assert log.sent(i) == (n > 1) * (flat.nbytes - right[i].nbytes)


@given(lengths=st.lists(st.integers(0, 5), min_size=1, max_size=9), dtype=KINDS)
@quick
def test_all_gather_gives_everybody_all_chunks_in_order(lengths, dtype):
    values = [drawn(1, (length,), dtype, i)[0] for i, length in enumerate(lengths)]
    chunks, log, n = dealt(values), MessageLog(), len(values)
    results = scratch.all_gather(chunks, log)
    for result, chunk in zip(results, chunks, strict=True):
        np.testing.assert_array_equal(result.numpy(), np.concatenate(values))
        assert result.device == chunk.device
    whole = sum(value.nbytes for value in values)
    for i in range(n):
        right = values[(i + 1) % n].nbytes
        assert log.sent(i) == (n > 1) * (whole - right)
        assert log.received(i) == (n > 1) * (whole - values[i].nbytes)


TABLES = st.lists(st.integers(0, 9), min_size=1, max_size=3)
FEW = st.integers(1, 9)


@given(n=FEW, shape=TABLES, seed=st.integers(0, 99), data=st.data())
@quick
def test_a_sum_is_scattered_and_gathered_along_any_dimension(n, shape, seed, data):
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    values, log = drawn(n, tuple(shape), "int32", seed), MessageLog()
    pieces = scratch.reduce_scatter(dealt(values), log, dim=dim)
    whole = values.sum(axis=0, dtype=np.int32)
    for i, right in enumerate(np.array_split(whole, n, dim)):
        np.testing.assert_array_equal(pieces[i].numpy(), right)
        assert log.sent(i) == (n > 1) * (whole.nbytes - right.nbytes)
    log.messages.clear()
    for found, piece in zip(scratch.all_gather(pieces, log, dim), pieces, strict=True):
        np.testing.assert_array_equal(found.numpy(), whole)
        assert found.device == piece.device
    assert sum(map(log.sent, range(n))) == (n - 1) * whole.nbytes
    assert one_message_a_step(log)


@given(n=FEW, shape=TABLES, seed=st.integers(0, 99), data=st.data())
@quick
def test_an_all_to_all_cuts_one_dimension_and_joins_another(n, shape, seed, data):
    shape = (*shape, 4)
    dims = data.draw(st.permutations(range(-len(shape), 0)))
    join, cut = dims[:2]
    (whole,) = drawn(1, shape, "int32", seed)
    old, log = np.array_split(whole, n, join), MessageLog()
    found = scratch.all_to_all(dealt(old), cut, join, log)
    for i, right in enumerate(np.array_split(whole, n, cut)):
        np.testing.assert_array_equal(found[i].numpy(), right)
        assert found[i].device.endswith(EIGHT[i % 8])
        kept = np.array_split(old[i], n, cut)[i]
        assert log.sent(i) == (n > 1) * (old[i].nbytes - kept.nbytes)
        assert log.received(i) == (n > 1) * (right.nbytes - kept.nbytes)
    assert one_message_a_step(log)
    assert log.steps == n - 1
    again = scratch.all_to_all(found, join, cut)  # turned back
    for one, right in zip(again, old, strict=True):
        np.testing.assert_array_equal(one.numpy(), right)


@given(n=FEW, seed=st.integers(0, 99))
@quick
def test_an_all_to_all_of_given_lengths_sends_just_these_rows(n, seed):
    sizes = np.random.default_rng(seed).integers(0, 4, (n, n))
    rows = [np.repeat(100 * i + np.arange(n), own) for i, own in enumerate(sizes)]
    log = MessageLog()
    found = scratch.all_to_all(dealt(rows), 0, 0, log, sizes.tolist())
    for j, one in enumerate(found):
        right = np.repeat(100 * np.arange(n) + j, sizes[:, j])
        np.testing.assert_array_equal(one.numpy(), right)
        assert one.device.endswith(EIGHT[j % 8])
        leave, arrive = sizes[j].sum() - sizes[j, j], sizes[:, j].sum() - sizes[j, j]
        assert log.sent(j) == leave * rows[0].itemsize
        assert log.received(j) == arrive * rows[0].itemsize


@pytest.mark.parametrize("n", [1, 3, 8])
def test_an_all_to_all_in_a_graph_joins_on_each_device(n):
    whole = drawn(1, (5, 7), "float32", 3)[0]
    variables = [tf.Variable(one) for one in dealt(np.array_split(whole, n))]

    @in_graph
    def compiled():
        rows = []
        for variable, device in zip(variables, EIGHT, strict=False):
            with tf.device(device):
                rows.append(tf.identity(variable))
        return scratch.all_to_all(rows, 1, 0)

    for one, right in zip(compiled(), np.array_split(whole, n, 1), strict=True):
        np.testing.assert_array_equal(one.numpy(), right)
    joins = places(compiled.get_concrete_function().graph, "ConcatV2")
    assert joins == (dict.fromkeys(EIGHT[:n], 1) if n > 1 else {})


def test_a_log_counts_by_participant_and_passes_on_what_its_send_makes():
    log = MessageLog()
    assert (log.steps, log.sent(0), log.received(0)) == (0, 0, 0)
    log(tf.ones((2, 3), tf.float64), Hop(4, 0, 1, EIGHT[1]))
    assert (log.steps, log.sent(0), log.received(1)) == (5, 48, 48)
    assert log.sent(1) == log.received(0) == 0
    other = MessageLog(lambda tensor, hop: -deliver(tensor, hop))
    assert other(tf.constant([2.0]), Hop(0, 0, 3, EIGHT[3])).numpy() == [-2.0]
