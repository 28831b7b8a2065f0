"""What a reader's function returns, a Keras model and a batch: read, checked and tried.

A batch is (X, y), nests of dense tensors of numbers with a first axis of samples. With
sample weights, y is `Weighted`; a model that takes its own step may have no labels, and
then y is `UNLABELLED`.
"""

from __future__ import annotations

import contextlib
import re
import reprlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from manygpu.addresses import function_at
from manygpu.trainings import keras_losses
from manygpu.trainings.table import UnfitError

FIRST = "Of its data set, only the first batch is taken, and reading it isn't timed."
BUILT = (
    "The model has no call, so Keras can't build it. On several devices, fit takes "
    "such a model only with model.built = True, so the command has set that."
)
FEW = 4  # of the things that a function returned are told
UNLABELLED = ()  # y of a batch that has none
BATCHED = ": if the data set isn't batched yet, return data.batch(32)"
KINDS = {  # of arrays that can't be cut into shares, and what to do
    tf.RaggedTensor: "ragged (its rows have different lengths): pad it, X.to_tensor(), "
    "and mask the padding",
    tf.SparseTensor: "sparse: give the same numbers densely, tf.sparse.to_dense(X)",
}
TEXT = (
    "text, but shares are cut from numbers only: let the data set look the text up, as "
    "in data.map(lambda X, y: (lookup(X), y)), and let the model begin after that layer"
)
EXCEPTION = re.compile(r"^Exception encountered when calling ")  # Keras' wrapping
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
OPERATION = re.compile(r"\s*\[Op:\w+\].*$")
NODE = re.compile(r"^\{\{function_node [^}]*\}\}(\{\{node [^}]*\}\})? *")


class Weighted(NamedTuple):
    """What is to be learned, and how much each sample counts."""

    labels: Any
    weights: Any


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
    strategy = model.distribute_strategy
    if strategy is not tf.distribute.get_strategy():
        raise UnfitError(
            f"{name} makes its model in the scope of a {type(strategy).__name__}: make "
            f"it without a scope, since each row brings its own"
        )
    batch = _with_samples(name, batch, samples)
    try:
        said += _ready(model, batch)
    except UnfitError as error:
        raise UnfitError(f"{name}: {error}") from error
    except Exception as error:
        raise UnfitError(
            f"{name}: the model doesn't take its batch: {reason_of(error)}"
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
            lengths = {_length_of(t) for t in tf.nest.flatten(batch)}
            if len(lengths) > 1:
                raise UnfitError(_uneven(name, lengths) + BATCHED)
            return model, batch, [FIRST]
        case [tf.keras.Model() as model, [X, y]]:
            return model, (_tensors(name, X), _tensors(name, y)), []
        case [tf.keras.Model() as model, [X, y, weights]]:
            y = Weighted(_tensors(name, y), _tensors(name, weights))
            return model, (_tensors(name, X), y), []
        case [tf.keras.Model() as model, tf.Tensor() | np.ndarray() as X]:
            if steps_itself(model):
                return model, (_tensors(name, X), UNLABELLED), []
    raise UnfitError(
        f"{name} must return a Keras model and one batch, `return model, (X, y)`, with "
        f"sample weights (X, y, weights), or a tf.data.Dataset of such batches; X "
        f"alone is for a model with a train_step of its own; got {_in_words(made)}"
    )


def _in_words(made: Any) -> str:
    """What a function returned, by its kinds and shapes; else as Python writes it."""
    kind = type(made).__name__
    match made:
        case list() | tuple():
            inside = ", ".join(map(_in_words, made[:FEW]))
            return f"({inside}{', ...' if len(made) > FEW else ''})"
        case tf.keras.Model():
            return f"a model of the class {kind}"
        case tf.Tensor() | np.ndarray():
            return f"an array of the shape {tuple(made.shape)}"
        case tf.data.Dataset():
            return f"a data set ({kind})"
    return reprlib.repr(made)


def as_keras(X: Any, y: Any) -> Any:
    """A batch as Keras takes it: (X, y), (X, y, weights), or X if there is no more."""
    if isinstance(y, tuple) and not y:
        return X
    return (X, *y) if isinstance(y, Weighted) else (X, y)


def parts_of(X: Any, y: Any) -> tuple[Any, Any, Any]:
    """A batch as X, labels, and the samples' weights or None."""
    return (X, *y) if isinstance(y, Weighted) else (X, y, None)


def _tensors(name: str, values: Any) -> Any:
    """Arrays, nested as you like, as tensors; Python's and NumPy's float64 as Keras."""

    def tensor(value: Any) -> tf.Tensor:
        for kind, said in KINDS.items():
            if isinstance(value, kind):
                raise UnfitError(f"{name}: an array of the batch is {said}")
        try:
            value = tf.convert_to_tensor(value)
        except (TypeError, ValueError) as error:
            raise UnfitError(
                f"{name}: the batch must be of arrays of numbers, got "
                f"{reprlib.repr(value)}: "
                f"{reason_of(error)}"
            ) from error
        if value.dtype == tf.string:
            raise UnfitError(f"{name}: an array of the batch holds {TEXT}")
        return tf.cast(value, tf.float32) if value.dtype == tf.float64 else value

    if isinstance(values, list) and values and hasattr(values[0], "shape"):
        values = tuple(values)  # several inputs, as Keras takes them
    if isinstance(values, tuple | dict):
        return tf.nest.map_structure(tensor, values)
    return tensor(values)


def _length_of(t: tf.Tensor) -> int | None:
    """How many samples an array has; None for a single number."""
    return t.shape[0] if t.shape.rank else None


def _uneven(name: str, lengths: set) -> str:
    counts = [str(n) for n in sorted(filter(None, lengths))]
    counts += ["a single number"] if None in lengths else []
    counts += ["0"] if 0 in lengths else []
    return (
        f"{name}: all arrays of the batch must have as many samples, at least one, got "
        f"{' and '.join(counts)}"
    )


def _with_samples(name: str, batch: tuple, samples: int | None) -> tuple:
    """The batch with so many samples."""
    lengths = {_length_of(t) for t in tf.nest.flatten(batch)}
    if len(lengths) != 1 or not all(lengths):
        raise UnfitError(_uneven(name, lengths))
    (there,) = lengths
    if samples in (None, there):
        return batch
    rows = np.arange(samples) % there
    return tf.nest.map_structure(lambda t: tf.gather(t, rows), batch)


def _ready(model: tf.keras.Model, batch: tuple) -> list[str]:
    """Build what is not built, give it a loss if it has none, and try both.

    Returns a sentence on the loss that it was given.
    """
    if steps_itself(model):
        if not model.compiled:
            raise UnfitError(
                "the model has a train_step of its own and no optimizer: compile it"
            )
        if _has_call(model) and not model.built:
            model(tf.nest.map_structure(lambda t: t[:1], batch[0]))
        elif not _is_built(model):
            given = (as_keras(*batch),)
            tf.distribute.get_strategy().run(model.train_step, args=given)
        if model.built:
            return []
        model.built = True
        return [BUILT]
    X, y = batch
    if not _has_call(model):
        raise UnfitError(
            "the model has no call and no train_step of its own: write one of them"
        )
    with put_back(model):
        try:
            rows = 1
            outputs = model(tf.nest.map_structure(lambda t: t[:1], X))
        except Exception:  # its batch may have a fixed size
            rows = None
            outputs = model(X)
    adds_its_own = model.compiled and model.losses  # and wants no other
    said = []
    if not (model.loss or has_loss(model) or adds_its_own):
        _, labels, _ = parts_of(*batch)
        said = [keras_losses.compile_usual(model, labels, outputs)]
    X, y = tf.nest.map_structure(lambda t: t[:rows], batch)
    loss = keras_losses.mean_loss(model, *parts_of(X, y), outputs)
    if loss.shape.rank:
        raise UnfitError(
            f"its loss must be one number, got the shape {tuple(loss.shape)}: compile "
            f"it with a reduction, such as 'sum_over_batch_size'"
        )
    return said


def _is_built(model: tf.keras.Model) -> bool:
    """Whether all layers of a model have their weights, though it has no call."""
    layers = model._flatten_layers(include_self=False)
    return bool(model.trainable_variables) and all(one.built for one in layers)


def _has_call(model: tf.keras.Model) -> bool:
    """Whether a model can be called, as a chain, a graph, or by its own `call`."""
    return type(model).call is not tf.keras.Model.call


def steps_itself(model: tf.keras.Model) -> bool:
    """Whether the reader wrote a `train_step`, which only Keras' own loop calls."""
    return type(model).train_step is not tf.keras.Model.train_step


def has_loss(model: tf.keras.Model) -> bool:
    """Whether the reader wrote a `compute_loss`."""
    return type(model).compute_loss is not tf.keras.Model.compute_loss


def takes_one(model: tf.keras.Model, X: Any) -> bool:
    """Whether a model that takes X takes a single sample of it, too."""
    try:
        with put_back(model):
            model(tf.nest.map_structure(lambda t: t[:1], X))
    except Exception:
        return False
    return True


def why_not_in_use(model: tf.keras.Model, X: Any) -> str:
    """Why a model can be called in training only; "" if in use, too."""
    if not _has_call(model):
        return ""
    try:
        with put_back(model):
            model(X, training=False)
    except Exception as error:
        return reason_of(error)
    return ""


def variables_of(layer: tf.keras.layers.Layer) -> list:
    """Return all variables of a layer, or a model, with what a stateful RNN keeps."""
    states = [
        tf.nest.flatten(one.states)
        for one in layer._flatten_layers()
        if getattr(one, "stateful", False) and getattr(one, "states", None)
    ]
    return [*layer.variables, *sum(states, [])]


@contextlib.contextmanager
def put_back(model: tf.keras.Model) -> Iterator[None]:
    """Give a model's variables the values again that they have now."""
    before = [(v, v.numpy()) for v in variables_of(model)]
    try:
        yield
    finally:
        for variable, value in before:
            variable.assign(value)


def reason_of(error: Exception) -> str:
    """Return in a line why something failed, as an error says it behind all wrapping.

    Keras sets "Exception encountered when calling ..." before the reason, and a graph
    has a node before, and a list of nodes after it.
    """
    text = COLOURS.sub("", str(error))
    said = [line.strip() for line in text.splitlines() if line.strip()]
    while len(said) > 1 and EXCEPTION.match(said[0]):
        said = said[1:]
    ahead = [i for i, line in enumerate(said) if line.startswith("[[{{node")]
    said = said[max(ahead[0] - 1, 0) :] if ahead else said
    first = OPERATION.sub("", NODE.sub("", said[0])) if said else ""
    return first or type(error).__name__


def first_line(error: Exception) -> str:
    """What an error says, behind its kind."""
    return f"{type(error).__name__}: {reason_of(error)}"
