"""Hybrid meshes: who is where, equal to one device, exact bytes, bad input."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch.data_parallel.collectives import MessageLog
from manygpu.scratch.splitting.hybrid_meshes import (
    AXES,
    Mesh,
    MeshShards,
    Row,
    axis_between,
    groups_along,
    joined_shards,
    mesh_gradients,
    mesh_step,
    place_of,
    predicted_traffic,
    row_of,
    traffic,
)
from manygpu.scratch.splitting.layerwise import COLUMNS, WHOLE
from manygpu.scratch.splitting.network import Layer, Model
from manygpu.scratch.splitting.pipeline import (
    check_plan,
    dense_layers,
    forward_only,
    gpipe,
    orders_of,
)
from manygpu.scratch.splitting.running_a_pipeline import (
    measured_spans,
    run_micro_batches,
)
from manygpu.scratch.splitting.smaller_bubble import zero_bubble
from tests.unit.helpers import EIGHT, distance, in_graph

quick = settings(deadline=None, max_examples=20)
many = settings(deadline=None, max_examples=50)
SIZES = st.integers(1, 4)
BOUND = {"float64": 1e-12, "float32": 1e-5}


@st.composite
def meshes(draw) -> Mesh:
    """Any of the axes, in any order, on 1 to 8 devices; at most two stages."""
    names = draw(st.permutations(AXES))[: draw(st.integers(1, 3))]
    sizes = {n: draw(st.integers(1, 2 if n == "pipeline" else 3)) for n in names}
    return Mesh(EIGHT[: draw(st.integers(1, 8))], shared=True, **sizes)


def batch(samples: int, inputs: int, dtype: str, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = tf.constant(rng.normal(size=(samples, inputs)), dtype)
    return X, tf.constant(rng.integers(0, 4, samples), tf.int32)


def one_device(X, y, layers):
    model = Model(layers)
    return model.gradients(X, y, model.params)


# The mesh.


@given(st.dictionaries(st.sampled_from("abcd"), SIZES, min_size=1))
@many
def test_groups_are_the_lines_of_the_mesh(sizes):
    mesh = Mesh(EIGHT, shared=True, **sizes)
    places = {tuple(place_of(mesh, rank).items()) for rank in range(mesh.count)}
    assert len(places) == mesh.count == np.prod(list(sizes.values()))
    for axis, size in sizes.items():
        groups = groups_along(mesh, axis)
        assert sorted(sum(groups, [])) == list(range(mesh.count))
        for group in groups:
            found = [place_of(mesh, rank) for rank in group]
            assert [place.pop(axis) for place in found] == list(range(size))
            assert all(place == found[0] for place in found)
    last = list(sizes)[-1]
    assert groups_along(mesh, last)[0] == list(range(sizes[last]))


def test_axis_between_names_the_axis_and_refuses_strangers():
    mesh = Mesh(EIGHT, pipeline=2, data=2, layerwise=2)
    assert [axis_between(mesh, 0, r) for r in (4, 2, 1)] == list(AXES)
    for a, b in ((0, 3), (5, 5)):
        with pytest.raises(ValueError, match=f"{a} and {b} differ in"):
            axis_between(mesh, a, b)


def test_more_ranks_than_devices_only_if_asked_for():
    with pytest.raises(ValueError, match="need 4 devices, got 3.*shared=True"):
        Mesh(EIGHT[:3], data=2, layerwise=2)
    mesh = Mesh(EIGHT[:3], shared=True, data=2, layerwise=2)
    assert [mesh.device(r) for r in range(4)] == [*EIGHT[:3], EIGHT[0]]
    assert Mesh(EIGHT[:4], data=2, layerwise=2).device(3) == EIGHT[3]


def predicted(widths=(8, 4, 2), samples=6, size=4) -> dict[str, int]:
    return predicted_traffic(widths, samples, Mesh(EIGHT[:2], data=2), size)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: Mesh(EIGHT, data=0), ValueError, "data must be at least 1"),
        (lambda: Mesh(EIGHT, data=2.0), TypeError, "data must be a whole number"),
        (lambda: Mesh(EIGHT[0], data=1), TypeError, "devices must be a list"),
        (lambda: Mesh(["/device:CPU:99"], data=1), ValueError, "does not exist"),
        (lambda: groups_along(Mesh(EIGHT, data=2), "dta"), ValueError, "'dta'"),
        (lambda: dense_layers([8]), ValueError, "widths must hold inputs and"),
        (lambda: dense_layers([8, 4, 0]), ValueError, "widths must be at least"),
        (lambda: predicted(samples=-5), ValueError, "samples must be at least 1"),
        (lambda: predicted(size=-4), ValueError, "size must be at least 1"),
        (lambda: predicted(widths=[8, -4, 2]), ValueError, "widths must be at least"),
    ],
)
def test_bad_meshes_and_widths_are_refused(call, error, match):
    with pytest.raises(error, match=match):
        call()


# Shards.


@given(meshes(), st.integers(3, 9), st.integers(3, 9))
@quick
def test_shards_join_to_the_model_and_lie_on_their_devices(mesh, first, second):
    layers = dense_layers([5, first, 3, second, 4])
    shards, params = MeshShards(layers, mesh), Model(layers).params
    for rank, own in enumerate(shards):
        assert all(p.device.endswith(mesh.device(rank)) for p in own)
    for part in range(mesh.sizes.get("data", 1)):
        for a, b in zip(joined_shards(shards, part=part), params, strict=True):
            np.testing.assert_array_equal(a, b)
        row = [shards[rank] for rank in row_of(mesh, 0, part)]
        inside = [own[1].shape[0] for own in row]
        assert sum(inside) == first
        assert max(inside) - min(inside) <= 1


@pytest.mark.parametrize(
    ("widths", "axes", "match"),
    [
        ([5, 3, 4], {"layerwise": 4}, "dense 0. has only 3 outputs for 4 devices"),
        ([5, 3, 4], {"pipeline": 2}, "pipeline 2, but the model only 1 block"),
        ([5, 3, 4], {"model": 2}, r"got \['model'\]"),
        ([5, 3, 4], {}, r"got \[\]"),
    ],
)
def test_models_that_a_mesh_cannot_hold_are_refused(widths, axes, match):
    with pytest.raises(ValueError, match=match):
        MeshShards(dense_layers(widths), Mesh(EIGHT, **axes))


@given(
    mesh=meshes(),
    widths=st.lists(st.integers(3, 9), min_size=3, max_size=7),
    last=st.sampled_from(["cut", "whole", "opaque"]),
)
@quick
def test_any_number_of_layers_cut_or_not_has_the_gradients_of_one_device(
    mesh, widths, last
):
    layers = dense_layers([5, *widths, 4], dtype=tf.float64)
    if last == "opaque":  # something between that is no product
        layers.insert(1, Layer("twice", lambda h: 2 * h))
    cuts = None if last == "cut" else [WHOLE] * len(layers)
    shards, (X, y) = MeshShards(layers, mesh, cuts), batch(9, 5, "float64")
    loss, grads = mesh_gradients(X, y, shards, mesh, micro_batches=2)
    expected, reference = one_device(X, y, layers)
    assert distance([loss], [expected]) <= 1e-12
    for part in range(mesh.sizes.get("data", 1)):
        assert distance(joined_shards(shards, grads, part), reference) <= 1e-12


def test_a_mesh_cuts_nothing_in_halves_that_belong_together():
    with pytest.raises(ValueError, match="rows stand behind columns"):
        MeshShards(dense_layers([5, 3, 4]), Mesh(EIGHT, data=2), [COLUMNS, WHOLE])


# The step.


@given(
    mesh=meshes(),
    dtype=st.sampled_from(list(BOUND)),
    samples=st.integers(6, 13),
    micro_batches=st.integers(1, 2),
    schedule=st.sampled_from([None, gpipe, zero_bubble]),
)
@quick
def test_gradients_are_those_of_one_device_and_bytes_those_of_the_formula(
    mesh, dtype, samples, micro_batches, schedule
):
    widths = [5, 7, 3, 8, 4]
    layers = dense_layers(widths, dtype=tf.as_dtype(dtype))
    X, y = batch(samples, 5, dtype)
    log, shards = MessageLog(), MeshShards(layers, mesh)
    options = {"schedule": schedule} if schedule else {}
    loss, grads = mesh_gradients(X, y, shards, mesh, micro_batches, send=log, **options)
    expected, reference = one_device(X, y, layers)
    assert float(loss) == pytest.approx(float(expected), rel=BOUND[dtype])
    for part in range(mesh.sizes.get("data", 1)):
        assert distance(joined_shards(shards, grads, part), reference) <= BOUND[dtype]
    for rank, own in enumerate(grads):
        assert all(g.device.endswith(mesh.device(rank)) for g in own)
    size = tf.as_dtype(dtype).size
    assert traffic(log, mesh) == predicted_traffic(widths, samples, mesh, size)


def test_bytes_of_a_small_mesh_counted_by_hand():
    # 2 stages of one block each, 2 parts of 3 samples, 2 slices, float32.
    mesh = Mesh(EIGHT, data=2, pipeline=2, layerwise=2)
    layers, (X, y) = dense_layers([5, 6, 3, 8, 4]), batch(6, 5, "float32")
    log = MessageLog()
    mesh_gradients(X, y, MeshShards(layers, mesh), mesh, send=log)
    rows = 4 * 6  # bytes of a number, times samples
    outputs_and_inputs = (3 + 4) + 3  # forward, and the second block's input
    slices = (5 * 6 + 6 + 6 * 3 + 2 * 3) + (3 * 8 + 8 + 8 * 4 + 2 * 4)
    assert traffic(log, mesh) == {
        "data": 2 * 4 * slices,
        "pipeline": 2 * 2 * rows * 3,
        "layerwise": 2 * rows * outputs_and_inputs,
    }


def test_compiled_training_is_that_of_one_device_and_copies_stay_equal():
    mesh = Mesh(EIGHT[:2], shared=True, pipeline=2, data=2, layerwise=2)
    layers = dense_layers([5, 7, 3, 8, 4], dtype=tf.float64)
    X, y = batch(11, 5, "float64")
    shards, params = MeshShards(layers, mesh), Model(layers).params
    step = in_graph(partial(mesh_step, mesh=mesh, lr=0.1))
    for _ in range(5):
        loss, grads = one_device(X, y, layers)
        assert float(step(X, y, shards)) == pytest.approx(float(loss) / 11, rel=1e-12)
        for p, g in zip(params, grads, strict=True):
            p.assign_sub(0.1 / 11 * g)
    assert distance(joined_shards(shards), params) <= 1e-12
    for group in groups_along(mesh, "data"):
        for a, b in zip(*(shards[rank] for rank in group), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"micro_batches": 4}, ValueError, "parts is 8 for 7 samples"),
        ({"micro_batches": 1.5}, TypeError, "micro_batches must be a whole number"),
        ({"schedule": forward_only}, ValueError, "schedule plans forward passes only"),
        ({"shards": []}, TypeError, "shards must be MeshShards.*got list"),
        ({"lr": -1.0}, ValueError, "lr must be positive"),
    ],
)
def test_a_step_refuses_what_it_cannot_do(options, error, match):
    mesh, (X, y) = Mesh(EIGHT, data=2), batch(7, 5, "float32")
    shards = MeshShards(dense_layers([5, 3, 4]), mesh)
    with pytest.raises(error, match=match):
        mesh_step(X, y, **{"shards": shards, "mesh": mesh, "lr": 0.1, **options})


def test_shards_of_another_mesh_of_as_many_ranks_are_refused_and_nothing_moves():
    axes = {"data": 2, "layerwise": 2}
    X, y = batch(8, 5, "float32")
    shards = MeshShards(dense_layers([5, 4, 4, 4, 3]), Mesh(EIGHT, **axes))
    before = [p.numpy() for own in shards for p in own]
    other = [{"layerwise": 2, "data": 2}, {"layerwise": 4}, {"pipeline": 2, "data": 2}]
    for mesh in [Mesh(EIGHT, **sizes) for sizes in other] + [Mesh(EIGHT[1:], **axes)]:
        with pytest.raises(ValueError, match="shards were cut for the mesh Mesh"):
            mesh_step(X, y, shards, mesh, 0.1)
    for p, old in zip([p for own in shards for p in own], before, strict=True):
        np.testing.assert_array_equal(p, old)
    mesh_step(X, y, shards, Mesh(EIGHT, **axes), 0.1)  # an equal mesh will do


def test_zero_bubble_runs_on_a_mesh_in_the_plans_order():
    mesh = Mesh(EIGHT, pipeline=2, layerwise=2)
    layers, (X, y) = dense_layers([5, 4, 4, 4, 3]), batch(8, 5, "float32")
    shards = MeshShards(layers, mesh)
    rows = [Row(shards, s, 0) for s in range(2)]
    plan = check_plan(zero_bubble(2, 4), rows)
    micro = list(zip(tf.split(X, 4), tf.split(y, 4), strict=True))

    @tf.function(autograph=False)
    def run():
        step, times = run_micro_batches(plan, rows, micro, clock=True)
        return step.grads, times  # without them, what they need would not be run

    times = run()[1]
    at = {span.work: span for span in measured_spans(plan, times)}
    for order in orders_of(plan):
        assert all(at[a].end <= at[b].start for a, b in pairwise(order))


def test_each_rank_works_on_its_own_device_and_messages_go_to_their_target():
    mesh = Mesh(EIGHT[:4], data=2, layerwise=2)
    shards = MeshShards(dense_layers([5, 8, 4, 8, 4]), mesh)
    stages = Mesh(EIGHT[:2], pipeline=2)
    held = MeshShards(dense_layers([5, 8, 4, 8, 4]), stages)
    X, y = batch(8, 5, "float32")

    def work():
        return mesh_gradients(X, y, shards, mesh)

    graph = tf.function(work, autograph=False).get_concrete_function().graph
    found = Counter(op.device for op in graph.get_operations() if op.type == "MatMul")
    assert len(found) == mesh.count and len(set(found.values())) == 1
    log = MessageLog()
    mesh_gradients(X, y, held, stages, send=log)
    assert {(hop.source, hop.target) for hop, _ in log.messages} == {(0, 1), (1, 0)}
    assert all(hop.device == stages.device(hop.target) for hop, _ in log.messages)
