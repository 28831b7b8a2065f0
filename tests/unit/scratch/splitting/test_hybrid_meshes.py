"""Hybrid meshes: who is where, exact bytes, norms, and stages of any kind.

That gradients are those of one device is in unit/test_compositions.py; that steps are,
in trainings/test_one_device.py.
"""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu import scratch
from manygpu.scratch import Mesh, MessageLog
from manygpu.scratch.splitting.hybrid_meshes import (
    MeshShards,
    StageProgram,
    clip_grads,
    joined_shards,
    mesh_gradients,
    norms_on_mesh,
    predicted_traffic,
)
from manygpu.scratch.splitting.pipeline import check_plan, dense_layers
from manygpu.scratch.splitting.running_a_pipeline import (
    check_what_ran,
    measured_spans,
    run_micro_batches,
)
from manygpu.scratch.splitting.sharded_state import axis_between, traffic
from tests.unit.helpers import EIGHT, distance, in_graph, runs_on
from tests.unit.scratch.splitting.helpers import vectors, whole_gradients

AXES = ("pipeline", "data", "layerwise")
quick = settings(deadline=None, max_examples=25)
SIZES = st.integers(1, 4)


@st.composite
def meshes(draw) -> Mesh:
    """Any of the axes, in any order, on 1 to 8 devices; at most two stages."""
    names = draw(st.permutations(AXES))[: draw(st.integers(1, 3))]
    sizes = {n: draw(st.integers(1, 2 if n == "pipeline" else 3)) for n in names}
    return Mesh(EIGHT[: draw(st.integers(1, 8))], shared=True, **sizes)


@given(st.dictionaries(st.sampled_from("abcd"), SIZES, min_size=1))
@quick
def test_groups_are_the_lines_of_the_mesh(sizes):
    mesh = Mesh(EIGHT, shared=True, **sizes)
    places = {tuple(scratch.place_of(mesh, rank).items()) for rank in range(mesh.count)}
    assert len(places) == mesh.count == np.prod(list(sizes.values()))
    for axis, size in sizes.items():
        groups = scratch.groups_along(mesh, axis)
        assert sorted(sum(groups, [])) == list(range(mesh.count))
        for group in groups:
            found = [scratch.place_of(mesh, rank) for rank in group]
            assert [place.pop(axis) for place in found] == list(range(size))
            assert all(place == found[0] for place in found)
    last = list(sizes)[-1]
    assert scratch.groups_along(mesh, last)[0] == list(range(sizes[last]))


def test_the_axis_between_two_ranks_and_the_device_of_each():
    mesh = Mesh(EIGHT, pipeline=2, data=2, layerwise=2)
    assert [axis_between(mesh, 0, r) for r in (4, 2, 1)] == list(AXES)
    shared = Mesh(EIGHT[:3], shared=True, data=2, layerwise=2)
    assert [shared.device(r) for r in range(4)] == [*EIGHT[:3], EIGHT[0]]


def of_length(n: int) -> st.SearchStrategy:
    return st.lists(st.integers(3, 9), min_size=n, max_size=n)


@given(
    mesh=meshes(),
    widths=st.sampled_from([3, 5]).flatmap(of_length),  # the formula is for pairs
    samples=st.integers(6, 13),
    micro_batches=st.integers(1, 2),
)
@quick
def test_bytes_are_those_of_the_formula(mesh, widths, samples, micro_batches):
    sizes, log = [5, *widths, 4], MessageLog()
    shards, (X, y) = MeshShards(dense_layers(sizes), mesh), vectors(samples, 5, 4)
    mesh_gradients(X, y, shards, mesh, micro_batches, send=log)
    assert traffic(log, mesh) == predicted_traffic(sizes, samples, mesh)


def test_zero_bubble_runs_on_a_mesh_in_the_plans_order():
    mesh = Mesh(EIGHT, pipeline=2, layerwise=2)
    layers, (X, y) = dense_layers([5, 4, 4, 4, 3]), vectors(8, 5, 3, "float32")
    shards = MeshShards(layers, mesh)
    stages = [StageProgram(shards, s) for s in range(2)]
    plan = check_plan(scratch.zero_bubble(2, 4), stages)
    micro = list(zip(tf.split(X, 4), tf.split(y, 4), strict=True))

    @in_graph
    def run():
        step, times = run_micro_batches(plan, stages, micro, clock=True)
        return step.grads, times  # without them, what they need would not be run

    check_what_ran(measured_spans(plan, run()[1]), plan)


@pytest.mark.parametrize("sharded", [None, "data"])
@pytest.mark.parametrize(
    "axes",
    [
        {"data": 3},
        {"copies": 2, "data": 2},
        {"pipeline": 2, "data": 2},
        {"data": 2, "layerwise": 2},  # whose last biases are whole on both ranks
        {"pipeline": 2, "data": 2, "layerwise": 2},
    ],
)
def test_the_norm_counts_each_number_once_and_sends_numbers_only(axes, sharded):
    mesh, log = Mesh(EIGHT, **axes), MessageLog()
    layers, (X, y) = dense_layers([5, 6, 4, 7, 3], dtype=tf.float64), vectors(9, 5, 3)
    shards = MeshShards(layers, mesh, sharded=sharded)
    _, grads = mesh_gradients(X, y, shards, mesh)
    _, reference = whole_gradients(X, y, layers)
    for rank, norm in enumerate(norms_on_mesh(shards, grads, log)):
        assert runs_on(norm, mesh.device(rank))
        assert float(norm) == pytest.approx(float(tf.linalg.global_norm(reference)))
    assert {size for _, size in log.messages} <= {0, 8}


def test_the_norm_counts_a_matrix_that_two_stages_share_once():
    first, middle, last = dense_layers([4, 4, 4, 4], dtype=tf.float64)
    layers = [first, middle, last._replace(params=(first.params[0], *last.params[1:]))]
    X, y = vectors(6, 4, 4)
    model = scratch.Model(layers)
    _, reference = model.gradients(X, y, model.params)
    mesh = Mesh(EIGHT, pipeline=2, data=2)
    shards = MeshShards(layers, mesh, cuts=[scratch.WHOLE] * 3)
    _, grads = mesh_gradients(X, y, shards, mesh)
    for norm in norms_on_mesh(shards, grads):
        assert float(norm) == pytest.approx(float(tf.linalg.global_norm(reference)))


@pytest.mark.parametrize("share", [0.25, 4.0])  # of the norm: clipped, and not
@pytest.mark.parametrize("sharded", [None, "data"])
def test_clipped_gradients_are_those_of_one_device_on_every_rank(share, sharded):
    mesh, (X, y) = Mesh(EIGHT, pipeline=2, data=2, layerwise=2), vectors(9, 5, 3)
    layers = dense_layers([5, 6, 4, 7, 3], dtype=tf.float64)
    shards = MeshShards(layers, mesh, sharded=sharded)
    _, reference = whole_gradients(X, y, layers)
    limit = share * float(tf.linalg.global_norm(reference))
    right, _ = tf.clip_by_global_norm(reference, limit)

    def step():
        _, grads = mesh_gradients(X, y, shards, mesh)
        return clip_grads(grads, norms_on_mesh(shards, grads), limit)

    for found in (step(), in_graph(step)()):
        for rank, (held, own) in enumerate(zip(shards.held, found, strict=True)):
            for n, g in zip(held, own, strict=True):
                piece = shards.specs[n].shard_of(right[n], mesh, rank)
                assert distance([g], [piece]) <= 1e-13
    for rank, own in enumerate(step()):
        assert all(runs_on(g, mesh.device(rank)) for g in own)


def test_a_gradient_of_zeros_is_not_clipped():
    zeros = [[tf.zeros(3)], [tf.zeros(2)]]
    found = clip_grads(zeros, [tf.zeros(())] * 2, 1.0)
    assert [g.numpy().tolist() for [g] in found] == [[0] * 3, [0] * 2]


def test_a_stage_without_parameters_is_a_stage():
    layers = dense_layers([5, 4, 3], dtype=tf.float64)
    layers.append(scratch.Layer("twice", lambda h: 2 * h))
    mesh, (X, y) = Mesh(EIGHT, pipeline=2), vectors(4, 5, 3)
    shards = MeshShards(layers, mesh)
    _, grads = mesh_gradients(X, y, shards, mesh, micro_batches=2)
    _, reference = whole_gradients(X, y, layers)
    assert [len(own) for own in grads] == [4, 0]
    assert distance(joined_shards(shards, grads), reference) <= 1e-12
    norms = norms_on_mesh(shards, grads)
    assert len({float(norm) for norm in norms}) == 1


def test_a_copy_that_is_not_there_is_refused():
    shards = MeshShards(dense_layers([5, 4, 3]), Mesh(EIGHT, copies=2, data=2))
    assert len(joined_shards(shards, part=3)) == 4
    with pytest.raises(ValueError, match="part must be from 0 to 3, got 4"):
        joined_shards(shards, part=4)
    with pytest.raises(IndexError, match="rank must be from 0 to 3, got 4"):
        shards[4]
