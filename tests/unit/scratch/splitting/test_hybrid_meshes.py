"""Hybrid meshes: who is where, the gradients of one device, exact bytes.

That its steps are those of one device is in trainings/test_one_device.py.
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
    axis_between,
    joined_shards,
    mesh_gradients,
    norms_on_mesh,
    predicted_traffic,
    replicas_of,
    traffic,
)
from manygpu.scratch.splitting.pipeline import check_plan, dense_layers
from manygpu.scratch.splitting.running_a_pipeline import (
    check_what_ran,
    measured_spans,
    run_micro_batches,
)
from tests.unit.helpers import EIGHT, distance, in_graph, places, runs_on
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


@given(meshes(), st.integers(3, 9), st.integers(3, 9))
@quick
def test_shards_join_to_the_model_and_lie_on_their_devices(mesh, first, second):
    layers = dense_layers([5, first, 3, second, 4])
    shards, params = MeshShards(layers, mesh), scratch.Model(layers).params
    for rank, own in enumerate(shards):
        assert all(runs_on(p, mesh.device(rank)) for p in own)
    for part in range(mesh.sizes.get("data", 1)):
        for a, b in zip(joined_shards(shards, part=part), params, strict=True):
            np.testing.assert_array_equal(a, b)
        group = [shards[rank] for (rank,) in replicas_of(shards, 0)[part]]
        inside = [own[1].shape[0] for own in group]
        assert sum(inside) == first
        assert max(inside) - min(inside) <= 1


SCHEDULES = [scratch.one_forward_one_backward, scratch.gpipe, scratch.zero_bubble]


@given(
    mesh=meshes(),
    widths=st.lists(st.integers(3, 9), min_size=3, max_size=7),
    last=st.sampled_from(["cut", "whole", "opaque"]),
    samples=st.integers(6, 13),
    micro_batches=st.integers(1, 2),
    schedule=st.sampled_from(SCHEDULES),
)
@quick
def test_gradients_are_those_of_one_device_and_bytes_those_of_the_formula(
    mesh, widths, last, samples, micro_batches, schedule
):
    layers, log = dense_layers([5, *widths, 4], dtype=tf.float64), MessageLog()
    if last == "opaque":  # something between that is no product
        layers.insert(1, scratch.Layer("twice", lambda h: 2 * h))
    cuts = None if last == "cut" else [scratch.WHOLE] * len(layers)
    shards, (X, y) = MeshShards(layers, mesh, cuts), vectors(samples, 5, 4)
    loss, grads = mesh_gradients(X, y, shards, mesh, micro_batches, schedule, log)
    expected, reference = whole_gradients(X, y, layers)
    assert float(loss) == pytest.approx(float(expected), rel=1e-12)
    for part in range(mesh.sizes.get("data", 1)):
        assert distance(joined_shards(shards, grads, part), reference) <= 1e-12
    for rank, own in enumerate(grads):
        assert all(runs_on(g, mesh.device(rank)) for g in own)
    if last == "cut" and len(widths) % 2:  # the formula is for pairs
        sizes = [5, *widths, 4]
        assert traffic(log, mesh) == predicted_traffic(sizes, samples, mesh, 8)


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


def test_each_rank_works_on_its_own_device_and_messages_go_to_their_target():
    mesh = Mesh(EIGHT[:4], data=2, layerwise=2)
    shards = MeshShards(dense_layers([5, 8, 4, 8, 4]), mesh)
    stages = Mesh(EIGHT[:2], pipeline=2)
    held = MeshShards(dense_layers([5, 8, 4, 8, 4]), stages)
    X, y = vectors(8, 5, 3, "float32")

    def work():
        return mesh_gradients(X, y, shards, mesh)

    graph = in_graph(work).get_concrete_function().graph
    found = places(graph, "MatMul")
    assert len(found) == mesh.count and len(set(found.values())) == 1
    log = MessageLog()
    mesh_gradients(X, y, held, stages, send=log)
    assert {(hop.source, hop.target) for hop, _ in log.messages} == {(0, 1), (1, 0)}
    assert all(hop.device == stages.device(hop.target) for hop, _ in log.messages)


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
