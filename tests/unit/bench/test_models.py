"""The models that are compared: what a reader's is made of, and what it can't be."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
import tensorflow as tf

from manygpu.choosing import presets
from manygpu.trainings import models
from manygpu.trainings.table import UnfitError
from tests.unit.bench import some_models
from tests.unit.bench.some_models import chain
from tests.unit.helpers import EIGHT, same, values

K, L = tf.keras, tf.keras.layers


@pytest.fixture(autouse=True)
def mine(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The models as the module that a reader has."""
    module = types.ModuleType("mine")
    vars(module).update({k: v for k, v in vars(some_models).items() if callable(v)})
    monkeypatch.setitem(sys.modules, "mine", module)
    return module


@pytest.mark.parametrize("name", ["lenet", "chain", "mine:chain"])
def test_batches_are_as_large_as_asked_and_all_processes_have_the_same_weights(name):
    one, other = (models.load(name, 7) for _ in range(2))
    assert [len(t) for t in one.batch] == [7, 7]
    assert name == "mine:chain" or same(one.batch, other.batch)  # it draws its own
    assert same(values(one.model.params), values(other.model.params))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: 1 / 0, "mine:odd failed: ZeroDivisionError"),
        (lambda: sys.exit(3), "mine:odd failed: SystemExit: 3"),
        (lambda: exec("raise KeyboardInterrupt"), "mine:odd failed: KeyboardInterr"),
        (lambda: 3, "must return a Keras model and one batch.*; got 3"),
        (lambda: (chain()[0], np.ones(3)), r"; got \(a model .*shape \(3,\)\)$"),
        (lambda: (chain()[0],), r"; got \(a model of the class Sequential\)$"),
        (lambda: (chain()[0], (*chain()[1], 1, 2)), "sample weights .X, y, weights"),
        (lambda: (3, chain()[1]), r"a Keras model.*; got \(3, "),
        (lambda: (chain()[0], (np.ones((3, 6)), np.ones(4))), "as many samples"),
        (lambda: (chain()[0], (np.ones((3, 5)), np.ones(3))), "doesn't take its batch"),
        (lambda: (K.Sequential([L.Flatten()]), chain()[1]), "nothing to train"),
    ],
)
def test_what_is_no_model_and_batch_is_refused(made, message, monkeypatch, mine):
    monkeypatch.setattr(mine, "odd", made, raising=False)
    with pytest.raises(UnfitError, match=message):
        models.load("mine:odd")


@pytest.mark.parametrize("name", ["none:make", "mine:none"])
def test_a_function_that_is_not_there_is_refused(name):
    with pytest.raises(UnfitError, match=name):
        models.load(name)


def test_of_a_data_set_the_first_batch_is_taken(monkeypatch, mine):
    def streamed():
        model, (X, y) = chain()
        return model, tf.data.Dataset.from_tensor_slices((X, y)).batch(5)

    monkeypatch.setattr(mine, "streamed", streamed, raising=False)
    X, y = models.load("mine:streamed").batch
    assert X.shape == (5, 6) and y.shape == (5,) and X.dtype == tf.float32


@pytest.mark.parametrize("samples", [5, 12, 30])
def test_a_batch_is_cut_or_comes_again(samples):
    X, y = models.load("mine:two_inputs", samples).batch
    assert len(X[0]) == len(X[1]) == len(y) == samples
    assert X[0].dtype == tf.float32
    assert np.array_equal(X[1][samples - 1], X[1][(samples - 1) % 12])


@pytest.mark.parametrize(
    ("model", "loss", "logits"),
    [
        ("chain", K.losses.SparseCategoricalCrossentropy, True),
        ("probabilities", K.losses.SparseCategoricalCrossentropy, False),
        ("two_inputs", K.losses.MeanSquaredError, None),
    ],
)
def test_a_model_without_a_loss_gets_the_usual_one(model, loss, logits):
    found = models.load(f"mine:{model}").whole.loss
    assert isinstance(found, loss)
    assert getattr(found, "from_logits", None) is logits


def test_what_is_looked_at_first_says_how_to_cut():
    found = models.look_at(models.load("mine:chain"), EIGHT[0])
    assert found["parameters"] == 6 * 8 + 8 + 8 * 8 + 8 + 8 * 4 + 4
    assert found["bytes"] == 4 * found["parameters"] and found["samples"] == 12
    assert len(found["layers"]) == 3 and min(s for _, s in found["layers"]) > 0
    assert found["uncut"] == "" and found["unknown"] == {}
    assert found["own_step"] is False
    asked = {"layers": 3, "handed": 4 * 8, "flops": 2 * (6 * 8 + 8 * 8 + 8 * 4)}
    assert {name: found["asked"][name] for name in asked} == asked
    # Each product's input; what a ReLU leaves is the next one's; and the softmax's.
    assert 4 * (6 + 8 + 8) <= found["asked"]["kept"] <= 4 * (6 + 8 + 8 + 4 * 4)


def test_what_no_cut_and_no_count_can_tell_is_said_by_name(monkeypatch, mine):
    found = models.look_at(models.load("mine:two_inputs"), EIGHT[0])
    assert "no chain" in found["uncut"] and found["layers"] == []
    assert found["asked"]["flops"] == 2 * (6 * 5 + 4 * 5 + 10)
    assert found["unknown"] == {}

    def solid():
        model = K.Sequential([K.Input((3, 3, 3, 1)), L.Conv3D(2, 3), L.Flatten()])
        return model, (np.ones((4, 3, 3, 3, 1)), np.ones((4, 2)))

    monkeypatch.setattr(mine, "solid", solid, raising=False)
    found = models.look_at(models.load("mine:solid"), EIGHT[0])
    assert set(found["unknown"]) == {"flops", "kept"}
    assert "Conv3D" in found["unknown"]["flops"]


def test_the_rule_s_lenet_is_the_one_that_is_timed():
    """What it counts by shapes is what the graph of its layers says."""
    found = models.look_at(models.load("lenet"), EIGHT[0])
    model = presets.MODELS["LeNet"]
    assert found["asked"] == {name: getattr(model, name) for name in found["asked"]}
    assert found["parameters"] == model.parameters


def test_the_model_of_an_issue_takes_as_many_images_as_are_asked_for():
    task = models.load("manygpu.trainings.models:mnist_of_35095", 3)
    X, y = task.batch
    assert X.shape == (3, 28, 28, 1) and y.shape == (3,)
    shapes = [tuple(v.shape) for v in task.model.params]
    assert shapes[::2] == [(7, 7, 1, 48), (11 * 11 * 48, 24), (24, 10)]
