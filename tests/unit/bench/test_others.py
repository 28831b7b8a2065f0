"""Models as other people have them: what their loss is, and what else they do.

All rows of all kinds are tried by `experiments/models-of-others`; these are one or two
of each kind, on rows that need no engine.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from manygpu.bench import serve
from manygpu.bench.result import Row
from manygpu.bench.serve import Timed
from manygpu.trainings import keras_losses, models
from manygpu.trainings.at_work import set_up
from manygpu.trainings.keras_batches import as_keras, reason_of, why_not_in_use
from manygpu.trainings.keras_losses import COUNTED, MEAN, SUM, WHOLE
from manygpu.trainings.table import QUIET, STRATEGIES, UnfitError
from manygpu.trainings.task import Task
from tests.unit.bench import others
from tests.unit.bench.test_strategies import equal
from tests.unit.helpers import EIGHT, distance, values


def load(model: str) -> Task:
    return models.load(f"{others.__name__}:{model}")


def at_work(name: str, task: Task) -> Timed:
    """A row as it is, not as a graph: a step takes a tenth of a second so."""
    row, devices = STRATEGIES[name], EIGHT[:2]
    return Timed(row, task, devices, set_up(row, task, devices))


def compared(name: str, model: str) -> dict:
    return serve.compared(at_work(name, load(model)))


def verdict(name: str, facts: dict) -> str:
    return Row(name, 2, facts=facts).verdict


@pytest.mark.parametrize(
    "model", ["softmax", "softmax_layer", "sigmoid", "softmax_nested"]
)
@pytest.mark.parametrize("name", ["network", "pipeline", "recomputation"])
def test_a_last_stage_hands_over_what_the_loss_needs(name, model):
    found = compared(name, model)
    assert equal(found) and "remark" not in found


def test_a_last_stage_hands_it_over_in_a_graph_too():
    made = serve.timed(STRATEGIES["network"], load("softmax"), EIGHT[:2])
    assert equal(serve.compared(made))


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("softmax", MEAN),
        ("summed", SUM),
        ("class_ignored", COUNTED),
        ("masked_tokens", COUNTED),
        ("two_kinds_of_loss", COUNTED),
        ("one_number", MEAN),
        ("dice", WHOLE),
        ("contrastive", WHOLE),
    ],
)
def test_how_a_loss_is_divided_is_found_by_trying(model, kind):
    assert load(model).division.kind == kind


@pytest.mark.parametrize("name", ["data", "accumulation"])
@pytest.mark.parametrize(
    "model", ["summed", "masked_tokens", "two_kinds_of_loss", "one_number"]
)
def test_a_loss_is_divided_as_it_asks(name, model):
    assert equal(compared(name, model))


@pytest.mark.parametrize("model", ["dice", "contrastive"])
def test_a_loss_of_the_whole_batch_says_why(model):
    found = compared("data", model)
    said = verdict("data", found)
    assert not equal(found)
    assert (
        f"the loss {model} is computed over the whole batch" in said and "% off" in said
    )
    assert equal(compared("one", model))


@pytest.mark.parametrize("model", ["softmax", "masked_tokens", "summed", "constrained"])
def test_the_step_is_the_one_that_keras_takes(model):
    task = load(model)
    whole, weights = task.keras(task.lr), values(task.model.params)
    before = values(whole.trainable_variables)
    whole.train_step(as_keras(*task.batch))
    pairs = zip(values(whole.trainable_variables), before, strict=True)
    moved = task.moved(*task.batch, weights)
    assert distance([a - b for a, b in pairs], moved) <= 3e-4


@pytest.mark.parametrize("name", ["one", "data", "network"])
def test_a_constraint_is_kept_after_each_update(name):
    found = compared(name, "constrained")
    assert equal(found)
    loose = load("constrained")
    loose.constraints = ()
    free = at_work(name, loose)
    free.training.take(*loose.batch)
    moved = serve.weights_of(free.training)
    assert any(np.linalg.norm(w, axis=0).max() > 0.5 + 1e-6 for w in moved[:1])


def test_who_assigns_trained_weights_is_left_to_keras():
    task = load("assigns_a_trained_weight")
    assert task.own_step and "halves/scale" in task.assigns
    assert equal(compared("one", "assigns_a_trained_weight"))
    with pytest.raises(UnfitError, match="change trained weights in the forward"):
        compared("data", "assigns_a_trained_weight")


def test_an_average_of_a_share_is_named():
    said = verdict("data", compared("data", "assigns_an_average"))
    assert "centres/centre" in said and "each part sees others" in said


@pytest.mark.parametrize("model", ["flipped", "own_noise", "stochastic_depth"])
def test_random_layers_are_switched_off_to_compare(model):
    found = compared("data", model)
    assert equal(found) and found["remark"] == QUIET


def test_a_model_that_always_draws_can_not_be_compared():
    said = verdict("data", compared("data", "noise_of_tensorflow"))
    assert said == f"can't tell: {serve.DRAWS}"


@pytest.mark.parametrize(
    "model", ["step_without_call", "step_that_builds", "step_on_a_data_set_of_one"]
)
def test_a_step_of_its_own_needs_no_call(model):
    assert equal(compared("one", model))


def test_a_batch_of_a_fixed_size_is_not_cut():
    assert equal(compared("network", "stateful"))
    assert equal(compared("pipeline", "stateful"))  # in one piece
    with pytest.raises(UnfitError, match="a batch of 8 and no other"):
        compared("data", "stateful")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("strings", "holds text.*data.map"),
        ("ragged", "is ragged.*to_tensor"),
        ("sparse", "is sparse.*to_dense"),
        ("unbatched", "isn't batched yet, return data.batch"),
        (
            "no_loss_whole_targets",
            "compile the model with a loss, such as .* these don.t tell which",
        ),
        (
            "no_loss_two_outputs",
            "compile the model with a loss: it has several outputs",
        ),
        (
            "in_a_scope_of_its_own",
            "in the scope of a MirroredStrategy: make it without",
        ),
        ("wrong_labels", "doesn't take its batch: Received a label value of 4"),
        ("step_uncompiled", "no optimizer: compile it"),
        ("no_call", "no call and no train_step"),
        ("only_inputs", "alone is for a model with a train_step"),
        ("wrong_width", "doesn't take its batch: .*incompatible with the layer"),
    ],
)
def test_what_can_not_be_taken_is_said_in_a_line(model, message):
    with pytest.raises(UnfitError, match=message) as refused:
        load(model)
    assert "Error" not in str(refused.value) and "\n" not in str(refused.value)


def test_a_reason_is_what_lies_behind_all_wrapping():
    wrapped = "Exception encountered when calling LSTM.call().\n\n"
    wrapped += "\x1b[1mtwo shapes differ\x1b[0m\n\nArguments received:\n  x"
    assert reason_of(ValueError(wrapped)) == "two shapes differ"
    assert reason_of(KeyError()) == "KeyError"


def test_keras_divides_as_before_when_a_step_is_over():
    before = keras_losses.scaling.scale_loss_for_distribution
    task = load("softmax")
    task.gradients(*task.batch, task.model.params)
    assert keras_losses.scaling.scale_loss_for_distribution is before
    with pytest.raises(tf.errors.OpError), keras_losses.unscaled():
        raise tf.errors.OpError(None, None, "", 0)
    assert keras_losses.scaling.scale_loss_for_distribution is before


def test_a_model_that_works_in_training_only_is_found():
    """Keras' fit on several devices calls it as in use ahead of its first step."""
    task, whole = load("cropped"), load("softmax")
    assert "expected axis -1" in why_not_in_use(task.whole, task.batch[0])
    assert why_not_in_use(whole.whole, whole.batch[0]) == ""
