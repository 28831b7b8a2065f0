"""Every strategy of the book at work on a model, to be timed and looked into.

Each `make_...(task, devices)` returns a `Running`; a row of `manygpu.bench.table` names
it. All start from the same weights and take the same SGD step, each cut in its own
way. A process makes one of them: DTensor and MirroredStrategy number their collectives
alike and would stop each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.experimental.dtensor import DVariable, unpack

from manygpu.bench.contract import (
    Running,
    Task,
    bytes_in_graph,
    compiled,
    rows_of,
    wait_for,
)
from manygpu.bench.keras_models import named
from manygpu.bench.table import Strategy, UnfitError, unfit
from manygpu.costs import layer_costs
from manygpu.scratch.data_parallel.collectives import MessageLog
from manygpu.scratch.data_parallel.gradient_accumulation import accumulate
from manygpu.scratch.data_parallel.many_devices import cut_batch, take_step, train_batch
from manygpu.scratch.engine.mirrored_strategy import mirrored_step
from manygpu.scratch.splitting import (
    dtensor,
    layerwise,
    network,
    pipeline,
    running_a_pipeline,
    smaller_bubble,
)
from manygpu.scratch.splitting.recomputation import best_length, recomputed_layers


def set_up(strategy: Strategy, task: Task, devices: list[str]) -> Running:
    """Return a strategy at work on a task.

    Raises:
        UnfitError: the task hasn't what the strategy needs.
    """
    why = unfit(strategy, task.about, len(devices))
    if why:
        raise UnfitError(why)
    elsewhere = ":" in strategy.make
    make = named(strategy.make) if elsewhere else globals()[strategy.make]
    return make(task, devices)


def _moving(
    task: Task,
    step: Callable[[Any, Any], Any],
    places: Sequence[list[tf.Variable]],
    states: Sequence[tf.Variable] = (),
    weights: Callable[[], Sequence] | None = None,
    graph: bool = True,
) -> Running:
    """step(X, y), which moves the variables of some places; whole, they are `weights`.

    Without `weights`, each place has some of them.
    """
    params = sum(places, [])
    run = compiled(step) if graph else step

    def take(X: Any, y: Any) -> None:
        run(X, y)
        wait_for(own[-1] for own in places if own)

    result = partial(_arrays, weights or params.copy)
    sent = partial(bytes_in_graph, step)
    return Running(task, take, result, lambda: [*params, *states], sent)


def _arrays(tensors: Callable[[], Sequence]) -> list[np.ndarray]:
    return [t.numpy() for t in tensors()]


# Each device has the whole model, and a share of the batch


def make_one(task: Task, devices: list[str]) -> Running:
    """The step of one device: the model's own `train_step`, if there is one."""
    if task.own_step:
        return _fitted(task, tf.distribute.get_strategy())
    return _shared(task, devices[:1])


def make_data(task: Task, devices: list[str]) -> Running:
    """The step of the chapter "A step on many devices" as one `tf.function`."""
    return _shared(task, devices) if len(devices) > 1 else make_one(task, devices)


def make_eager(task: Task, devices: list[str]) -> Running:
    """The same step, one operation at a time."""
    return _shared(task, devices, graph=False)


def make_pieces(task: Task, devices: list[str]) -> Running:
    """The compiled step with each device's share in micro-batches; one update."""

    def in_pieces(of: Callable, X: Any, y: Any, params: list) -> tuple:
        return accumulate(X, y, params, min(task.pieces, rows_of(y)), of)

    return _shared(task, devices, in_pieces)


def make_accumulation(task: Task, devices: list[str]) -> Running:
    """The step of the first device, micro-batch by micro-batch, one update."""
    return make_pieces(task, devices[:1])


def make_recomputation(task: Task, devices: list[str]) -> Running:
    """The step of the first device; the backward pass runs segments of layers again."""
    segments = recomputed_runs(task.model.layers, task.batch[0])
    copy = copy_on(devices[0], task.model._replace(layers=segments))
    step = partial(_data_step, task.lr, devices[:1], [copy.params], copy.gradients)
    return _moving(task, step, [copy.params], copy.state)


def make_apart(task: Task, devices: list[str]) -> Running:
    """Compiled replicas that never communicate: each steps on its own shard.

    It is what is left when communication costs nothing; not the step of one device.
    """
    replicas, states, of = copies_on(devices, task)
    lr = task.lr

    def step(X: Any, y: Any) -> None:
        shards = cut_batch(X, y, len(devices))
        for device, own, shard in zip(devices, replicas, shards, strict=True):
            with tf.device(device):
                _, grads = of(*shard, own)
            take_step([own], [grads], lr, rows_of(y))

    return _moving(task, step, replicas, states, replicas[0].copy)


def _shared(
    task: Task, devices: list[str], how: Callable | None = None, graph: bool = True
) -> Running:
    """Copies on all devices; how(of, X, y, params) finds the gradients of a share."""
    replicas, states, of = copies_on(devices, task)
    of = partial(how, of) if how else of
    step = partial(_data_step, task.lr, devices, replicas, of)
    return _moving(task, step, replicas, states, replicas[0].copy, graph)


def _data_step(lr: float, devices: list, replicas: list, of: Callable, X, y) -> None:
    train_batch(X, y, replicas, devices, lr, of=of)


def copy_on(device: str, model: network.Model) -> network.Model:
    """Return the model with copies of its variables on a device."""
    copied = [network.copied_layer(one, device) for one in model.layers]
    return model._replace(layers=copied)


def copies_on(devices: Sequence[str], task: Task) -> tuple[list, list, Callable]:
    """Return each device's parameters, all their states, and what finds gradients."""
    copies = [copy_on(device, task.model) for device in devices]
    replicas = [copy.params for copy in copies]
    states = {id(copy.params[0]): copy.state for copy in copies}

    def of(X: Any, y: Any, params: list) -> tuple:
        return task.gradients(X, y, params, states[id(params[0])])

    return replicas, sum(states.values(), []), of


def recomputed_runs(layers: Sequence[network.Layer], X: tf.Tensor) -> list:
    """Return the layers with each run of them that keep no state recomputed.

    A layer that draws numbers, or moves averages, would do so twice. It stays as it
    is; so does a layer ahead that takes whole numbers.

    Raises:
        UnfitError: none is left.
    """
    ahead, h = 0, X[:1]  # how many layers take whole numbers
    while h.dtype.is_integer:
        h = layers[ahead].apply(h, *layers[ahead].params, *layers[ahead].state)
        ahead += 1
    free = [i >= ahead and not one.state for i, one in enumerate(layers)]
    if not any(free):
        raise UnfitError(
            "each of its layers keeps state, which a second run would change"
        )
    made: list[network.Layer] = []
    for again, pairs in groupby(zip(free, layers, strict=True), itemgetter(0)):
        run = [one for _, one in pairs]
        made += recomputed_layers(run, best_length(len(run))) if again else run
    return made


# The engine's


def make_engine(task: Task, devices: list[str]) -> Running:
    """The same step by MirroredStrategy: the loop of the chapter of that name.

    Its shards are made before the first step, since in a training loop a
    distributed dataset makes them beside the step. "data" splits in every step.
    """
    strategy, lr = mirrored(tuple(devices)), task.lr
    each = {"synchronization": tf.VariableSynchronization.ON_READ, "trainable": False}
    each["aggregation"] = tf.VariableAggregation.ONLY_FIRST_REPLICA
    with strategy.scope():
        params = [tf.Variable(p) for p in task.model.params]
        state = [tf.Variable(v, **each) for v in task.model.state]
    of = tf.autograph.experimental.do_not_convert(partial(task.gradients, state=state))
    step = mirrored_step(strategy, params, of)

    def shards(X: Any, y: Any) -> tuple:
        parts = cut_batch(X, y, len(devices))
        return strategy.experimental_distribute_values_from_function(
            lambda replica: parts[replica.replica_id_in_sync_group]
        )

    made_once = once_a_batch(shards)

    def take(X: Any, y: Any) -> None:
        step(*made_once(X, y), lr)
        wait_for(strategy.experimental_local_results(params[-1]))

    copies = local_copies(strategy, [*params, *state])
    return Running(task, take, partial(_arrays, params.copy), lambda: copies)


def make_fit(task: Task, devices: list[str]) -> Running:
    """One step of Keras' `fit` under MirroredStrategy, without its callbacks.

    It averages the means of the shards, so with uneven shards it is another step.
    """
    return _fitted(task, mirrored(tuple(devices)))


def _fitted(task: Task, strategy: tf.distribute.Strategy) -> Running:
    """What Keras' loop does in a step."""
    task = task.for_fit()
    lr = task.lr  # known before the scope begins
    with strategy.scope():
        model = task.keras(lr)
    params = [v.value for v in model.trainable_variables]
    kept = [v.value for v in model.non_trainable_variables]
    take = fitting(strategy, model, local_copies(strategy, params[-1:]))
    copies = local_copies(strategy, [*params, *kept])
    return Running(task, take, partial(_arrays, params.copy), lambda: copies)


def fitting(
    strategy: tf.distribute.Strategy, model: tf.keras.Model, last: Sequence
) -> Callable[[Any, Any], None]:
    """Return what takes one step of `fit` on a batch, and waits for the `last` copies.

    X and y may be nests of tensors. The model was compiled in the strategy's scope.
    """

    def endless(X: Any, y: Any) -> Iterator:
        if model.train_function is None:
            count, k = rows_of(y), strategy.num_replicas_in_sync
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


def make_dtensor(task: Task, devices: list[str]) -> Running:
    """The samples of a batch cut by DTensor, LeNet whole on each device."""
    mesh = dtensor.device_mesh({"batch": len(devices)}, devices)
    whole = partial(dtensor.to_mesh, mesh=mesh, over="batch")
    params = [DVariable(whole(p)) for p in task.model.params]
    step = dtensor.dtensor_step(dtensor.dtensor_lenet, params, task.lr, batch="batch")

    def copies() -> list[list[tf.Tensor]]:
        return [unpack(p.read_value()) for p in params]

    def take(X: tf.Tensor, y: tf.Tensor) -> None:
        step(X, y)
        wait_for(copies()[-1])

    result = partial(_arrays, lambda: [own[0] for own in copies()])
    return Running(task, take, result, lambda: sum(copies(), []))


def once_a_batch(make: Callable) -> Callable:
    """Return `make`, which is called again only for another X than the last one."""
    last: list = [None, None]

    def made(X: tf.Tensor, y: tf.Tensor) -> Any:
        if last[0] is not X:
            last[:] = X, make(X, y)
        return last[1]

    return made


@cache
def mirrored(devices: tuple[str, ...]) -> tf.distribute.Strategy:
    """Return the MirroredStrategy over `devices`; it doesn't announce itself.

    A process has one: two would number their collectives alike.
    """
    tf.get_logger().setLevel("ERROR")
    return tf.distribute.MirroredStrategy(devices)


def local_copies(strategy: tf.distribute.Strategy, variables: Sequence) -> list:
    """Return what each device holds of some mirrored variables."""
    local = strategy.experimental_local_results
    return [copy for variable in variables for copy in local(variable)]


# Each device has some layers


def make_network(task: Task, devices: list[str]) -> Running:
    """Layers dealt out to devices, one at work at a time."""
    return _in_stages(
        task, devices, network_cuts(task, len(devices)), network.partitioned_step
    )


def make_pipeline(task: Task, devices: list[str]) -> Running:
    """The same with micro-batches, 1F1B, cut where the work is most even."""
    return _scheduled(task, devices, pipeline.one_forward_one_backward)


def make_gpipe(task: Task, devices: list[str]) -> Running:
    """A pipeline by GPipe's plan."""
    return _scheduled(task, devices, pipeline.gpipe)


def make_zero_bubble(task: Task, devices: list[str]) -> Running:
    """A pipeline whose backward passes come in halves."""
    return _scheduled(task, devices, smaller_bubble.zero_bubble)


def make_interleaved(task: Task, devices: list[str]) -> Running:
    """A pipeline of two stages a device, or of one where there are too few layers."""
    k = len(devices)
    each = 2 if len(task.model.layers) >= 2 * k else 1
    return _scheduled(
        task, devices, partial(smaller_bubble.interleaved, devices=k), each * k
    )


def _scheduled(
    task: Task, devices: list[str], schedule: Callable, stages: int | None = None
) -> Running:
    """The step of a pipeline, a stage a device unless it is said how many."""
    cuts = pipeline_cuts(task, stages or len(devices))
    plan = schedule(len(cuts) + 1, min(task.pieces, task.samples))

    def step(X: Any, y: Any, stages: list, lr: float, loss: Callable) -> None:
        running_a_pipeline.pipeline_step(plan, stages, X, y, lr, loss)

    return _in_stages(task, devices, cuts, step)


def _in_stages(
    task: Task, devices: list[str], cuts: list[int], step: Callable
) -> Running:
    """step(X, y, stages, lr, loss), which moves the variables of stages."""
    stages = network.make_stages(task.model.layers, cuts, devices)
    given = {"stages": stages, "lr": task.lr, "loss": task.model.loss}
    states = [v for stage in stages for one in stage.layers for v in one.state]
    places = [stage.params for stage in stages]
    return _moving(task, partial(step, **given), places, states)


def network_cuts(task: Task, devices: int) -> list[int]:
    """Return where a network is cut: its layers' seconds most even, or their number."""
    stages = min(len(task.model.layers), devices)
    if task.seconds:
        return pipeline.balanced_cuts(list(task.seconds), stages)
    return network.even_cuts(len(task.model.layers), stages)


def pipeline_cuts(task: Task, devices: int) -> list[int]:
    """Return where a pipeline is cut: the seconds of a stage most even, or the FLOPs.

    Seconds that all processes know. If each measured others, it would cut elsewhere.
    """
    layers = task.model.layers
    if task.seconds or layers[0].takes is None:
        return network_cuts(task, devices)
    flops = [cost.flops for cost in layer_costs(layers)]
    return pipeline.balanced_cuts(flops, min(len(layers), devices))


def make_forward(task: Task, devices: list[str]) -> Running:
    """The forward pass of all layers on the first device."""
    copy = copy_on(devices[0], task.model)
    return _forward(task, lambda X, y: [copy.outputs(X, copy.params)], copy.params)


def make_pipeline_forward(task: Task, devices: list[str]) -> Running:
    """The forward passes of a pipeline."""
    cuts = pipeline_cuts(task, len(devices))
    stages = network.make_stages(task.model.layers, cuts, devices)
    plan = pipeline.forward_only(len(stages), task.pieces)

    def forward(X: Any, y: Any) -> list[tf.Tensor]:
        done, _ = running_a_pipeline.run_plan(plan, stages, X, y)
        return [done.logits[m] for m in sorted(done.logits)]

    return _forward(task, forward, [p for stage in stages for p in stage.params])


def _forward(task: Task, forward: Callable, params: list[tf.Variable]) -> Running:
    """forward(X, y), which returns outputs, in pieces of the batch or whole."""
    made: list[tf.Tensor] = []
    run = compiled(forward)

    def take(X: Any, y: Any) -> None:
        made[:] = run(X, y)
        wait_for(made)

    def result() -> list[np.ndarray]:
        return [np.concatenate(_arrays(made.copy))]

    return Running(task, take, result, lambda: params, moves=False)


# Each device has a part of every layer


def make_layerwise(task: Task, devices: list[str]) -> Running:
    """LeNet cut inside its layers."""
    shards = layerwise.LayerShards(task.model.layers, devices, layerwise.LENET_CUTS)

    def step(X: tf.Tensor, y: tf.Tensor) -> None:
        layerwise.layerwise_step(X, y, shards, task.lr)

    def sent(X: tf.Tensor, y: tf.Tensor) -> int:
        log = MessageLog()
        layerwise.layerwise_gradients(X, y, shards, send=log)
        return sum(size for _, size in log.messages)

    whole = partial(layerwise.gather_params, shards)
    return replace(_moving(task, step, list(shards), weights=whole), sent=sent)
