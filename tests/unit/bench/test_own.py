"""A reader's own Keras model takes one device's step in every way that it can."""

from __future__ import annotations

import json
import sys
import types
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from manygpu import bench
from manygpu.bench import Case, models, own
from manygpu.bench.own import Own, Task
from manygpu.bench.running import UnfitError, step_distance, tolerance_of
from manygpu.comparison import ALIKE, QUIET
from tests.unit.bench import own_models
from tests.unit.bench.own_models import chain
from tests.unit.helpers import EIGHT

K, L = tf.keras, tf.keras.layers
# MirroredStrategy numbers its collectives, so each needs a process of its own.
HERE = [name for name in own.STRATEGIES if name not in ("engine", "fit")]
CHAINS = ("recomputation", "network", "pipeline")


@pytest.fixture(autouse=True)
def mine(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The models as the module that a reader has."""
    module = types.ModuleType("mine")
    vars(module).update({k: v for k, v in vars(own_models).items() if callable(v)})
    monkeypatch.setitem(sys.modules, "mine", module)
    return module


def running(variant: str, model: str, k: int, **more):
    return own.STRATEGIES[variant](Task(f"mine:{model}", **more), EIGHT[:k])


def facts(variant: str, model: str, k: int, **more) -> dict:
    made = running(variant, model, k, **more)
    return bench.facts_of(made, *made.batch(0), EIGHT[:k])


def compared(variant: str, model: str, k: int, **more) -> dict:
    """Only what facts say of the step: the rest takes longer than all of that."""
    made = running(variant, model, k, **more)
    return bench._compared(made, *made.batch(0))


def equal(found: dict) -> bool:
    return found["distance"] <= found["tolerance"] <= 1e-3


# The step


@pytest.mark.parametrize("variant", HERE)
def test_it_takes_the_step_of_one_device(variant):
    k = 1 if variant in ("accumulation", "recomputation") else 2
    find = facts if variant in ("compiled", "network") else compared
    found = find(variant, "chain", k, samples=4)
    assert equal(found) and "remark" not in found
    if variant == "compiled":
        assert found["sent"] >= 2 * 4 * (6 * 8 + 8 + 8 * 8 + 8 + 8 * 4 + 4)
        assert found["held"] == found["sent"]  # two copies; each gradient twice
    if variant == "network":
        assert found["sent"] == 2 * 4 * 8 * 4  # one cut, there and back


@pytest.mark.parametrize("model", ["two_inputs", "words", "with_penalty"])
def test_any_model_can_be_copied_and_its_shares_cut_up(model):
    assert equal(compared("pieces", model, 2, samples=5))  # uneven shares, and pieces


@pytest.mark.parametrize("model", ["words", "late_words"])
@pytest.mark.parametrize("variant", ["recomputation", "pipeline"])
def test_a_chain_may_begin_with_whole_numbers(variant, model):
    assert equal(compared(variant, model, 2 if variant == "pipeline" else 1))


@pytest.mark.parametrize("cuts", [(1,), (2,), (1, 2)])
@pytest.mark.parametrize("variant", ["network", "pipeline"])
def test_a_cut_may_lie_ahead_of_an_embedding(variant, cuts):
    """Whole numbers have no gradient for the stage ahead."""
    made = running(variant, "late_words", 1 + len(cuts), cuts=cuts)
    assert equal(bench._compared(made, *made.batch(0)))


def test_one_device_takes_a_step_of_the_model_s_own():
    """Not the usual one: that has a third of its length. Its optimizer is its own."""
    made = running("compiled", "own_step", 1)
    X, y = made.batch(0)
    model, _ = models.load("mine:own_step")
    with tf.GradientTape() as tape:
        loss = model.compute_loss(x=X, y=y, y_pred=model(X))
    usual = [-3e-3 * g for g in tape.gradient(loss, model.trainable_variables)]
    for found, wanted in zip(made.reference(X, y), usual, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-7)
    assert equal(bench._compared(made, X, y))


@pytest.mark.parametrize("variant", [n for n in HERE if n != "compiled"])
def test_a_step_of_the_model_s_own_is_no_other_strategy_s(variant):
    with pytest.raises(
        UnfitError, match="train_step of its own, which only .* fit take"
    ):
        running(variant, "own_step", 2)
    with pytest.raises(UnfitError, match="train_step of its own"):
        running("compiled", "own_step", 2)


def test_a_share_is_computed_piece_by_piece():
    """Each piece waits for the gradients so far: else all are held at once."""
    task = Task("mine:chain")
    whole = Own(task)
    params, state = whole.copy(EIGHT[0])

    @tf.function(autograph=False)
    def step(X, y):
        return own._accumulated(whole, (X, y), params, state, 3)

    graph = step.get_concrete_function(*whole.batch).graph
    named = [op for op in graph.get_operations() if op.type == "Identity"]
    pieces = [op for op in named if op.inputs[0].op.type.startswith("Split")]
    assert len(pieces) == 3 * 2  # X and y of each
    assert sum(bool(op.control_inputs) for op in pieces) == 2 * 2


def test_how_far_rounding_may_lead_is_ten_orders_of_the_samples():
    made = running("compiled", "chain", 1)
    X, y = made.batch(0)
    steps = iter([[np.float32([3.0, 4.0])], [np.float32([3.0, 4.005])]])
    known = replace(
        made, reference=lambda X, y: next(steps), result=lambda: [np.float32([5e3])]
    )
    assert tolerance_of(known, X, y) == pytest.approx(10 * 1e-3 + 1e3 / 2**23, rel=1e-3)


def test_shares_are_normalized_by_themselves_and_that_is_said():
    found = compared("compiled", "normed", 2)
    assert equal(found) and found["remark"] == f"{QUIET}, {ALIKE}"
    assert found["trained"] > 0.01


def test_one_device_has_the_whole_batch_to_normalize():
    found = compared("network", "normed", 2)
    assert equal(found) and found["remark"] == QUIET


def test_the_state_of_a_norm_moves_with_each_step(monkeypatch):
    made = running("compiled", "normed", 1)
    start = made.result()
    moved = own.Own.gradients
    seen = []

    def look(self, batch, params, state):
        seen.append(state)
        return moved(self, batch, params, state)

    monkeypatch.setattr(own.Own, "gradients", look)
    made.take(*made.batch(0))  # its first: nothing was compared before
    mean, variance = seen[-1][:2]
    assert np.any(mean.numpy() != 0) and np.any(variance.numpy() != 1)
    assert not np.array_equal(made.result()[0], start[0])


def test_a_step_that_is_not_taken_is_found_out():
    made = running("compiled", "chain", 2)
    idle = replace(made, take=lambda X, y: None)
    X, y = made.batch(0)
    assert tolerance_of(made, X, y) < 1e-3
    assert step_distance(idle, X, y) == 1


def test_copies_that_never_add_their_gradients_are_found_out(monkeypatch):
    monkeypatch.setattr(own, "allreduce_gradients", lambda grads: grads)
    found = compared("compiled", "chain", 2, samples=4)
    assert found["distance"] > 0.1 > found["tolerance"]


ENGINES = """
import json
import manygpu
from manygpu import bench
from manygpu.bench import own

devices, found = manygpu.devices(quiet=True), []
for question in ASKED:
    name, model = question.split()
    task = own.Task(f"tests.unit.bench.own_models:{model}")
    made = own.STRATEGIES[name](task, devices)
    assert made.sent is None  # an engine hides its messages
    found.append(bench._compared(made, *made.batch(0)))
print(json.dumps(found))
"""


def test_the_engines_take_the_step_of_one_device(run_python):
    """Both in one process, by one strategy: two would number collectives alike."""
    asked = {"engine two_inputs": None, "fit normed": f"{QUIET}, {ALIKE}"}
    asked["fit own_step"] = None
    code = ENGINES.replace("ASKED", repr(list(asked)))
    answer = run_python(code, MANYGPU_DEVICES="2")
    assert answer.returncode == 0, answer.stderr
    founds = json.loads(answer.stdout.splitlines()[-1])
    for found, remark in zip(founds, asked.values(), strict=True):
        assert equal(found) and found.get("remark") == remark


# What can't be


@pytest.mark.parametrize(
    ("variant", "model", "more", "message"),
    [
        ("network", "two_inputs", {}, "no chain of layers"),
        ("recomputation", "two_inputs", {}, "no chain of layers"),
        ("network", "one_layer", {}, "has one layer"),
        ("pipeline", "chain", {"samples": 11}, "take another --batch"),
        ("pipeline", "with_penalty", {}, "regularizers"),
        ("network", "masked", {}, r"hand on a mask \(mask_zero, Masking\)"),
    ],
)
def test_what_a_strategy_can_not_train_says_why(variant, model, more, message):
    with pytest.raises(UnfitError, match=message):
        running(variant, model, 2, **more)


def test_fewer_samples_than_devices_can_not_be_shared():
    with pytest.raises(UnfitError, match="a batch of 2 can't be cut into 3 parts"):
        compared("compiled", "chain", 3, samples=2)


def test_a_loss_that_is_no_number_is_no_step_to_compare(monkeypatch, mine):
    def endless():
        model, (X, y) = chain()
        return model, (X * np.inf, y)

    monkeypatch.setattr(mine, "endless", endless, raising=False)
    with pytest.raises(UnfitError, match="nothing to compare"):
        compared("compiled", "endless", 1)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: 1 / 0, "mine:odd failed: ZeroDivisionError"),
        (lambda: sys.exit(3), "mine:odd failed: SystemExit: 3"),
        (lambda: exec("raise KeyboardInterrupt"), "mine:odd failed: KeyboardInterr"),
        (lambda: 3, "must return a Keras model and one batch.* got int"),
        (lambda: (chain()[0], np.ones(3)), "one batch.*got a model and ndarray"),
        (lambda: (chain()[0],), r"one batch.*got a tuple of 1 \(Sequential\)"),
        (
            lambda: (chain()[0], (*chain()[1], np.ones(12))),
            "a batch of 3 parts: leave sample weights out",
        ),
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


# The model


def test_of_a_data_set_the_first_batch_is_taken(monkeypatch, mine):
    def streamed():
        model, (X, y) = chain()
        return model, tf.data.Dataset.from_tensor_slices((X, y)).batch(5)

    monkeypatch.setattr(mine, "streamed", streamed, raising=False)
    _, (X, y) = models.load("mine:streamed")
    assert X.shape == (5, 6) and y.shape == (5,) and X.dtype == tf.float32


def test_all_processes_have_the_same_weights():
    one, other = (models.load("mine:chain")[0].get_weights() for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("samples", [5, 12, 30])
def test_a_batch_is_cut_or_comes_again(samples):
    _, (X, y) = models.load("mine:two_inputs", samples)
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
    found = models.load(f"mine:{model}")[0].loss
    assert isinstance(found, loss)
    assert getattr(found, "from_logits", None) is logits


def test_dropout_is_found_and_switched_off():
    model, _ = models.load("mine:normed")
    assert len(models.what_is_drawn(model)) == 1
    models.hush(model)
    assert models.what_is_drawn(model) == []


def test_what_is_looked_at_first_says_how_to_cut():
    found = own.look_at(Task("mine:chain"), EIGHT[0])
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
    found = own.look_at(Task("mine:two_inputs"), EIGHT[0])
    assert "no chain" in found["uncut"] and found["layers"] == []
    assert found["asked"]["flops"] == 2 * (6 * 5 + 4 * 5 + 10)
    assert set(found["unknown"]) == {"layers", "handed"}

    def solid():
        model = K.Sequential([K.Input((3, 3, 3, 1)), L.Conv3D(2, 3), L.Flatten()])
        return model, (np.ones((4, 3, 3, 3, 1)), np.ones((4, 2)))

    monkeypatch.setattr(mine, "solid", solid, raising=False)
    found = own.look_at(Task("mine:solid"), EIGHT[0])
    assert set(found["unknown"]) == {"flops", "kept"}
    assert "Conv3D" in found["unknown"]["flops"]


def test_the_model_of_an_issue_takes_as_many_images_as_are_asked_for():
    model, (X, y) = models.load("manygpu.bench.models:mnist_of_35095", 3)
    assert X.shape == (3, 28, 28, 1) and y.shape == (3,)
    shapes = [tuple(v.shape) for v in model.trainable_variables]
    assert shapes[::2] == [(7, 7, 1, 48), (11 * 11 * 48, 24), (24, 10)]


def test_the_transformer_is_a_chain_that_can_be_cut(monkeypatch):
    monkeypatch.setattr(models, "BLOCKS", 1)
    task = Task("transformer", samples=2)
    assert len(own.chain_of(Own(task))) == 1 + 3
    made = own.STRATEGIES["network"](replace(task, cuts=(2,)), EIGHT[:2])
    assert step_distance(made, *made.batch(0)) <= tolerance_of(made, *made.batch(0))
    assert len(made.held()) == 2


def test_a_case_names_a_model_and_its_strategies():
    case = Case("compiled", 2, model="mine:chain")
    assert case.samples is None
    with pytest.raises(ValueError, match="variant must be one of.*'layerwise'"):
        Case("layerwise", 2, model="mine:chain")
    assert sum(case.make(EIGHT[:2]).held().values()) > 0
