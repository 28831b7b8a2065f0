"""Steps of Keras models under MirroredStrategy, in loops of one's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import manygpu
from manygpu.prove.adapters.variables import (
    MOST_DEVICES,
    Variables,
    of_variables,
)
from manygpu.prove.subject import Subject
from manygpu.trainings.contract import Training
from manygpu.trainings.engines import adding_strategy, at_work

COUNTED = re.compile(r"_\d+")  # what Keras adds to the names of a second model
SCHEDULED = 8  # steps whose rates a schedule is asked for
Draw = Callable[[int, int], tuple[np.ndarray, np.ndarray]]
Build = Callable[[], Any]  # see `of_loop`
Step = Callable[..., Any]


class Made(NamedTuple):
    """What a `build` made.

    Attributes:
        model: to be trained.
        kept: what else is state, as `build` gave it; None if it gave none.
    """

    model: tf.keras.Model
    kept: Any = None

    @property
    def trained(self) -> list:
        """The variables that are trained."""
        return self.model.trainable_variables

    @property
    def optimizers(self) -> list:
        """The model's own optimizer, and those among what is kept."""
        of_kept = [one for one in self._parts().values() if hasattr(one, "build")]
        return [self._own_optimizer, *of_kept] if self._own_optimizer else of_kept

    @property
    def beside(self) -> dict[str, Any]:
        """The variables that a training may change and doesn't train, by name.

        Keras names its own by their numbers, as several may have one name.
        """
        ids, optimizer = {id(v) for v in self.trained}, self._own_optimizer
        own = [*self.model.variables, *(optimizer.variables if optimizer else ())]
        own = [v for v in own if id(v) not in ids]
        named = {f"{COUNTED.sub('', v.name)} ({i})": v for i, v in enumerate(own)}
        for name, one in self._parts().items():
            if variables := getattr(one, "variables", None):
                one = list(variables)
            if not isinstance(one, Sequence):
                named[name] = one
                continue
            named |= {f"{name} ({i})": v for i, v in enumerate(one)}
        return named

    @property
    def variables(self) -> list:
        """All that a training may change."""
        return [*self.trained, *self.beside.values()]

    def arguments(self) -> Iterator[Any]:
        """Yield what a step gets of it, behind its batch."""
        if self.kept is not None:
            yield self.kept

    @property
    def _own_optimizer(self) -> Any:
        """The optimizer that the model is compiled with; None if it isn't compiled."""
        return getattr(self.model, "optimizer", None)

    def _parts(self) -> Mapping[str, Any]:
        """Return what is kept, by name."""
        if isinstance(self.kept, Mapping):
            return self.kept
        return {f"state {i}": one for i, one in enumerate(self.kept or ())}


def of_loop(
    build: Build,
    step: Step,
    draw: Draw,
    lr: float,
    loss: Callable | None = None,
    save: Callable | None = None,
    resume: Callable | None = None,
    **about: Any,
) -> Subject:
    """Return a subject that trains a Keras model in a loop of one's own.

    A loop may keep more than its model does: an average of the weights, a counter of
    steps, an optimizer that no `compile` has seen. Then `build` returns the model and
    all of this, in a dict or a list, and `step` gets it as a fifth argument. For
    example, without `compile`:

        def build():
            layers = tf.keras.Input((4,)), tf.keras.layers.Dense(3)
            model = tf.keras.Sequential(list(layers))
            average = [tf.Variable(w) for w in model.trainable_variables]
            optimizer = tf.keras.optimizers.SGD(0.1)
            return model, {"optimizer": optimizer, "average": average}

        def step(strategy, model, X, y, kept):
            ...  # moves the model by kept["optimizer"]; kept["average"] follows

        def loss(model, X, y):
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(X))
            return tf.reduce_sum(each)

    Args:
        build: makes the model, for SGD or Adam with the rate `lr`, and compiles it with
            one loss, unless there is a `loss`. Or it returns the model and what else is
            state: in a dict or a list, variables, lists of variables, and optimizers,
            which are built for the model. It is called in the scope of a strategy, or
            of none. Every training begins with what the first call made.
        step: `step(strategy, model, X, y)`, or `step(strategy, model, X, y, kept)` if
            there is more state, takes a step on a whole batch; it returns the batch's
            mean loss, or None.
        draw: `draw(samples, seed)`: X and y.
        lr: the rate of its optimizer.
        loss: `loss(model, X, y)`, summed over these samples, on one device: the
            reference. None: the loss that the model is compiled with.
        save: `save(model, kept)` returns all that going on needs. None: the judge saves
            the values of all variables that it was told.
        resume: `resume(model, kept, saved)` takes a training that has just begun to
            that place; it comes with `save`.
        about: see `Subject`; `rule` says which optimizer it is.

    Raises:
        ValueError: the model isn't compiled and there is no `loss`, or only one of
            `save` and `resume` is given.
    """
    if (save is None) != (resume is None):
        raise ValueError(
            "save and resume must be given together, got only one of them: pass "
            "save(model, kept) and resume(model, kept, saved), or neither"
        )
    gradients, alone = reference_model(build, loss)
    begun = [np.asarray(v) for v in alone.beside.values()]

    def start(params: Variables, devices: list[str]) -> Training:
        strategy = adding_strategy(devices)
        made = built(build, strategy, [*params, *begun])
        training = training_of(made, strategy, taking(step, strategy, made))
        if save is None:
            return training
        own = {"save": partial(save, *made), "resume": partial(resume, *made)}
        return training._replace(**own)

    weights = [np.asarray(v) for v in alone.trained]
    called = getattr(step, "__name__", "the loop")
    about = {"name": called, "names": [v.path for v in alone.trained]} | about
    about = {"optimizer_says": partial(rule_of, alone)} | about
    return of_variables(start, gradients, weights, draw, lr, **about)


def taking(step: Step, strategy: tf.distribute.Strategy, made: Made) -> Callable:
    """Return `take(X, y)` of a loop's step; see `of_loop`."""
    return lambda X, y: step(strategy, made.model, X, y, *made.arguments())


def reference_model(
    build: Build, loss: Callable | None = None
) -> tuple[Callable, Made]:
    """Return the gradients of a model of no strategy, and what `build` made.

    Raises:
        ValueError: the model isn't compiled and there is no `loss`.
    """
    manygpu.devices(MOST_DEVICES, quiet=True)  # before Keras starts TensorFlow
    made = built(build)
    model, trained = made.model, made.trained
    if loss is None and not model.compiled:
        raise ValueError(
            "loss must be a function where the model isn't compiled, got None: pass "
            "loss(model, X, y), summed over the samples, or compile the model"
        )

    def summed(X: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        if loss is not None:
            return loss(model, X, y)
        mean = model.compute_loss(X, y, model(X, training=True))
        return mean * tf.cast(tf.shape(X)[0], mean.dtype)

    def gradients(X: tf.Tensor, y: tf.Tensor, params: Variables) -> tuple:
        assign(trained, params)
        with tf.GradientTape() as tape:
            total = summed(X, y)
        return total, tape.gradient(total, [v.value for v in trained])

    return gradients, made


def built(
    build: Build,
    strategy: tf.distribute.Strategy | None = None,
    values: Sequence[Any] = (),
) -> Made:
    """Return what `build` makes in the strategy's scope, its optimizers ready.

    values: with which its first variables begin; the others stay as they are built.
    """
    with strategy.scope() if strategy else nullcontext():
        own = build()
        made = Made(*own) if isinstance(own, tuple) else Made(own)
        for optimizer in made.optimizers:
            if not optimizer.built:
                optimizer.build(made.trained)
    assign(made.variables[: len(values)], values)
    return made


# Options that no rule has, and what they are if they aren't used.
UNLIKE_A_RULE = {
    "amsgrad": False,
    "centered": False,
    "clipnorm": None,
    "clipvalue": None,
    "gradient_accumulation_steps": None,
    "loss_scale_factor": None,
    "use_ema": False,
}


def rule_of(made: Made) -> tuple[str, dict[str, Any]] | None:
    """Return the rule of what trains a model; see `Subject.optimizer_says`."""
    if len(made.optimizers) != 1:
        return None
    (optimizer,) = made.optimizers
    own, name = optimizer.get_config(), type(optimizer).__name__
    if any(own.get(option) not in (None, x) for option, x in UNLIKE_A_RULE.items()):
        return None
    rate = optimizer.learning_rate  # if it has a schedule, that of the first step
    schedule = getattr(optimizer, "_learning_rate", None)
    if isinstance(schedule, tf.keras.optimizers.schedules.LearningRateSchedule):
        told: dict[str, Any] = {"rates": [float(schedule(t)) for t in range(SCHEDULED)]}
    else:
        told = {"rates": (float(rate),)}
    if own.get("weight_decay"):
        decays = own["weight_decay"] * np.array(
            [*map(decayed(optimizer), made.trained)]
        )
        told |= {"decay": tuple(map(float, decays)), "decoupled": True}
    if own.get("global_clipnorm"):
        told["clip"] = own["global_clipnorm"]
    if name == "SGD":
        if not own["momentum"]:
            return ("clipped" if "clip" in told else "sgd"), told
        kind = "nesterov" if own["nesterov"] else "momentum"
        about = {"momentum": own["momentum"], "rate_inside": len(told["rates"]) > 1}
        return kind, told | about
    told["epsilon"] = own.get("epsilon")
    if name in ("Adam", "AdamW"):
        about = {"corrected": True, "before": True, "inside": False}
        return "adam", told | about | {"betas": (own["beta_1"], own["beta_2"])}
    told["inside"] = True
    if name == "RMSprop" and not own["momentum"]:
        return "rmsprop", told | {"rho": own["rho"]}
    if name == "Adagrad":
        return "adagrad", told | {"start": own["initial_accumulator_value"]}
    return None


def decayed(optimizer: Any) -> Callable[[Any], bool]:
    """Return how to tell whether a variable has a weight decay: it may be excluded."""
    return getattr(optimizer, "_use_weight_decay", lambda variable: True)


def assign(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Give variables these values, on all replicas."""
    for v, value in zip(variables, values, strict=True):
        v.assign(value)


def training_of(
    made: Made, strategy: tf.distribute.Strategy, take: Callable
) -> Training:
    """Return the training whose steps `take(X, y)` takes."""
    # The rate is a variable, too, and nobody's state.
    rates = {id(getattr(one, "learning_rate", None)) for one in made.optimizers}
    kept = {name: v for name, v in made.beside.items() if id(v) not in rates}

    def state() -> dict[str, Sequence[Any]]:
        local = strategy.experimental_local_results
        return {name: local(of_tensorflow(v)) for name, v in kept.items()}

    def save() -> list[np.ndarray]:
        return [np.array(v.numpy()) for v in made.variables]

    training = at_work(take, strategy, [v.value for v in made.trained], [])
    resume = partial(assign, made.variables)
    return training._replace(state=state, save=save, resume=resume)


def of_tensorflow(variable: Any) -> tf.Variable:
    """Return the variable of TensorFlow that one of Keras has, or the variable."""
    return variable.value if isinstance(variable, tf.keras.Variable) else variable
