"""A reader's Keras model as a model of the book: its layers, its loss, its gradients.

All strategies take the same step of plain SGD, whatever optimizer the model was
compiled with, so that all can be compared with one device: gradients of the loss, a
mean over samples, and one rate for all. A model with a `train_step` of its own takes
that, with its own optimizer, where devices share no gradients by hand.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from manygpu.addresses import function_at
from manygpu.scratch.splitting.network import Layer, Model
from manygpu.trainings.table import ALIKE, QUIET, WIDE, UnfitError
from manygpu.trainings.task import Task, length_of

STEP = 1e-3  # how long a step is beside the weights: so small, and not yet rounding
LOSS_SCALE = 2.0**10  # of float16, where small gradients would be 0, large ones inf
FROZEN = "norms frozen"  # a change that no remark names
FIRST = "Of its data set the first batch is taken; reading it isn't timed."
NO_LOSS = "The model was compiled without a loss, so all rows train {}."
# Attributes by which layers with random numbers say how much they change.
RANDOM = ("rate", "stddev", "dropout", "recurrent_dropout")


class Weighted(NamedTuple):
    """What is to be learned, and how much each sample counts."""

    labels: Any
    weights: Any


class KerasTask(Task):
    """What a function that returns a Keras model and a batch has to be trained.

    Args:
        name: `module:function`, or what else an error calls it.
        make: the function.
        samples: in the batch; None for as many as the function gives.
        seconds: that each layer takes, if that is known.
        changes: for a comparison: WIDE, all in float32; QUIET, dropout and noise
            switched off; ALIKE, norms take their moving averages, all as in use; or
            FROZEN, BatchNorm as in use, and not trained.

    Raises:
        UnfitError: the function failed, or didn't return a model and a batch.
    """

    def __init__(
        self,
        name: str,
        make: Callable,
        samples: int | None = None,
        seconds: Sequence[float] = (),
        changes: Sequence[str] = (),
    ) -> None:
        self.name, self.seconds, self.changes = name, seconds, changes
        self.changed = partial(KerasTask, name, make, samples, seconds)
        self._again = partial(loaded, name, make, samples)
        self.whole, self.batch, self.said = self._new()
        self.own_step, self.own_loss = steps_itself(self.whole), has_loss(self.whole)
        narrow = {one.compute_dtype for one in self.whole._flatten_layers()}
        self.narrow = sorted(narrow & {"float16", "bfloat16"})
        self.uncut = why_uncut(self.whole, self.batch)
        parts = [self.whole] if self.uncut else self.whole.layers
        self._kept = [v for one in parts for v in one.non_trainable_variables]
        self.training = ALIKE not in changes
        layers = [layer_of(one, self.training) for one in parts]
        self.model = Model(layers, self._losses)

    def _new(self) -> tuple[tf.keras.Model, tuple, list[str]]:
        """What `loaded` returns, made anew in the scope where you are."""
        model, batch, said = self._again()
        if WIDE in self.changes:
            widen(model)
        if {QUIET, FROZEN} & {*self.changes}:
            hush(model)
        if FROZEN in self.changes:
            freeze_norms(model)
        return model, batch, said

    def keras(self, lr: float) -> tf.keras.Model:
        """Return the model anew, compiled for plain SGD unless its step is its own."""
        model, *_ = self._new()
        if not self.own_step:
            weights = getattr(model._compile_loss, "_user_loss_weights", None)
            model.compile(tf.keras.optimizers.SGD(lr), model.loss, weights)
        return model

    def for_fit(self) -> KerasTask:
        """Return the form of it that Keras' `fit` trains: in use, it trains nothing."""
        if ALIKE not in self.changes:
            return self
        return self.changed([FROZEN if c == ALIKE else c for c in self.changes])

    def forms(self) -> Iterator[tuple[str, Task]]:
        """Yield it in float32, with nothing drawn, and with norms' moving averages."""
        if self.changes:
            return
        changes = [WIDE] if self.narrow else []
        if changes:
            yield WIDE, self.changed(changes)
        if what_is_drawn(self.whole):
            changes = [*changes, QUIET]
            yield ", ".join(changes), self.changed(changes)
        changes = [*changes, ALIKE]
        yield ", ".join(changes), self.changed(changes)

    def _losses(self, outputs: Any, y: Any) -> tf.Tensor:
        """The mean loss of some outputs, once a sample."""
        with tf.keras.StatelessScope():  # its metrics are not asked for
            mean = self._mean_loss(None, y, outputs)
        return tf.fill(tf.shape(tf.nest.flatten(y)[0])[:1], mean)

    def _mean_loss(self, X: Any, y: Any, outputs: Any) -> tf.Tensor:
        """The mean loss; in a replica, Keras divides it by the number of replicas."""
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        return replicas * mean_loss(self.whole, X, y, outputs)

    def summed_loss(
        self, X: Any, y: Any, params: Sequence, state: Sequence
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Return the loss summed over samples, and the state behind it.

        The loss is a mean, so its sum is the mean times the samples: then those of
        shards add up, of any sizes.
        """
        own = [*self.whole.trainable_variables, *self._kept]
        pairs = zip(own, [*params, *state], strict=True)
        with tf.keras.StatelessScope(pairs, collect_losses=True) as scope:
            outputs = self.whole(X, training=self.training)
            mean = self._mean_loss(X, y, outputs)
        rows = tf.cast(tf.shape(tf.nest.flatten(y)[0])[0], mean.dtype)
        return mean * rows, [scope.get_current_value(v) for v in self._kept]

    def gradients(
        self, X: Any, y: Any, params: Sequence, state: Sequence | None = None
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Return the summed loss and its gradients; move `state`, if it is given."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(params)
            loss, after = self.summed_loss(X, y, params, state or self.model.state)
            scaled, scale = loss, None
            if "float16" in self.narrow:
                rows = tf.shape(tf.nest.flatten(y)[0])[0]
                scale = LOSS_SCALE / tf.cast(rows, loss.dtype)
                scaled = scale * loss
        zeros = tf.UnconnectedGradients.ZERO
        grads = tape.gradient(scaled, params, unconnected_gradients=zeros)
        if state:
            for variable, value in zip(state, after, strict=True):
                variable.assign(value)
        # An embedding's gradient comes as some of its rows.
        grads = [tf.convert_to_tensor(g) for g in grads]
        return loss, grads if scale is None else [g / scale for g in grads]

    @cached_property
    def lr(self) -> float:
        """A rate with which a step is `STEP` times as long as the weights.

        A longer one might not learn, and a shorter one be lost in rounding. (A model
        that takes its own step has its own rate.)
        """
        if self.own_step:
            return STEP
        params = self.model.params
        _, grads = self.gradients(*self.batch, params)
        step, weights = length_of(grads), length_of(params)
        return STEP * weights / step * self.samples if step and weights else STEP

    def moved(self, X: Any, y: Any, weights: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return by how much one device's step moves these weights.

        The model's own step moves the state of its optimizer, too: a new one's.
        """
        if not self.own_step:
            return super().moved(X, y, weights)
        fresh, *_ = self._new()
        for p, value in zip(fresh.trainable_variables, weights, strict=True):
            p.assign(value)
        fresh.train_step(as_keras(X, y))
        pairs = zip(fresh.trainable_variables, weights, strict=True)
        return [p.numpy() - w for p, w in pairs]


def loaded(
    name: str, make: Callable, samples: int | None
) -> tuple[tf.keras.Model, tuple, list[str]]:
    """Return a built model with a loss, a batch (X, y) of tensors, and what to know.

    The last is what the reader may not expect of them, in sentences.

    Raises:
        UnfitError: the function failed, or didn't return a model and a batch.
    """
    tf.keras.utils.set_random_seed(0)  # every process has the same weights
    try:
        made = make()
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        raise UnfitError(f"{name} failed: {type(error).__name__}: {error}") from error
    model, batch, said = _checked(name, made)
    batch = _with_samples(name, batch, samples)
    try:
        said += _ready(model, batch)
    except Exception as error:
        raise UnfitError(
            f"{name}: the model doesn't take its batch: {first_line(error)}"
        ) from error
    if not model.trainable_variables:
        raise UnfitError(f"{name}: the model has nothing to train")
    return model, batch, said


def own_function(address: str) -> Callable:
    """Return the function `module:function`; UnfitError if there is none."""
    try:
        return function_at(address)
    except LookupError as error:
        raise UnfitError(str(error)) from error


def _checked(name: str, made: Any) -> tuple[tf.keras.Model, tuple, list[str]]:
    """The model and the batch that a function returned, the batch as tensors."""
    match made:
        case [tf.keras.Model() as model, tf.data.Dataset() as batches]:
            model, batch, _ = _checked(name, (model, next(iter(batches))))
            return model, batch, [FIRST]
        case [tf.keras.Model() as model, [X, y]]:
            return model, (_tensors(X), _tensors(y)), []
        case [tf.keras.Model() as model, [X, y, weights]]:
            y = Weighted(_tensors(y), _tensors(weights))
            return model, (_tensors(X), y), []
    raise UnfitError(
        f"{name} must return a Keras model and one batch, `return model, (X, y)`, with "
        f"sample weights (X, y, weights), or a tf.data.Dataset of such batches; got "
        f"{made!r:.80}"
    )


def as_keras(X: Any, y: Any) -> tuple:
    """A batch as Keras takes it: (X, y), or with sample weights (X, y, weights)."""
    return (X, *y) if isinstance(y, Weighted) else (X, y)


def mean_loss(model: tf.keras.Model, X: Any, y: Any, outputs: Any) -> tf.Tensor:
    """Return the model's loss, by whatever it finds it."""
    _, labels, *weights = as_keras(X, y)
    weights = weights[0] if weights else None
    return model.compute_loss(x=X, y=labels, y_pred=outputs, sample_weight=weights)


def _tensors(values: Any) -> Any:
    """Arrays, nested as you like, as tensors; Python's and NumPy's float64 as Keras."""

    def tensor(value: Any) -> tf.Tensor:
        value = tf.convert_to_tensor(value)
        return tf.cast(value, tf.float32) if value.dtype == tf.float64 else value

    if isinstance(values, list) and values and hasattr(values[0], "shape"):
        values = tuple(values)  # several inputs, as Keras takes them
    if isinstance(values, tuple | dict):
        return tf.nest.map_structure(tensor, values)
    return tensor(values)


def _with_samples(name: str, batch: tuple, samples: int | None) -> tuple:
    """The batch with so many samples."""
    lengths = {None if not t.shape.rank else t.shape[0] for t in tf.nest.flatten(batch)}
    if len(lengths) != 1 or not all(lengths):
        raise UnfitError(
            f"{name}: all arrays of the batch must have as many samples, got "
            f"{sorted(map(str, lengths))}"
        )
    (there,) = lengths
    if samples in (None, there):
        return batch
    rows = np.arange(samples) % there
    return tf.nest.map_structure(lambda t: tf.gather(t, rows), batch)


def _ready(model: tf.keras.Model, batch: tuple) -> list[str]:
    """Build what is not built, give it a loss if it has none, and try both.

    Returns a sentence on the loss that it was given.
    """
    knows, said = steps_itself(model) and model.compiled, []  # knows its loss
    if knows and model.built:
        return said  # it may have no call
    X, y = tf.nest.map_structure(lambda t: t[:1], batch)
    outputs = model(X)
    if knows:
        return said
    adds_its_own = model.compiled and model.losses  # and wants no other
    if not (model.loss or has_loss(model) or adds_its_own):
        labels = y.labels if isinstance(y, Weighted) else y
        loss = default_loss(model, labels, outputs)
        said = [NO_LOSS.format(type(loss).__name__)]
        if getattr(loss, "from_logits", False):
            said = [NO_LOSS.format(f"{type(loss).__name__}(from_logits=True)")]
        model.compile(loss=loss)
    mean_loss(model, X, y, outputs)
    return said


def steps_itself(model: tf.keras.Model) -> bool:
    """Whether the reader wrote a `train_step`, which only Keras' own loop calls."""
    return type(model).train_step is not tf.keras.Model.train_step


def has_loss(model: tf.keras.Model) -> bool:
    """Whether the reader wrote a `compute_loss`."""
    return type(model).compute_loss is not tf.keras.Model.compute_loss


def default_loss(model: tf.keras.Model, y: Any, outputs: Any) -> tf.keras.losses.Loss:
    """Return cross-entropy for whole labels, else the mean square error.

    Whether the model gives logits or probabilities, its last activation tells.

    Raises:
        UnfitError: several outputs, for which the reader must say a loss.
    """
    if not tf.is_tensor(y) or not tf.is_tensor(outputs):
        raise UnfitError("it has several outputs and no loss: compile it with one")
    if not y.dtype.is_integer:
        return tf.keras.losses.MeanSquaredError()
    last = getattr(model.layers[-1], "activation", None)
    logits = last is not tf.keras.activations.softmax
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=logits)


def what_is_drawn(model: tf.keras.Model) -> list[tuple[Any, str]]:
    """Return the layers that draw numbers in training, and what says how much."""
    return [
        (one, name)
        for one in model._flatten_layers()
        if hasattr(one, "seed_generator")
        for name in RANDOM
        if isinstance(getattr(one, name, None), float | int) and getattr(one, name) > 0
    ]


def hush(model: tf.keras.Model) -> None:
    """Switch dropout and noise off for good."""
    for one, name in what_is_drawn(model):
        with contextlib.suppress(AttributeError):  # a cell's, seen from outside
            setattr(one, name, 0.0)


def widen(model: tf.keras.Model) -> None:
    """Let all layers compute in float32."""
    for one in model._flatten_layers():
        one.dtype_policy = "float32"


def freeze_norms(model: tf.keras.Model) -> None:
    """Let BatchNorm take its moving averages in training, too, and stay as it is."""
    for one in model._flatten_layers():
        if isinstance(one, tf.keras.layers.BatchNormalization):
            one.trainable = False


def first_line(error: Exception) -> str:
    """What an error says first; a graph's, ahead of the first node that it names."""
    said = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    ahead = [i for i, line in enumerate(said) if line.startswith("[[{{node")]
    return f"{type(error).__name__}: {said[max(ahead[0] - 1, 0) if ahead else 0]}"


def why_uncut(model: tf.keras.Model, batch: tuple) -> str:
    """Return why a model's layers can't be cut apart; "" for a chain of them."""
    if not isinstance(model, tf.keras.Sequential):
        return "it is no chain of layers (keras.Sequential), so there is no cut"
    if has_loss(model):
        return "its compute_loss is its own, and may need what no last stage has"
    X, labels, *_ = as_keras(*batch)
    if not (tf.is_tensor(X) and tf.is_tensor(labels)):
        return "it has several inputs or outputs: a cut passes on one tensor"
    if model.losses:
        return "its layers add losses (regularizers), which no other stage sees"
    h = batch[0][:1]
    for one in model.layers:
        if one.compute_mask(h, None) is not None:
            return (
                "its layers hand on a mask (mask_zero, Masking), which a cut would lose"
            )
        h = one(h)
    ids = [id(v) for one in model.layers for v in one.trainable_variables]
    if ids != [id(v) for v in model.trainable_variables]:
        return "its layers share variables: a stage needs its own"
    return ""


def layer_of(one: tf.keras.layers.Layer, training: bool) -> Layer:
    """Return a Keras layer, or a whole model, as a `Layer` of the book."""
    own = [*one.trainable_variables, *one.non_trainable_variables]
    kept = one.non_trainable_variables

    def apply(h: Any, *values: tf.Tensor) -> Any:
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
    state = tuple(v.value for v in one.non_trainable_variables)
    return Layer(one.name, apply, params, state, casts=False)
