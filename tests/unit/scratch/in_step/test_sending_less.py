"""Compressors, error feedback, low rank, for any gradients; the page counts bytes."""

import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu import scratch
from manygpu.scratch import ErrorFeedback, Int8, LowRank, OneBit, gather_compressed
from tests.unit.helpers import EIGHT, distance, runs_on, same, values

# Bytes of a message with N numbers of w bytes, by the page's formulas.
BYTES = {
    "top-k": (scratch.TopK(0.1), lambda N, w: (4 + w) * max(1, round(0.1 * N))),
    "int8": (Int8(), lambda N, w: w + N),
    "1-bit": (OneBit(), lambda N, w: w + math.ceil(N / 8)),
}
COMPRESSORS = pytest.mark.parametrize("name", BYTES)
SHAPES = [(6, 5), (7,), (2, 3, 4, 5)]
# Far from what a CPU may take for zero, which float32's smallest numbers are.
FLOATS = st.floats(-1e6, 1e6, width=32).filter(lambda x: x == 0 or abs(x) > 1e-20)
VECTORS = st.lists(FLOATS, min_size=1, max_size=40)


def dealt(n: int, shapes=SHAPES, dtype=tf.float32, seed: int = 0) -> list[list]:
    """grads[k][i], drawn, device k's on its own device."""
    rng, grads = np.random.default_rng(seed), []
    for device in EIGHT[:n]:
        with tf.device(device):
            grads.append([tf.constant(rng.normal(size=s), dtype) for s in shapes])
    return grads


def added(lists: list[list]) -> list[np.ndarray]:
    """The sum over devices of each parameter's."""
    a_parameter = zip(*lists, strict=True)
    return [np.sum([np.asarray(t) for t in of_all], 0) for of_all in a_parameter]


def arrives(compressor, values, dtype=tf.float32) -> np.ndarray:
    flat = tf.constant(values, dtype)
    rows = compressor.pack(flat)[tf.newaxis]
    return compressor.unpack(rows, flat.shape[0], dtype)[0].numpy()


@given(values=VECTORS, share=st.floats(0, 1))
@settings(deadline=None, max_examples=30)
def test_top_k_sends_the_largest_as_they_are_and_nothing_else(values, share):
    values, left = np.float32(values), arrives(scratch.TopK(share), values)
    k = max(1, round(share * len(values)))
    sent = left != 0
    assert np.array_equal(left[sent], values[sent])
    assert sent.sum() <= k
    assert np.array_equal(np.sort(np.abs(left))[-k:], np.sort(np.abs(values))[-k:])


@given(values=VECTORS)
@settings(deadline=None, max_examples=30)
def test_int8_is_off_by_half_a_level_at_most(values):
    values, left = np.float32(values), arrives(Int8(), values)
    level = np.abs(values).max() / 127
    assert np.all(np.abs(np.float64(left) - values) <= 0.5001 * level)


@given(values=VECTORS)
@settings(deadline=None, max_examples=30)
def test_one_bit_sends_each_sign_and_the_mean(values):
    values, left = np.float32(values), arrives(OneBit(), values)
    mean = np.mean(np.abs(np.float64(values)))
    assert np.array_equal(np.signbit(left), values < 0) or mean == 0
    assert np.allclose(np.abs(left), mean, rtol=1e-5)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
def test_one_bit_knows_the_mean_of_more_numbers_than_float16_counts(dtype):
    right = np.resize([1.0, -3.0], 102_400)
    found = arrives(OneBit(), right, dtype).astype(float)
    assert np.array_equal(found, np.where(right > 0, 2, -2))


def test_int8_stays_in_its_range_where_the_scale_is_rounded():
    """bfloat16 rounds the scale so far that the largest number would be level 128."""
    values = 1 + np.arange(128) / 128
    for value in values:
        found = arrives(Int8(), [value, -value], tf.bfloat16).astype(float)
        np.testing.assert_allclose(found, [value, -value], rtol=0.02)


@COMPRESSORS
def test_zeros_stay_zeros(name):
    assert not arrives(BYTES[name][0], np.zeros(9)).any()


def lossy_reduce(name: str, like: list[list]):
    return LowRank(like, 2) if name == "low rank" else gather_compressed(BYTES[name][0])


@pytest.mark.parametrize("name", [*BYTES, "low rank"])
def test_all_that_was_sent_and_is_kept_is_all_there_was(name):
    steps = [dealt(3, dtype=tf.float64, seed=s) for s in range(6)]
    feedback = ErrorFeedback(lossy_reduce(name, steps[0]), steps[0])
    found = [feedback(grads) for grads in steps]
    sums = added([own[0] for own in found])
    for own, device in zip([*feedback.kept, *found[0]], EIGHT[:3] * 2, strict=True):
        assert all(runs_on(t, device) for t in own)
    kept = added(feedback.kept)
    assert any(np.abs(k).max() > 1e-3 for k in kept)
    true = added([added(grads) for grads in steps])
    assert distance([s + k for s, k in zip(sums, kept, strict=True)], true) < 1e-14


def test_what_is_kept_goes_into_a_checkpoint(tmp_path):
    grads = dealt(2)
    feedback, other = (ErrorFeedback(LowRank(grads, 1), grads) for _ in range(2))
    feedback(grads)
    path = tf.train.Checkpoint(feedback=feedback).write(str(tmp_path / "kept"))
    assert not same(feedback.variables, other.variables)
    tf.train.Checkpoint(feedback=other).read(path).assert_consumed()
    assert same(feedback.variables, other.variables)


@given(n=st.integers(1, 4), rank=st.integers(1, 6), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=15)
def test_low_rank_gives_all_one_sum_of_what_each_sent(n, rank, seed):
    grads = dealt(n, dtype=tf.float64, seed=seed)
    sums, sent = LowRank(grads, rank)(grads)
    assert all(same(own, sums[0]) for own in sums)
    assert distance(sums[0], added(sent)) < 1e-14
    for own, device in zip(sums, EIGHT[:n], strict=True):
        assert all(runs_on(t, device) for t in own)
    for total in sums[0]:
        matrix = total.numpy().reshape(-1, total.shape[-1])
        assert np.linalg.matrix_rank(matrix, 1e-10) <= rank
    if rank >= 5:  # as many columns as the matrices have
        assert distance(sums[0], added(grads)) < 1e-11


def test_each_parameter_has_a_first_basis_of_its_own_and_a_seed_has_its_own():
    alike = [[tf.ones((4, 3)), tf.ones((4, 3))]]
    one, again, other = (LowRank(alike, 2, seed=s).bases[0] for s in (0, 0, 1))
    first, second = (values(own) for own in one)
    assert same(first, values(again[0]))
    assert not same(first, second)
    assert not same(first, values(other[0]))


def test_gradients_of_zeros_are_summed_to_zeros_and_do_no_harm():
    grads = dealt(2)
    low = LowRank(grads, 2)
    zeros = [[tf.zeros_like(g) for g in own] for own in grads]
    assert not any(t.numpy().any() for t in low(zeros)[0][0])
    assert all(np.isfinite(t).all() for t in low(grads)[0][0])
    low(grads)
    assert distance(low(grads)[0][0][0], added(grads)[0]) < 0.9
