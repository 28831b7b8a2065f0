"""What checks give back, let pass, and leave for a graph to say when it runs.

What they refuse: tests/unit/bad_input.
"""

import re
from fractions import Fraction

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import manygpu
from manygpu import checks
from manygpu.scratch import sgd
from tests.unit.helpers import in_graph

IMAGES = np.zeros((4, 28, 28, 1), np.float32)
LABELS = np.zeros(4, np.int32)


def test_what_comes_back_is_pythons_own_number():
    share, count = checks.check_share("x", np.float32(1)), checks.check_count("n", 3)
    assert (share, type(share)) == (1.0, float)
    assert (count, type(checks.check_count("n", np.int64(3)))) == (3, int)


def test_images_of_unknown_number_pass():
    checks.check_images("X", tf.keras.Input((28, 28, 1)))


def test_what_is_learned_may_be_any_numbers_where_no_classes_are_counted():
    for y in (np.zeros(4), np.zeros(4, bool), (np.zeros((4, 2)), LABELS)):
        assert checks.check_batch({"a": IMAGES, "b": IMAGES}, y, 4) == []


def in_a_graph(x_shape, y_shape, k: int):
    """A graph that checks a batch of any length, and returns how long it is."""

    @in_graph(
        input_signature=[tf.TensorSpec(x_shape), tf.TensorSpec(y_shape, tf.int32)]
    )
    def rows(X, y):
        with tf.control_dependencies(checks.check_batch(X, y, k)):
            return tf.shape(X)[0]

    return rows


@pytest.mark.parametrize("x_rows, y_rows", [(None, None), (4, None), (None, 4)])
def test_a_graph_that_does_not_know_both_lengths_compares_them_later(x_rows, y_rows):
    rows = in_a_graph((x_rows, 2), (y_rows,), 3)
    assert rows(tf.zeros((4, 2)), tf.zeros(4, tf.int32)) == 4
    X, y = tf.zeros((x_rows or 5, 2)), tf.zeros(4 if x_rows is None else 5, tf.int32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="X and y must have the"):
        rows(X, y)


@pytest.mark.parametrize("samples", [0, 2])
def test_a_graph_refuses_fewer_samples_than_parts_when_it_runs(samples):
    rows = in_a_graph((None, 2), (None,), 3)
    said = "parts is 3 for.*use fewer parts .* or a larger batch"
    with pytest.raises(tf.errors.InvalidArgumentError, match=said):
        rows(tf.zeros((samples, 2)), tf.zeros(samples, tf.int32))


def test_where_the_lengths_are_known_nothing_is_left_for_later():
    assert checks.check_batch(IMAGES, LABELS) == []
    graph = in_a_graph((4, 2), (4,), 1).get_concrete_function().graph
    assert not [op for op in graph.get_operations() if op.type == "Assert"]


@pytest.mark.parametrize("labels", [[-1, 0], [0, 10], [3, 255]])
def test_a_graph_refuses_labels_of_no_class_when_it_runs(labels):
    @in_graph
    def checked(y):
        with tf.control_dependencies(checks.check_labels("y", y, 10)):
            return tf.identity(y)

    with pytest.raises(tf.errors.InvalidArgumentError, match="labels from 0 to 9"):
        checked(tf.constant(labels))


def test_unsigned_labels_and_none_at_all_pass():
    for labels in ([0, 9], []):
        assert checks.check_labels("y", np.array(labels, np.uint8), 10) == []


@pytest.mark.parametrize(
    "lr", [np.array(0.1), np.float16(0.1), 1, Fraction(1, 10), tf.constant(0.1)]
)
def test_a_rate_of_any_kind_of_number_passes_and_moves_a_parameter(lr):
    assert checks.check_positive("lr", lr) == []
    w = tf.Variable([1.0, 2.0])
    sgd([w], [tf.constant([0.5, -0.5])], lr)
    rate = float(lr)
    np.testing.assert_allclose(w, [1 - 0.5 * rate, 2 + 0.5 * rate], rtol=1e-6)


@pytest.mark.parametrize("lr", [-1.0, 0.0, np.nan, np.inf])
def test_a_graph_refuses_a_rate_when_it_runs(lr):
    @in_graph
    def step(lr):
        with tf.control_dependencies(checks.check_positive("lr", lr)):
            return lr * 2

    with pytest.raises(tf.errors.InvalidArgumentError, match="lr must be positive"):
        step(tf.constant(lr, tf.float32))


@pytest.mark.parametrize("case", [str.upper, str.lower])
def test_a_device_may_be_written_in_each_of_tensorflows_ways(case):
    second = manygpu.devices(2, quiet=True)[1]
    name = case(second.removeprefix("/device:"))
    for ahead in ("/device:", "/", "", "/job:localhost/replica:0/task:0/device:"):
        assert checks.check_device("device", ahead + name) == second
    assert checks.check_device("device", "/cpu") == "/device:CPU:0"


@given(st.text("/:019CPUcpugdevicjob=", max_size=30))
@settings(deadline=None, max_examples=50)
def test_no_text_breaks_the_check_of_a_device(text):
    try:
        found = checks.check_device("device", text)
    except ValueError as error:
        assert "does not exist" in str(error)
    else:
        assert re.fullmatch(r"/device:[A-Z_]+:\d+", found)
