"""Recomputation: exact gradients, how often layers run; the page measures the peaks."""

import math
import weakref

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch.data_parallel.collectives import MessageLog
from manygpu.scratch.splitting.batch_normalization import guide_cnn_layers
from manygpu.scratch.splitting.hybrid_meshes import MeshShards, mesh_gradients
from manygpu.scratch.splitting.network import (
    Layer,
    gradients_of,
    kept_pass,
    make_stages,
    partitioned_gradients,
)
from manygpu.scratch.splitting.pipeline import dense_chain
from manygpu.scratch.splitting.program_over_ranks import Backward, Cut, Mesh, spread_out
from manygpu.scratch.splitting.recomputation import (
    as_segment,
    best_length,
    kept_activations,
    peak_bytes,
    recomputed,
    recomputed_cut,
    recomputed_layers,
)
from manygpu.scratch.splitting.transformer import gpt_layers
from manygpu.scratch.splitting.what_a_tensor_means import I, P, R, S
from tests.unit.helpers import EIGHT, distance, in_graph, places, upstream

quick = settings(deadline=None, max_examples=15)
counted: list[str] = []


def dense(h, W, b):
    counted.append(tf.nn.tanh.__name__)
    return tf.nn.tanh(h @ W + b)


def chain(n: int, dtype: str, width: int = 5) -> list[Layer]:
    """n layers with two parameters each, and after each other one with none."""
    rng = np.random.default_rng(n)
    layers = []
    for i in range(n):
        if i % 3 == 2:
            layers.append(Layer(f"relu {i}", tf.nn.relu))
            continue
        W, b = rng.normal(size=(width, width)), rng.normal(size=width)
        params = tf.Variable(W, dtype=dtype), tf.Variable(b, dtype=dtype)
        layers.append(Layer(f"dense {i}", dense, params))
    return layers


def loss_gradients(layers, h):
    """The gradients of half the sum of squares, for h and all parameters."""
    whole = as_segment(layers)
    kept = kept_pass(whole.apply, h, whole.params)
    return gradients_of(kept, kept.output)


def twice(layers):
    """Segments of segments, of two each where there are two."""
    inner = recomputed_layers(layers, min(2, len(layers)))
    return recomputed_layers(inner, min(2, len(inner)))


@given(
    n=st.integers(1, 12),
    data=st.data(),
    dtype=st.sampled_from(["float32", "float64"]),
    device=st.sampled_from(EIGHT),
)
@quick
def test_eager_gradients_are_equal_to_the_bit(n, data, dtype, device):
    length = data.draw(st.integers(1, n))
    with tf.device(device):
        layers = chain(n, dtype)
        h = tf.constant(np.random.default_rng(0).normal(size=(3, 5)), dtype)
        right = loss_gradients(layers, h)
        for again in (recomputed_layers(layers, length), twice(layers)):
            for a, b in zip(loss_gradients(again, h), right, strict=True):
                assert a.dtype == b.dtype
                np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize(
    "dtype, allowed", [("float32", 1e-5), ("float64", 1e-12), ("float16", 1e-2)]
)
def test_compiled_gradients_are_equal(dtype, allowed):
    layers = chain(7, dtype)
    h = tf.constant(np.random.default_rng(0).normal(size=(4, 5)), dtype)
    right = loss_gradients(layers, h)
    again = recomputed_layers(layers, 4)
    found = in_graph(lambda h: loss_gradients(again, h))(h)
    for a, b in zip(found, right, strict=True):
        assert not np.any(b) or distance([a], [b]) <= allowed


def test_every_device_recomputes_where_it_computed():
    """In a graph the second run's products are on the device of the first."""

    @in_graph
    def step(h):
        for device, layers in replicas:
            with tf.device(device):
                loss_gradients(recomputed_layers(layers, 3), tf.identity(h))
        return h

    replicas = []
    for device in EIGHT:
        with tf.device(device):
            replicas.append((device, chain(6, "float32")))
    graph = step.get_concrete_function(tf.ones((2, 5))).graph
    found = places(graph, "MatMul")
    assert set(found) == {*EIGHT} and len(set(found.values())) == 1


def test_a_parameter_without_influence_has_no_gradient():
    unused, h = tf.Variable(1.0), tf.ones(2)
    with tf.GradientTape() as tape:
        out = recomputed(lambda h, unused: 2.0 * h)(h, unused)
    assert tape.gradient(out, unused) is None


def test_a_segment_is_a_layer_with_all_that_its_layers_have():
    layers = guide_cnn_layers(dtype=tf.float64)
    one = as_segment(layers)
    assert one.name == "conv 1 to dense 2"
    assert one.params == tuple(p for each in layers for p in each.params)
    assert one.state == tuple(v for each in layers for v in each.state)
    assert (one.takes, one.gives) == ((28, 28, 1), (10,))
    assert as_segment(layers[:1]).name == "conv 1"


def test_averages_move_in_a_segment_that_is_not_recomputed():
    norms = guide_cnn_layers(dtype=tf.float64)
    joined = make_stages([as_segment(norms[:3]), *norms[3:]], [1], EIGHT[:2])
    apart = make_stages(norms, [3], EIGHT[:2])
    images = tf.ones((3, 28, 28, 1)) * tf.reshape([0.1, 0.5, 0.9], (3, 1, 1, 1))
    states = []
    for stages in joined, apart:
        partitioned_gradients(images, tf.constant([0, 1, 2]), stages)
        states.append([v for s in stages for one in s.layers for v in one.state])
    assert distance(*states) <= 1e-14


@pytest.mark.parametrize("n, length", [(1, 1), (5, 2), (6, 6), (9, 3)])
def test_each_layer_runs_twice_and_in_segments_of_segments_once_more(n, length):
    layers = [one for one in chain(3 * n, "float32") if one.params][:n]
    for again, times in (recomputed_layers(layers, length), 2), (twice(layers), 3):
        counted.clear()
        loss_gradients(again, tf.ones((2, 5)))
        assert len(counted) == times * n


@given(n=st.integers(1, 200), data=st.data())
@settings(deadline=None)
def test_the_formula_is_what_a_walk_through_the_segments_counts(n, data):
    length = data.draw(st.integers(1, n))
    sizes = [min(length, n - i) for i in range(0, n, length)]
    # While segment j goes back: the inputs of segments 0..j, and its own outputs.
    assert kept_activations(n, length) == max(j + 1 + s for j, s in enumerate(sizes))


@given(n=st.integers(1, 400))
@settings(deadline=None, max_examples=40)
def test_the_best_length_is_near_the_root_and_keeps_twice_the_root(n):
    best = best_length(n)
    least = kept_activations(n, best)
    assert least == min(kept_activations(n, s) for s in range(1, n + 1))
    assert least <= 2 * math.sqrt(n) + 1
    assert math.isqrt(n) ** 2 != n or best == math.isqrt(n)


def test_where_nobody_counts_it_is_said_with_the_cure(monkeypatch):
    """As without oneDNN, and as an allocator that counts no tensor of that size."""

    def no_statistics(device):
        raise ValueError("Cannot reset memory stats for device 'CPU:0'")

    memory, nothing = tf.config.experimental, {"current": 0, "peak": 0}
    monkeypatch.setattr(memory, "get_memory_info", lambda device: nothing)
    for reset in no_statistics, lambda device: None:
        monkeypatch.setattr(memory, "reset_memory_stats", reset)
        with pytest.raises(ValueError, match="CPU:1 has.*CPU_ALLOCATOR_USE_BFC=true"):
            peak_bytes(lambda: 0, EIGHT[1])


def in_columns_and_rows(axis, apply, h, A, B):
    hidden = h.move(axis, I, R).each(apply, A)
    return hidden.each(tf.matmul, B).move(axis, P, I)


PAIR = Cut((S(-1), S(-2)), in_columns_and_rows)


def run_pair(cut: Cut, seen: list, log: MessageLog):
    """A program's output and inputs; `seen`: what it computed in between."""

    def product(h, A):
        out = tf.tanh(h @ A)
        if hasattr(out, "numpy"):
            seen.append(weakref.ref(out))
        return out

    mesh, rng = Mesh(EIGHT, data=2, layerwise=2), np.random.default_rng(0)
    letters = {"data": S(-2)}, {"layerwise": S(-1)}, {"layerwise": S(-2)}
    inputs = [
        spread_out(tf.constant(rng.normal(size=size)), to, mesh, log)
        for size, to in zip([(5, 4), (4, 3), (3, 2)], letters, strict=True)
    ]
    return cut.program("layerwise", product, *inputs), inputs


@pytest.mark.parametrize("wrap", [lambda f: f, in_graph], ids=["eager", "graph"])
def test_a_program_over_ranks_runs_again(wrap):
    """The same gradients to the bit, on the same devices; messages go once more."""

    def gradients(cut, log):
        out, inputs = run_pair(cut, [], log)
        backward = Backward(out, out.parts)
        of_input, *of_params = backward.to(inputs[:1]) + backward.to(inputs[1:])
        return [of_input.parts, *(g.parts for g in of_params)]

    logs = [MessageLog() for _ in range(3)]
    plain = wrap(lambda: gradients(PAIR, logs[0]))()
    again = wrap(lambda: gradients(recomputed_cut(PAIR), logs[1]))()
    for one, other in zip(plain, again, strict=True):
        for a, b, device in zip(one, other, EIGHT[:4], strict=True):
            np.testing.assert_array_equal(a, b)
            assert wrap is in_graph or b.device.endswith(device)
    run_pair(PAIR, [], logs[2])
    forward = len(logs[2].messages)
    assert len(logs[1].messages) == len(logs[0].messages) + 2 * forward


def test_a_recomputed_program_keeps_nothing_but_its_inputs():
    for cut, alive in ((PAIR, True), (recomputed_cut(PAIR), False)):
        seen = []
        out, _ = run_pair(cut, seen, MessageLog())
        assert len(seen) == 4 and all((ref() is not None) == alive for ref in seen)
        assert len(out.parts) == 4


def test_in_a_graph_a_program_runs_again_when_its_gradient_is_there():
    def step(h):
        mesh = Mesh(EIGHT, layerwise=2)
        inputs = [spread_out(t, {}, mesh) for t in (h, h)]
        again = recomputed_cut(Cut((R,), lambda axis, apply, h, A: h.each(apply, A)))
        out = again.program("layerwise", lambda h, A: tf.tanh(h @ A), *inputs)
        late = [tf.exp(part) for part in out.parts]
        return Backward(out, late).to(inputs)[0].parts

    graph = in_graph(step).get_concrete_function(tf.ones((3, 3))).graph
    runs = [op for op in graph.get_operations() if op.type == "Tanh"]
    waiting = [run for run in runs if "Exp" in {op.type for op in upstream(run)}]
    assert len(runs) == 4 and len(waiting) == 2


def test_layers_on_a_mesh_may_be_recomputed():
    layers = dense_chain(4, 6, "float64")
    rng, found = np.random.default_rng(1), []
    X, y = tf.constant(rng.normal(size=(7, 6))), tf.constant(rng.integers(0, 6, 7))
    mesh = Mesh(EIGHT, data=2, layerwise=2)
    cuts = MeshShards(layers, mesh).cuts
    for own in (cuts, [recomputed_cut(cut) for cut in cuts]):
        shards = MeshShards(layers, mesh, own)
        loss, grads = mesh_gradients(X, y, shards, mesh)
        found.append([loss, *sum(grads, [])])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_segment_takes_a_text_as_its_first_layer_does():
    first, *_ = layers = gpt_layers(1, 11, 5, 4, 2, "float64")
    assert [one.casts for one in recomputed_layers(layers, 2)] == [first.casts, True]
    assert not first.casts
