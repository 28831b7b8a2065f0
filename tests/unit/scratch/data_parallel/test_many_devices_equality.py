"""k devices take the step that one device takes: the book's central claim.

In float64, after 100 steps on real images, the parameters agree to 1e-10: rounding
alone leaves about 1e-14, any error in weighting leaves far more. In float32, only the
gradients of one step are compared: correct float32 runs part ways by rounding.

The reference is written here, with the mean over the whole batch, and shares only the
model with the code under test. Steps broken on purpose show that the comparison fails
where it should.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from manygpu import data
from manygpu.scratch import (
    allreduce_gradients,
    cross_entropy,
    cut_batch,
    get_params,
    gradients,
    init_params,
    lenet,
    sgd,
    train_batch,
)
from tests.unit.helpers import EIGHT, distance

COUNTS = (2, 3, 4, 8)
BATCH, LAST = 35, 19  # neither divides by 2, 3, 4 or 8
BATCHES_AN_EPOCH, EPOCHS = 10, 10
LR = 0.1
FLOAT64, FLOAT32 = 1e-10, 1e-5  # relative; the chapter states the same

Batches = list[tuple[tf.Tensor, tf.Tensor]]
Step = Callable[..., tf.Tensor]


@pytest.fixture(scope="module")
def batches() -> Batches:
    """An epoch of real images whose batches are uneven, the last one smaller."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYGPU_DATA", "shipped")
        samples = (BATCHES_AN_EPOCH - 1) * BATCH + LAST
        train, _ = data.fashion_mnist(
            BATCH, train_samples=samples, shuffle=False, quiet=True
        )
        return list(train)


def largest_distance(values: list, reference: list) -> float:
    """The largest of the parameters' distances: a small bias counts like a kernel."""
    return max(distance(v, r) for v, r in zip(values, reference, strict=True))


def mean_step(X: tf.Tensor, y: tf.Tensor, params: list[tf.Variable]) -> tf.Tensor:
    """The textbook's step: gradient of the mean loss over the batch."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(cross_entropy(lenet(X, params), y))
    for p, g in zip(params, tape.gradient(loss, params), strict=True):
        p.assign_sub(LR * g)
    return loss


def on_one_device(batches: Batches, epochs: int) -> tuple[list, list[float]]:
    """Parameters and losses after so many epochs without any of the book's devices."""
    params = init_params(dtype=tf.float64)
    step = tf.function(lambda X, y: mean_step(X, y, params))
    losses = [float(step(X, y)) for _ in range(epochs) for X, y in batches]
    return [p.numpy() for p in params], losses


def on_k_devices(
    k: int,
    batches: Batches,
    epochs: int,
    step: Step = train_batch,
    compiled: bool = True,
) -> tuple[list[list], list[float]]:
    """Parameters of each replica, and losses, after so many epochs on k devices."""
    devices = EIGHT[:k]
    params = init_params(dtype=tf.float64)
    device_params = [get_params(params, d) for d in devices]

    def take(X: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return step(X, y, device_params, devices, LR)

    take = tf.function(take) if compiled else take
    losses = [float(take(X, y)) for _ in range(epochs) for X, y in batches]
    return [[p.numpy() for p in replica] for replica in device_params], losses


@pytest.fixture(scope="module")
def after_100_steps(batches) -> tuple[list, list[float]]:
    return on_one_device(batches, EPOCHS)


@pytest.mark.parametrize("k", COUNTS)
def test_the_shards_compared_are_uneven(batches, k):
    for X, y in (batches[0], batches[-1]):
        sizes = {len(own) for _, own in cut_batch(X, y, k)}
        assert len(sizes) == 2


@pytest.mark.parametrize("k", COUNTS)
def test_k_devices_are_one_device_after_100_steps_in_float64(
    k, batches, after_100_steps, record_property
):
    reference, losses_reference = after_100_steps
    replicas, losses = on_k_devices(k, batches, EPOCHS)
    assert len(losses) == len(losses_reference) == 100
    difference = largest_distance(replicas[0], reference)
    record_property("distance", difference)
    print(f"{k} devices, float64, 100 steps: {difference:.1e}")
    assert difference <= FLOAT64
    np.testing.assert_allclose(losses, losses_reference, rtol=FLOAT64)
    for replica in replicas[1:]:
        assert largest_distance(replica, replicas[0]) == 0


def test_those_100_steps_trained_the_model(after_100_steps):
    """Equality of runs that learn nothing would prove little."""
    params, losses = after_100_steps
    assert np.mean(losses[-BATCHES_AN_EPOCH:]) < 0.6 * np.mean(
        losses[:BATCHES_AN_EPOCH]
    )
    start = [p.numpy() for p in init_params(dtype=tf.float64)]
    moved = [largest_distance([p], [s]) for p, s in zip(params[::2], start[::2])]  # noqa: B905
    assert min(moved) > 1e-3


@pytest.mark.parametrize("samples", [BATCH, LAST])
@pytest.mark.parametrize("k", COUNTS)
def test_gradients_of_one_step_are_one_devices_in_float32(
    k, samples, batches, record_property
):
    X, y = batches[0][0][:samples], batches[0][1][:samples]
    params = init_params()
    with tf.GradientTape() as tape:
        mean = tf.reduce_mean(cross_entropy(lenet(X, params), y))
    reference = tape.gradient(mean, params)
    grads = []
    for shard, device in zip(cut_batch(X, y, k), EIGHT[:k], strict=True):
        with tf.device(device):
            grads.append(gradients(*shard, get_params(params, device))[1])
    for replica in allreduce_gradients(grads):
        found = [g / samples for g in replica]
        assert {g.dtype for g in found} == {tf.float32}
        difference = largest_distance(found, reference)
        assert difference <= FLOAT32
    record_property("distance", difference)
    print(f"{k} devices, float32, gradients of {samples} samples: {difference:.1e}")


# Steps that are wrong in the ways that are easily written.


def broken(weigh: Callable[[list, list[int]], list]) -> Step:
    """A step whose gradients come from `weigh(gradients of the shards, sizes)`."""

    def step(X, y, device_params, devices, lr):
        pairs = zip(cut_batch(X, y, len(devices)), device_params, strict=True)
        grads = [gradients(*shard, own)[1] for shard, own in pairs]
        base, more = divmod(len(y), len(devices))
        sizes = [base + (k < more) for k in range(len(devices))]
        a_parameter = zip(*grads, strict=True)
        reduced = [weigh(list(of_all), sizes) for of_all in a_parameter]
        for params in device_params:
            sgd(params, reduced, lr)
        return tf.constant(0.0)

    return step


def right_weights(grads, sizes):
    return tf.add_n(grads) / sum(sizes)


def mean_of_shard_means(grads, sizes):
    means = [g / size for g, size in zip(grads, sizes, strict=True)]
    return tf.add_n(means) / len(means)


def sum_of_shard_means(grads, sizes):
    return tf.add_n([g / size for g, size in zip(grads, sizes, strict=True)])


def sum_without_dividing(grads, sizes):
    return tf.add_n(grads)


def divided_by_the_first_shards_size(grads, sizes):
    return tf.add_n(grads) / (len(sizes) * sizes[0])


def one_device_left_out(grads, sizes):
    return tf.add_n(grads[:-1]) / sum(sizes)


def first_device_only(grads, sizes):
    return grads[0] / sizes[0]


@pytest.fixture(scope="module")
def after_2_steps(batches) -> list:
    return on_one_device(batches[-2:], 1)[0]


def test_the_way_steps_are_broken_here_breaks_nothing_by_itself(batches, after_2_steps):
    replicas, _ = on_k_devices(
        3, batches[-2:], 1, broken(right_weights), compiled=False
    )
    assert largest_distance(replicas[0], after_2_steps) <= FLOAT64


@pytest.mark.parametrize(
    "weigh",
    [
        mean_of_shard_means,
        sum_of_shard_means,
        sum_without_dividing,
        divided_by_the_first_shards_size,
        one_device_left_out,
        first_device_only,
    ],
)
def test_a_wrongly_weighted_step_fails_the_comparison(weigh, batches, after_2_steps):
    replicas, _ = on_k_devices(3, batches[-2:], 1, broken(weigh), compiled=False)
    difference = largest_distance(replicas[0], after_2_steps)
    print(f"{weigh.__name__}: {difference:.1e}")
    assert not difference <= FLOAT64  # NaN, from steps too large, fails it too


def test_a_step_computed_in_float32_fails_the_comparison(batches, after_2_steps):
    """What Keras' loss objects did: cast float64 logits to float32."""
    keras_loss = tf.keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="none"
    )

    def step(X, y, device_params, devices, lr):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(keras_loss(y, lenet(X, device_params[0])))
        grads = tape.gradient(loss, device_params[0])
        sgd(device_params[0], grads, lr)
        return loss

    replicas, _ = on_k_devices(1, batches[-2:], 1, step, compiled=False)
    assert not largest_distance(replicas[0], after_2_steps) <= FLOAT64
