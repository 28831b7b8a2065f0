"""Each device has the whole model, and a share of the batch.

Each function puts a strategy to work on a task, `make(task, devices)`, and returns a
`contract.Training`; a row of `table` names it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import tensorflow as tf

from manygpu.measure import nbytes
from manygpu.scratch.data_parallel import many_devices
from manygpu.scratch.data_parallel.collectives import allreduce_with, ring_allreduce
from manygpu.scratch.data_parallel.gradient_accumulation import accumulate
from manygpu.scratch.data_parallel.hiding_communication import (
    allreduce_buckets,
    make_buckets,
)
from manygpu.scratch.data_parallel.large_batches import GradualWarmup
from manygpu.scratch.data_parallel.many_devices import train_batch
from manygpu.scratch.data_parallel.trees_and_hierarchy import (
    halving_doubling_allreduce,
    tree_allreduce,
)
from manygpu.scratch.engine.mixed_precision import (
    LossScale,
    all_finite,
    allreduce_stored,
    mixed_gradients,
    step_if_finite,
    unscale,
)
from manygpu.scratch.in_step.sending_less import (
    ErrorFeedback,
    LowRank,
    TopK,
    gather_compressed,
)
from manygpu.scratch.splitting.network import Layer, Model, copied_layer
from manygpu.scratch.splitting.recomputation import (
    best_length,
    recomputed,
    recomputed_layers,
)
from manygpu.trainings import engines
from manygpu.trainings.contract import Training
from manygpu.trainings.keras_batches import as_keras
from manygpu.trainings.run_again import check_run_again
from manygpu.trainings.table import UnfitError
from manygpu.trainings.task import Task, rows_of

BUCKET = 2**18  # bytes of a message, at most
WARM_UP = 4  # steps


def copy_on(device: str, model: Model) -> Model:
    """Return the model with copies of its variables on a device."""
    made: dict[int, tf.Variable] = {}
    layers = []
    for one in model.layers:
        copy = copied_layer(one, device)
        pairs = zip(one.params, copy.params, strict=True)
        params = tuple(made.setdefault(id(p), own) for p, own in pairs)
        layers.append(copy._replace(params=params))
    return model._replace(layers=layers)


def first_id(params: Sequence) -> int:
    """Return what tells a replica's parameters from another one's."""
    return id(params[0])


class Copies:
    """Copies of a task's model, one per device, and how each finds its gradients.

    replicas: the parameters of each. model: to be copied in place of the task's own.
    """

    def __init__(
        self, task: Task, devices: Sequence[str], model: Model | None = None
    ) -> None:
        models = [copy_on(device, model or task.model) for device in devices]
        self.task, self.devices = task, list(devices)
        self.replicas = [one.params for one in models]
        self._models = dict(zip(map(first_id, self.replicas), models, strict=True))

    def gradients(self, X: Any, y: Any, params: list) -> tuple:
        """Return the summed loss of a share and its gradients for one replica."""
        state = self._models[first_id(params)].state
        return self.task.gradients(X, y, params, state)

    def by_layers(self, X: Any, y: Any, params: list) -> tuple:
        """Return the same, layer by layer, whatever else the task may have."""
        return self._models[first_id(params)].gradients(X, y, params)

    def stored(self) -> list[tf.Variable]:
        """Return all variables of all devices."""
        states = [v for one in self._models.values() for v in one.state]
        return states + sum(self.replicas, [])

    def training(self, take: Callable, **more: Any) -> Training:
        """Return the training whose steps `take` takes."""
        more = {"stored": self.stored} | more
        return Training(take, lambda: self.replicas, **more)


def data(
    task: Task,
    devices: list[str],
    how: Callable | None = None,
    train: Callable = train_batch,
    reduce: Callable[[Copies], Callable] | None = None,
) -> Training:
    """Replicas that share a batch, see `train_batch`.

    One device takes a model's own `train_step`.

    Args:
        task, devices: what is trained, and where.
        how: `how(of, X, y, params)` finds the gradients of a share; None: `of` does.
        train: takes the step.
        reduce: makes of the copies what adds their gradients up.
    """
    if task.own_step:
        return engines.by_keras(task, tf.distribute.get_strategy())
    copies = Copies(task, devices)
    of = partial(how, copies.gradients) if how else copies.gradients
    options = {"reduce": reduce(copies)} if reduce else {}
    lr = task.lr  # known before a graph begins

    def take(X: Any, y: Any) -> tf.Tensor:
        return train(X, y, copies.replicas, copies.devices, lr, of=of, **options)

    return copies.training(take)


def pieces(task: Task, devices: list[str]) -> Training:
    """Each device's share in micro-batches; one update."""

    def in_pieces(of: Callable, X: Any, y: Any, params: list) -> tuple:
        return accumulate(X, y, params, task.pieces_of(rows_of(y)), of)

    return data(task, devices, in_pieces)


def never_together(task: Task, devices: list[str]) -> Training:
    """Replicas that never communicate; a model's own `train_step` is each one's."""
    if not task.own_step:
        return data(task, devices, train=_apart)
    models = []
    for device in devices:
        with tf.device(device):
            models.append(task.keras(task.lr))
            alone = tf.distribute.get_strategy()
            engines.make_train_function(task, models[-1], alone, *task.batch)

    def take(X: Any, y: Any) -> None:
        whole = as_keras(X, y)
        shards, _ = many_devices.split_batch(whole, whole, devices)
        for device, model, shard in zip(devices, models, shards, strict=True):
            with tf.device(device):
                model.train_step(shard)

    replicas = [[v.value for v in model.trainable_variables] for model in models]
    kept = [v.value for model in models for v in model.non_trainable_variables]
    stored = partial(list, [*kept, *sum(replicas, [])])
    return Training(take, lambda: replicas, stored=stored)


def _apart(
    X: Any, y: Any, replicas: list, devices: list[str], lr: float, of: Callable
) -> tf.Tensor:
    """Let each replica step on its own shard; nobody communicates.

    It is what is left when communication costs nothing; not the step of one device.
    """
    shards = many_devices.split_batch(X, y, devices)
    losses, grads = many_devices.shard_gradients(*shards, replicas, devices, of)
    many_devices.take_step(replicas, grads, lr, rows_of(y))
    return tf.add_n(losses) / rows_of(y)


# Other sums of the same gradients


def _summed_by(reduce: Callable) -> Callable:
    """Return the strategy whose devices sum each gradient so."""
    return partial(data, reduce=lambda copies: allreduce_with(reduce))


by_ring = _summed_by(ring_allreduce)
by_tree = _summed_by(tree_allreduce)
by_halving = _summed_by(halving_doubling_allreduce)


def in_buckets(task: Task, devices: list[str], most: int = BUCKET) -> Training:
    """Gradients in messages of at most so many bytes, the last layer's first."""
    buckets = make_buckets([nbytes(p) for p in task.model.params], most)
    reduce = partial(allreduce_buckets, buckets=buckets)
    return data(task, devices, reduce=lambda copies: reduce)


def largest_first(task: Task, devices: list[str], share: float = 0.1) -> Training:
    """A share of each gradient, its largest numbers; the rest comes with later ones."""
    lossy = gather_compressed(TopK(share))
    return _fed_back(task, devices, lambda copies: lossy)


def of_low_rank(task: Task, devices: list[str], rank: int = 2) -> Training:
    """Gradients as products of thin matrices; what these leave out comes later."""
    return _fed_back(task, devices, lambda copies: LowRank(copies.replicas, rank=rank))


def _fed_back(task: Task, devices: list[str], lossy: Callable) -> Training:
    """What a lossy sum leaves out comes with the next one."""
    kept: list[tf.Variable] = []

    def reduce(copies: Copies) -> Callable:
        feedback = ErrorFeedback(lossy(copies), copies.replicas)
        kept.extend(feedback.variables)
        return feedback

    made = data(task, devices, reduce=reduce)
    return made._replace(stored=lambda: [*kept, *made.stored()])


def stored_sums(task: Task, devices: list[str]) -> Training:
    """Gradients that are sent in a dtype of their own."""
    reduce = partial(allreduce_stored, dtype=task.model.params[0].dtype)
    return data(task, devices, reduce=lambda copies: reduce)


# What else a chapter adds to a step


def in_segments(
    task: Task, devices: list[str], length: int = 0, tried: bool = False
) -> Training:
    """The backward pass runs segments of layers again.

    length: layers of a segment; 0 for the best. tried: whether to try first that a
    segment runs twice, see `check_run_again`; gradients don't tell.
    """
    if tried:
        check_run_again(recomputed)
    X = task.batch[0] if task.batch else None
    layers = recomputed_runs(task.model.layers, X, length)
    copies = Copies(task, devices, task.model._replace(layers=layers))
    lr, of = task.lr, copies.by_layers

    def take(X: Any, y: Any) -> tf.Tensor:
        return train_batch(X, y, copies.replicas, devices, lr, of=of)

    return copies.training(take)


def recomputed_runs(
    layers: Sequence[Layer], X: tf.Tensor | None, length: int = 0
) -> list[Layer]:
    """Return the layers with each run of them that keep no state recomputed.

    In segments of `length`, or of the best. A layer that draws numbers, or moves
    averages, would do so twice. It stays as it is; so does a layer ahead that takes
    whole numbers.

    Raises:
        UnfitError: none is left.
    """
    ahead, h = 0, None if X is None else X[:1]  # how many layers take whole numbers
    while h is not None and h.dtype.is_integer:
        h = layers[ahead].apply(h, *layers[ahead].params, *layers[ahead].state)
        ahead += 1
    free = [i >= ahead and not one.state for i, one in enumerate(layers)]
    if not any(free):
        raise UnfitError(
            "each of its layers keeps state, which a second run would change"
        )
    made: list[Layer] = []
    for again, pairs in groupby(zip(free, layers, strict=True), itemgetter(0)):
        run = [one for _, one in pairs]
        best = min(length, len(run)) or best_length(len(run))
        made += recomputed_layers(run, best) if again else run
    return made


def loss_scaled(task: Task, devices: list[str]) -> Training:
    """A scaled loss, whose step is left out if any device's gradients are not finite.

    All in the dtype of the parameters: so the step is that of plain SGD.
    """
    copies, scale, lr = Copies(task, devices), LossScale(8.0), task.lr
    model = task.model.outputs
    dtype = task.model.params[0].dtype
    of = partial(mixed_gradients, dtype=dtype, scale=scale.scale, model=model)

    def take(X: Any, y: Any) -> tf.Tensor:
        shards = many_devices.split_batch(X, y, devices)
        losses, grads = many_devices.shard_gradients(
            *shards, copies.replicas, devices, of
        )
        finite = all_finite(sum(grads, []))
        sums = many_devices.allreduce_gradients(grads)
        sums = [unscale(own, scale.scale) for own in sums]
        own = copies.replicas, sums, lr, rows_of(y)
        step_if_finite(scale, finite, partial(many_devices.take_step, *own))
        return tf.add_n(losses) / rows_of(y)

    def kept() -> dict[str, list]:
        return {"scale": [scale.scale], "good": [scale.good]}

    return copies.training(take, state=kept)


def warmed_up(task: Task, devices: list[str]) -> Training:
    """A rate that rises; a judge knows which one each step must have."""
    copies, lr, losses = Copies(task, devices), task.lr, []
    of = copies.gradients

    def take(X: Any, y: Any) -> tf.Tensor:
        step = len(losses)  # the second rate is past its peak in step 1
        rate = GradualWarmup(lr, 4 * lr, WARM_UP)(step)
        rate *= GradualWarmup(1, 2, 1)(2 * step)
        losses.append(train_batch(X, y, copies.replicas, devices, rate, of=of))
        return losses[-1]

    return copies.training(take, traced=False)
