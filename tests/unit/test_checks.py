"""What checks give back, let pass, and leave for a graph to say when it runs.

What they refuse: tests/unit/bad_input.
"""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import manygpu
from manygpu import checks

ONE = "/device:CPU:0"
IMAGES = np.zeros((4, 28, 28, 1), np.float32)
LABELS = np.zeros(4, np.int32)


@pytest.mark.parametrize("value", [0, 0.5, 1, np.float32(0.25)])
def test_a_share_comes_back_as_a_float(value):
    found = checks.check_share("momentum", value)
    assert type(found) is float and found == value


def test_a_count_may_be_numpys_and_comes_back_as_an_int():
    assert type(checks.check_count("n", np.int64(3))) is int


@pytest.mark.parametrize("k", [1, 8])
def test_one_replica_a_device_passes(k):
    replicas = [[tf.Variable(tf.zeros(3)), tf.Variable(1.0)] for _ in range(k)]
    checks.check_replicas(replicas, manygpu.devices(k, quiet=True))


def test_images_of_unknown_number_pass():
    checks.check_images("X", tf.keras.Input((28, 28, 1)))
    checks.check_images("X", tf.constant(IMAGES))


def test_variables_can_be_summed_and_one_alone_too():
    checks.check_reducible([tf.Variable(1), tf.Variable(2)])
    checks.check_reducible([tf.zeros(2)])


def test_d2l_is_imported_or_it_is_said_how_to_get_it(monkeypatch):
    assert checks.import_d2l().Animator
    monkeypatch.setitem(sys.modules, "d2l", None)
    with pytest.raises(ImportError, match="pip install --no-deps d2l==1.0.3"):
        checks.import_d2l()


# check_batch, check_labels, check_positive: eager, and in a graph


def test_what_is_learned_may_be_any_numbers_where_no_classes_are_counted():
    for y in (np.zeros(4), np.zeros(4, bool), (np.zeros((4, 2)), LABELS)):
        assert checks.check_batch({"a": IMAGES, "b": IMAGES}, y, 4) == []


def in_a_graph(x_shape, y_shape, k: int):
    """A graph that checks a batch of any length, and returns how long it is."""

    @tf.function(
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
    @tf.function
    def checked(y):
        with tf.control_dependencies(checks.check_labels("y", y, 10)):
            return tf.identity(y)

    with pytest.raises(tf.errors.InvalidArgumentError, match="labels from 0 to 9"):
        checked(tf.constant(labels))


@given(st.lists(st.integers(0, 9), max_size=5))
@settings(deadline=None, max_examples=20)
def test_labels_of_classes_pass(labels):
    assert checks.check_labels("y", np.array(labels, np.uint8), 10) == []


@pytest.mark.parametrize(
    "lr", [0.1, np.float32(0.1), np.float64(0.1), np.int64(2), 1, tf.constant(0.1)]
)
def test_a_rate_of_any_kind_of_number_passes(lr):
    assert checks.check_positive("lr", lr) == []


@pytest.mark.parametrize("lr", [-1.0, 0.0, np.nan, np.inf])
def test_a_graph_refuses_a_rate_when_it_runs(lr):
    @tf.function
    def step(lr):
        with tf.control_dependencies(checks.check_positive("lr", lr)):
            return lr * 2

    with pytest.raises(tf.errors.InvalidArgumentError, match="lr must be positive"):
        step(tf.constant(lr, tf.float32))


# check_device


@pytest.mark.parametrize(
    "written", ["/device:{}", "/{}", "{}", "/job:localhost/replica:0/task:0/device:{}"]
)
@pytest.mark.parametrize("case", [str.upper, str.lower])
def test_a_device_may_be_written_in_each_of_tensorflows_ways(written, case):
    device = manygpu.devices(2, quiet=True)[1]
    name = case(device.removeprefix("/device:"))
    assert checks.check_device("device", written.format(name)) == device


def test_a_device_without_a_number_is_the_first():
    assert checks.check_device("device", "/cpu") == ONE


@given(st.text(max_size=30))
@settings(deadline=None, max_examples=50)
def test_no_text_breaks_the_check_of_a_device(text):
    try:
        found = checks.check_device("device", text)
    except ValueError as error:
        assert "does not exist" in str(error)
    else:
        assert re.fullmatch(r"/device:[A-Z_]+:\d+", found)
