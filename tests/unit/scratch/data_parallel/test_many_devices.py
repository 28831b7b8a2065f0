"""A batch split over devices, a step taken by all of them, and training."""

import inspect
import sys

import numpy as np
import pytest
import tensorflow as tf
from d2l import tensorflow as d2l
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt

from manygpu import data as sources
from manygpu import scratch
from manygpu.scratch import (
    cut_batch,
    get_params,
    init_params,
    split_batch,
    train,
    train_batch,
)
from manygpu.scratch.data_parallel import many_devices
from tests.unit.helpers import EIGHT, batch, in_graph, places, same, values

# The source's names and signatures.


@pytest.mark.parametrize(
    "function, first",
    [
        (scratch.lenet, ["X", "params"]),
        (get_params, ["params", "device"]),
        (scratch.allreduce, ["data"]),
        (scratch.split_batch, ["X", "y", "devices"]),
        (train_batch, ["X", "y", "device_params", "devices", "lr"]),
        (train, ["num_gpus", "batch_size", "lr"]),
    ],
    ids=lambda f: getattr(f, "__name__", ""),
)
def test_a_signature_is_the_sources(function, first):
    parameters = list(inspect.signature(function).parameters.values())
    assert [p.name for p in parameters[: len(first)]] == first
    assert all(p.default is not p.empty for p in parameters[len(first) :])


def open_cut(k: int):
    """`cut_batch` into k parts, traced once for batches of every size."""
    signature = [tf.TensorSpec((None, 1), tf.int32), tf.TensorSpec((None,), tf.int32)]
    return in_graph(lambda X, y: cut_batch(X, y, k), input_signature=signature)


OPEN_CUTS = {k: open_cut(k) for k in range(1, 9)}


@given(samples=st.integers(8, 300), k=st.integers(1, 8))
@settings(deadline=None, max_examples=40)
def test_parts_put_together_are_the_batch_and_differ_by_at_most_one(samples, k):
    X, y = tf.range(samples)[:, None], tf.range(samples)
    for parts in cut_batch(X, y, k), OPEN_CUTS[k](X, y):
        X_parts, y_parts = zip(*parts, strict=True)
        assert len(y_parts) == k
        np.testing.assert_array_equal(tf.concat(X_parts, 0), X)
        np.testing.assert_array_equal(tf.concat(y_parts, 0), y)
        sizes = [len(part) for part in y_parts]
        assert sizes == [len(part) for part in X_parts]
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] - sizes[-1] <= 1


@pytest.mark.parametrize("way", [lambda work: work, in_graph], ids=["eager", "graph"])
def test_several_inputs_are_cut_alike_keep_their_dtypes_and_have_known_shapes(way):
    shapes, image = [], np.arange(20).reshape(5, 2, 2).astype(np.uint8)

    def cut(X, y):
        parts = cut_batch(X, y, 2)
        shapes.append([own["image"].shape.as_list() for own, _ in parts])
        return parts

    X, y = {"text": np.arange(5.0), "image": image}, (np.arange(5), np.arange(5.0))
    first, second = way(cut)(X, y)
    assert shapes == [[[3, 2, 2], [2, 2, 2]]]
    for name, whole in X.items():
        together = tf.concat([first[0][name], second[0][name]], 0)
        assert together.dtype == whole.dtype
        np.testing.assert_array_equal(together, whole)
    assert second[1][1].numpy().tolist() == [3, 4]


def test_each_device_gets_its_own_images_with_their_labels():
    X, y = tf.range(7)[:, None], tf.range(7)
    X_shards, y_shards = split_batch(X, y, EIGHT[:3])
    assert [own.numpy().tolist() for own in y_shards] == [[0, 1, 2], [3, 4], [5, 6]]
    for images, labels in zip(X_shards, y_shards, strict=True):
        np.testing.assert_array_equal(images[:, 0], labels)


@pytest.mark.parametrize("devices", ["/device:CPU:0", [], 2])
def test_what_is_no_list_of_devices_is_refused_by_name(devices):
    with pytest.raises((TypeError, ValueError), match="^devices "):
        split_batch(tf.range(7), tf.range(7), devices)


# train_batch: that it is the step of one device is in trainings/test_one_device.py.


def replicas(k: int) -> list[list[tf.Variable]]:
    params = init_params()
    return [get_params(params, device) for device in EIGHT[:k]]


@pytest.mark.parametrize("k", [1, 2, 5])
def test_each_device_does_the_work_of_its_own_shard(k):
    """Read from the compiled step: what is to run where."""
    X, y = batch(11)
    device_params = replicas(k)
    step = tf.function(lambda X, y: train_batch(X, y, device_params, EIGHT[:k], 0.1))
    graph = step.get_concrete_function(X, y).graph
    for kind, each in (
        ("Conv2D", 2),
        ("Conv2DBackpropFilter", 2),
        ("SparseSoftmaxCrossEntropyWithLogits", 1),
        ("AssignSubVariableOp", 8),
    ):
        assert places(graph, kind) == dict.fromkeys(EIGHT[:k], each)


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


def test_train_ends_at_the_accuracy_of_the_same_steps_on_one_device(tiny_data):
    batches, test = tiny_data
    params = init_params(dtype=tf.float64)
    for X, y in batches:
        _, grads = scratch.gradients(X, y, params)
        scratch.sgd(params, grads, 0.1 / len(y))
    right = d2l.evaluate_accuracy(lambda X: scratch.lenet(X, params), test)
    start = init_params(dtype=tf.float64)
    before = values(start)
    found = train(3, 40, 0.1, num_epochs=1, data=tiny_data, params=start)
    assert found["accuracy"] == [right]
    assert same(values(start), before)  # it trains copies


def test_train_takes_the_whole_data_set_by_itself(tiny_data, monkeypatch):
    asked = []
    monkeypatch.setattr(
        many_devices,
        "fashion_mnist",
        lambda batch_size: asked.append(batch_size) or tiny_data,
    )
    train(1, 40, 0.1, num_epochs=1)
    assert asked == [40]


def test_without_d2l_only_drawing_while_training_is_refused(tiny_data, monkeypatch):
    monkeypatch.setitem(sys.modules, "d2l", None)  # as if it were not installed
    train_batch(*batch(4), replicas(2), EIGHT[:2], 0.1)
    with pytest.raises(ImportError, match="pip install --no-deps d2l==1.0.3"):
        train(2, 40, 0.1, num_epochs=1, data=tiny_data)
