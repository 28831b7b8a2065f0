"""On a mesh the judge names the axis: mistakes on each, and steps that are right."""

from __future__ import annotations

from functools import partial
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from manygpu.prove import judge, small, steps
from manygpu.prove.adapters import of_variables
from manygpu.prove.judge import Case, trial_on_ranks
from manygpu.prove.ranks import RankGradients, misses
from manygpu.prove.verdict import Finding
from manygpu.scratch.splitting import hybrid_meshes as meshes
from manygpu.scratch.splitting import program_over_ranks as programs
from manygpu.scratch.splitting import sharded_state
from manygpu.scratch.splitting.layerwise import ROWS
from manygpu.scratch.splitting.network import Layer, Model
from manygpu.scratch.splitting.what_a_tensor_means import R
from manygpu.trainings import parts
from manygpu.trainings.contract import Ranks
from manygpu.trainings.table import ADAM
from manygpu.trainings.task import Task
from tests.unit.compositions import scattered_to_the_neighbour

AXES = ("data", "pipeline", "layerwise")


# A model of four layers that are two: the same pair is in both stages of a pipeline.


def pair_twice(params):
    pairs = [params[:2], params[2:]] * 2
    made = [Layer(f"dense {i}", small.dense, tuple(p)) for i, p in enumerate(pairs)]
    made[0] = made[0]._replace(takes=(6,))
    return [*made[:-1], made[-1]._replace(gives=(6,))]


def tied(make, rule="sgd"):
    """The subject of that model; its shards on two ranks are of one size."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=shape) / 2 for shape in ((6, 8), (8,), (8, 6), (6,))]

    def start(params, devices):
        model = Model(pair_twice(params))
        return make(Task("tied", model, None, small.LR, seconds=[1.0] * 4), devices)

    def reference(X, y, params):
        loss, grads = small.reference(X, y, [*params, *params])
        return loss, grads[:4]

    about = {"rule": rule, "parts": lambda devices: max(4, devices)}
    draw = small.draw
    return of_variables(start, reference, weights, draw, small.LR, **about)


def tied_on(axes, ranks, sharded=None):
    make = partial(parts.on_mesh, axes=axes, ranks=ranks, sharded=sharded)
    return tied(partial(make, pieces=2))


def tied_state(stage):
    return tied(partial(parts.sharded_state, stage=stage), ADAM)


def on_axes(name, axes, ranks, sharded=None):
    make = partial(parts.on_mesh, axes=axes, ranks=ranks, sharded=sharded)
    about = {"parts": lambda devices: max(6, devices), "most_devices": 4}
    return small.subject(make, name, **about)


def row(name):
    return steps.BY_NAME[name](name)


# Mistakes: what a rank at a place does, or what all do along an axis.


def at(axis, i, factor):
    """The ranks at a place bring their gradient to each sum so many times."""
    found = meshes.by_rank

    def broken(shards, stages, grads):
        made = []
        for rank, own in enumerate(found(shards, stages, grads)):
            times = factor if programs.place_of(shards.mesh, rank)[axis] == i else 1
            with tf.device(shards.mesh.device(rank)):
                made.append({n: times * g for n, g in own.items()})
        return made

    return mock.patch.object(meshes, "by_rank", broken)


def once_more(axis):
    """All sums, and then that along one axis again."""
    total, groups_of = meshes.sum_gradients, meshes.groups_of

    def alone(shards, along):
        return groups_of(shards, along) if along == axis else {}

    def broken(shards, grads, send):
        grads = total(shards, grads, send)
        with mock.patch.object(meshes, "groups_of", alone):
            return total(shards, grads, send)

    return mock.patch.object(meshes, "sum_gradients", broken)


def bias_summed():
    """A bias that all ranks of a tensor axis add alike is summed along it, too."""
    wrong, ready = ROWS._replace(letters=(ROWS.letters[0], R)), meshes.ready_cuts

    def broken(*given):
        return [wrong if cut == ROWS else cut for cut in ready(*given)]

    return mock.patch.object(meshes, "ready_cuts", broken)


def not_at(place, axis):
    """Ranks whose place has this index on an axis don't sum."""
    groups_of = meshes.groups_of

    def broken(shards, along):
        there = {
            group: programs.place_of(shards.mesh, group[0])[axis]
            for group in groups_of(shards, along)
        }
        groups = groups_of(shards, along).items()
        return {group: own for group, own in groups if there[group] != place}

    return mock.patch.object(meshes, "groups_of", broken)


def without_samples_of(device):
    mean_loss = sharded_state.mean_loss

    def broken(*given):
        loss, ups = mean_loss(*given)
        return loss, [(i != device) * up for i, up in enumerate(ups)]

    return mock.patch.object(sharded_state, "mean_loss", broken)


def averaged_shards():
    complete = sharded_state.completed

    def broken(grad, *given):
        return complete(grad, *given) * (1 / grad.mesh.count)

    return mock.patch.object(sharded_state, "completed", broken)


MISTAKES = {
    "data: a rank brings nothing": (
        lambda: at("data", 1, 0),
        lambda: row("mesh of three axes"),
        "data 1 counted 0 times, due 1",
    ),
    "data: summed twice": (
        lambda: once_more("data"),
        lambda: row("mesh of three axes"),
        "counted 2 times, due 1, as if summed one time too many along data",
    ),
    "data: only the first stage sums": (
        lambda: not_at(1, "pipeline"),
        lambda: row("mesh of three axes"),
        "data 1 counted 0 times, due 1, at pipeline 1",
    ),
    "pipe: a rank brings nothing": (
        lambda: at("pipeline", 1, 0),
        lambda: tied_on(AXES, 8),
        "pipeline 1 counted 0 times, due 1",
    ),
    "pipe: a stage brings half": (
        lambda: at("pipeline", 1, 0.5),
        lambda: row("mesh of three axes"),
        "each summand counted 0.5 times, due 1, at pipeline 1",
    ),
    "pipe: summed twice": (
        lambda: once_more("pipeline"),
        lambda: tied_on(AXES[1:], 4),
        "counted 2 times, due 1, as if summed one time too many along pipeline",
    ),
    "tensor: a rank brings nothing": (
        lambda: at("layerwise", 1, 0),
        lambda: row("mesh of three axes"),
        "each summand counted 0 times, due 1, at layerwise 1",
    ),
    "tensor: a bias is summed": (
        bias_summed,
        lambda: on_axes("data x tensor", ("layerwise", "data"), 6),
        "counted 2 times, due 1, as if summed one time too many along layerwise",
    ),
    "copies of shards: a rank brings nothing": (
        lambda: at("copies", 1, 0),
        lambda: row("hsdp"),
        "copies 1 counted 0 times, due 1",
    ),
    "shards: to the neighbour": (
        scattered_to_the_neighbour,
        lambda: tied_on(("copies", "data"), 4, "data"),
        "data 0 has the part of data 1",
    ),
    **{
        f"ZeRO {stage}: to the neighbour": (
            scattered_to_the_neighbour,
            partial(tied_state, stage),
            "data 0 has the part of data 1",
        )
        for stage in (1, 2)
    },
    **{
        f"ZeRO {stage}: a rank brings nothing": (
            lambda: without_samples_of(1),
            partial(row, f"sharded state {stage}"),
            "samples of data 1 counted 0 times, due 1",
        )
        for stage in (0, 1, 2, 3)
    },
    **{
        f"ZeRO {stage}: a mean for a sum": (
            averaged_shards,
            partial(row, f"sharded state {stage}"),
            "counted 0.5 times, due 1, as if divided by the number of ranks along data",
        )
        for stage in (0, 1, 2, 3)
    },
}
UNEVEN = Case(2, 13)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_on_a_mesh_is_named_with_its_axis(mistake):
    broken, subject, said = MISTAKES[mistake]
    with broken():
        saw = list(trial_on_ranks(subject(), UNEVEN))
    found = [one for one in saw if isinstance(one, Finding)]
    assert found and found[-1].broken == "ranks", found
    assert said in found[-1].sentence
    told_axes = {axis for axis in AXES if f"{axis} 1 counted" in found[-1].sentence}
    assert told_axes <= {axis for axis in AXES if f"{axis} 1 counted" in said}


def test_a_verdict_says_what_copies_show_and_which_axis_it_is():
    with at("data", 1, 0):
        verdict = judge(row("mesh"))
    first, *others = verdict.findings
    assert first.broken == "data"
    assert [one.broken for one in others] == ["ranks"]
    assert "Also, of the ranks, data 1 counted 0 times, due 1" in str(verdict)


RIGHT = {
    "tied": lambda: tied_on(AXES, 8),
    "tied, ZeRO 3": lambda: tied_state(3),
    "3 x 2": lambda: on_axes("3 x 2", ("layerwise", "data"), 6),
    "copies x shards": lambda: on_axes("shards", ("data", "copies"), 6, "data"),
    "float32": lambda: small.rounded(row("mesh of three axes"), np.float32),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_step_on_a_mesh_raises_no_alarm(name):
    says = "each sample counted once, all copies alike, each rank's part right"
    saw = list(trial_on_ranks(RIGHT[name](), UNEVEN))
    assert [one.says for one in saw] == [says]


# Two ranks by hand: what no mistake above makes.


def two_ranks(moved, own):
    keys, whole = [(0,)], [np.arange(1.0, 7)]
    return RankGradients(
        Ranks(
            {"data": 2},
            [[0], [1]],
            {key: {"data": "R"} for key in keys},
            lambda key, whole, rank: whole[key[0]],
            [{keys[0]: one} for one in moved],
            [{keys[0]: one} for one in own],
        ),
        whole,
    )


ONE, OTHER = np.array([1.0, 0, 3, 0, 5, 0]), np.array([0.0, 2, 0, 4, 0, 6])


NO_PART = ["the ranks at data 0 have a gradient that is no part of one device's"]


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (ONE + OTHER, ONE + OTHER, []),
        (ONE + 2 * OTHER, ONE + OTHER, ["data 1 counted 2 times, due 1"]),
        (ONE + OTHER, ONE + 0.5 * OTHER, ["data 1 counted 0.5 times, due 1"]),
        (ONE + OTHER + 1, ONE + OTHER, NO_PART),
        (np.full(6, np.nan), ONE + OTHER, NO_PART),
        ((ONE + OTHER)[:5], ONE + OTHER, NO_PART),
    ],
)
def test_what_moved_a_rank_is_told(first, second, said):
    assert misses(two_ranks([first, second], [ONE, OTHER])) == said


def test_a_summand_that_is_no_number_counts_as_nothing():
    grads = two_ranks([ONE, ONE + OTHER], [np.nan * ONE, OTHER])
    assert misses(grads) == NO_PART
