"""ZeRO: gradients, and chunks that Adam moves as the whole; the page counts bytes.

That its steps are those of one device is also in trainings/test_one_device.py. That
Adam is that of Keras: in_step/test_meeting_seldom.py.
"""

from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from manygpu.costs import memory
from manygpu.costs.layout import Layout
from manygpu.hops import Hop
from manygpu.measure import shares
from manygpu.scratch.data_parallel.collectives import MessageLog, deliver
from manygpu.scratch.splitting.network import Layer, Model, lenet_layers
from manygpu.scratch.splitting.pipeline import dense_layers
from manygpu.scratch.splitting.program_over_ranks import Mesh, Spread, place_of
from manygpu.scratch.splitting.program_over_ranks import joined as joined_spread
from manygpu.scratch.splitting.sharded_state import (
    ZeroState,
    adam_change,
    layer_pass,
    traffic,
    zero_bytes,
    zero_gradients,
    zero_params,
    zero_step,
    zero_update,
)
from manygpu.scratch.splitting.what_a_tensor_means import P, R
from manygpu.scratch.start.one_device import init_params
from tests.unit.helpers import EIGHT, in_graph, numbers, places, runs_on, same, upstream
from tests.unit.scratch.splitting.helpers import vectors, whole_gradients

EACH_STAGE = pytest.mark.parametrize("stage", [0, 1, 2, 3])
SAMPLES = 11


@EACH_STAGE
def test_the_bytes_are_those_of_the_one_formula_where_devices_divide_layers(stage):
    for k in (1, 2, 8):
        one = memory.Stored(3, 40, 0, 0, 0, 0)
        said = memory.held(one, Layout(k, zero=stage), 1)[:3]
        assert zero_bytes([40] * 3, k, stage) == [sum(said)] * k


def placed(state, parts) -> list[tf.Tensor]:
    """Parts on their ranks' devices: those that a graph returns are elsewhere."""
    there = []
    for rank, part in enumerate(parts):
        with tf.device(state.mesh.device(rank)):
            there.append(tf.identity(part))
    return there


def joined(state, grads) -> np.ndarray:
    """The whole gradient: of copies that are alike, of summands, or of shards."""
    meaning = dict.fromkeys(state.mesh.sizes, P if state.stage < 2 else R)
    meaning[state.axis] = state.letters.grad
    whole = [Spread(state.mesh, placed(state, of_unit)) for of_unit in grads]
    return np.concatenate([joined_spread(one, meaning, 1e-14) for one in whole])


MESHES = [
    {"data": 1},
    {"data": 3},
    {"data": 8},
    {"copies": 2, "data": 2},
    {"data": 3, "copies": 2},
    {"copies": 2, "data": 2, "pods": 2},
    {"copies": 2, "data": 1},
]


@EACH_STAGE
@pytest.mark.parametrize("sizes", MESHES, ids=str)
def test_on_a_mesh_copies_are_alike_and_shards_lie_along_one_axis(sizes, stage):
    """S on one axis and R on the others; of 8 ranks, some hold no number."""
    widths, mesh = [4, 1, 3], Mesh(EIGHT, **sizes)  # layers of 5 and 6 numbers
    layers, (X, y) = dense_layers(widths, dtype="float64"), vectors(SAMPLES, 4, 3)
    loss, grads = whole_gradients(X, y, layers)
    exact, log = numbers(grads) / SAMPLES, MessageLog()
    state = ZeroState(layers, mesh, stage)
    found_loss, found = in_graph(zero_gradients)(state, X, y, send=log)
    np.testing.assert_allclose(found_loss, loss / SAMPLES, rtol=1e-12)
    np.testing.assert_allclose(joined(state, found), exact, rtol=0, atol=1e-14)
    flat = numbers([p for one in layers for p in one.params])
    held_of = [shares(n, sizes["data"]) for n in (5, 6)]
    own = [sum(counts) for counts in zip(*held_of, strict=True)]
    for i in range(mesh.count):
        held = [[s.parts[i] for s in one[:3]] for one in state.held]
        assert all(runs_on(v, mesh.device(i)) for one in held for v in one)
        count = len(numbers([one[0] for one in held]))
        assert count == (len(flat) if stage < 3 else own[place_of(mesh, i)["data"]])
    m, v = (tf.Variable(np.zeros_like(flat)) for _ in "mv")
    zero_update(state, [placed(state, one) for one in found], 0.01, log)
    flat = flat - adam_change(m, v, exact, 1, 0.01).numpy()
    for i in range(mesh.count):
        moved = numbers(zero_params(state, i))
        np.testing.assert_allclose(moved, flat, rtol=0, atol=1e-9)
    assert traffic(log, mesh) == foreseen(sizes, stage, 8 * len(flat))


def foreseen(sizes: dict, stage: int, size: int) -> dict[str, int]:
    """Bytes along each axis, by hand: all-reduces of what is left of a gradient."""
    ranks = int(np.prod(list(sizes.values())))
    found = {}
    for axis, n in sizes.items():
        groups, times = ranks // n, 3 if stage == 3 and axis == "data" else 2
        found[axis] = times * (n - 1) * groups * size
        if axis != "data" and stage:
            found[axis] //= sizes["data"]
    return found


def lookup(tokens, scale: tf.Tensor, table: tf.Tensor, shift: tf.Tensor) -> tf.Tensor:
    return scale * tf.gather(table, tokens) + shift


def scores(h: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
    return tf.einsum("ntd,vd->ntv", h, table)


@EACH_STAGE
@pytest.mark.parametrize("wrap", [lambda f: f, in_graph], ids=["eager", "graph"])
def test_layers_may_share_a_parameter_have_none_and_take_tokens(stage, wrap):
    rng = np.random.default_rng(0)
    table, scale, shift, W = (
        tf.Variable(rng.normal(size=size)) for size in ((7, 3), (3,), (3,), (3, 3))
    )
    layers = [
        Layer("embed", lookup, (scale, table, shift), casts=False),
        Layer("mix", tf.matmul, (W,)),
        Layer("tanh", tf.tanh),
        Layer("head", scores, (table,), gives=(None, 7)),
    ]
    X, y = (tf.constant(rng.integers(0, 7, (5, 4))) for _ in "Xy")
    model = Model(layers)
    loss, exact = model.gradients(X, y, model.params)
    state = ZeroState(layers, EIGHT[:3], stage)
    # By number: scale and shift; the table, which the head reads, too; and W.
    order = [list(shapes) for shapes in state.vectors.shapes]
    assert order == [[0, 2], [1], [3]]
    assert state.vectors.of_layer == [[0, 1], [2], [], [1]]
    found_loss, found = wrap(partial(zero_gradients, state))(X, y)
    np.testing.assert_allclose(found_loss, loss / 5, rtol=1e-14)
    exact = numbers([exact[n] for n in sum(order, [])]) / 5
    off = np.abs(joined(state, found) - exact).max()
    assert off <= 1e-14 * np.abs(exact).max()
    assert len(state.held) == 3  # shared, not twice
    for own, p in zip(zero_params(state, 1), model.params, strict=True):
        assert np.array_equal(own, p)


def test_a_loss_of_the_readers_own_is_trained():
    def squares(outputs: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.square(outputs), -1) * tf.cast(y, outputs.dtype)

    layers, (X, y) = dense_layers([4, 3], dtype="float64"), vectors(SAMPLES, 4, 3)
    model = Model(layers, squares)
    _, exact = model.gradients(X, y, model.params)
    state = ZeroState(layers, EIGHT[:2], 3, loss=squares)
    found = joined(state, zero_gradients(state, X, y)[1])
    np.testing.assert_allclose(found, numbers(exact) / SAMPLES, rtol=0, atol=1e-14)


@EACH_STAGE
def test_short_parameters_round_a_master_that_is_trained_in_full(stage):
    widths = [5, 7, 3]
    layers, (X, y) = (
        dense_layers(widths),
        vectors(SAMPLES, widths[0], widths[-1], "float32"),
    )
    plain, short = (
        ZeroState(layers, EIGHT[:3], stage, store) for store in (None, tf.bfloat16)
    )
    first = short.held[0]
    masters = first.master.parts[: 1 if stage == 0 else None]
    assert same([numbers(masters)], [numbers(layers[0].params)])  # not rounded
    for state in (plain, short):
        for _ in range(3):
            zero_step(state, X, y, 0.01)
    ends = [numbers(zero_params(state)) for state in (plain, short)]
    np.testing.assert_allclose(*ends, atol=2e-2)
    params = first.param.parts[: None if stage == 3 else 1]
    rounded = [tf.cast(master, tf.bfloat16) for master in masters]
    assert same([numbers(params)], [numbers(rounded)])


def test_the_layers_given_are_not_shared():
    layers = dense_layers([4, 3])
    before = numbers(layers[0].params)
    state = ZeroState(layers, EIGHT[:2], 1)
    layers[0].params[0].assign_add(tf.ones((4, 3)))
    np.testing.assert_array_equal(numbers(zero_params(state)), before)


def test_in_a_graph_a_layer_is_gathered_when_the_one_before_is_done():
    """A chunk is always there: without `after`, all layers would come at once."""
    state, arrived = ZeroState(dense_layers([4, 5, 6, 3]), EIGHT[:3], 3), []

    def note(tensor: tf.Tensor, hop: Hop) -> tf.Tensor:
        arrived.append(deliver(tensor, hop))
        return arrived[-1]

    def forward(hs: list[tf.Tensor]) -> None:
        h = Spread(state.mesh, placed(state, hs))
        for j in range(3):
            send = note if j else deliver  # the first layer has nothing to wait for
            h = layer_pass(state, j, h, send, h.parts)[1]

    in_graph(forward).get_concrete_function([tf.TensorSpec([2, 4])] * 3)
    assert len(arrived) == 2 * 2 * 3  # layers, steps and devices: W and b together
    for message in arrived:
        assert "MatMul" in {op.type for op in upstream(message.op)}


def test_adams_rate_has_the_digits_of_the_parameters():
    m, v = (tf.Variable(tf.zeros(2, tf.float64)) for _ in "mv")
    g = tf.constant([1.0, -2.0], tf.float64)
    tenth = adam_change(m, v, g, 1, 0.1, epsilon=0.0)
    np.testing.assert_allclose(tenth, [0.1, -0.1], rtol=1e-14)


@EACH_STAGE
def test_adam_works_where_its_state_lies(stage):
    state = ZeroState(lenet_layers(init_params()), EIGHT[:2], stage)
    step, X, y = in_graph(zero_step), tf.ones((4, 28, 28, 1)), tf.range(4)
    graph = step.get_concrete_function(state, X, y).graph
    found = places(graph, "Square")
    assert len(found) == 2 and len(set(found.values())) == 1


def test_adam_moves_in_16_bits():
    """Where 1 - 0.999, as its first step has it, is 0."""
    m, v = tf.Variable([0.0], dtype="bfloat16"), tf.Variable([0.0], dtype="bfloat16")
    moved = adam_change(m, v, tf.constant([0.5], tf.bfloat16), 1, lr=0.25)
    assert abs(float(moved[0]) - 0.25) < 0.01
