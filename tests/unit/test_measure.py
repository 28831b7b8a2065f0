"""One distance, one size, one share, one timer."""

from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.measure import distance, in_turns, nbytes, seconds_of, shares


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


def test_a_number_that_is_none_is_never_near():
    assert np.isnan(distance([np.nan], [1.0]))


def test_bytes_are_numbers_times_their_size():
    tensors = [tf.zeros((2, 3)), tf.Variable(tf.zeros(5, tf.float16)), np.zeros(4)]
    assert nbytes(tensors) == 24 + 10 + 32
    assert nbytes(tf.zeros((), tf.bfloat16)) == 2
    assert nbytes([]) == 0


@given(st.integers(0, 1000), st.integers(1, 40))
@settings(deadline=None)
def test_shares_are_fair_and_complete(total, parts):
    cut = shares(total, parts)
    assert sum(cut) == total and len(cut) == parts
    assert cut == sorted(cut, reverse=True) and cut[0] - cut[-1] <= 1


class Clock:
    """In place of the time module: time passes when somebody works, and only then."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr("manygpu.measure.time", clock := Clock())
    return clock


def test_jobs_take_turns_and_the_first_rounds_do_not_count(clock):
    order = []

    def job(name, first, later):
        clock.now += later if name in order else first
        order.append(name)

    jobs = {name: partial(job, name, 9, i) for i, name in enumerate("ab", 1)}
    assert in_turns(jobs, 3) == {"a": [1, 1, 1], "b": [2, 2, 2]}
    assert order == [*"abababab"]
    order.clear()
    assert in_turns(jobs, 2, warm_up=0) == {"a": [9, 1], "b": [9, 2]}


def test_a_job_is_over_when_its_result_is_there(clock):
    class OnDevice:
        def __array__(self, dtype=None, copy=None):
            clock.now += 5  # whoever asks for it waits
            return np.zeros(1)

    assert seconds_of(OnDevice) == 5
    assert in_turns({"it": OnDevice}, 1)["it"] == [5]
    assert seconds_of(lambda: tf.constant([1.0])) == 0


def test_something_else_than_seconds_may_be_taken():
    found = in_turns({1: "x", 2: "y"}, 2, take=str.upper)
    assert found == {1: ["X", "X"], 2: ["Y", "Y"]}
