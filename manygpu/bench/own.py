"""A reader's own Keras model at work by every strategy, to be timed and looked into.

Each `make_...(task, devices)` returns a `Running`. All take the same step of plain SGD,
whatever optimizer the model was compiled with, so that all can be compared with one
device: gradients of the loss, a mean over samples, and one rate for all. A model with a
`train_step` of its own takes that, with its own optimizer, on one device and by `fit`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import tensorflow as tf

from manygpu.bench import models
from manygpu.bench.running import (
    Running,
    UnfitError,
    bytes_by_device,
    bytes_in_graph,
    compiled,
    wait_for,
)
from manygpu.bench.strategies import MICRO_BATCHES, fitting, mirrored, once_a_batch
from manygpu.comparison import ALIKE, QUIET
from manygpu.costs import model_costs
from manygpu.measure import nbytes
from manygpu.scratch.data_parallel.many_devices import (
    allreduce_gradients,
    cut_batch,
    take_step,
)
from manygpu.scratch.splitting.network import (
    Layer,
    Stage,
    even_cuts,
    gradients_of,
    kept_pass,
    loss_gradient,
    make_stages,
)
from manygpu.scratch.splitting.pipeline import Plan, gpipe, one_forward_one_backward
from manygpu.scratch.splitting.recomputation import best_length, recomputed_layers
from manygpu.scratch.splitting.running_a_pipeline import (
    OneDevice,
    run_micro_batches,
)
from manygpu.scratch.start.one_device import sgd

STEP = 1e-3  # how long a step is beside the weights: so small, and not yet rounding
TRIES = 3  # of a layer's pass; the fastest counts


@dataclass(frozen=True)
class Task:
    """What is to be trained.

    Attributes:
        model: "transformer" or `module:function`, see `models.load`.
        samples: in the batch; None for as many as the function gives.
        cuts: where a chain of layers is cut, as `make_stages` takes them; None for
            equally many layers.
        training: whether layers behave as in training; else as in use, where a norm
            takes its moving averages, and nothing is dropped.
        hushed: dropout and noise switched off.
        frozen: BatchNorm as in use, and not trained; all else as in training.
    """

    model: str
    samples: int | None = None
    cuts: tuple[int, ...] | None = None
    training: bool = True
    hushed: bool = False
    frozen: bool = False


class Own:
    """A loaded model: its loss and gradients with any variables in place of its own."""

    def __init__(self, task: Task) -> None:
        self.training = task.training
        self.model, self.batch = models.load(task.model, task.samples)
        if task.hushed:
            models.hush(self.model)
        if task.frozen:
            models.freeze_norms(self.model)
        self.random = bool(models.what_is_drawn(self.model))
        self.samples = len(tf.nest.flatten(self.batch)[0])

    @property
    def params(self) -> list[tf.Variable]:
        """What is trained."""
        return [v.value for v in self.model.trainable_variables]

    @property
    def state(self) -> list[tf.Variable]:
        """What it keeps besides: moving averages, the state of what draws numbers."""
        return [v.value for v in self.model.non_trainable_variables]

    def copy(self, device: str) -> tuple[list[tf.Variable], list[tf.Variable]]:
        """Return copies of the parameters and of the state on a device."""
        with tf.device(device):
            params = [tf.Variable(tf.identity(p)) for p in self.params]
            state = [tf.Variable(tf.identity(s), trainable=False) for s in self.state]
        return params, state

    def gradients(
        self, batch: tuple, params: Sequence, state: Sequence
    ) -> tuple[tf.Tensor, list[tf.Tensor], list[tf.Tensor]]:
        """Return the loss summed over samples, its gradients, and the state behind it.

        The loss is a mean, so its sum is the mean times the samples: then those of
        shards add up, of any sizes.
        """
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(params)
            loss, after = self.forward(batch, params, state)
        zeros = tf.UnconnectedGradients.ZERO
        grads = dense(tape.gradient(loss, params, unconnected_gradients=zeros))
        return loss, grads, after

    def forward(
        self, batch: tuple, params: Sequence, state: Sequence
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Return the loss summed over samples, and the state behind it."""
        (X, y), model = batch, self.model
        own = [*model.trainable_variables, *model.non_trainable_variables]
        values = zip(own, [*params, *state], strict=True)
        with tf.keras.StatelessScope(values) as scope:
            outputs = model(X, training=self.training)
            loss = model.compute_loss(x=X, y=y, y_pred=outputs)
        after = map(scope.get_current_value, model.non_trainable_variables)
        return loss * rows_of(y, loss.dtype), list(after)

    @cached_property
    def rate(self) -> float:
        """A rate with which a step is `STEP` times as long as the weights.

        A longer one might not learn, and a shorter one be lost in rounding.
        """
        _, grads, _ = self.gradients(self.batch, self.params, self.state)
        step, weights = [
            float(tf.linalg.global_norm([tf.cast(t, tf.float64) for t in tensors]))
            for tensors in (grads, self.params)
        ]
        return STEP * weights / step * self.samples if step and weights else STEP


def rows_of(values: Any, dtype: tf.DType) -> tf.Tensor:
    """Return how many samples a batch, or a part of it, has."""
    return tf.cast(tf.shape(tf.nest.flatten(values)[0])[0], dtype)


def dense(grads: Iterable) -> list[tf.Tensor]:
    """Return gradients as tensors; an embedding's come as some of its rows."""
    return [tf.convert_to_tensor(g) for g in grads]


def usual(task: Task, parts: int = 1) -> Own:
    """Load a model whose step can be written here, its batch cut into `parts`.

    Raises:
        UnfitError: it has a step of its own, or fewer samples than parts; and see
            `models.load`.
    """
    own = Own(task)
    if own.samples < parts:
        raise UnfitError(f"a batch of {own.samples} can't be cut into {parts} parts")
    if models.steps_itself(own.model):
        raise UnfitError(
            "the model has a train_step of its own, which only one device and Keras "
            "fit take: by hand it would be another step"
        )
    return own


def make_compiled(task: Task, devices: list[str]) -> Running:
    """Copies on all devices, each with its share of the batch; gradients are added.

    One device takes the model's own `train_step`, if there is one.
    """
    if len(devices) == 1 and models.steps_itself(Own(task).model):
        return _fitted(task, devices)
    return _by_hand(task, devices, 1)


def make_accumulation(task: Task, devices: list[str]) -> Running:
    """The step of one device, micro-batch by micro-batch, one update."""
    return _by_hand(task, devices[:1], MICRO_BATCHES)


def make_pieces(task: Task, devices: list[str]) -> Running:
    """Copies on all devices, each with its share in micro-batches; one update."""
    return _by_hand(task, devices, MICRO_BATCHES)


def _by_hand(task: Task, devices: list[str], pieces: int) -> Running:
    """Data parallel, each share in so many pieces, one after the other."""
    own = usual(task, len(devices))
    replicas = [own.copy(device) for device in devices]
    device_params = [params for params, _ in replicas]
    pieces = min(pieces, own.samples // len(devices)) or 1
    rate = own.rate  # known before any graph is traced

    def step(X: Any, y: Any) -> None:
        grads = []
        parts = cut_batch(X, y, len(devices))
        for device, part, replica in zip(devices, parts, replicas, strict=True):
            with tf.device(device):
                grads.append(_accumulated(own, part, *replica, pieces))
        sums = allreduce_gradients(grads)
        take_step(device_params, sums, rate, own.samples)

    run = compiled(step)

    def take(X: Any, y: Any) -> None:
        run(X, y)
        wait_for(params[-1] for params in device_params)

    def weights() -> list[np.ndarray]:
        return [p.numpy() for p in device_params[0]]

    held = [v for params, state in replicas for v in (*params, *state)]
    sent = partial(bytes_in_graph, step)
    make = partial(_by_hand, devices=devices, pieces=pieces)
    return _running(own, task, make, take, weights, held, devices, sent)


def _accumulated(
    own: Own, batch: tuple, params: list, state: list, pieces: int
) -> list[tf.Tensor]:
    """A share's gradients, piece by piece; moves the replica's state."""
    total: list[tf.Tensor] = []
    for piece in cut_batch(*batch, pieces):
        # Without this a graph may run all pieces at once, and hold all activations.
        with tf.control_dependencies(total):
            piece = tf.nest.map_structure(tf.identity, piece)
        _, grads, after = own.gradients(piece, params, state)
        for variable, value in zip(state, after, strict=True):
            variable.assign(value)
        total = [a + b for a, b in zip(total, grads, strict=True)] if total else grads
    return total


def make_engine(task: Task, devices: list[str]) -> Running:
    """The same step by MirroredStrategy, in a loop of one's own."""
    strategy, plain = mirrored(devices), usual(task, len(devices))
    with strategy.scope():
        own = Own(task)
    model, params, rate = own.model, own.params, plain.rate

    def replica(X: Any, y: Any) -> None:
        context = tf.distribute.get_replica_context()
        with tf.GradientTape() as tape:
            outputs = model(X, training=own.training)
            loss = model.compute_loss(x=X, y=y, y_pred=outputs)
            rows = rows_of(y, loss.dtype)
            # Keras divides a replica's mean by their number, for the sum of all.
            loss = loss * rows * strategy.num_replicas_in_sync
        zeros = tf.UnconnectedGradients.ZERO
        grads = dense(tape.gradient(loss, params, unconnected_gradients=zeros))
        samples, *total = context.all_reduce("SUM", [rows, *grads])
        sgd(params, total, rate / samples)

    def shards(X: Any, y: Any) -> Any:
        parts = cut_batch(X, y, len(devices))
        return strategy.experimental_distribute_values_from_function(
            lambda context: parts[context.replica_id_in_sync_group]
        )

    made_once = once_a_batch(shards)
    run = compiled(lambda shard: strategy.run(replica, args=shard))
    copies = _copies(strategy, [*params, *own.state])

    def take(X: Any, y: Any) -> None:
        run(made_once(X, y))
        wait_for(strategy.experimental_local_results(params[-1]))

    def weights() -> list[np.ndarray]:
        return [p.numpy() for p in params]

    make = partial(make_engine, devices=devices)
    return _running(plain, task, make, take, weights, copies, devices)


def make_fit(task: Task, devices: list[str]) -> Running:
    """One step of Keras' `fit` under MirroredStrategy, without its callbacks.

    It averages the means of the shards, so with uneven shards it is another step.
    """
    return _fitted(task, devices, mirrored(devices))


def _fitted(
    task: Task, devices: list[str], strategy: tf.distribute.Strategy | None = None
) -> Running:
    """What Keras' loop does in a step; without a strategy, on one device."""
    if not task.training:  # `fit` has no other mode
        task = replace(task, training=True, frozen=True)
    strategy, plain = strategy or tf.distribute.get_strategy(), Own(task)
    with strategy.scope():
        own = Own(task)
        if not models.steps_itself(own.model):
            rate = tf.keras.optimizers.SGD(plain.rate)
            own.model.compile(rate, own.model.loss)
    copies = _copies(strategy, [*own.params, *own.state])
    last = _copies(strategy, own.params[-1:])
    take = fitting(strategy, own.model, last)

    def weights() -> list[np.ndarray]:
        return [p.numpy() for p in own.params]

    def first_step(X: Any, y: Any) -> list[np.ndarray]:
        """How the model's own step moves new weights, and an optimizer's state."""
        with tf.device(devices[0]):
            fresh, start = Own(task), weights()
            for p, value in zip(fresh.params, start, strict=True):
                p.assign(value)
            fresh.model.train_step((X, y))
        return [p.numpy() - w for p, w in zip(fresh.params, start, strict=True)]

    make = partial(_fitted, devices=devices, strategy=strategy)
    made = _running(plain, task, make, take, weights, copies, devices)
    if models.steps_itself(plain.model):
        return replace(made, reference=first_step)
    return made


def _copies(strategy: tf.distribute.Strategy, variables: Sequence) -> list:
    """What each device holds of some mirrored variables."""
    local = strategy.experimental_local_results
    return [copy for variable in variables for copy in local(variable)]


def chain_of(own: Own) -> list[Layer]:
    """Return a sequential model as layers that can be cut apart.

    Raises:
        UnfitError: it is no chain of layers with one input and one output.
    """
    if not isinstance(own.model, tf.keras.Sequential):
        raise UnfitError(
            "it is no chain of layers (keras.Sequential), so there is no cut"
        )
    if not all(map(tf.is_tensor, own.batch)):
        raise UnfitError("it has several inputs or outputs: a cut passes on one tensor")
    if own.model.losses:
        raise UnfitError(
            "its layers add losses (regularizers), which no other stage sees"
        )
    _check_unmasked(own)
    layers = [_layer(one, own.training) for one in own.model.layers]
    ids = [id(p) for one in layers for p in one.params]
    if ids != [id(p) for p in own.params]:
        raise UnfitError("its layers share variables: a stage needs its own")
    return layers


def _check_unmasked(own: Own) -> None:
    """Refuse layers that say beside their output which of it counts."""
    h = own.batch[0][:1]
    for one in own.model.layers:
        if one.compute_mask(h, None) is not None:
            raise UnfitError(
                "its layers hand on a mask (mask_zero, Masking), which a cut would lose"
            )
        h = one(h)


def _layer(one: tf.keras.layers.Layer, training: bool) -> Layer:
    """A Keras layer as a `Layer` of the book."""
    own = [*one.trainable_variables, *one.non_trainable_variables]
    kept = one.non_trainable_variables

    def apply(h: tf.Tensor, *values: tf.Tensor) -> tf.Tensor:
        pairs = zip(own, values, strict=True)
        with tf.keras.StatelessScope(pairs) as scope:
            before = [scope.get_current_value(v) for v in kept]
            output = one(h, training=training)
            after = [scope.get_current_value(v) for v in kept]
        places = values[len(values) - len(kept) :]
        for variable, old, new in zip(places, before, after, strict=True):
            if new is not old:
                variable.assign(new)
        return output

    params = tuple(v.value for v in one.trainable_variables)
    return Layer(one.name, apply, params, tuple(v.value for v in kept))


class OwnStage(OneDevice):
    """A stage of a reader's model: its loss, and gradients of any form."""

    def __init__(self, stages: Sequence[Stage], s: int, own: Own) -> None:
        super().__init__(stages, s)
        self.own = own

    def loss_gradient(self, outputs: list, y: tf.Tensor) -> tuple[tf.Tensor, list]:
        def loss(outputs: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            with tf.keras.StatelessScope():  # its metrics are not asked for
                mean = self.own.model.compute_loss(y=y, y_pred=outputs)
            return mean * rows_of(y, mean.dtype)

        summed, upstream = loss_gradient(*outputs, y, loss)
        return summed, [upstream]

    def backward(self, passes: Any, upstream: list) -> tuple[list, list]:
        """Whole numbers have no gradient, so zeros go on to what made them."""
        zeros, grads = tf.UnconnectedGradients.ZERO, []
        with tf.device(self.device):
            (above,) = map(tf.identity, self.fetch(upstream, self.s + 1))
            for kept in reversed(passes):
                wanted = [kept.input, *kept.params]
                above, *found = kept.tape.gradient(kept.output, wanted, above, zeros)
                grads = found + grads
            return [above], dense(grads)


def make_network(task: Task, devices: list[str]) -> Running:
    """Layers dealt out to devices, one at work at a time."""
    return _with_stages(task, devices, _whole)


def _whole(stages: int, samples: int) -> Plan:
    """The batch in one piece."""
    return gpipe(stages, 1)


def make_pipeline(task: Task, devices: list[str]) -> Running:
    """The same with micro-batches, 1F1B."""

    def plan(stages: int, samples: int) -> Plan:
        return one_forward_one_backward(stages, micro_batches(samples))

    return _with_stages(task, devices, plan)


def make_recomputation(task: Task, devices: list[str]) -> Running:
    """The step of one device; the backward pass runs segments of layers again."""
    return _with_stages(replace(task, cuts=()), devices[:1], _whole, recomputed_runs)


def micro_batches(samples: int) -> int:
    """Return into how many equal pieces a pipeline cuts a batch, at most eight.

    Raises:
        UnfitError: no number from 2 to 8 divides it.
    """
    found = [m for m in range(2, MICRO_BATCHES + 1) if not samples % m]
    if not found:
        raise UnfitError(
            f"a batch of {samples} can't be cut into 2 to {MICRO_BATCHES} equal "
            f"micro-batches: take another --batch"
        )
    return found[-1]


def recomputed_runs(layers: Sequence[Layer], batch: tuple) -> list[Layer]:
    """Return the layers with each run of them that keep no state recomputed.

    A layer that draws numbers, or moves averages, would do so twice. It stays as it
    is; so does a layer ahead that takes whole numbers.

    Raises:
        UnfitError: none is left.
    """
    runs: list[list[Layer]] = []
    first, h = 0, batch[0][:1]
    while h.dtype.is_integer:
        h = layers[first].apply(h, *layers[first].params, *layers[first].state)
        first += 1
    for i, one in enumerate(layers):
        free = not one.state and i >= first
        if free and runs and not runs[-1][-1].state and i > first:
            runs[-1].append(one)
        else:
            runs.append([one])
    made, found = [], False
    for i, run in enumerate(runs):
        if run[0].state or i < first:
            made += run
            continue
        found = True
        made += recomputed_layers(run, best_length(len(run)))
    if not found:
        raise UnfitError(
            "each of its layers keeps state, which a second run would change"
        )
    return made


def _with_stages(
    task: Task,
    devices: list[str],
    plan_for: Callable[[int, int], Plan],
    change: Callable = lambda layers, batch: layers,
) -> Running:
    """A chain of layers in stages, by a plan."""
    own = usual(task)
    layers = chain_of(own)
    count = min(len(devices), len(layers))
    if len(devices) > 1 and count < 2:
        raise UnfitError("it has one layer, so there is no cut")
    cuts = even_cuts(len(layers), count) if task.cuts is None else list(task.cuts)
    stages = make_stages(change(layers, own.batch), cuts, devices)
    works = [OwnStage(stages, s, own) for s in range(len(stages))]
    plan = plan_for(len(stages), own.samples)
    pieces = 1 + max(slot.op.micro_batch for slot in plan)
    rate = own.rate  # known before any graph is traced

    def step(X: tf.Tensor, y: tf.Tensor) -> None:
        done, _ = run_micro_batches(plan, works, cut_batch(X, y, pieces))
        take_step([one.params for one in stages], done.grads, rate, own.samples)

    run = compiled(step)
    params = [p for stage in stages for p in stage.params]

    def take(X: tf.Tensor, y: tf.Tensor) -> None:
        run(X, y)
        wait_for(stage.params[-1] for stage in stages if stage.params)

    def weights() -> list[np.ndarray]:
        return [p.numpy() for p in params]

    state = [v for stage in stages for one in stage.layers for v in one.state]
    make = partial(_with_stages, devices=devices, plan_for=plan_for, change=change)
    sent = partial(bytes_in_graph, step)
    return _running(own, task, make, take, weights, [*params, *state], devices, sent)


STRATEGIES: dict[str, Callable[[Task, list[str]], Running]] = {
    "compiled": make_compiled,
    "engine": make_engine,
    "fit": make_fit,
    "accumulation": make_accumulation,
    "pieces": make_pieces,
    "recomputation": make_recomputation,
    "network": make_network,
    "pipeline": make_pipeline,
}


def _running(
    own: Own,
    task: Task,
    make: Callable[..., Running],
    take: Callable,
    weights: Callable[[], list[np.ndarray]],
    held: Sequence,
    devices: list[str],
    sent: Callable | None = None,
) -> Running:
    """A strategy at work, what one device would do, and the forms to compare."""

    def reference(X: Any, y: Any) -> list[np.ndarray]:
        with tf.device(devices[0]):
            params = [tf.Variable(w) for w in weights()]
            _, grads, _ = own.gradients((X, y), params, own.state)
        return [-own.rate / own.samples * g.numpy() for g in grads]

    def alike() -> Iterator[tuple[str, Running]]:
        quiet = [QUIET] if own.random else []
        if quiet:
            yield QUIET, make(replace(task, hushed=True))
        still = replace(task, hushed=True, training=False)
        yield ", ".join([*quiet, ALIKE]), make(still)

    return Running(
        take,
        weights,
        reference,
        lambda samples: own.batch,
        lambda: bytes_by_device(held),
        sent=sent,
        alike=lambda: iter(()) if task.hushed else alike(),
    )


def look_at(task: Task, device: str) -> dict[str, Any]:
    """Return what must be known of a model before it is cut and compared.

    Returns:
        dict: parameters, their bytes, samples, `own_step`, whether it has a train_step
        of its own; for a chain of layers the seconds of
        each layer's forward and backward pass, for a micro-batch, by its name, else
        `uncut` says why there is no cut; `asked`, what `manygpu choose` asks of a
        model, and in `unknown`, by name, why something of that is not there.

    Raises:
        UnfitError: see `models.load`.
    """
    own = Own(task)
    found = {"samples": own.samples, "bytes": nbytes(own.params)}
    found["own_step"] = models.steps_itself(own.model)
    found["parameters"] = sum(p.shape.num_elements() for p in own.params)
    asked, unknown = _counted(own)
    found |= {"layers": [], "uncut": "", "asked": asked, "unknown": unknown}
    try:
        layers = chain_of(own)
    except UnfitError as why:
        unknown |= dict.fromkeys(("layers", "handed"), str(why))
        return {**found, "uncut": str(why)}
    with tf.device(device):
        h, handed = own.batch[0][: -(-own.samples // MICRO_BATCHES)], []
        for one in layers:
            h, seconds = _timed(one, h)
            found["layers"].append([one.name, seconds])
            handed.append(nbytes(h) / len(h))
    inner = handed[:-1] or handed
    asked |= {"layers": len(layers), "handed": sum(inner) / len(inner)}
    return found


def _counted(own: Own) -> tuple[dict[str, float], dict[str, str]]:
    """FLOPs and bytes kept, a sample; and why, where that can't be counted."""

    def forward(batch: tuple) -> tf.Tensor:
        return own.forward(batch, own.params, own.state)[0]

    try:
        found = model_costs(forward, own.batch, own.params)
    except (TypeError, ValueError) as why:
        return {}, dict.fromkeys(("flops", "kept"), models.first_line(why))
    names = zip(("flops", "kept"), found, strict=True)
    return {name: value / own.samples for name, value in names}, {}


def _timed(one: Layer, h: tf.Tensor) -> tuple[tf.Tensor, float]:
    """What a layer makes of its input, and the seconds of both its passes."""

    @compiled
    def passes(h: tf.Tensor) -> tuple:
        kept = kept_pass(one.apply, h, one.params, one.state)
        return kept.output, gradients_of(kept, tf.ones_like(kept.output))

    times = []
    for _ in range(1 + TRIES):  # the first traces
        start = time.perf_counter()
        output, grads = passes(h)
        made = tf.nest.flatten([output, grads], expand_composites=True)
        wait_for(t for t in made if t is not None)  # whole numbers have no gradient
        times.append(time.perf_counter() - start)
    return output, min(times[1:])
