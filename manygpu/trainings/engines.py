"""TensorFlow's own strategies: MirroredStrategy, Keras' `fit`, DTensor.

A process makes one of them: DTensor and MirroredStrategy number their collectives alike
and would stop each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import tensorflow as tf
from tensorflow.experimental.dtensor import DVariable, unpack

from manygpu.scratch.data_parallel.many_devices import split_batch
from manygpu.scratch.engine.mirrored_strategy import mirrored_step
from manygpu.scratch.splitting.dtensor import (
    device_mesh,
    dtensor_lenet,
    dtensor_step,
    to_mesh,
)
from manygpu.trainings.contract import Training
from manygpu.trainings.keras_batches import as_keras, why_not_in_use
from manygpu.trainings.keras_layers import (
    all_variables,
    optimizers_of,
    step_of,
    trained_by,
)
from manygpu.trainings.table import UnfitError
from manygpu.trainings.task import Task, rows_of, wait_for

IN_TRAINING_ONLY = (
    "on several devices, Keras fit first calls the model as in use (training=False), "
    "and there it stops ({}): let all layers hand on the same shape in use as in "
    "training, for example by a Resizing after a RandomCrop"
)


def mirrored(task: Task, devices: list[str], shared: bool = True) -> Training:
    """The step of MirroredStrategy: the loop of the chapter of that name.

    Its shards are made before the first step, since in a training loop a distributed
    dataset makes them beside the step. "data" splits in every step.

    shared: whether the process has one such strategy, with collectives of its own.
    """
    strategy = (one_strategy if shared else adding_strategy)(tuple(devices))
    lr = task.lr
    each = {"synchronization": tf.VariableSynchronization.ON_READ, "trainable": False}
    each["aggregation"] = tf.VariableAggregation.ONLY_FIRST_REPLICA
    with strategy.scope():
        params = [tf.Variable(p) for p in task.model.params]
        state = [tf.Variable(v, **each) for v in task.model.state]
    of = tf.autograph.experimental.do_not_convert(partial(task.gradients, state=state))
    step = mirrored_step(strategy, params, of)

    def shards(X: Any, y: Any) -> tuple:
        parts = [*zip(*split_batch(X, y, devices), strict=True)]
        return strategy.experimental_distribute_values_from_function(
            lambda replica: parts[replica.replica_id_in_sync_group]
        )

    made_once = once_a_batch(shards)

    def take(X: Any, y: Any) -> tf.Tensor:
        loss = step(*made_once(X, y), lr)
        wait_for(strategy.experimental_local_results(params[-1]))
        return loss

    return at_work(take, strategy, params, state)


def fit(task: Task, devices: list[str]) -> Training:
    """One step of Keras' `fit` under MirroredStrategy, without its callbacks.

    It averages the means of the shards, so with uneven shards it is another step.
    """
    return by_keras(task, one_strategy(tuple(devices)))


def by_keras(task: Task, strategy: tf.distribute.Strategy) -> Training:
    """What Keras' loop does in a step. X and y may be nests of tensors."""
    task = task.for_fit()
    lr = task.lr  # known before the scope begins
    with strategy.scope():
        model = task.keras(lr)
    params = [v.value for v in model.trainable_variables]
    kept = [v.value for v in model.non_trainable_variables]

    def endless(X: Any, y: Any) -> Iterator:
        if model.train_function is None:
            make_train_function(task, model, strategy, X, y)
        batches = tf.data.Dataset.from_tensors(as_keras(X, y)).repeat()
        return iter(strategy.experimental_distribute_dataset(batches))

    made_once = once_a_batch(endless)
    last = local_copies(strategy, params[-1:])

    def take(X: Any, y: Any) -> None:
        batches = made_once(X, y)  # only then is there a training function
        model.train_function(batches)
        wait_for(last)

    return at_work(take, strategy, params, kept)


def at_work(
    take: Callable, strategy: tf.distribute.Strategy, params: list, state: list
) -> Training:
    """Return the training whose steps `take` takes, on a strategy's variables."""
    stored = local_copies(strategy, [*params, *state])

    def copies() -> list[list[tf.Variable]]:
        each = [strategy.experimental_local_results(p) for p in params]
        return [list(own) for own in zip(*each, strict=True)]

    return Training(take, copies, stored=lambda: stored, traced=False)


def make_train_function(
    task: Task, model: tf.keras.Model, strategy: tf.distribute.Strategy, X: Any, y: Any
) -> None:
    """Let `fit` make the training function of a task's model; no weight stays moved.

    Its first batch must be an even one.

    Raises:
        UnfitError: the model can be called in training only.
    """
    count, k = rows_of(X), strategy.num_replicas_in_sync
    even = tf.nest.map_structure(lambda t: t[: count // k * k], as_keras(X, y))
    build_optimizers(task, model, strategy)
    moved = all_variables(model)
    before = [v.numpy() for v in moved]
    try:
        model.fit(tf.data.Dataset.from_tensors(even), verbose=0)
    except Exception as error:
        if why := why_not_in_use(model, X):
            raise UnfitError(IN_TRAINING_ONLY.format(why)) from error
        raise
    for variable, value in zip(moved, before, strict=True):
        variable.assign(value)


def build_optimizers(
    task: Task, model: tf.keras.Model, strategy: tf.distribute.Strategy
) -> None:
    """Make the variables of a model's optimizers, its own and those that it keeps.

    Keras builds only its own one ahead of a graph. TensorFlow can't run a graph on
    several devices that makes an optimizer's variables in it ("You must feed a value
    for placeholder tensor"). Which weights an optimizer trains, one eager step of
    another such model tells.
    """
    optimizers = optimizers_of(model)
    trained = [[] for _ in optimizers]
    if any(one is not model.optimizer for one in optimizers):
        tried = task.keras(task.lr)
        step_of(tried, *task.batch)
        trained = trained_by(tried)
    with strategy.scope():
        for one, numbers in zip(optimizers, trained, strict=True):
            own = [model.weights[i] for i in numbers]
            if one is model.optimizer:
                own = model.trainable_variables
            if own and not one.built:
                one.build(own)


def dtensor_data(task: Task, devices: list[str]) -> Training:
    """The samples of a batch cut by DTensor, LeNet whole on each device."""
    mesh = device_mesh({"batch": len(devices)}, devices)
    params = [DVariable(to_mesh(p, mesh=mesh, over="batch")) for p in task.model.params]
    step = dtensor_step(dtensor_lenet, params, task.lr, batch="batch")

    def local() -> list[Sequence[tf.Tensor]]:
        return [unpack(p.read_value()) for p in params]

    def take(X: tf.Tensor, y: tf.Tensor) -> None:
        step(X, y)
        wait_for(local()[-1])

    def copies() -> list[list[tf.Tensor]]:
        return [list(own) for own in zip(*local(), strict=True)]

    return Training(take, copies, stored=lambda: sum(local(), []), traced=False)


def once_a_batch(make: Callable) -> Callable:
    """Return `make`, which is called again only for another X than the last one."""
    last: list = [None, None]

    def made(X: tf.Tensor, y: tf.Tensor) -> Any:
        if last[0] is not X:
            last[:] = X, make(X, y)
        return last[1]

    return made


@cache
def one_strategy(devices: tuple[str, ...]) -> tf.distribute.Strategy:
    """Return the MirroredStrategy over `devices`; it doesn't announce itself.

    A process has one: two would number their collectives alike.
    """
    tf.get_logger().setLevel("ERROR")
    return tf.distribute.MirroredStrategy(devices)


def adding_strategy(devices: Sequence[str]) -> tf.distribute.Strategy:
    """Return a MirroredStrategy that adds up on one device.

    A process may have several: their collectives can't meet each other.
    """
    adding = tf.distribute.ReductionToOneDevice(accumulation_fn=added)
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=adding)


@tf.function(
    autograph=False, reduce_retracing=True, experimental_attributes={"_noinline": True}
)
def added(parts: list[tf.Tensor]) -> tf.Tensor:
    """Return the sum of `parts`, into which the graph optimizer doesn't look.

    It can't look into a collective either. If it finds that the sum of the shares'
    sizes is a constant, it divides by it in another order on one device than on the
    others, and the copies of a parameter differ in their last bit.
    """
    return tf.add_n(parts)


def local_copies(strategy: tf.distribute.Strategy, variables: Sequence) -> list:
    """Return what each device holds of some mirrored variables."""
    local = strategy.experimental_local_results
    return [copy for variable in variables for copy in local(variable)]
