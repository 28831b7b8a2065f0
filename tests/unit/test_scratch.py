"""What the chapters export: properties that must hold for any input, and refusals."""

from __future__ import annotations

import inspect
import math
from collections import Counter

import matplotlib as mpl
import numpy as np
import pytest
import tensorflow as tf
from d2l import tensorflow as d2l
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt

from manygpu import checks, figures, scratch
from manygpu import data as sources
from manygpu.scratch import (
    allreduce,
    allreduce_gradients,
    cross_entropy,
    get_params,
    gradients,
    init_params,
    lenet,
    sgd,
    split_batch,
    train,
    train_batch,
)
from tests.unit.helpers import EIGHT, batch

DTYPES = [tf.float32, tf.float64]


def values(params: list) -> list[np.ndarray]:
    return [p.numpy() for p in params]


def same(one: list, other: list) -> bool:
    """Equal in every bit."""
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def runs_on(value: tf.Tensor | tf.Variable, device: str) -> bool:
    return value.device.endswith(device)


# The source's names and signatures.


@pytest.mark.parametrize(
    "function, first",
    [
        (lenet, ["X", "params"]),
        (get_params, ["params", "device"]),
        (allreduce, ["data"]),
        (split_batch, ["X", "y", "devices"]),
        (train_batch, ["X", "y", "device_params", "devices", "lr"]),
        (train, ["num_gpus", "batch_size", "lr"]),
    ],
    ids=lambda f: getattr(f, "__name__", ""),
)
def test_a_signature_is_the_sources(function, first):
    parameters = list(inspect.signature(function).parameters.values())
    assert [p.name for p in parameters[: len(first)]] == first
    assert all(p.default is not p.empty for p in parameters[len(first) :])


# split_batch


@given(samples=st.integers(1, 300), k=st.integers(1, 8), width=st.integers(0, 3))
@settings(deadline=None, max_examples=60)
def test_shards_put_together_are_the_batch_and_differ_by_at_most_one(samples, k, width):
    X = tf.reshape(tf.range(samples * width), (samples, width))
    y = tf.range(samples)
    if k > samples:
        with pytest.raises(ValueError, match=f"devices has {k} entries for {samples}"):
            split_batch(X, y, EIGHT[:k])
        return
    X_shards, y_shards = split_batch(X, y, EIGHT[:k])
    assert len(X_shards) == len(y_shards) == k
    np.testing.assert_array_equal(tf.concat(X_shards, 0), X)
    np.testing.assert_array_equal(tf.concat(y_shards, 0), y)
    sizes = [len(shard) for shard in y_shards]
    assert sizes == [len(shard) for shard in X_shards]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


@given(samples=st.integers(8, 300), k=st.integers(1, 8))
@settings(deadline=None, max_examples=25)
def test_shards_are_the_same_in_a_graph_for_any_batch_size(samples, k):
    X, y = tf.range(samples)[:, None], tf.range(samples)
    in_graph = split_in_graph[k](X, y)
    for shards, right in zip(in_graph, split_batch(X, y, EIGHT[:k]), strict=True):
        for one, other in zip(shards, right, strict=True):
            np.testing.assert_array_equal(one, other)


def _split_in_graph(k: int):
    """`split_batch` over k devices, traced once for batches of every size."""
    signature = [tf.TensorSpec((None, 1), tf.int32), tf.TensorSpec((None,), tf.int32)]
    return tf.function(
        lambda X, y: split_batch(X, y, EIGHT[:k]), input_signature=signature
    )


split_in_graph = {k: _split_in_graph(k) for k in range(1, 9)}


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_shards_keep_shape_and_dtype(dtype):
    X, y = np.zeros((5, 28, 28, 1), dtype), np.zeros(5, np.int32)
    X_shards, y_shards = split_batch(X, y, EIGHT[:2])
    assert [x.shape.as_list() for x in X_shards] == [[3, 28, 28, 1], [2, 28, 28, 1]]
    assert {x.dtype.as_numpy_dtype for x in X_shards} == {dtype}
    assert {s.dtype for s in y_shards} == {tf.int32}


# allreduce

SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)
KINDS = st.sampled_from(["float32", "float64", "int32"])


def entries(n: int, shape: tuple, dtype: str, seed: int) -> list[np.ndarray]:
    drawn = np.random.default_rng(seed).integers(-1000, 1000, (n, *shape))
    return list((drawn / (1 if dtype == "int32" else 7)).astype(dtype))


@given(n=st.integers(1, 8), shape=SHAPES, dtype=KINDS, seed=st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_allreduce_makes_every_variable_the_sum_in_place(n, shape, dtype, seed):
    given_values = entries(n, shape, dtype, seed)
    data = []
    for value, device in zip(given_values, EIGHT, strict=False):
        with tf.device(device):
            data.append(tf.Variable(value))
    before = list(data)
    assert allreduce(data) is None
    total = tf.add_n([tf.constant(v) for v in given_values]).numpy()
    for now, then, device in zip(data, before, EIGHT, strict=False):
        assert now is then
        assert runs_on(now, device)
        assert now.dtype.name == dtype
        assert now.shape == shape
        np.testing.assert_array_equal(now.numpy(), total)


@given(n=st.integers(1, 8), shape=SHAPES, dtype=KINDS, seed=st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_allreduce_replaces_every_tensor_in_the_list(n, shape, dtype, seed):
    given_values = entries(n, shape, dtype, seed)
    data = []
    for value, device in zip(given_values, EIGHT, strict=False):
        with tf.device(device):
            data.append(tf.identity(tf.constant(value)))
    originals, the_list = list(data), data
    allreduce(data)
    assert data is the_list
    total = tf.add_n([tf.constant(v) for v in given_values]).numpy()
    for now, device in zip(data, EIGHT, strict=False):
        assert runs_on(now, device)
        assert now.dtype.name == dtype
        np.testing.assert_array_equal(now.numpy(), total)
    for original, value in zip(originals, given_values, strict=True):
        np.testing.assert_array_equal(original.numpy(), value)


def test_allreduce_adds_up_and_does_not_average():
    data = [tf.Variable(1.0), tf.Variable(2.0), tf.Variable(6.0)]
    allreduce(data)
    assert values(data) == [9.0] * 3


def test_allreduced_variables_stay_independent():
    data = [tf.Variable([1.0]), tf.Variable([2.0])]
    allreduce(data)
    data[0].assign([0.0])
    assert data[1].numpy() == [3.0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_allreduce_works_in_a_graph(dtype):
    replicas = [tf.Variable([k + 1.0], dtype=dtype) for k in range(3)]

    @tf.function
    def reduced():
        allreduce(replicas)
        plain = [tf.identity(r) for r in replicas]
        allreduce(plain)
        return plain

    assert values(reduced()) == [18.0] * 3
    assert values(replicas) == [6.0] * 3


@pytest.mark.parametrize(
    "make, kind",
    [
        (list, ValueError),
        (lambda: (tf.Variable(1.0), tf.Variable(2.0)), TypeError),
        (lambda: [tf.Variable([1.0]), tf.Variable([1.0, 2.0])], ValueError),
        (lambda: [tf.Variable([1.0]), tf.Variable([[1.0]])], ValueError),
        (lambda: [tf.Variable(1.0), tf.Variable(1.0, dtype=tf.float64)], TypeError),
        (lambda: [tf.Variable(1.0), tf.constant(1.0)], TypeError),
        (lambda: [tf.Variable(1.0), None], TypeError),
        (lambda: [tf.Variable(1.0)] * 2, ValueError),
    ],
    ids=["empty", "tuple", "shape", "rank", "dtype", "mixed", "none", "twice"],
)
def test_allreduce_refuses_bad_input_and_leaves_it_as_it_was(make, kind):
    data = make()
    entries_before = list(data)
    values_before = [d.numpy() for d in data if d is not None]
    with pytest.raises(kind, match="data"):
        allreduce(data)
    assert all(a is b for a, b in zip(data, entries_before, strict=True))
    assert same([d.numpy() for d in data if d is not None], values_before)


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


# init_params, get_params


@pytest.mark.parametrize("scale", [None, 0.01])
def test_one_seed_gives_one_model_in_every_dtype(scale):
    double = values(init_params(seed=3, scale=scale, dtype=tf.float64))
    for dtype in (tf.float32, tf.float16, tf.bfloat16):
        params = init_params(seed=3, scale=scale, dtype=dtype)
        right = [tf.cast(d, dtype).numpy() for d in double]
        assert {p.dtype for p in params} == {dtype}
        assert same(values(params), right)


def test_a_model_in_float64_is_drawn_in_float64():
    for p in init_params(dtype=tf.float64)[::2]:
        rounded = p.numpy().astype(np.float32).astype(np.float64)
        assert np.mean(rounded == p.numpy()) < 0.01


def test_another_seed_gives_another_model():
    one, again, other = (values(init_params(seed)) for seed in (0, 0, 1))
    assert same(one, again)
    weights = zip(one[::2], other[::2], strict=True)
    assert not any(np.array_equal(a, b) for a, b in weights)


def test_the_parameters_have_lenets_shapes_and_zero_biases():
    params = init_params()
    assert [tuple(p.shape) for p in params] == [
        (3, 3, 1, 20),
        (20,),
        (5, 5, 20, 50),
        (50,),
        (800, 128),
        (128,),
        (128, 10),
        (10,),
    ]
    assert all(not p.numpy().any() for p in params[1::2])
    assert all(isinstance(p, tf.Variable) and p.trainable for p in params)


@pytest.mark.parametrize("scale", [0.01, 1.0, None])
def test_scale_is_the_weights_standard_deviation_and_none_is_hes(scale):
    for p in init_params(scale=scale)[::2]:
        std = scale or math.sqrt(2 / math.prod(p.shape[:-1]))
        spread = 4 / math.sqrt(2 * p.numpy().size)  # four standard errors
        assert np.std(p.numpy()) == pytest.approx(std, rel=spread)
        assert abs(np.mean(p.numpy())) < 4 * std / math.sqrt(p.numpy().size)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("device", EIGHT[::3])
def test_get_params_gives_equal_copies_on_the_device(dtype, device):
    params = init_params(dtype=dtype)
    copies = get_params(params, device)
    assert same(values(copies), values(params))
    assert all(runs_on(c, device) for c in copies)
    assert all(isinstance(c, tf.Variable) and c.trainable for c in copies)
    assert {c.dtype for c in copies} == {dtype}


def test_copies_change_alone():
    params = init_params()
    one, other = get_params(params, EIGHT[0]), get_params(params, EIGHT[0])
    before = values(params)
    for p in one:
        p.assign_add(tf.ones_like(p))
    assert same(values(params), before)
    assert same(values(other), before)


@pytest.mark.parametrize(
    "params, device, kind, name",
    [
        ([], EIGHT[0], ValueError, "params"),
        (tf.zeros(3), EIGHT[0], TypeError, "params"),
        ([1.0], EIGHT[0], TypeError, "params"),
        ([tf.zeros(1)], "/device:CPU:99", ValueError, "device"),
        ([tf.zeros(1)], "nonsense", ValueError, "device"),
        ([tf.zeros(1)], 0, TypeError, "device"),
    ],
)
def test_get_params_refuses_bad_input_by_name(params, device, kind, name):
    with pytest.raises(kind, match=f"^{name}"):
        get_params(params, device)


# lenet, cross_entropy, gradients, sgd


@pytest.mark.parametrize("dtype", [*DTYPES, tf.bfloat16])
@pytest.mark.parametrize("X_dtype", [tf.float32, tf.float64, tf.uint8])
def test_lenet_computes_in_the_dtype_of_its_parameters(dtype, X_dtype):
    X = tf.zeros((3, 28, 28, 1), X_dtype)
    logits = lenet(X, init_params(dtype=dtype))
    assert logits.dtype == dtype
    assert logits.shape == (3, 10)


@pytest.mark.parametrize("dtype", DTYPES)
def test_loss_and_gradients_stay_in_the_dtype_of_the_parameters(dtype):
    X, y = batch(3)
    params = init_params(dtype=dtype)
    assert cross_entropy(lenet(X, params), y).dtype == dtype
    summed, grads = gradients(X, y, params)
    assert {summed.dtype, *(g.dtype for g in grads)} == {dtype}
    assert [g.shape for g in grads] == [p.shape for p in params]


def test_lenet_is_the_model_that_keras_layers_make():
    """The same network of Keras' layers, given the same weights."""
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Conv2D(20, 3, activation="relu", dtype="float64"),
            layers.AveragePooling2D(2, dtype="float64"),
            layers.Conv2D(50, 5, activation="relu", dtype="float64"),
            layers.AveragePooling2D(2, dtype="float64"),
            layers.Flatten(dtype="float64"),
            layers.Dense(128, activation="relu", dtype="float64"),
            layers.Dense(10, dtype="float64"),
        ]
    )
    X, _ = batch(5)
    params = init_params(dtype=tf.float64)
    for p in params[1::2]:
        p.assign(tf.linspace(tf.constant(-0.1, tf.float64), 0.1, p.shape[0]))
    model.build((None, 28, 28, 1))
    model.set_weights(values(params))
    np.testing.assert_allclose(lenet(X, params), model(X), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "X, kind",
    [
        (np.zeros((2, 28, 28)), ValueError),
        (np.zeros((2, 1, 28, 28)), ValueError),
        (np.zeros((2, 784)), ValueError),
        ([[0.0]], TypeError),
    ],
)
def test_lenet_refuses_what_is_no_batch_of_images(X, kind):
    with pytest.raises(kind, match="^X must"):
        lenet(X, init_params())


def test_lenet_refuses_parameters_that_are_not_eight():
    with pytest.raises(ValueError, match="params must hold 8 tensors, got 7"):
        lenet(batch(1)[0], init_params()[:7])


@pytest.mark.parametrize("dtype", DTYPES)
def test_cross_entropy_is_minus_the_log_of_the_right_classs_share(dtype):
    logits = tf.constant([[0.0, 1.0, 3.0], [50.0, 0.0, -50.0]], dtype)
    shares = np.exp(logits.numpy()) / np.exp(logits.numpy()).sum(1, keepdims=True)
    losses = cross_entropy(logits, tf.constant([1, 0]))
    right = [-np.log(shares[0, 1]), -np.log(shares[1, 0])]
    np.testing.assert_allclose(losses, right, rtol=1e-5)
    assert losses.shape == (2,)


def test_the_summed_loss_is_the_sum_of_the_samples_losses():
    X, y = batch(6)
    params = init_params(dtype=tf.float64)
    summed, _ = gradients(X, y, params)
    right = sum(
        float(gradients(X[i : i + 1], y[i : i + 1], params)[0]) for i in range(6)
    )
    assert float(summed) == pytest.approx(right, rel=1e-12)


def test_gradients_agree_with_finite_differences():
    """Central differences along a random direction of each parameter, in float64."""
    X, y = batch(4)
    params = init_params(dtype=tf.float64)
    _, grads = gradients(X, y, params)
    step, rng = 1e-6, np.random.default_rng(1)
    for p, g in zip(params, grads, strict=True):
        direction = tf.constant(rng.standard_normal(p.shape))
        p.assign_add(step * direction)
        above = float(gradients(X, y, params)[0])
        p.assign_sub(2 * step * direction)
        below = float(gradients(X, y, params)[0])
        p.assign_add(step * direction)
        slope = float(tf.reduce_sum(g * direction))
        assert (above - below) / (2 * step) == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sgd_moves_against_the_gradient_in_place(dtype):
    params = [tf.Variable([1.0, 2.0], dtype=dtype), tf.Variable(3.0, dtype=dtype)]
    before = list(params)
    sgd(params, [tf.constant([1.0, -1.0], dtype), tf.constant(2.0, dtype)], 0.5)
    assert all(a is b for a, b in zip(params, before, strict=True))
    assert same(values(params), [np.array([0.5, 2.5]), np.array(2.0)])


def test_sgd_takes_the_rate_in_the_dtype_of_the_parameters():
    """tf.cast(0.1, tf.float64) is float32's 0.1: off by 1.5e-8."""
    params = [tf.Variable(0.0, dtype=tf.float64)]
    sgd(params, [tf.constant(1.0, tf.float64)], 0.1)
    assert params[0].numpy() == -0.1


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


@pytest.mark.parametrize("lr", [tf.constant(0.1), np.float64(0.1)], ids=["tf", "np"])
def test_the_learning_rate_may_be_a_tensor_or_numpys(lr):
    X, y = batch(4)
    one, other = replicas(2), replicas(2)
    train_batch(X, y, one, EIGHT[:2], 0.1)
    train_batch(X, y, other, EIGHT[:2], lr)
    assert same(values(one[0]), values(other[0]))


X4, Y4 = batch(4)
GOOD = {"X": X4, "y": Y4, "devices": EIGHT[:2], "lr": 0.1}


def two_that_share() -> list[list[tf.Variable]]:
    one = init_params()
    return [one, one]


@pytest.mark.parametrize(
    "bad, kind, named",
    [
        ({"devices": []}, ValueError, "devices"),
        ({"devices": EIGHT[0]}, TypeError, "devices"),
        ({"devices": EIGHT[:3]}, ValueError, "device_params"),
        ({"devices": [EIGHT[0], "/device:CPU:99"]}, ValueError, "devices"),
        ({"devices": [EIGHT[0], "/device:GPU:99"]}, ValueError, "devices"),
        ({"devices": [EIGHT[0], "nonsense"]}, ValueError, "devices"),
        ({"X": X4[:1], "y": Y4[:1]}, ValueError, "devices"),
        ({"y": Y4[:3]}, ValueError, "X and y"),
        ({"y": Y4[:, None]}, ValueError, "y must have rank 1"),
        ({"y": Y4.numpy().tolist()}, TypeError, "y must"),
        ({"X": X4[..., 0]}, ValueError, "X must have rank 4"),
        ({"X": tf.transpose(X4, (0, 3, 1, 2))}, ValueError, "X must have shape"),
        ({"X": [0.0] * 4}, TypeError, "X must"),
        ({"lr": 0}, ValueError, "lr"),
        ({"lr": float("nan")}, ValueError, "lr"),
        ({"lr": "fast"}, TypeError, "lr"),
        ({"device_params": []}, ValueError, "device_params"),
        ({"device_params": two_that_share()}, ValueError, "device_params"),
        ({"device_params": init_params()}, (TypeError, ValueError), "device_params"),
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
    assert not isinstance(error.value, tf.errors.OpError)
    assert same(values(variables), before)


@pytest.mark.parametrize(
    "samples, labels, said",
    [
        (4, 3, r"same length, got\] \[4\] \[samples and\] \[3\]"),
        (1, 1, r"devices has 2 entries for\] \[1\] \[samples.*use fewer devices"),
        (0, 0, r"devices has 2 entries for\] \[0\]"),
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
        scratch.many_devices,
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
    ],
)
def test_train_refuses_bad_input_by_name(tiny_data, bad, kind, named):
    inputs = {"num_gpus": 2, "batch_size": 40, "lr": 0.1, "num_epochs": 1}
    with pytest.raises(kind, match=named):
        train(**{**inputs, "data": tiny_data, **bad})
