"""A reader's Keras model as a model of the book: its layers, its loss, its gradients.

All strategies take the same step of plain SGD, whatever optimizer the model was
compiled with, so that all can be compared with one device: gradients of the loss of the
batch, one rate for all, and the constraints of the weights. A model with a `train_step`
of its own takes that, with its own optimizer, where devices share no gradients by hand.
So does, by SGD, one whose layers change trained weights in the forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import tensorflow as tf

from manygpu.scratch.splitting.network import Model
from manygpu.trainings import keras_layers, keras_losses
from manygpu.trainings.keras_batches import (
    has_loss,
    loaded,
    parts_of,
    reason_of,
    steps_itself,
    takes_one,
    variables_of,
)
from manygpu.trainings.table import ALIKE, OWN_STEP, QUIET, WIDE, UnfitError
from manygpu.trainings.task import Task, length_of

STEP = 1e-3  # how long a step is beside the weights: so small, and not yet rounding
LOSS_SCALE = 2.0**10  # of float16, where small gradients would be 0, large ones inf
FROZEN = "norms frozen"  # a change that no remark names
LEFT_OUT = (
    "Its optimizer's {} isn't in any row: all rows take plain SGD, so that they can be "
    "compared."
)

FIXED = (
    "The model takes batches of {} samples and no others (batch_shape, stateful), so "
    "no row cuts the batch."
)


class KerasTask(Task):
    """What a function that returns a Keras model and a batch has to be trained.

    Args:
        name: `module:function`, or what else an error calls it.
        make: the function.
        samples: in the batch; None for as many as the function gives.
        seconds: that each layer takes, if that is known.
        changes: for a comparison: WIDE, all in float32; QUIET, random layers switched
            off; ALIKE, norms take their moving averages, all as in use; or FROZEN,
            BatchNorm as in use, and not trained.

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
        self.own_train, self.own_loss = steps_itself(self.whole), has_loss(self.whole)
        narrow = {one.compute_dtype for one in self.whole._flatten_layers()}
        self.narrow = sorted(narrow & {"float16", "bfloat16"})
        self.training = ALIKE not in changes
        self.own_step, self._ending = self.own_train, None
        self.names = [keras_layers.short(v) for v in self.whole.trainable_variables]
        self.division = keras_losses.Division()
        if self.own_train:
            self.uncut = OWN_STEP
        else:
            self._look()
        parts = [self.whole] if self.uncut else self.whole.layers
        self._kept = [v for one in parts for v in keras_layers.kept_of(one)]
        layers = [
            keras_layers.layer_of(one, self.training, one is parts[-1]) for one in parts
        ]
        self.model = Model(layers, self._losses)

    def _look(self) -> None:
        """Find out how its loss is divided, what its layers change, how it is cut."""
        X, labels, weights = parts_of(*self.batch)
        variables = variables_of(self.whole)
        pairs = [(v, v.value) for v in variables]
        try:
            with tf.keras.StatelessScope(pairs, collect_losses=True) as scope:
                before = [scope.get_current_value(v) for v in variables]
                outputs = self.whole(X, training=self.training)
                after = [scope.get_current_value(v) for v in variables]
            self.division = keras_losses.division_of(
                self.whole, X, labels, weights, outputs, self.own_loss
            )
        except Exception as error:
            raise UnfitError(
                f"{self.name}: the model doesn't take its batch: {reason_of(error)}"
            ) from error
        changes = zip(variables, before, after, strict=True)
        changed = [v for v, old, new in changes if new is not old]
        assigned = [keras_layers.short(v) for v in changed if v.trainable]
        norms = keras_layers.norms_of(self.whole)
        self.moves = [
            keras_layers.short(v)
            for v in changed
            if not (v.trainable or keras_layers.is_seed(v) or id(v) in norms)
        ]
        if assigned:
            self.own_step = True
            self.assigns = keras_layers.ASSIGNED.format(", ".join(assigned))
        self.fixed, rows = not takes_one(self.whole, X), 1
        if self.fixed:
            self.pieces, rows = 1, self.samples
            self.said = [*self.said, FIXED.format(self.samples)]
        some = tf.nest.map_structure(lambda t: t[:rows], self.batch)
        self.uncut, self._ending = keras_layers.why_uncut(self.whole, *some)
        self.constraints = [v.constraint for v in self.whole.trainable_variables]
        more = keras_layers.more_than_gradients(self.whole.optimizer)
        self.said = [*self.said, *([LEFT_OUT.format(more)] if more else [])]

    def _new(self) -> tuple[tf.keras.Model, tuple, list[str]]:
        """What `loaded` returns, made anew in the scope where you are."""
        model, batch, said = self._again()
        if WIDE in self.changes:
            keras_layers.widen(model)
        if {QUIET, FROZEN} & {*self.changes}:
            keras_layers.hush(model)
        if FROZEN in self.changes:
            keras_layers.freeze_norms(model)
        return model, batch, said

    def keras(self, lr: float) -> tf.keras.Model:
        """Return the model anew, compiled for plain SGD unless its step is its own."""
        model, *_ = self._new()
        if not self.own_train:
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
        if self.draws:
            try:
                quiet = self.changed([*changes, QUIET])
            except UnfitError:  # RandomCrop hands on another size then
                return
            if quiet.draws:
                return
            changes = [*changes, QUIET]
            yield ", ".join(changes), quiet
        changes = [*changes, ALIKE]
        yield ", ".join(changes), self.changed(changes)

    @cached_property
    def draws(self) -> bool:
        """Whether it draws random numbers in training: two runs of it differ."""
        if self.own_step:
            model = self.keras(self.lr)
            keras_layers.step_of(model, *self.batch)  # so that all variables are there
            run = partial(keras_layers.step_of, model, *self.batch)
            return keras_layers.draws(run, keras_layers.all_variables(model))

        def run() -> list:
            outputs = self.whole(self.batch[0], training=self.training)
            return [*tf.nest.flatten(outputs), *self.whole.losses]

        return keras_layers.draws(run, variables_of(self.whole))

    def _losses(self, outputs: Any, y: Any) -> tf.Tensor:
        """What a part's outputs add to the batch's loss, once a sample, see `_sum`."""
        # Neither may Keras look behind the outputs for the logits.
        outputs = self._ending(outputs) if self._ending else tf.identity(outputs)
        with tf.keras.StatelessScope():  # its metrics are not asked for
            loss = self._loss(None, y, outputs)
        rows = tf.shape(tf.nest.flatten(y)[0])[:1]
        return tf.fill(rows, self._sum(loss, rows[0]) / tf.cast(rows[0], loss.dtype))

    def _loss(self, X: Any, y: Any, outputs: Any) -> tf.Tensor:
        """The model's loss of a part of the batch."""
        _, labels, weights = parts_of(X, y)
        return keras_losses.mean_loss(self.whole, X, labels, weights, outputs)

    def _sum(self, loss: tf.Tensor, rows: tf.Tensor, added: Any = 0.0) -> tf.Tensor:
        """What a part's loss adds to the batch's loss, times the batch's samples.

        A part's mean counts as many samples as the part has, a sum the whole batch. So
        these add up over parts of any sizes, as rows that divide by the samples need.

        added: how much of the loss layers have added, such as a penalty of weights,
            which is the same in all parts: a mean.
        """
        rows = tf.cast(rows, loss.dtype)
        if self.division.kind in (keras_losses.SUM, keras_losses.COUNTED):
            return self.samples * (loss - added) + rows * added
        return rows * loss

    def summed_loss(
        self, X: Any, y: Any, params: Sequence, state: Sequence
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Return the loss summed over samples, see `_sum`, and the state behind it."""
        own = [*self.whole.trainable_variables, *self._kept]
        pairs = zip(own, [*params, *state], strict=True)
        with tf.keras.StatelessScope(pairs, collect_losses=True) as scope:
            outputs = self.whole(X, training=self.training)
            loss = self._loss(X, y, outputs)
            added = sum(tf.cast(one, loss.dtype) for one in self.whole.losses)
        rows = tf.shape(tf.nest.flatten(y)[0])[0]
        after = [scope.get_current_value(v) for v in self._kept]
        return self._sum(loss, rows, 0.0 if self.own_loss else added), after

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
        fresh = self.keras(self.lr)
        for p, value in zip(fresh.trainable_variables, weights, strict=True):
            p.assign(value)
        return keras_layers.step_of(fresh, X, y)
