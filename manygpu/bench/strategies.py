"""Every strategy of the book at work on one LeNet, to be timed and looked into.

Each `make_...(devices)` returns a `Running` that starts from the same weights and
takes the same SGD step, cut in its own way. A process makes one of them: DTensor and
MirroredStrategy number their collectives alike and would stop each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import islice
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from manygpu.bench.running import (
    Running,
    bytes_by_device,
    bytes_in_graph,
    compiled,
    wait_for,
)
from manygpu.costs import layer_costs
from manygpu.scratch.data_parallel.collectives import MessageLog
from manygpu.scratch.data_parallel.gradient_accumulation import accumulate
from manygpu.scratch.data_parallel.many_devices import cut_batch, take_step, train_batch
from manygpu.scratch.data_parallel.parameters_and_devices import get_params
from manygpu.scratch.engine.mirrored_strategy import keras_lenet, mirrored_step
from manygpu.scratch.splitting.dtensor import (
    device_mesh,
    dtensor_lenet,
    dtensor_step,
    to_mesh,
)
from manygpu.scratch.splitting.layerwise import (
    LENET_CUTS,
    LayerShards,
    gather_params,
    layerwise_gradients,
    layerwise_step,
)
from manygpu.scratch.splitting.network import (
    even_cuts,
    lenet_layers,
    make_stages,
    partitioned_step,
)
from manygpu.scratch.splitting.pipeline import balanced_cuts, one_forward_one_backward
from manygpu.scratch.splitting.recomputation import best_length, recomputed_layers
from manygpu.scratch.splitting.running_a_pipeline import pipeline_step
from manygpu.scratch.start.one_device import (
    cross_entropy,
    gradients,
    init_params,
)

LR, BATCH = 0.05, 256
MICRO_BATCHES = 8


def make_eager(devices: list[str]) -> Running:
    """The step of the chapter "A step on many devices", one operation at a time."""
    return _with_replicas(train_batch, devices)


def make_compiled(devices: list[str]) -> Running:
    """The same step as one `tf.function`."""
    return _with_replicas(compiled(train_batch), devices)


def make_apart(devices: list[str]) -> Running:
    """Compiled replicas that never communicate: each steps on its own shard.

    It is what is left when communication costs nothing; not the step of one device.
    """

    def step(X, y, device_params, devices, lr):
        shards = cut_batch(X, y, len(devices))
        for device, own, shard in zip(devices, device_params, shards, strict=True):
            with tf.device(device):
                _, grads = gradients(*shard, own)
                take_step([own], [grads], lr, X.shape[0])

    return _with_replicas(compiled(step), devices)


def make_engine(devices: list[str]) -> Running:
    """The same step by MirroredStrategy: the loop of the chapter of that name.

    Its shards are made before the first step, since in a training loop a
    distributed dataset makes them beside the step. "compiled" splits in every step.
    """
    strategy = mirrored(devices)
    with strategy.scope():
        params = init_params()
    step = mirrored_step(strategy, params)

    def shards(X: tf.Tensor, y: tf.Tensor) -> tuple:
        parts = cut_batch(X, y, len(devices))
        return strategy.experimental_distribute_values_from_function(
            lambda replica: parts[replica.replica_id_in_sync_group]
        )

    made_once = once_a_batch(shards)

    def take(X: tf.Tensor, y: tf.Tensor) -> None:
        step(*made_once(X, y), LR)
        wait_for(strategy.experimental_local_results(params[-1]))

    copies = [c for p in params for c in strategy.experimental_local_results(p)]
    return _lenet(take, lambda: [p.numpy() for p in params], lambda: copies)


def make_fit(devices: list[str]) -> Running:
    """One step of Keras' `fit` under MirroredStrategy, without its callbacks.

    It averages the means of the shards, so with uneven shards it is another step.
    """
    strategy = mirrored(devices)
    with strategy.scope():
        model = keras_lenet(init_params())
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.SGD(LR), loss)
    copies = [
        copy
        for weight in model.trainable_weights
        for copy in strategy.experimental_local_results(weight.value)
    ]

    return _lenet(
        fitting(strategy, model, copies[-len(devices) :]),
        model.get_weights,
        lambda: copies,
    )


def fitting(
    strategy: tf.distribute.Strategy, model: tf.keras.Model, last: Sequence
) -> Callable[[Any, Any], None]:
    """Return what takes one step of `fit` on a batch, and waits for the `last` copies.

    X and y may be nests of tensors. The model was compiled in the strategy's scope.
    """

    def endless(X: Any, y: Any) -> Iterator:
        if model.train_function is None:
            count, k = len(tf.nest.flatten(y)[0]), strategy.num_replicas_in_sync
            even = tf.nest.map_structure(lambda t: t[: count // k * k], (X, y))
            with strategy.scope():
                model.optimizer.build(model.trainable_variables)
            moved = [*model.weights, *model.optimizer.variables]
            before = [v.numpy() for v in moved]
            # `fit` makes the training function; its first batch must be an even one.
            model.fit(tf.data.Dataset.from_tensors(even), verbose=0)
            for variable, value in zip(moved, before, strict=True):
                variable.assign(value)
        data = tf.data.Dataset.from_tensors((X, y)).repeat()
        return iter(strategy.experimental_distribute_dataset(data))

    made_once = once_a_batch(endless)

    def take(X: Any, y: Any) -> None:
        batches = made_once(X, y)
        model.train_function(batches)
        wait_for(last)

    return take


def make_accumulation(devices: list[str]) -> Running:
    """The step of the first device, micro-batch by micro-batch, one update."""
    return make_pieces(devices[:1])


def make_pieces(devices: list[str]) -> Running:
    """The compiled step with each device's share in micro-batches; one update."""

    def of(X: tf.Tensor, y: tf.Tensor, params: list) -> tuple:
        pieces = min(MICRO_BATCHES, X.shape[0])
        return accumulate(X, y, params, pieces)

    return _with_replicas(compiled(partial(train_batch, of=of)), devices)


def make_recomputation(devices: list[str]) -> Running:
    """The step of the first device; the backward pass runs segments of layers again."""
    layers = lenet_layers(init_params())
    segments = recomputed_layers(layers, best_length(len(layers)))
    counts = [len(one.params) for one in segments]

    def of(X: tf.Tensor, y: tf.Tensor, params: list) -> tuple:
        rest = iter(params)
        with tf.GradientTape() as tape:
            h = X
            for one, count in zip(segments, counts, strict=True):
                h = one.apply(h, *islice(rest, count))
            loss = tf.reduce_sum(cross_entropy(h, y))
        return loss, tape.gradient(loss, params)

    return _with_replicas(compiled(partial(train_batch, of=of)), devices[:1])


def make_network(devices: list[str]) -> Running:
    """LeNet's layers dealt out to at most four devices, one at work at a time."""

    def step(stages, X, y):
        return partitioned_step(X, y, stages, LR)

    return _with_stages(step, network_cuts(len(devices)), devices)


def network_cuts(devices: int) -> list[int]:
    """Return where LeNet's four layers are cut for so many devices."""
    return even_cuts(4, min(4, devices))


def make_pipeline(devices: list[str]) -> Running:
    """The same with micro-batches, 1F1B, cut where the work is most even."""
    cuts = pipeline_cuts(len(devices))
    plan = one_forward_one_backward(len(cuts) + 1, MICRO_BATCHES)

    def step(stages, X, y):
        return pipeline_step(plan, stages, X, y, LR)

    return _with_stages(step, cuts, devices)


def pipeline_cuts(devices: int) -> list[int]:
    """Return where LeNet is cut for a pipeline: the FLOPs of a stage most even.

    Not the seconds, which are what counts: each of the processes that are compared
    would measure others, and cut elsewhere.
    """
    costs = layer_costs(lenet_layers(init_params()))
    return balanced_cuts([cost.flops for cost in costs], min(len(costs), devices))


def make_layerwise(devices: list[str]) -> Running:
    """LeNet cut inside its layers."""
    shards = LayerShards(lenet_layers(init_params()), devices, LENET_CUTS)
    step = compiled(lambda X, y: layerwise_step(X, y, shards, LR))

    def take(X: tf.Tensor, y: tf.Tensor) -> None:
        step(X, y)
        wait_for(own[-1] for own in shards)

    def weights() -> list[np.ndarray]:
        return [p.numpy() for p in gather_params(shards)]

    def sent(X: tf.Tensor, y: tf.Tensor) -> int:
        log = MessageLog()
        layerwise_gradients(X, y, shards, send=log)
        return sum(size for _, size in log.messages)

    return _lenet(take, weights, lambda: sum(shards, []), sent)


def make_dtensor(devices: list[str]) -> Running:
    """The samples of a batch cut by DTensor, LeNet whole on each device."""
    mesh = device_mesh({"batch": len(devices)}, devices)
    on_mesh = {"mesh": mesh, "over": "batch"}
    params = [dtensor.DVariable(to_mesh(p, **on_mesh)) for p in init_params()]
    step = dtensor_step(dtensor_lenet, params, LR, batch="batch")

    def take(X: tf.Tensor, y: tf.Tensor) -> None:
        step(X, y)
        wait_for(dtensor.unpack(params[-1].read_value()))

    def weights() -> list[np.ndarray]:
        return [dtensor.unpack(p.read_value())[0].numpy() for p in params]

    def pieces() -> list[tf.Tensor]:
        return [piece for p in params for piece in dtensor.unpack(p.read_value())]

    return _lenet(take, weights, pieces)


STRATEGIES = {
    "eager": make_eager,
    "compiled": make_compiled,
    "apart": make_apart,
    "engine": make_engine,
    "fit": make_fit,
    "accumulation": make_accumulation,
    "pieces": make_pieces,
    "recomputation": make_recomputation,
    "network": make_network,
    "pipeline": make_pipeline,
    "layerwise": make_layerwise,
    "dtensor": make_dtensor,
}


def _lenet(
    take: Callable[[tf.Tensor, tf.Tensor], None],
    weights: Callable[[], list[np.ndarray]],
    stored: Callable[[], Iterable[tf.Tensor | tf.Variable]],
    sent: Callable[[tf.Tensor, tf.Tensor], int] | None = None,
) -> Running:
    """A strategy at work on LeNet, its 8 weights, what is stored where, and sent."""

    def reference(X: tf.Tensor, y: tf.Tensor) -> list[np.ndarray]:
        _, grads = gradients(X, y, [tf.Variable(w) for w in weights()])
        return [-LR / len(y) * g.numpy() for g in grads]

    def held() -> dict[str, int]:
        return bytes_by_device(stored())

    return Running(take, weights, reference, images, held, sent=sent)


def images(samples: int) -> tuple[tf.Tensor, tf.Tensor]:
    """So many random images, and a class for each."""
    rng = np.random.default_rng(0)
    X = tf.constant(rng.random((samples, 28, 28, 1)), tf.float32)
    return X, tf.constant(rng.integers(0, 10, samples), tf.int32)


def once_a_batch(make: Callable) -> Callable:
    """Return `make`, which is called again only for another X than the last one."""
    last: list = [None, None]

    def made(X: tf.Tensor, y: tf.Tensor) -> Any:
        if last[0] is not X:
            last[:] = X, make(X, y)
        return last[1]

    return made


def mirrored(devices: Sequence[str]) -> tf.distribute.Strategy:
    """Return the MirroredStrategy over `devices`; it doesn't announce itself.

    A process has one: two would number their collectives alike.
    """
    return _mirrored(tuple(devices))


@cache
def _mirrored(devices: tuple[str, ...]) -> tf.distribute.Strategy:
    tf.get_logger().setLevel("ERROR")
    return tf.distribute.MirroredStrategy(devices)


def _with_replicas(step: Callable, devices: list[str]) -> Running:
    """Give `step` its replicas, and let it wait until they are updated."""
    params = init_params()
    replicas = [get_params(params, d) for d in devices]

    def take(X: tf.Tensor, y: tf.Tensor) -> None:
        step(X, y, replicas, devices, LR)
        wait_for(replica[-1] for replica in replicas)

    def sent(X: tf.Tensor, y: tf.Tensor) -> int:
        one = getattr(step, "python_function", step)
        return bytes_in_graph(lambda X, y: one(X, y, replicas, devices, LR), X, y)

    return _lenet(
        take, lambda: [p.numpy() for p in replicas[0]], lambda: sum(replicas, []), sent
    )


def _with_stages(step: Callable, cuts: list[int], devices: list[str]) -> Running:
    """Give `step` LeNet cut into stages, and let it wait until they are updated."""
    stages = make_stages(lenet_layers(init_params()), cuts, devices)
    params = [p for stage in stages for p in stage.params]
    run = compiled(lambda X, y: step(stages, X, y))

    def take(X: tf.Tensor, y: tf.Tensor) -> None:
        run(X, y)
        wait_for(stage.params[-1] for stage in stages)

    def sent(X: tf.Tensor, y: tf.Tensor) -> int:
        return bytes_in_graph(lambda X, y: step(stages, X, y), X, y)

    return _lenet(take, lambda: [p.numpy() for p in params], lambda: params, sent)
