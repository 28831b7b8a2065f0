"""Every strategy takes the step of one device; who does not is found out."""

from __future__ import annotations

import json
import types
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from manygpu.bench import serve
from manygpu.bench.serve import Timed, step_distance
from manygpu.measure import nbytes
from manygpu.scratch.splitting.pipeline import Op, orders_of
from manygpu.scratch.start.one_device import gradients, init_params
from manygpu.trainings import copies, models, parts
from manygpu.trainings.keras_batches import as_keras
from manygpu.trainings.table import (
    ADAM,
    ALIKE,
    QUIET,
    STRATEGIES,
    UnfitError,
    known,
    unfit,
)
from manygpu.trainings.task import LR, held_by, to_be_timed, weights_of
from tests.unit.bench import some_models
from tests.unit.helpers import EIGHT, distance, same, values

FLOAT32 = 1e-5  # relative: a sum of thousands of products, rounded at each
PARAMETERS = nbytes(init_params())
# These number their collectives alike, so each needs a process of its own.
ENGINES = ("engine", "fit", "dtensor")
SCHEDULES = ["pipeline", "gpipe", "interleaved", "zero-bubble"]
ELSE = (*ENGINES, *SCHEDULES, "apart", "threads")
HERE = [n for n in known() if n not in ELSE and not STRATEGIES[n].unlike]
BY_ADAM = [n for n in HERE if STRATEGIES[n].rule == ADAM]
OURS = {"lenet", "ours"}  # what readers don't have
BY_KERAS = [n for n in HERE if not OURS & {*STRATEGIES[n].needs.split()}]


def running(name: str, k: int, model: str = "lenet", samples: int = 24) -> Timed:
    task = models.load(model, samples)
    row = STRATEGIES[name]
    return serve.timed(row, task, EIGHT[: 1 if row.alone else k])


def mine(model: str) -> str:
    return f"{some_models.__name__}:{model}"


def compared(name: str, model: str, k: int = 2, **more) -> dict:
    return serve.compared(running(name, k, mine(model), **{"samples": None, **more}))


def equal(found: dict) -> bool:
    return found["distance"] <= found["tolerance"] <= 1e-3


def apart(made: Timed) -> float:
    return step_distance(made, *made.task.batch)


# LeNet


@pytest.mark.parametrize("name", [*HERE, "pipeline"])
def test_it_takes_the_step_of_one_device(name):
    """In float32, as it is timed; in float64: trainings/test_one_device.py."""
    made = running(name, 3, samples=23)  # uneven shards, and pieces
    if name in BY_ADAM:  # whose averages a second reference wouldn't have
        assert equal(serve.compared(made))
        return
    assert apart(made) <= FLOAT32
    assert apart(made) <= FLOAT32  # from where it stands now


ONE_STEP = """
import json, manygpu
from manygpu.bench import serve
from manygpu.bench.serve import step_distance
from manygpu.trainings import models
from manygpu.trainings.table import STRATEGIES
from manygpu.trainings.task import held_by

devices, found = manygpu.devices(quiet=True), []
for name, model in ASKED:
    row = STRATEGIES[name]
    made = serve.timed(row, models.load(model, 24), devices)
    assert made.training.sent is None  # an engine hides its messages
    facts = serve.compared(made)
    facts["again"] = step_distance(made, *made.task.batch)
    found.append({**facts, "held": held_by(made.training)})
print(json.dumps(found))
"""
UNLIKE = f"{QUIET}, {ALIKE}"


@pytest.mark.parametrize(
    "asked",
    [
        {("dtensor", "lenet"): None},
        # In one process by one strategy: two would number collectives alike.
        {
            ("engine", "lenet"): None,
            ("fit", "lenet"): None,
            ("engine", mine("two_inputs")): None,
            ("engine", mine("normed")): UNLIKE,
            ("fit", mine("normed")): UNLIKE,
            ("fit", mine("own_step")): None,
            ("fit", mine("rivals")): None,
        },
    ],
)
def test_an_engine_takes_the_step_of_one_device(asked, run_python):
    program = ONE_STEP.replace("ASKED", repr([*asked]))
    answer = run_python(program, MANYGPU_DEVICES="3")
    assert answer.returncode == 0, answer.stderr
    founds = json.loads(answer.stdout.splitlines()[-1])
    for found, ((_, model), remark) in zip(founds, asked.items(), strict=True):
        assert equal(found) and found.get("remark") == remark
        if model == "lenet":
            assert max(found["distance"], found["again"]) <= FLOAT32
            assert list(found["held"].values()) == [PARAMETERS] * 3


def test_replicas_that_never_communicate_step_along_their_share_of_the_mean():
    assert apart(running("apart", 1)) <= FLOAT32
    made = running("apart", 3)
    (X, y), before = made.task.batch, weights_of(made.training)
    _, grads = gradients(X[:8], y[:8], init_params())
    assert apart(made) > 0.1
    moved = [a - b for a, b in zip(weights_of(made.training), before, strict=True)]
    assert distance(moved, [-LR / 24 * g.numpy() for g in grads]) <= FLOAT32


def test_a_pipeline_is_cut_where_the_work_is():
    """LeNet's second layer has nine tenths of it: it gets a device of its own."""
    lenet = models.load("lenet", 8)
    cuts = [parts.pipeline_cuts(lenet, k) for k in (1, 2, 3, 8)]
    assert cuts == [[], [1], [1, 2], [1, 2, 3]]
    assert parts.network_cuts(lenet, 2) == [2]
    timed = replace(lenet, seconds=[5.0, 1.0, 1.0, 3.0])
    assert parts.pipeline_cuts(timed, 2) == [1]
    assert parts.network_cuts(timed, 2) == [2]


def test_who_holds_what():
    held = held_by(running("pipeline", 2).training)
    assert min(held.values()) == 4 * (3 * 3 * 20 + 20)
    assert sum(held.values()) == PARAMETERS
    assert len(held_by(running("network", 8).training)) == 4  # LeNet has four layers
    assert sum(held_by(running("data", 3).training).values()) == 3 * PARAMETERS


# A chain of equal layers


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "CHAIN_WIDTH", 8)
    for constant in ("LAYERS", "PIECES"):
        monkeypatch.setattr(models.table, f"CHAIN_{constant}", 4)


def test_interleaved_gives_each_device_two_stages(monkeypatch, small):
    plans = []

    def look(plan, stages, *rest):
        plans.append((plan, [stage.device for stage in stages]))
        return step(plan, stages, *rest)

    step = parts.running_a_pipeline.pipeline_step
    monkeypatch.setattr(parts.running_a_pipeline, "pipeline_step", look)
    apart(running("interleaved", 2, "chain", 32))
    [(plan, devices)] = plans
    assert devices == [*EIGHT[:2], *EIGHT[:2]]
    assert {op.stage for op in orders_of(plan)[0]} == {0, 2}
    assert Op("F", 3, 3) in orders_of(plan)[1]


# A reader's model


@pytest.mark.parametrize("name", [*BY_KERAS, *SCHEDULES])
def test_a_reader_s_chain_takes_the_step_of_one_device(name):
    k = 1 if STRATEGIES[name].alone else 2
    found = compared(name, "chain", k, samples=5)  # uneven shares, and pieces
    assert equal(found) and "remark" not in found


def test_what_is_sent_and_held():
    """By a sum, a gradient goes there and back; a cut hands on 8 numbers a sample."""
    size = 4 * (6 * 8 + 8 + 8 * 8 + 8 + 8 * 4 + 4)
    data = running("data", 2, mine("chain"), 4)
    assert data.training.sent(*data.task.batch) >= 2 * size
    assert sum(held_by(data.training).values()) == 2 * size
    network = running("network", 2, mine("chain"), 4)
    assert network.training.sent(*network.task.batch) == 2 * 4 * 8 * 4


@pytest.mark.parametrize(
    ("name", "model", "samples"),
    [
        *(("pieces", m, 5) for m in ("two_inputs", "words", "with_penalty", "twelve")),
        ("pieces", "subclassed", 5),  # with weights
        # A chain may begin with whole numbers.
        *(
            (name, model, None)
            for name in ("recomputation", "pipeline", "zero-bubble")
            for model in ("words", "late_words")
        ),
        # Shares are normalized by themselves; in a network the whole batch is.
        ("data", "normed", None),
        ("network", "normed", None),
    ],
)
def test_any_model_is_trained_by_what_can_train_it(name, model, samples):
    found = compared(name, model, samples=samples)
    assert equal(found)
    if model == "normed":
        assert found["remark"] == (UNLIKE if name == "data" else QUIET)
        assert (found["trained"] > 0.01) == (name == "data")


@pytest.mark.parametrize("seconds", ["11000", "01100", "11100"])
@pytest.mark.parametrize("name", ["network", "pipeline"])
def test_a_cut_may_lie_ahead_of_an_embedding(name, seconds):
    """Whole numbers have no gradient for the stage ahead."""
    task = models.load(mine("late_words"), None, [*map(float, seconds)])
    devices = EIGHT[: seconds.count("1")]  # each has one of these layers
    assert equal(serve.compared(serve.timed(STRATEGIES[name], task, devices)))


@pytest.mark.parametrize(
    "model", ["subclassed", "two_outputs", "own_loss", "adds_loss", "masked", "float16"]
)
def test_what_all_are_held_against_is_the_step_that_keras_takes(model):
    """With weights of samples and of losses, losses of any origin, and a loss scale."""
    task = models.load(mine(model))
    whole, weights = task.keras(task.lr), values(task.model.params)
    before = values(whole.trainable_variables)
    whole.train_step(as_keras(*task.batch))
    pairs = zip(values(whole.trainable_variables), before, strict=True)
    assert same(before, weights)
    moved = task.moved(*task.batch, weights)
    assert distance([a - b for a, b in pairs], moved) <= (
        1e-2 if model == "float16" else 3e-4
    )


@pytest.mark.parametrize("name", ["one", "network"])
def test_the_state_of_a_norm_moves_with_each_step(name):
    made = running(name, 1, mine("normed"), None)
    kept = [v for v in made.training.stored() if v.shape == (8,) and not v.trainable]
    before = [v.numpy() for v in kept]
    made.training.take(*made.task.batch)
    assert len(kept) == 2
    assert all(np.any(v != b) for v, b in zip(kept, before, strict=True))


def test_a_share_is_computed_piece_by_piece():
    """Each piece waits for the gradients so far: else all are held at once."""
    made = running("accumulation", 1, mine("chain"), 12)
    made.training.take(*made.task.batch)
    assert made.task.pieces == 8
    X, y = made.task.batch
    seen = []

    def watched(X, y, params, state=None):
        seen.append(y.shape[0])
        return type(made.task).gradients(made.task, X, y, params, state)

    made.task.gradients = watched
    to_be_timed(copies.pieces(made.task, EIGHT[:1])).take(X, y)
    assert sorted(seen) == [1] * 4 + [2] * 4


def test_one_device_takes_a_step_of_the_model_s_own():
    """Not the usual one: that has a third of its length. Its optimizer is its own."""
    made = running("one", 1, mine("own_step"), None)
    X, y = made.task.batch
    model = made.task.whole
    with tf.GradientTape() as tape:
        loss = model.compute_loss(x=X, y=y, y_pred=model(X))
    usual = [-3e-3 * g for g in tape.gradient(loss, model.trainable_variables)]
    for found, wanted in zip(made.reference(X, y), usual, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-7)
    assert equal(serve.compared(made))


# A row that says it needs no "plain" model takes an own `train_step` on one device: a
# new one that says so and doesn't would be timed in another step than the others.
TAKES_ANY = [
    name
    for name in [*HERE, *SCHEDULES, "apart", "threads"]
    if not unfit(STRATEGIES[name], {"model": mine("own_step"), "own_step": True}, 1)
]


@pytest.mark.parametrize("name", TAKES_ANY)
def test_a_row_that_needs_no_plain_model_takes_its_own_step(name):
    alone = running(name, 1, mine("own_step"), None)
    assert equal(serve.compared(alone))


@pytest.mark.parametrize(
    ("name", "model", "samples", "message"),
    [
        ("network", "two_inputs", None, "no chain of layers"),
        ("recomputation", "two_inputs", None, "no chain of layers"),
        ("network", "one_layer", None, "has one layer"),
        ("pipeline", "with_penalty", None, "regularizers"),
        ("network", "masked", None, r"hand on a mask \(mask_zero, Masking\)"),
        ("recomputation", "restless", None, "each of its layers keeps state"),
        ("data", "chain", 1, "a batch of 1 can't be cut into 2 parts"),
        ("layerwise", "chain", None, "for its own LeNet and chain only"),
        *((n, "own_step", None, "no gradients to share") for n in BY_KERAS[1:]),
    ],
)
def test_what_a_strategy_can_not_train_says_why(name, model, samples, message):
    with pytest.raises(UnfitError, match=message):
        running(name, 2, mine(model), samples)


def test_a_loss_that_is_no_number_is_no_step_to_compare(monkeypatch):
    def endless():
        model, (X, y) = some_models.chain()
        return model, (X * np.inf, y)

    monkeypatch.setattr(some_models, "endless", endless, raising=False)
    with pytest.raises(UnfitError, match="nothing to compare"):
        compared("data", "endless", 1)


def test_how_far_rounding_may_lead_is_ten_orders_of_the_samples():
    made = running("data", 1, mine("chain"))
    steps = iter([[np.float32([3.0, 4.0])], [np.float32([3.0, 4.005])]])
    task = types.SimpleNamespace(batch=made.task.batch, moved=lambda *_: next(steps))
    still = made.training._replace(copies=lambda: [[np.float32([5e3])]])
    other = made._replace(task=task, training=still)
    wanted = other.reference(*other.task.batch)
    allowed = serve.tolerance_of(other, wanted)
    assert allowed == pytest.approx(1e-2 + 1e3 / 2**23, rel=1e-3)


def test_the_transformer_is_a_chain_that_can_be_cut(monkeypatch):
    monkeypatch.setattr(models, "BLOCKS", 1)
    made = running("network", 2, "transformer", 2)
    assert len(made.task.model.layers) == 1 + 3
    wanted = made.reference(*made.task.batch)
    assert apart(made) <= serve.tolerance_of(made, wanted)
    assert len(held_by(made.training)) == 2
