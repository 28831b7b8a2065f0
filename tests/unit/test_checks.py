"""Bad input is refused by name, with what was given and what to do."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

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


def refused(kind: type[Exception], call: Callable[[], object], *said: str) -> None:
    """`call` raises `kind`, and the message holds each of `said`."""
    with pytest.raises(kind) as error:
        call()
    assert type(error.value) is kind, "TensorFlow's own error, not a check's"
    for words in said:
        assert words in str(error.value)


# check_share


@pytest.mark.parametrize("value", [0, 0.5, 1, np.float32(0.25)])
def test_a_share_comes_back_as_a_float(value):
    found = checks.check_share("momentum", value)
    assert type(found) is float and found == value


@pytest.mark.parametrize(
    "value, kind",
    [(True, TypeError), (np.False_, TypeError), ("1", TypeError), (None, TypeError)]
    + [(1j, TypeError), (-0.1, ValueError), (1.1, ValueError), (2, ValueError)]
    + [(float("nan"), ValueError)],
    ids=repr,
)
def test_what_is_no_share_is_refused(value, kind):
    refused(kind, lambda: checks.check_share("momentum", value), "momentum must be")


# check_gradients, check_same_form, check_samples


def test_gradients_without_parameters_are_refused_by_the_name_that_is_empty():
    g = tf.zeros(2)
    refused(ValueError, lambda: checks.check_gradients([], [g]), "params")
    refused(ValueError, lambda: checks.check_gradients([g], []), "grads is empty")
    refused(ValueError, lambda: checks.check_same_form([]), "grads")
    refused(ValueError, lambda: checks.check_same_form([[g], []]), "grads[1]")
    refused(ValueError, lambda: checks.check_same_form([[], []]), "grads[0]")


def test_the_advice_to_add_an_axis_is_given_where_it_helps():
    given = np.zeros((4, 28, 28), np.float32)
    with pytest.raises(ValueError, match=r"X\[\.\.\., tf\.newaxis\]"):
        checks.check_samples("X", given, (28, 28, 1))
    for sample in [(28, 28, 3), (1, 1), (1,)]:
        with pytest.raises(ValueError, match="X must have shape") as refusal:
            checks.check_samples("X", given, sample)
        assert "newaxis" not in str(refusal.value)


# check_count


@given(st.integers(1, 10**12))
@settings(deadline=None, max_examples=25)
def test_a_count_comes_back_as_it_is(value):
    assert checks.check_count("n", value) == value


def test_a_count_may_be_numpys_and_comes_back_as_an_int():
    assert type(checks.check_count("n", np.int64(3))) is int


@pytest.mark.parametrize("value", [0, -1, np.int32(0)])
def test_a_count_below_one_is_refused(value):
    refused(ValueError, lambda: checks.check_count("n", value), "n must", repr(value))


@pytest.mark.parametrize(
    "value", [True, False, np.True_, 2.0, "2", None, [2], np.array(2.5)], ids=repr
)
def test_a_count_that_is_not_whole_is_refused(value):
    refused(
        TypeError,
        lambda: checks.check_count("batch_size", value),
        "batch_size must be a whole number",
        repr(value),
        "pass 1, 2",
    )


# check_not_empty


@pytest.mark.parametrize("values", [[0], (0,), ["a", "b"]])
def test_a_list_or_tuple_with_something_in_it_passes(values):
    checks.check_not_empty("devices", values)


@pytest.mark.parametrize("values", [[], ()])
def test_an_empty_list_is_refused(values):
    refused(
        ValueError,
        lambda: checks.check_not_empty("devices", values),
        "devices is empty",
    )


def test_a_single_name_in_place_of_a_list_is_refused():
    refused(
        TypeError,
        lambda: checks.check_not_empty("devices", ONE),
        "devices must be a list",
        "got str",
        "put it in a list",
    )


# check_params


def test_parameters_may_be_variables_or_tensors():
    checks.check_params("params", [tf.Variable(1.0)])
    checks.check_params("params", [tf.constant(1.0), tf.Variable(1.0)], count=2)


def test_too_few_parameters_are_refused():
    one = [tf.Variable(1.0)]
    refused(
        ValueError,
        lambda: checks.check_params("params", one, count=8),
        "params must hold 8",
        "got 1",
    )


def test_a_parameter_that_is_no_tensor_is_refused_by_its_place():
    bad = [tf.Variable(1.0), np.zeros(2)]
    refused(
        TypeError, lambda: checks.check_params("params", bad), "params[1]", "ndarray"
    )


def test_parameters_of_two_dtypes_are_refused():
    bad = [tf.constant(1.0), tf.constant(1.0, tf.float64)]
    refused(
        TypeError,
        lambda: checks.check_params("params", bad),
        "params",
        "float32",
        "float64",
        "cast",
    )


@pytest.mark.parametrize("bad, kind", [([], ValueError), (tf.zeros(3), TypeError)])
def test_parameters_must_be_a_list_with_something_in_it(bad, kind):
    refused(kind, lambda: checks.check_params("params", bad), "params")


# check_images


@pytest.mark.parametrize("X", [IMAGES, tf.constant(IMAGES)])
def test_images_pass(X):
    checks.check_images("X", X)


def test_images_of_unknown_number_pass():
    checks.check_images("X", tf.keras.Input((28, 28, 1)))


def test_images_that_are_no_array_are_refused():
    refused(TypeError, lambda: checks.check_images("X", [[1]]), "X must", "list")


def test_images_without_their_channel_axis_are_refused_with_the_mend():
    refused(
        ValueError,
        lambda: checks.check_images("X", IMAGES[..., 0]),
        "X must have rank 4",
        "(4, 28, 28)",
        "X[..., tf.newaxis]",
    )


@pytest.mark.parametrize("shape", [(4, 1, 28, 28), (4, 28, 28, 3), (4, 32, 32, 1)])
def test_images_of_another_size_are_refused(shape):
    refused(
        ValueError,
        lambda: checks.check_images("X", np.zeros(shape)),
        "X must have shape (samples, 28, 28, 1)",
        str(shape),
    )


# check_batch


@given(st.integers(1, 40), st.integers(1, 8))
@settings(deadline=None, max_examples=25)
def test_a_batch_passes_if_each_part_gets_a_sample(samples, k):
    X, y = np.zeros((samples, 2)), np.zeros(samples, int)
    if samples >= k:
        checks.check_batch(X, y, k)
    else:
        refused(
            ValueError,
            lambda: checks.check_batch(X, y, k),
            f"parts is {k} for {samples} samples",
            "fewer parts (devices, micro-batches) or a larger batch",
        )


@pytest.mark.parametrize(
    "X, y, said",
    [
        (np.float32(1), LABELS, "X must have a first axis"),
        (IMAGES, LABELS[:3], "X and y must have the same length, got 4 samples and 3"),
        (IMAGES, LABELS[:, None], "y must have rank 1"),
        (IMAGES, np.int32(1), "y must have a first axis"),
        ({"a": IMAGES, "b": IMAGES[:2]}, LABELS, "got 4 samples and 2"),
        ((), LABELS, "X is empty"),
    ],
)
def test_a_batch_of_wrong_shape_is_refused(X, y, said):
    refused(ValueError, lambda: checks.check_batch(X, y, classes=2), said)


@pytest.mark.parametrize("X, y, name", [("a", LABELS, "X"), (IMAGES, None, "y")])
def test_a_batch_that_is_no_array_is_refused(X, y, name):
    refused(
        TypeError,
        lambda: checks.check_batch(X, y),
        f"{name} must be a tensor or array, got {type(y if y is None else X).__name__}",
    )


@pytest.mark.parametrize("parts, kind", [(0, ValueError), (ONE, TypeError)])
def test_a_batch_needs_a_number_of_parts(parts, kind):
    refused(kind, lambda: checks.check_batch(IMAGES, LABELS, parts), "parts")


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


# import_d2l


def test_d2l_is_imported_or_it_is_said_how_to_get_it(monkeypatch):
    assert checks.import_d2l().Animator
    monkeypatch.setitem(sys.modules, "d2l", None)
    with pytest.raises(ImportError, match="pip install --no-deps d2l==1.0.3"):
        checks.import_d2l()


# check_replicas


def replicas(k: int = 2, shape: tuple = (3,)) -> list[list[tf.Variable]]:
    return [[tf.Variable(tf.zeros(shape)), tf.Variable(1.0)] for _ in range(k)]


@pytest.mark.parametrize("k", [1, 2, 8])
def test_one_replica_a_device_passes(k):
    checks.check_replicas(replicas(k), manygpu.devices(k, quiet=True))


def test_as_many_replicas_as_devices_are_needed():
    refused(
        ValueError,
        lambda: checks.check_replicas(replicas(2), [ONE]),
        "device_params has 2 replicas for 1 devices",
        "get_params",
    )


@pytest.mark.parametrize("device_params", [[], [[]]])
def test_empty_replicas_are_refused(device_params):
    refused(
        ValueError, lambda: checks.check_replicas(device_params, [ONE]), "device_params"
    )


def test_replicas_need_devices():
    refused(ValueError, lambda: checks.check_replicas(replicas(1), []), "devices")


def test_one_list_of_variables_in_place_of_replicas_is_refused():
    refused(
        TypeError,
        lambda: checks.check_replicas(replicas(1)[0][:1], [ONE]),
        "device_params[0] must be a list",
    )


def test_a_tensor_among_the_replicas_is_refused():
    bad = replicas()
    bad[1][0] = tf.zeros(3)
    refused(
        TypeError,
        lambda: checks.check_replicas(bad, [ONE, ONE]),
        "device_params[1][0]",
        "tf.Variable",
        "get_params",
    )


def test_replicas_that_share_a_variable_are_refused():
    bad = replicas()
    bad[1][1] = bad[0][1]
    refused(
        ValueError,
        lambda: checks.check_replicas(bad, [ONE, ONE]),
        "device_params[1][1]",
        "its own copy",
    )


def test_replicas_of_different_models_are_refused():
    bad = [replicas(1)[0], replicas(1, shape=(4,))[0]]
    refused(
        ValueError,
        lambda: checks.check_replicas(bad, [ONE, ONE]),
        "device_params[1] has shapes [(4,), ()]",
        "copies of one model",
    )


def test_replicas_of_different_dtypes_are_refused():
    bad = replicas()
    bad[1] = [tf.Variable(tf.cast(p, tf.float64)) for p in bad[1]]
    refused(
        TypeError,
        lambda: checks.check_replicas(bad, [ONE, ONE]),
        "device_params must have one dtype",
        "['float32', 'float64']",
    )


def test_a_device_that_does_not_exist_is_refused_and_not_replaced_by_the_cpu():
    refused(
        ValueError,
        lambda: checks.check_replicas(replicas(), [ONE, "/device:CPU:99"]),
        "devices[1]",
        "CPU:99",
        "choose from",
    )


# check_reducible


@pytest.mark.parametrize(
    "data",
    [
        [tf.zeros(2), tf.zeros(2)],
        [tf.zeros(2)],
        [tf.Variable(1), tf.Variable(2)],
    ],
)
def test_entries_of_one_kind_shape_and_dtype_can_be_summed(data):
    checks.check_reducible(data)


def test_a_tuple_is_refused_because_it_can_not_change():
    refused(
        TypeError,
        lambda: checks.check_reducible((tf.zeros(2),)),
        "data must be a list",
        "got tuple",
        "list(data)",
    )


def test_nothing_to_sum_is_refused():
    refused(ValueError, lambda: checks.check_reducible([]), "data is empty")


def test_variables_mixed_with_tensors_are_refused():
    mixed = [tf.Variable(1.0), tf.constant(1.0)]
    refused(TypeError, lambda: checks.check_reducible(mixed), "data mixes", "one kind")


def test_one_variable_twice_is_refused():
    v = tf.Variable(1.0)
    refused(ValueError, lambda: checks.check_reducible([v, v]), "data", "twice")


def test_different_shapes_are_refused():
    refused(
        ValueError,
        lambda: checks.check_reducible([tf.zeros(2), tf.zeros(3)]),
        "data must hold tensors of one shape",
        "[(2,), (3,)]",
    )


def test_shapes_that_would_broadcast_are_refused_too():
    refused(
        ValueError, lambda: checks.check_reducible([tf.zeros(2), tf.zeros(())]), "data"
    )


def test_different_dtypes_are_refused():
    data = [tf.zeros(2), tf.zeros(2, tf.float64)]
    refused(TypeError, lambda: checks.check_reducible(data), "data", "one dtype")


# check_positive


@pytest.mark.parametrize("lr", [0.1, 1, np.float64(0.1), tf.constant(0.1)])
def test_a_learning_rate_passes(lr):
    checks.check_positive("lr", lr)


@pytest.mark.parametrize("lr", [0, -0.1, float("nan"), float("inf")])
def test_a_learning_rate_that_is_not_positive_and_finite_is_refused(lr):
    refused(
        ValueError, lambda: checks.check_positive("lr", lr), "lr must be pos", repr(lr)
    )


@pytest.mark.parametrize("lr", ["0.1", None, True, [0.1]])
def test_a_learning_rate_that_is_no_number_is_refused(lr):
    refused(
        TypeError, lambda: checks.check_positive("lr", lr), "lr must be a", repr(lr)
    )


# check_device, short_device_name


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


@pytest.mark.parametrize(
    "wrong", ["/device:CPU:99", "/device:GPU:7", "TPU:0", "", "/", "here", "CPU:x", "0"]
)
def test_a_device_that_does_not_exist_is_refused_with_those_that_do(wrong):
    refused(
        ValueError,
        lambda: checks.check_device("device", wrong),
        f"device {wrong!r} does not exist",
        "choose from",
        ONE,
    )


@pytest.mark.parametrize("wrong", [0, None, ["/device:CPU:0"]])
def test_a_device_that_is_no_name_is_refused(wrong):
    refused(
        TypeError,
        lambda: checks.check_device("device", wrong),
        "device must be a device name",
        type(wrong).__name__,
    )


def test_a_logical_device_is_refused_with_the_mend():
    logical = tf.config.list_logical_devices("CPU")[0]
    refused(TypeError, lambda: checks.check_device("device", logical), "pass its .name")
    assert checks.check_device("device", logical.name) == ONE


@given(st.text(max_size=30))
@settings(deadline=None, max_examples=100)
def test_no_text_breaks_the_check_of_a_device(text):
    try:
        found = checks.check_device("device", text)
    except ValueError as error:
        assert "does not exist" in str(error)
    else:
        assert re.fullmatch(r"/device:[A-Z_]+:\d+", found)


# What holds of each check: it changes nothing.


def test_a_check_that_refuses_has_changed_nothing():
    device_params = replicas()
    device_params[1][0] = device_params[0][0]
    data = [tf.Variable([1.0, 2.0]), tf.Variable([3.0])]
    before = [list(r) for r in device_params], list(data), [d.numpy() for d in data]
    with pytest.raises(ValueError):
        checks.check_replicas(device_params, [ONE, ONE])
    with pytest.raises(ValueError):
        checks.check_reducible(data)
    assert all(
        a is b
        for now, then in zip(device_params, before[0], strict=True)
        for a, b in zip(now, then, strict=True)
    )
    assert all(a is b for a, b in zip(data, before[1], strict=True))
    for now, then in zip(data, before[2], strict=True):
        np.testing.assert_array_equal(now.numpy(), then)


# Labels and rates that only their values betray


@pytest.mark.parametrize("labels", [[-1, 0], [0, 10], [3, 255]])
def test_a_label_that_is_no_class_is_refused_eager_and_in_a_graph(labels):
    y = tf.constant(labels)
    said = f"y must hold labels from 0 to 9, got {min(labels)} to {max(labels)}"
    refused(ValueError, lambda: checks.check_labels("y", y, 10), said)

    @tf.function
    def checked(y):
        with tf.control_dependencies(checks.check_labels("y", y, 10)):
            return tf.identity(y)

    with pytest.raises(tf.errors.InvalidArgumentError, match="labels from 0 to 9"):
        checked(y)


@given(st.lists(st.integers(0, 9), max_size=5))
@settings(deadline=None, max_examples=20)
def test_labels_of_classes_pass(labels):
    assert checks.check_labels("y", np.array(labels, np.uint8), 10) == []
    assert checks.check_labels("y", np.array(labels, int), None) == []


@pytest.mark.parametrize(
    "lr", [np.float32(0.1), np.float16(0.5), np.int64(2), 1, tf.constant(0.1)]
)
def test_a_rate_of_any_kind_of_number_passes(lr):
    assert checks.check_positive("lr", lr) == []


@pytest.mark.parametrize(
    "lr", [tf.constant(-1.0), tf.constant(np.nan), tf.Variable(0.0), 1e40, -0.1]
)
def test_a_rate_that_is_none_is_refused_by_its_value(lr):
    refused(ValueError, lambda: checks.check_positive("lr", lr), "lr must be positive")


@pytest.mark.parametrize("lr", [tf.constant([0.1]), tf.constant(1), np.bool_(True)])
def test_a_rate_that_is_no_one_number_is_refused(lr):
    refused(TypeError, lambda: checks.check_positive("lr", lr), "lr must be")


@pytest.mark.parametrize("lr", [-1.0, 0.0, np.nan, np.inf])
def test_a_graph_refuses_a_rate_when_it_runs(lr):
    @tf.function
    def step(lr):
        with tf.control_dependencies(checks.check_positive("lr", lr)):
            return lr * 2

    with pytest.raises(tf.errors.InvalidArgumentError, match="lr must be positive"):
        step(tf.constant(lr, tf.float32))


@pytest.mark.parametrize(
    "X, y, said",
    [
        (tf.constant(["a"]), np.zeros(1, int), "X must hold real numbers"),
        (np.zeros(1, complex), np.zeros(1, int), "X must hold real numbers"),
        (np.zeros(1, object), np.zeros(1, int), "X must hold real numbers"),
        (np.zeros((2, 3)), np.zeros(2), "y must hold whole numbers"),
        (np.zeros((2, 3)), np.zeros(2, bool), "y must hold real numbers"),
        ([[1.0]], np.zeros(1, int), "X must be a tensor or array"),
        (np.zeros((2, 3)), tf.constant(["a", "b"]), "y must hold real numbers"),
    ],
)
def test_a_batch_that_is_not_of_numbers_is_refused(X, y, said):
    refused(TypeError, lambda: checks.check_batch(X, y, classes=2), said)
