"""A reader's Keras layers as layers of the book, and what of them can't be compared.

Some draw random numbers, some keep state, and some change their weights in the forward
pass. `hush`, `widen` and `freeze_norms` make forms of a model that can be compared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from manygpu.scratch.splitting.network import Layer
from manygpu.trainings import keras_losses
from manygpu.trainings.keras_batches import as_keras, has_loss, parts_of, variables_of
from manygpu.trainings.keras_losses import near

# Attributes by which layers with random numbers say how much they change.
RANDOM = ("rate", "stddev", "dropout", "recurrent_dropout")
SEEDS = "seed_generator_state"  # what Keras calls a generator's variable
ASSIGNED = (
    "its layers change trained weights in the forward pass ({}), which no gradient "
    "tells: on many devices only Keras fit takes its step"
)


def draws(run: Callable[[], Sequence], variables: Sequence) -> bool:
    """Whether `run()` gives something else a second time: it draws random numbers.

    variables: of Keras, which are put back before the second run and after it, all but
    those of random generators.
    """
    before, found = [v.numpy() for v in variables], []
    for seeds in (False, True):
        found.append([np.array(a) for a in run()])
        for variable, value in zip(variables, before, strict=True):
            if seeds or not is_seed(variable):
                variable.assign(value)
    return not near(*found)


def is_seed(variable: Any) -> bool:
    """Whether a variable of Keras is the state of a random generator."""
    return variable.path.endswith(SEEDS)


def hush(model: tf.keras.Model) -> None:
    """Switch off for good what draws random numbers, as far as layers can be told so.

    That is a layer with a rate; and one that works otherwise in training, and has
    nothing to learn or a generator: dropout, noise, an image that is turned.
    """
    for one in model._flatten_layers():
        for name in RANDOM:
            rate = getattr(one, name, None)
            if isinstance(rate, float | int) and rate > 0 and _has_seeds(one):
                with contextlib.suppress(AttributeError):  # a cell's, from outside
                    setattr(one, name, 0.0)
        alone = len([*one._flatten_layers()]) == 1
        draws_itself = _has_seeds(one) and not _is_recurrent(one)
        if alone and one._call_has_training_arg and (draws_itself or not one.weights):
            one.call = partial(_at_rest, one.call)


def _at_rest(call: Callable, *inputs: Any, **options: Any) -> Any:
    """Call a layer as it is called in use, whatever is asked."""
    return call(*inputs, **{**options, "training": False})


def _has_seeds(one: tf.keras.layers.Layer) -> bool:
    return bool(one._seed_generators) or hasattr(one, "seed_generator")


def _is_recurrent(one: tf.keras.layers.Layer) -> bool:
    return hasattr(one, "recurrent_dropout")


def widen(model: tf.keras.Model) -> None:
    """Let all layers compute in float32."""
    for one in model._flatten_layers():
        one.dtype_policy = "float32"


def freeze_norms(model: tf.keras.Model) -> None:
    """Let BatchNorm take its moving averages in training, too, and stay as it is."""
    for one in model._flatten_layers():
        if isinstance(one, tf.keras.layers.BatchNormalization):
            one.trainable = False


def why_uncut(model: tf.keras.Model, X: Any, y: Any) -> tuple[str, Callable | None]:
    """Return why a model's layers can't be cut apart; "" for a chain of them.

    X, y: as many samples of a batch as the model takes at least.

    Second comes the activation that the loss begins with, see `ending_of`, if any.
    """
    if not isinstance(model, tf.keras.Sequential):
        return "it is no chain of layers (keras.Sequential), so there is no cut", None
    if has_loss(model):
        return "its compute_loss is its own, and may need what no last stage has", None
    _, labels, _ = parts_of(X, y)
    if not (tf.is_tensor(X) and tf.is_tensor(labels)):
        return "it has several inputs or outputs: a cut passes on one tensor", None
    if model.losses:
        return "its layers add losses (regularizers), which no other stage sees", None
    h = X
    for one in model.layers:
        if one.compute_mask(h, None) is not None:
            return (
                "its layers hand on a mask (mask_zero, Masking), which a cut would lose"
            ), None
        with tf.keras.StatelessScope():  # which moves no state
            h = one(h)
    ids = [id(v) for one in model.layers for v in one.trainable_variables]
    if ids != [id(v) for v in model.trainable_variables]:
        return "its layers share variables: a stage needs its own", None
    try:
        return "", keras_losses.ending_of(h)
    except LookupError as why:
        return f"{why}, and the loss needs what comes ahead of it", None


def kept_of(one: tf.keras.layers.Layer) -> list:
    """Return what a layer keeps beside what it learns."""
    return [v for v in variables_of(one) if not v.trainable]


def layer_of(one: tf.keras.layers.Layer, training: bool, last: bool = False) -> Layer:
    """Return a Keras layer, or a whole model, as a `Layer` of the book.

    last: whether it hands over logits where its activation made probabilities of them.
    """
    kept = kept_of(one)
    own = [*one.trainable_variables, *kept]

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
        return keras_losses.logits_of(output) if last else output

    params = tuple(v.value for v in one.trainable_variables)
    state = tuple(v.value for v in kept)
    return Layer(one.name, apply, params, state, casts=False)


def optimizers_of(model: tf.keras.Model) -> list[tf.keras.optimizers.Optimizer]:
    """Return a model's optimizer and those that it, or a part of it, keeps beside it.

    They may be attributes, or in a list or dict that is one.
    """
    kind, found = tf.keras.optimizers.Optimizer, [model.optimizer]
    for part in model._flatten_layers():
        for value in vars(part).values():
            values = value.values() if isinstance(value, dict) else value
            found += values if isinstance(value, list | tuple | dict) else [value]
    return [*{id(one): one for one in found if isinstance(one, kind)}.values()]


def trained_by(model: tf.keras.Model) -> list[list[int]]:
    """Return for each of `optimizers_of` which of the model's weights it has trained.

    The weights are numbered as in `model.weights`, which are in the same order whatever
    is trainable. An optimizer that has taken no step yet has trained none.
    """
    number = {id(v): i for i, v in enumerate(model.weights)}
    return [
        [number[id(v)] for v in one._trainable_variables if id(v) in number]
        for one in optimizers_of(model)
    ]


def all_variables(model: tf.keras.Model) -> list:
    """Return whatever a step of Keras changes: weights, state, optimizers."""
    slots = [v for one in optimizers_of(model) for v in one.variables]
    return [*{id(v): v for v in [*variables_of(model), *slots]}.values()]


def step_of(model: tf.keras.Model, X: Any, y: Any) -> list[np.ndarray]:
    """Let a model take a step of its own; return by how much it moved the weights."""
    before = [v.numpy() for v in model.trainable_variables]
    model.train_step(as_keras(X, y))
    pairs = zip(model.trainable_variables, before, strict=True)
    return [v.numpy() - w for v, w in pairs]


def short(variable: Any) -> str:
    """Return the name of a variable of Keras with its layer's."""
    return "/".join(variable.path.split("/")[-2:])


def norms_of(model: tf.keras.Model) -> set[int]:
    """Return the ids of the averages that norms keep; `ALIKE` tells of these."""
    norm = tf.keras.layers.BatchNormalization
    found = [one for one in model._flatten_layers() if isinstance(one, norm)]
    return {id(v) for one in found for v in one.variables}


def more_than_gradients(optimizer: Any) -> str:
    """Return by its names what an optimizer does beside its rule; "" if nothing."""
    names = ("use_ema", "weight_decay", "clipnorm", "clipvalue", "global_clipnorm")
    return ", ".join(name for name in names if getattr(optimizer, name, None))
