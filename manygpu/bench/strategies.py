"""Every strategy of the book at work on a model, to be timed and looked into.

Each `make_...(task, devices)` returns a `Running`; a row of `manygpu.bench.table` names
it. All start from the same weights and take the same SGD step, each cut in its own
way. A process makes one of them: DTensor and MirroredStrategy number their collectives
alike and would stop each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from manygpu.bench.keras_models import as_keras, own_function
from manygpu.bench.table import Strategy, UnfitError, unfit
from manygpu.costs import layer_costs
from manygpu.scratch.data_parallel import many_devices
from manygpu.scratch.data_parallel.gradient_accumulation import accumulate
from manygpu.scratch.data_parallel.many_devices import train_batch
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
    make = own_function(strategy.make) if elsewhere else globals()[strategy.make]
    return make(task, devices[:1] if strategy.alone else devices)


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
    traced = compiled(step)

    def take(X: Any, y: Any) -> None:
        (traced if graph else step)(X, y)
        wait_for(own[-1] for own in places if own)

    result = partial(_arrays, weights or params.copy)
    sent = partial(bytes_in_graph, traced)
    return Running(task, take, result, lambda: [*params, *states], sent)


def _arrays(tensors: Callable[[], Sequence]) -> list[np.ndarray]:
    return [t.numpy() for t in tensors()]


# Each device has the whole model, and a share of the batch


def _shared(
    task: Task,
    devices: list[str],
    how: Callable | None = None,
    graph: bool = True,
    train: Callable = train_batch,
    **options: Any,
) -> Running:
    """Copies on all devices; how(of, X, y, params) finds the gradients of a share.

    `options` are those of `train`, such as another `reduce`.
    """
    copies = [copy_on(device, task.model) for device in devices]
    replicas = [copy.params for copy in copies]
    states = {id(copy.params[0]): copy.state for copy in copies}

    def found(X: Any, y: Any, params: list) -> tuple:
        return task.gradients(X, y, params, states[id(params[0])])

    of = partial(how, found) if how else found
    lr = task.lr  # known before a graph begins

    def step(X: Any, y: Any) -> None:
        train(X, y, replicas, devices, lr, of=of, **options)

    kept = sum(states.values(), [])
    return _moving(task, step, replicas, kept, replicas[0].copy, graph)


def _apart(
    X: Any, y: Any, replicas: list, devices: list[str], lr: float, of: Callable
) -> None:
    """Let each replica step on its own shard; nobody communicates.

    It is what is left when communication costs nothing; not the step of one device.
    """
    shards = many_devices.split_batch(X, y, devices)
    _, grads = many_devices.shard_gradients(*shards, replicas, devices, of)
    many_devices.take_step(replicas, grads, lr, rows_of(y))


# The step of the chapter "A step on many devices", one operation at a time.
make_eager = partial(_shared, graph=False)


def make_data(task: Task, devices: list[str]) -> Running:
    """The same as one `tf.function`; one device takes a model's own `train_step`."""
    if task.own_step:
        return _fitted(task, tf.distribute.get_strategy())
    return _shared(task, devices)


def make_apart(task: Task, devices: list[str]) -> Running:
    """Replicas that never communicate; a model's own `train_step` is each one's."""
    if not task.own_step:
        return _shared(task, devices, train=_apart)
    models = []
    for device in devices:
        with tf.device(device):
            models.append(task.keras(task.lr))
            _make_train_function(models[-1], tf.distribute.get_strategy(), *task.batch)

    def step(X: Any, y: Any) -> None:
        shards = many_devices.split_batch(X, y, devices)
        for device, model, *shard in zip(devices, models, *shards, strict=True):
            with tf.device(device):
                model.train_step(as_keras(*shard))

    places = [[v.value for v in model.trainable_variables] for model in models]
    kept = [v.value for model in models for v in model.non_trainable_variables]
    return _moving(task, step, places, kept, places[0].copy)


def make_pieces(task: Task, devices: list[str]) -> Running:
    """The compiled step with each device's share in micro-batches; one update."""

    def in_pieces(of: Callable, X: Any, y: Any, params: list) -> tuple:
        return accumulate(X, y, params, min(task.pieces, rows_of(y)), of)

    return _shared(task, devices, in_pieces)


def make_recomputation(task: Task, devices: list[str]) -> Running:
    """The step of the first device; the backward pass runs segments of layers again."""
    segments = recomputed_runs(task.model.layers, task.batch[0])
    copy = copy_on(devices[0], task.model._replace(layers=segments))
    lr = task.lr

    def step(X: Any, y: Any) -> None:
        train_batch(X, y, [copy.params], devices, lr, of=copy.gradients)

    return _moving(task, step, [copy.params], copy.state)


def copy_on(device: str, model: network.Model) -> network.Model:
    """Return the model with copies of its variables on a device."""
    copied = [network.copied_layer(one, device) for one in model.layers]
    return model._replace(layers=copied)


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
        parts = [*zip(*many_devices.split_batch(X, y, devices), strict=True)]
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
    """What Keras' loop does in a step. X and y may be nests of tensors."""
    task = task.for_fit()
    lr = task.lr  # known before the scope begins
    with strategy.scope():
        model = task.keras(lr)
    params = [v.value for v in model.trainable_variables]
    kept = [v.value for v in model.non_trainable_variables]

    def endless(X: Any, y: Any) -> Iterator:
        if model.train_function is None:
            _make_train_function(model, strategy, X, y)
        data = tf.data.Dataset.from_tensors(as_keras(X, y)).repeat()
        return iter(strategy.experimental_distribute_dataset(data))

    made_once = once_a_batch(endless)
    last = local_copies(strategy, params[-1:])

    def take(X: Any, y: Any) -> None:
        batches = made_once(X, y)  # only then is there a training function
        model.train_function(batches)
        wait_for(last)

    copies = local_copies(strategy, [*params, *kept])
    return Running(task, take, partial(_arrays, params.copy), lambda: copies)


def _make_train_function(
    model: tf.keras.Model, strategy: tf.distribute.Strategy, X: Any, y: Any
) -> None:
    """Let `fit` make the model's training function; no weight stays moved.

    Its first batch must be an even one.
    """
    count, k = rows_of(y), strategy.num_replicas_in_sync
    even = tf.nest.map_structure(lambda t: t[: count // k * k], as_keras(X, y))
    with strategy.scope():
        model.optimizer.build(model.trainable_variables)
    moved = [*model.weights, *model.optimizer.variables]
    before = [v.numpy() for v in moved]
    model.fit(tf.data.Dataset.from_tensors(even), verbose=0)
    for variable, value in zip(moved, before, strict=True):
        variable.assign(value)


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
    cuts = network_cuts(task, len(devices))
    return _in_stages(task, devices, cuts, network.partitioned_step)


def make_interleaved(task: Task, devices: list[str]) -> Running:
    """A pipeline of two stages a device, or of one where there are too few layers."""
    k = len(devices)
    each = 2 if len(task.model.layers) >= 2 * k else 1
    schedule = partial(smaller_bubble.interleaved, devices=k)
    return _scheduled(task, devices, schedule, each * k)


def _scheduled(
    task: Task, devices: list[str], schedule: Callable, stages: int | None = None
) -> Running:
    """The step of a pipeline, a stage a device unless it is said how many."""
    cuts = pipeline_cuts(task, stages or len(devices))
    plan = schedule(len(cuts) + 1, min(task.pieces, task.samples))

    def step(X: Any, y: Any, stages: list, lr: float, loss: Callable) -> None:
        running_a_pipeline.pipeline_step(plan, stages, X, y, lr, loss)

    return _in_stages(task, devices, cuts, step)


# Pipelines by their plans: 1F1B, GPipe's, and backward passes that come in halves.
make_pipeline = partial(_scheduled, schedule=pipeline.one_forward_one_backward)
make_gpipe = partial(_scheduled, schedule=pipeline.gpipe)
make_zero_bubble = partial(_scheduled, schedule=smaller_bubble.zero_bubble)


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
    """Return where a network is cut: into as many layers each.

    Its devices take turns, so a step is no shorter where their seconds are even.
    """
    layers = len(task.model.layers)
    return network.even_cuts(layers, min(layers, devices))


def pipeline_cuts(task: Task, devices: int) -> list[int]:
    """Return where a pipeline is cut: the seconds of a stage most even, or the FLOPs.

    Seconds that all processes know. If each measured others, it would cut elsewhere.
    """
    layers = task.model.layers
    costs = list(task.seconds)
    if not costs:
        if layers[0].takes is None:
            return network_cuts(task, devices)
        costs = [cost.flops for cost in layer_costs(layers)]
    return pipeline.balanced_cuts(costs, min(len(layers), devices))


# Each device has a part of every layer


def make_layerwise(task: Task, devices: list[str]) -> Running:
    """LeNet cut inside its layers."""
    shards = layerwise.LayerShards(task.model.layers, devices, layerwise.LENET_CUTS)

    def step(X: tf.Tensor, y: tf.Tensor) -> None:
        layerwise.layerwise_step(X, y, shards, task.lr)

    whole = partial(layerwise.gather_params, shards)
    return _moving(task, step, list(shards), weights=whole)
