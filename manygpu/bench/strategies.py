"""Every strategy of the book at work on one LeNet, to be timed and looked into.

Each `make_...(devices)` starts from the same weights and takes the same SGD step, cut
in its own way. A process makes one of them: DTensor and MirroredStrategy number their
collectives alike and would stop each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from manygpu.checks import short_device_name

LR = 0.05
MICRO_BATCHES = 8


@dataclass(frozen=True)
class Running:
    """A strategy at work.

    Attributes:
        take: takes one step on images and labels; returns when it is done.
        weights: LeNet's 8 parameters as they are now, whole.
        held: bytes of parameters on each device.
    """

    take: Callable[[tf.Tensor, tf.Tensor], None]
    weights: Callable[[], list[np.ndarray]]
    held: Callable[[], dict[str, int]]


def off(running: Running, X: tf.Tensor, y: tf.Tensor) -> float:
    """Take a step; return how far it is from the step of one device, relative to it.

    Norm of the difference over all parameters together, over the step's norm.
    """
    from manygpu.scratch import gradients

    before = running.weights()
    _, grads = gradients(X, y, [tf.Variable(w) for w in before])
    running.take(X, y)
    steps = [w - b for w, b in zip(running.weights(), before, strict=True)]
    whole = [-LR / len(y) * g.numpy() for g in grads]
    return _norm(s - w for s, w in zip(steps, whole, strict=True)) / _norm(whole)


def make_eager(devices: list[str]) -> Running:
    """The step of the chapter "A step on many devices", one operation at a time."""
    from manygpu.scratch import train_batch

    return _with_replicas(train_batch, devices)


def make_compiled(devices: list[str]) -> Running:
    """The same step as one `tf.function`."""
    from manygpu.scratch import train_batch

    return _with_replicas(_compiled(train_batch), devices)


def make_apart(devices: list[str]) -> Running:
    """Compiled replicas that never communicate: each steps on its own shard.

    It is what is left when communication costs nothing; not the step of one device.
    """
    from manygpu.scratch import gradients, sgd, split_batch

    def step(X, y, device_params, devices, lr):
        X_shards, y_shards = split_batch(X, y, devices)
        for k, device in enumerate(devices):
            with tf.device(device):
                _, grads = gradients(X_shards[k], y_shards[k], device_params[k])
                sgd(device_params[k], grads, lr / X.shape[0])

    return _with_replicas(_compiled(step), devices)


def make_engine(devices: list[str]) -> Running:
    """The same step by MirroredStrategy: the loop of the chapter of that name.

    Its shards are made before the first step, since in a training loop a
    distributed dataset makes them beside the step. "compiled" splits in every step.
    """
    from manygpu.scratch import init_params, mirrored_step, split_batch

    strategy = _strategy(devices)
    with strategy.scope():
        params = init_params()
    step, shards = mirrored_step(strategy, params), []

    def take(X: tf.Tensor, y: tf.Tensor) -> None:
        if not shards:
            parts = list(zip(*split_batch(X, y, devices), strict=True))
            shards[:] = strategy.experimental_distribute_values_from_function(
                lambda replica: parts[replica.replica_id_in_sync_group]
            )
        step(*shards, LR)
        _wait(strategy.experimental_local_results(params[-1]))

    copies = [c for p in params for c in strategy.experimental_local_results(p)]
    return Running(take, lambda: [p.numpy() for p in params], lambda: _held(copies))


def make_fit(devices: list[str]) -> Running:
    """One step of Keras' `fit` under MirroredStrategy, without its callbacks.

    It averages the means of the shards, so with uneven shards it is another step.
    """
    from manygpu.scratch import init_params, keras_lenet

    strategy, batches = _strategy(devices), []
    with strategy.scope():
        model = keras_lenet(init_params())
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.SGD(LR), loss)
    start = model.get_weights()
    copies = [
        copy
        for weight in model.trainable_weights
        for copy in strategy.experimental_local_results(weight.value)
    ]

    def take(X: tf.Tensor, y: tf.Tensor) -> None:
        if not batches:
            even = len(y) // len(devices) * len(devices)  # the first must be
            model.fit(X[:even], y[:even], batch_size=even, verbose=0)
            model.set_weights(start)  # that step was to make the training function
            data = tf.data.Dataset.from_tensors((X, y)).repeat()
            batches.append(iter(strategy.experimental_distribute_dataset(data)))
        model.train_function(batches[0])
        _wait(copies[-len(devices) :])

    return Running(take, model.get_weights, lambda: _held(copies))


def make_network(devices: list[str]) -> Running:
    """LeNet's layers dealt out to at most four devices, one at work at a time."""
    from manygpu.scratch import even_cuts, partitioned_step

    def step(stages, X, y):
        return partitioned_step(X, y, stages, LR)

    return _with_stages(step, even_cuts(4, min(4, len(devices))), devices)


def make_pipeline(devices: list[str]) -> Running:
    """The same with micro-batches, 1F1B, cut where the work is most even."""
    from manygpu.scratch import (
        balanced_cuts,
        one_forward_one_backward,
        pipeline_step,
    )

    cuts = balanced_cuts(LENET_WORK, min(4, len(devices)))
    schedule = one_forward_one_backward(len(cuts) + 1, MICRO_BATCHES)

    def step(stages, X, y):
        return pipeline_step(schedule, stages, X, y, LR)

    return _with_stages(step, cuts, devices)


# Multiplications and additions of LeNet's layers for one image.
LENET_WORK = [2 * 26 * 26 * 9 * 20, 2 * 9 * 9 * 500 * 50, 2 * 800 * 128, 2 * 128 * 10]


def make_layerwise(devices: list[str]) -> Running:
    """LeNet cut inside its layers."""
    from manygpu.scratch import (
        gather_params,
        init_params,
        layerwise_step,
        shard_params,
    )

    shards = shard_params(init_params(), devices)
    step = _compiled(lambda X, y: layerwise_step(X, y, shards, devices, LR))

    def take(X: tf.Tensor, y: tf.Tensor) -> None:
        step(X, y)
        _wait(own[-1] for own in shards)

    def weights() -> list[np.ndarray]:
        return [p.numpy() for p in gather_params(shards)]

    return Running(take, weights, lambda: _held(v for own in shards for v in own))


def make_dtensor(devices: list[str]) -> Running:
    """The samples of a batch cut by DTensor, LeNet whole on each device."""
    from tensorflow.experimental import dtensor

    from manygpu.scratch import (
        device_mesh,
        dtensor_lenet,
        dtensor_step,
        init_params,
        to_mesh,
    )

    mesh = device_mesh({"batch": len(devices)}, devices)
    on_mesh = {"mesh": mesh, "over": "batch"}
    params = [dtensor.DVariable(to_mesh(p, **on_mesh)) for p in init_params()]
    step = dtensor_step(dtensor_lenet, params, LR, batch="batch")

    def take(X: tf.Tensor, y: tf.Tensor) -> None:
        step(X, y)
        _wait(dtensor.unpack(params[-1].read_value()))

    def weights() -> list[np.ndarray]:
        return [dtensor.unpack(p.read_value())[0].numpy() for p in params]

    def held() -> dict[str, int]:
        pieces = [dtensor.unpack(p.read_value()) for p in params]
        return _held(piece for of_one in pieces for piece in of_one)

    return Running(take, weights, held)


STRATEGIES = {
    "eager": make_eager,
    "compiled": make_compiled,
    "apart": make_apart,
    "engine": make_engine,
    "fit": make_fit,
    "network": make_network,
    "pipeline": make_pipeline,
    "layerwise": make_layerwise,
    "dtensor": make_dtensor,
}


def _compiled(step: Callable) -> Callable:
    """`step` as a graph. AutoGraph rewrites Python's loops over tensors; none has one.

    Without it a process takes its first step in half the time.
    """
    return tf.function(step, autograph=False)


def _strategy(devices: list[str]) -> tf.distribute.Strategy:
    """A MirroredStrategy over `devices` that doesn't announce itself."""
    tf.get_logger().setLevel("ERROR")
    return tf.distribute.MirroredStrategy(devices)


def _with_replicas(step: Callable, devices: list[str]) -> Running:
    """Give `step` its replicas, and let it wait until they are updated."""
    from manygpu.scratch import get_params, init_params

    params = init_params()
    replicas = [get_params(params, d) for d in devices]

    def take(X: tf.Tensor, y: tf.Tensor) -> None:
        step(X, y, replicas, devices, LR)
        _wait(replica[-1] for replica in replicas)

    def held() -> dict[str, int]:
        return _held(p for replica in replicas for p in replica)

    return Running(take, lambda: [p.numpy() for p in replicas[0]], held)


def _with_stages(step: Callable, cuts: list[int], devices: list[str]) -> Running:
    """Give `step` LeNet cut into stages, and let it wait until they are updated."""
    from manygpu.scratch import init_params, lenet_layers, make_stages

    stages = make_stages(lenet_layers(init_params()), cuts, devices)
    params = [p for stage in stages for p in stage.params]
    compiled = _compiled(lambda X, y: step(stages, X, y))

    def take(X: tf.Tensor, y: tf.Tensor) -> None:
        compiled(X, y)
        _wait(stage.params[-1] for stage in stages)

    return Running(take, lambda: [p.numpy() for p in params], lambda: _held(params))


def _wait(values: Iterable[tf.Tensor | tf.Variable]) -> None:
    """Return when all of `values` are there: a GPU may still be at work on them."""
    for value in values:
        value.numpy()


def _held(tensors: Iterable[tf.Tensor | tf.Variable]) -> dict[str, int]:
    """Bytes on each device."""
    held: Counter[str] = Counter()
    for t in tensors:
        held[short_device_name(t.device)] += t.shape.num_elements() * t.dtype.size
    return dict(held)


def _norm(arrays: Iterable[np.ndarray]) -> float:
    """Euclidean norm of all entries of all arrays together."""
    return float(np.sqrt(sum(np.sum(np.square(a, dtype=np.float64)) for a in arrays)))
