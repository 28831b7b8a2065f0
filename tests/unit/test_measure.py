"""One distance, one size, one share."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.measure import distance, nbytes, shares


def test_distance_is_a_share_of_the_reference_over_all_arrays_together():
    reference = [np.array([3.0, 0.0]), np.array([[4.0]])]
    found = [np.array([3.0, 0.3]), np.array([[4.4]])]
    assert distance(found, reference) == pytest.approx(0.1)
    assert distance(reference, reference) == 0


def test_distance_takes_tensors_variables_and_nests_of_any_dtype():
    v = tf.Variable([1.0, 2.0], dtype=tf.float16)
    assert distance({"a": [v]}, {"a": [np.array([1.0, 2.0])]}) == 0
    assert distance(tf.constant(2.0), 1.0) == 1


def test_distance_is_computed_in_float64():
    big = np.full(10, 1e30, np.float32)
    assert distance(2 * big, big) == pytest.approx(1)


@pytest.mark.parametrize(
    "found, reference, said",
    [
        ([np.ones(2)], [np.ones(3)], "must have the shapes of reference"),
        ([np.ones(2)], [np.ones(2), np.ones(2)], "must have the shapes"),
        ([np.ones(2)], [np.zeros(2)], "reference is all zeros"),
    ],
)
def test_what_can_not_be_compared_is_refused(found, reference, said):
    with pytest.raises(ValueError, match=said):
        distance(found, reference)


def test_a_number_that_is_none_is_never_near():
    assert np.isnan(distance([np.nan], [1.0]))


def test_bytes_are_numbers_times_their_size():
    tensors = [tf.zeros((2, 3)), tf.Variable(tf.zeros(5, tf.float16)), np.zeros(4)]
    assert nbytes(tensors) == 24 + 10 + 32
    assert nbytes(tf.zeros((), tf.bfloat16)) == 2
    assert nbytes([]) == 0


def test_bytes_of_an_open_shape_are_unknown():
    with pytest.raises(ValueError, match="known shapes"):
        nbytes(tf.TensorSpec((None, 2), tf.float32))


@given(st.integers(0, 1000), st.integers(1, 40))
@settings(deadline=None)
def test_shares_are_fair_and_complete(total, parts):
    cut = shares(total, parts)
    assert sum(cut) == total and len(cut) == parts
    assert cut == sorted(cut, reverse=True) and cut[0] - cut[-1] <= 1


@pytest.mark.parametrize(
    "total, parts", [(3, 0), (-1, 2), (2, 1.5), (2.5, 2), (None, 2), (False, 2)]
)
def test_no_share_of_what_is_no_count(total, parts):
    with pytest.raises((TypeError, ValueError), match="total|parts"):
        shares(total, parts)
