"""A batch split over devices, a step taken by all of them, and training."""

from __future__ import annotations

import inspect
from collections import Counter
from functools import partial

import matplotlib as mpl
import numpy as np
import pytest
import tensorflow as tf
from d2l import tensorflow as d2l
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt

from manygpu import checks, figures
from manygpu import data as sources
from manygpu.scratch import (
    accumulate,
    allreduce,
    allreduce_gradients,
    cross_entropy,
    cut_batch,
    get_params,
    gradients,
    he_normal,
    init_params,
    lenet,
    local_step,
    sgd,
    train,
    train_batch,
)
from manygpu.scratch.data_parallel import many_devices
from tests.unit.helpers import DTYPES, EIGHT, batch, in_graph, runs_on, same, values

# The source's names and signatures.


@pytest.mark.parametrize(
    "function, first",
    [
        (lenet, ["X", "params"]),
        (get_params, ["params", "device"]),
        (allreduce, ["data"]),
        (train_batch, ["X", "y", "device_params", "devices", "lr"]),
        (train, ["num_gpus", "batch_size", "lr"]),
    ],
    ids=lambda f: getattr(f, "__name__", ""),
)
def test_a_signature_is_the_sources(function, first):
    parameters = list(inspect.signature(function).parameters.values())
    assert [p.name for p in parameters[: len(first)]] == first
    assert all(p.default is not p.empty for p in parameters[len(first) :])


# cut_batch


@given(samples=st.integers(1, 300), k=st.integers(1, 8), width=st.integers(0, 3))
@settings(deadline=None, max_examples=60)
def test_parts_put_together_are_the_batch_and_differ_by_at_most_one(samples, k, width):
    X = tf.reshape(tf.range(samples * width), (samples, width))
    y = tf.range(samples)
    if k > samples:
        with pytest.raises(ValueError, match=f"parts is {k} for {samples} samples"):
            cut_batch(X, y, k)
        return
    X_parts, y_parts = zip(*cut_batch(X, y, k), strict=True)
    assert len(X_parts) == len(y_parts) == k
    np.testing.assert_array_equal(tf.concat(X_parts, 0), X)
    np.testing.assert_array_equal(tf.concat(y_parts, 0), y)
    sizes = [len(part) for part in y_parts]
    assert sizes == [len(part) for part in X_parts]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


@given(samples=st.integers(8, 300), k=st.integers(1, 8))
@settings(deadline=None, max_examples=25)
def test_parts_are_the_same_in_a_graph_for_any_batch_size(samples, k):
    X, y = tf.range(samples)[:, None], tf.range(samples)
    for part, right in zip(cut_in_graph[k](X, y), cut_batch(X, y, k), strict=True):
        for one, other in zip(part, right, strict=True):
            np.testing.assert_array_equal(one, other)


def _cut_in_graph(k: int):
    """`cut_batch` into k parts, traced once for batches of every size."""
    signature = [tf.TensorSpec((None, 1), tf.int32), tf.TensorSpec((None,), tf.int32)]
    return tf.function(lambda X, y: cut_batch(X, y, k), input_signature=signature)


cut_in_graph = {k: _cut_in_graph(k) for k in range(1, 9)}


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_parts_keep_shape_and_dtype(dtype):
    X, y = np.zeros((5, 28, 28, 1), dtype), np.zeros(5, np.int32)
    X_parts, y_parts = zip(*cut_batch(X, y, 2), strict=True)
    assert [x.shape.as_list() for x in X_parts] == [[3, 28, 28, 1], [2, 28, 28, 1]]
    assert {x.dtype.as_numpy_dtype for x in X_parts} == {dtype}
    assert {part.dtype for part in y_parts} == {tf.int32}


def test_several_inputs_and_outputs_are_cut_alike():
    X = {"text": np.arange(10).reshape(5, 2), "image": np.arange(5.0)}
    parts = cut_batch(X, (np.arange(5), np.arange(5.0)), 2)
    assert [len(y) for _, (y, _) in parts] == [3, 2]
    for name, whole in X.items():
        together = tf.concat([own[name] for own, _ in parts], 0)
        np.testing.assert_array_equal(together, whole)
    assert parts[1][0]["text"].numpy().tolist() == [[6, 7], [8, 9]]
    assert parts[1][1][1].numpy().tolist() == [3, 4]


@pytest.mark.parametrize(
    "y, kind, said",
    [
        (tf.constant([0, 10]), ValueError, "y must hold labels from 0 to 9, got 0 to"),
        (tf.constant([-1, 1]), ValueError, "y must hold labels from 0 to 9, got -1"),
        (tf.constant([0.0, 1.0]), TypeError, "y must hold whole numbers"),
    ],
)
def test_labels_of_no_class_are_refused_where_classes_are_counted(y, kind, said):
    with pytest.raises(kind, match=said):
        checks.check_batch(tf.ones((2, 3)), y, 2, classes=10)


def test_parts_of_a_known_batch_have_known_shapes_in_a_graph():
    cut = tf.function(lambda X, y: cut_batch(X, y, 2))
    parts = cut.get_concrete_function(tf.ones((5, 3)), tf.range(5)).structured_outputs
    assert [X.shape.as_list() for X, _ in parts] == [[3, 3], [2, 3]]
    assert [y.shape.as_list() for _, y in parts] == [[3], [2]]


@pytest.mark.parametrize(
    "grads, kind, said",
    [
        ([], ValueError, "grads is empty"),
        ([tf.ones(2)], TypeError, r"grads\[0\] must be a list"),
        ([[tf.ones(2)], []], ValueError, r"grads\[1\] is empty"),
        ([[tf.ones(2)] * 2, [tf.ones(2)]], ValueError, r"grads\[1\] holds 1"),
        ([[tf.ones(2)], [None]], TypeError, r"grads\[1\]\[0\] must be a tensor"),
        (
            [[tf.ones(2), tf.ones(3)], [tf.ones(3), tf.ones(2)]],
            ValueError,
            r"grads\[1\]\[0\] is float32 of shape \(3,\), but grads\[0\]\[0\]",
        ),
        (
            [[tf.ones(2)], [tf.ones(2, tf.float64)]],
            ValueError,
            r"grads\[1\]\[0\] is float64 of shape \(2,\)",
        ),
    ],
)
def test_gradients_that_list_other_parameters_are_refused(grads, kind, said):
    with pytest.raises(kind, match=said):
        allreduce_gradients(grads)


def test_allreduce_gradients_sums_parameter_by_parameter_on_each_device():
    grads = []
    for k, device in enumerate(EIGHT[:3]):
        with tf.device(device):
            grads.append([tf.fill((2,), k + 1.0), tf.fill((1, 3), 10.0 * (k + 1))])
    reduced = allreduce_gradients(grads)
    assert len(reduced) == 3
    for replica, device in zip(reduced, EIGHT, strict=False):
        assert all(runs_on(g, device) for g in replica)
        assert same(values(replica), [np.full(2, 6.0), np.full((1, 3), 60.0)])


# train_batch


def replicas(k: int, dtype: tf.DType = tf.float32) -> list[list[tf.Variable]]:
    params = init_params(dtype=dtype)
    return [get_params(params, device) for device in EIGHT[:k]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 3])
def test_train_batch_returns_the_mean_loss_before_the_step(k, dtype):
    X, y = batch(7)
    device_params = replicas(k, dtype)
    right = tf.reduce_mean(cross_entropy(lenet(X, init_params(dtype=dtype)), y))
    loss = train_batch(X, y, device_params, EIGHT[:k], 0.1)
    assert loss.dtype == dtype
    assert loss.shape == ()
    assert float(loss) == pytest.approx(float(right), rel=1e-6)


@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_after_a_step_all_replicas_are_equal_moved_and_where_they_were(k):
    X, y = batch(11)
    device_params = replicas(k)
    start, variables = values(device_params[0]), [list(r) for r in device_params]
    train_batch(X, y, device_params, EIGHT[:k], 0.1)
    for replica, objects, device in zip(device_params, variables, EIGHT, strict=False):
        assert all(a is b for a, b in zip(replica, objects, strict=True))
        assert all(runs_on(p, device) for p in replica)
        assert same(values(replica), values(device_params[0]))
    moved = zip(values(device_params[0]), start, strict=True)
    assert all((now != then).any() for now, then in moved)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_each_device_does_the_work_of_its_own_shard(k):
    """Read from the compiled step: what is to run where."""
    X, y = batch(11)
    device_params = replicas(k)
    step = tf.function(lambda X, y: train_batch(X, y, device_params, EIGHT[:k], 0.1))
    ops = step.get_concrete_function(X, y).graph.get_operations()
    for kind, each in (
        ("Conv2D", 2),
        ("Conv2DBackpropFilter", 2),
        ("SparseSoftmaxCrossEntropyWithLogits", 1),
        ("AssignSubVariableOp", 8),
    ):
        where = Counter(
            checks.short_device_name(o.device) for o in ops if o.type == kind
        )
        assert where == dict.fromkeys(EIGHT[:k], each)


def test_a_step_takes_the_rate_in_the_dtype_of_the_parameters():
    """Else float64 runs hold an error of float32, the same on any number of devices."""
    X, y = batch(5)
    device_params = replicas(2, tf.float64)
    params = init_params(dtype=tf.float64)
    for p, g in zip(params, gradients(X, y, params)[1], strict=True):
        p.assign_sub(0.1 * g / 5)
    train_batch(X, y, device_params, EIGHT[:2], 0.1)
    for found, right in zip(device_params[0], params, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-14)


def test_a_step_lowers_the_loss_of_its_batch():
    X, y = batch(16)
    device_params = replicas(2)
    losses = [train_batch(X, y, device_params, EIGHT[:2], 0.01) for _ in range(3)]
    assert losses[0] > losses[1] > losses[2]


@pytest.mark.parametrize(
    "lr",
    [tf.constant(0.1), tf.Variable(0.1), np.float64(0.1), np.float32(0.1)],
    ids=["tensor", "variable", "float64", "float32"],
)
def test_the_learning_rate_may_be_a_tensor_or_numpys(lr):
    X, y = batch(4)
    one, other = replicas(2), replicas(2)
    train_batch(X, y, one, EIGHT[:2], 0.1)
    train_batch(X, y, other, EIGHT[:2], lr)
    assert same(values(one[0]), values(other[0]))


@pytest.mark.parametrize("lr", [tf.constant(0.125), np.float32(0.125), np.int64(1)])
def test_a_rate_of_another_dtype_takes_the_same_step_in_float64(lr):
    X, y = batch(4)
    one, other = replicas(2, tf.float64), replicas(2, tf.float64)
    train_batch(X, y, one, EIGHT[:2], float(lr))
    train_batch(X, y, other, EIGHT[:2], lr)
    assert same(values(one[0]), values(other[0]))


# What may be exchanged in train_batch.


def test_a_step_sums_its_gradients_with_what_is_given_as_reduce():
    """The sum of half the gradients is half a step; each device has its own list."""
    X, y = batch(5)
    one, other = replicas(2, tf.float64), replicas(2, tf.float64)
    seen = []

    def half(grads):
        seen.append([len(own) for own in grads])
        return [[g / 2 for g in own] for own in allreduce_gradients(grads)]

    train_batch(X, y, one, EIGHT[:2], 0.25)
    train_batch(X, y, other, EIGHT[:2], 0.5, reduce=half)
    assert seen == [[8, 8]]
    assert same(values(one[1]), values(other[1]))


def test_a_step_finds_gradients_with_what_is_given_as_of():
    X, y = batch(5)
    one, other = replicas(2), replicas(2)
    seen = []

    def of(X, y, params):
        seen.append((X.shape[0], y.shape[0], len(params)))
        return gradients(X, y, params)

    loss = train_batch(X, y, one, EIGHT[:2], 0.1)
    assert train_batch(X, y, other, EIGHT[:2], 0.1, of=of) == loss
    assert seen == [(3, 3, 8), (2, 2, 8)]
    assert same(values(one[0]), values(other[0]))


def twelve(X, y, params):
    """The gradients of a model that knows 12 classes."""
    with tf.GradientTape() as tape:
        logits = tf.reshape(X, (-1, 784)) @ params[0]
        loss = tf.reduce_sum(cross_entropy(logits, y))
    return loss, tape.gradient(loss, params)


def stepped_alone(X, y, replicas, devices, lr, of):
    updates = [partial(sgd, own, lr=lr) for own in replicas]
    return local_step(X, y, replicas, devices, updates, of)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("step", [train_batch, stepped_alone])
@pytest.mark.parametrize(
    "of", [twelve, partial(accumulate, micro_batches=2, of=twelve)]
)
def test_a_step_takes_the_labels_of_the_model_it_is_given(of, step, compiled):
    """LeNet knows 10 classes; a model of 12 is refused no label but those it lacks."""
    X, y = batch(8)[0], tf.constant([3, 10, 11, 0, 1, 2, 4, 5])
    W = [he_normal((784, 12), (0, 0))]
    ours, theirs = ([get_params(W, d) for d in EIGHT[:2]] for _ in range(2))
    take = partial(step, devices=EIGHT[:2], lr=0.1, of=of)
    take = in_graph(take) if compiled else take
    right = tf.reduce_mean(cross_entropy(tf.reshape(X, (-1, 784)) @ W[0], y))
    assert float(take(X, y, ours)) == pytest.approx(float(right), rel=1e-5)
    late = compiled and tf.errors.InvalidArgumentError
    for wrong in (tf.where(y == 5, 12, y), tf.where(y == 3, -1, y)):
        with pytest.raises(late or ValueError, match="y must hold labels from 0 to 11"):
            take(X, wrong, theirs)
        assert all(same(values(own), values(W)) for own in theirs)


def test_sums_of_fewer_bits_are_cast_to_the_parameters_dtype():
    X, y = batch(5)
    device_params = replicas(2)

    def sixteen(grads):
        sums = allreduce_gradients(grads)
        return [[tf.cast(g, tf.float16) for g in own] for own in sums]

    train_batch(X, y, device_params, EIGHT[:2], 0.1, reduce=sixteen)
    assert {p.dtype for p in device_params[0]} == {tf.float32}
    assert same(values(device_params[0]), values(device_params[1]))


@pytest.mark.parametrize(
    "reduce, kind, said",
    [
        (lambda grads: None, TypeError, "sums must be a list, got NoneType"),
        (lambda grads: grads[:1], ValueError, "sums has 1 lists for 2 replicas"),
        (
            lambda grads: [own[:7] for own in grads],
            ValueError,
            r"sums\[0\] must hold 8 gradients, one a parameter, got 7",
        ),
        (
            lambda grads: [grads[0], grads[1][::-1]],
            ValueError,
            r"sums\[1\]\[0\] must have the shape of params\[0\]",
        ),
        (
            lambda grads: [own[::-1] for own in grads],
            ValueError,
            r"sums\[0\]\[0\] must have the shape of params\[0\]",
        ),
    ],
)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_sums_that_are_none_are_refused_before_anything_changes(
    reduce, kind, said, compiled
):
    device_params = replicas(2)
    before = values(sum(device_params, []))
    step = tf.function(train_batch) if compiled else train_batch
    with pytest.raises(kind, match=said):
        step(X4, Y4, device_params, EIGHT[:2], 0.1, reduce=reduce)
    assert same(values(sum(device_params, [])), before)


X4, Y4 = batch(4)
GOOD = {"X": X4, "y": Y4, "devices": EIGHT[:2], "lr": 0.1}


def two_that_share() -> list[list[tf.Variable]]:
    one = init_params()
    return [one, one]


@pytest.mark.parametrize(
    "bad, kind, named",
    [
        ({"devices": []}, ValueError, "devices"),
        ({"devices": EIGHT[:3]}, ValueError, "device_params"),
        ({"devices": [EIGHT[0], "/device:CPU:99"]}, ValueError, "devices"),
        ({"X": X4[:1], "y": Y4[:1]}, ValueError, "parts is 2 for 1"),
        ({"y": Y4[:3]}, ValueError, "X and y"),
        ({"X": X4[..., 0]}, ValueError, "X must have rank 4"),
        ({"lr": 0}, ValueError, "lr"),
        ({"y": Y4 + 10}, (ValueError, tf.errors.InvalidArgumentError), "y must hold"),
        ({"y": tf.cast(Y4, tf.float32)}, TypeError, "y must hold whole numbers"),
        ({"device_params": []}, ValueError, "device_params"),
        ({"device_params": two_that_share()}, ValueError, "device_params"),
        (
            {"device_params": [init_params(), init_params()[:7]]},
            ValueError,
            "device_params",
        ),
        (
            {"device_params": [init_params()[:7], init_params()[:7]]},
            ValueError,
            "params must hold 8",
        ),
        (
            {"device_params": [init_params(), init_params(dtype=tf.float64)]},
            TypeError,
            "device_params must have one dtype",
        ),
    ],
)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_train_batch_refuses_bad_input_before_anything_changes(
    bad, kind, named, compiled
):
    device_params = bad.get("device_params", replicas(2))
    variables = [p for r in device_params for p in (r if isinstance(r, list) else [r])]
    before = values(variables)
    inputs = {**GOOD, "device_params": device_params, **bad}
    step = tf.function(train_batch) if compiled else train_batch
    with pytest.raises(kind, match=named) as error:
        step(**inputs)
    late = compiled and isinstance(kind, tuple)  # known when it runs
    assert isinstance(error.value, tf.errors.OpError) == late
    assert same(values(variables), before)


@pytest.mark.parametrize(
    "samples, labels, said",
    [
        (4, 3, r"same length, got\] \[4\] \[samples and\] \[3\]"),
        (1, 1, r"parts is 2 for\] \[1\] \[samples.*use fewer parts"),
        (0, 0, r"parts is 2 for\] \[0\]"),
    ],
)
def test_a_graph_for_any_batch_size_fails_and_changes_nothing(samples, labels, said):
    """There the lengths are known only when it runs, and any kernel may take them."""
    device_params = replicas(2)
    before = values(sum(device_params, []))
    signature = [tf.TensorSpec((None, 28, 28, 1)), tf.TensorSpec((None,), tf.int32)]
    step = tf.function(
        lambda X, y: train_batch(X, y, device_params, EIGHT[:2], 0.1),
        input_signature=signature,
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=said):
        step(X4[:samples], Y4[:labels])
    assert same(values(sum(device_params, [])), before)
    step(X4, Y4)
    assert not same(values(sum(device_params, [])), before)


WITHOUT_D2L = """
import sys
ours = [name for name in sys.modules if name.split(".")[0] in ("d2l", "manygpu")]
for name in ours:
    del sys.modules[name]  # so that each is imported anew
sys.modules["d2l"] = None  # as if it were not installed
import tensorflow as tf
import manygpu
from manygpu.scratch import get_params, init_params, train, train_batch

devices = manygpu.devices(2, quiet=True)
replicas = [get_params(init_params(), device) for device in devices]
X, y = tf.ones((4, 28, 28, 1)), tf.range(4)
print("loss", float(train_batch(X, y, replicas, devices, 0.1)))
data = [tf.data.Dataset.from_tensors((X, y))] * 2
try:
    train(2, 4, 0.1, num_epochs=1, data=data)
except ImportError as error:
    print(error)
"""


def test_without_d2l_all_works_but_drawing_while_training(run_python):
    ran = run_python(WITHOUT_D2L)
    assert ran.returncode == 0, ran.stderr
    loss, said = ran.stdout.splitlines()[-2:]
    assert loss.startswith("loss ")
    assert "pip install --no-deps d2l==1.0.3" in said


# train


@pytest.fixture
def tiny_data(monkeypatch):
    monkeypatch.setenv("MANYGPU_DATA", "shipped")
    return sources.fashion_mnist(
        40, train_samples=130, test_samples=60, shuffle=False, quiet=True
    )


@pytest.mark.parametrize("step", [train_batch, tf.function(train_batch)])
def test_train_returns_and_prints_what_each_epoch_came_to(tiny_data, capsys, step):
    found = train(2, 40, 0.1, num_epochs=2, data=tiny_data, step=step)
    assert set(found) == {"accuracy", "seconds"}
    assert len(found["accuracy"]) == len(found["seconds"]) == 2
    assert all(0 <= a <= 1 for a in found["accuracy"])
    assert all(s > 0 for s in found["seconds"])
    assert f"test acc: {found['accuracy'][-1]:.2f}" in capsys.readouterr().out
    assert plt.get_fignums() == []


def test_train_draws_in_the_books_style(tiny_data, monkeypatch):
    shown = []
    monkeypatch.setattr(figures, "display", shown.append)
    with mpl.rc_context():
        mpl.rcdefaults()
        train(1, 40, 0.1, num_epochs=1, data=tiny_data)
    (figure,) = shown
    assert "currentColor" in figure.data
    assert "#ffffff" not in figure.data


def test_train_trains_copies_and_leaves_its_start_as_it_was(tiny_data):
    start = init_params(seed=5)
    before = values(start)
    train(2, 40, 0.1, num_epochs=1, data=tiny_data, params=start)
    assert same(values(start), before)


def test_train_ends_at_the_accuracy_of_the_same_steps_on_one_device(tiny_data):
    batches, test = tiny_data
    params = init_params(dtype=tf.float64)
    for X, y in batches:
        _, grads = gradients(X, y, params)
        sgd(params, grads, 0.1 / len(y))
    right = d2l.evaluate_accuracy(lambda X: lenet(X, params), test)
    start = init_params(dtype=tf.float64)
    found = train(3, 40, 0.1, num_epochs=1, data=tiny_data, params=start)
    assert found["accuracy"] == [right]


def test_train_takes_the_whole_data_set_by_itself(tiny_data, monkeypatch):
    asked = []
    monkeypatch.setattr(
        many_devices,
        "fashion_mnist",
        lambda batch_size: asked.append(batch_size) or tiny_data,
    )
    train(1, 40, 0.1, num_epochs=1)
    assert asked == [40]


@pytest.mark.parametrize(
    "bad, kind, named",
    [
        ({"num_gpus": 0}, ValueError, "num_gpus"),
        ({"num_gpus": "two"}, TypeError, "num_gpus"),
        ({"num_gpus": 9}, ValueError, "is 9"),
        ({"batch_size": 0, "data": None}, ValueError, "batch_size"),
        ({"lr": -0.1}, ValueError, "lr"),
        ({"num_epochs": 0}, ValueError, "num_epochs"),
        ({"params": []}, ValueError, "params is empty"),
    ],
)
def test_train_refuses_bad_input_by_name(tiny_data, bad, kind, named):
    inputs = {"num_gpus": 2, "batch_size": 40, "lr": 0.1, "num_epochs": 1}
    with pytest.raises(kind, match=named):
        train(**{**inputs, "data": tiny_data, **bad})
