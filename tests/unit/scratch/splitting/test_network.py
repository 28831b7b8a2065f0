"""Network partitioning: gradients, places, bytes, and batch normalization."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.checks import short_device_name
from manygpu.measure import shares
from manygpu.scratch import gradients, init_params
from manygpu.scratch.data_parallel.collectives import MessageLog
from manygpu.scratch.splitting.network import (
    GUIDE_CUT,
    Layer,
    batch_norm,
    even_cuts,
    gradients_of,
    guide_cnn_layers,
    held_for_backward,
    kept_pass,
    lenet_layers,
    loss_gradient,
    make_stages,
    partitioned_gradients,
    partitioned_step,
    synced_batch_norm,
    synced_batch_norm_gradients,
    transfers,
)
from tests.unit.helpers import EIGHT, batch, distance, in_graph, same, values

BOUND = {"float32": 1e-5, "float64": 1e-12}
quick = settings(deadline=None, max_examples=15)


def dense_layers(widths, dtype="float64", seed=0) -> list[Layer]:
    """A chain of tanh layers, some without parameters."""
    rng = np.random.default_rng(seed)
    layers = []
    for a, b in zip(widths, widths[1:], strict=False):
        W = tf.Variable(rng.normal(size=(a, b)) / np.sqrt(a), dtype=dtype)
        layers.append(Layer("dense", lambda h, W: tf.tanh(h @ W), (W,)))
        layers.append(Layer("scale", lambda h: 2 * h))
    return layers


def whole_gradients(X, y, layers):
    params = [p for one in layers for p in one.params]
    with tf.GradientTape() as tape:
        h = tf.cast(X, params[0].dtype)
        for one in layers:
            h = one.apply(h, *one.params, *one.state)
        loss = tf.reduce_sum(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=h)
        )
    return loss, tape.gradient(loss, params)


@st.composite
def chains(draw):
    """Layer widths, and any cuts of the chain of twice as many layers."""
    widths = draw(st.lists(st.integers(1, 6), min_size=2, max_size=5))
    count = 2 * (len(widths) - 1)
    cuts = sorted(draw(st.sets(st.integers(1, count - 1))))
    return widths, cuts, draw(st.integers(1, 8))


# The kept pass.


@pytest.mark.parametrize("compiled", [False, True])
def test_a_pass_tells_all_gradients_or_those_wanted_one_after_the_other(compiled):
    """Variables and tensors as parameters, several inputs, and half by half."""
    rng = np.random.default_rng(0)
    h, W, b, up = (tf.constant(rng.normal(size=s)) for s in ((3, 4), (4, 2), 2, (3, 2)))

    def found(W, b):
        kept = kept_pass(lambda h, W, b, by: by * tf.tanh(h @ W + b), h, (W, b), (2.0,))
        both = gradients_of(kept, up, [kept.input]), gradients_of(kept, up, kept.params)
        return gradients_of(kept, up), sum(both, []), gradients_of(kept, up, [])

    with tf.GradientTape() as tape:
        tape.watch([h, W, b])
        out = 2.0 * tf.tanh(h @ W + b)
    right = tape.gradient(out, [h, W, b], up)
    for params in (W, b), (tf.Variable(W), b), (tf.Variable(W), tf.Variable(b)):
        run = tf.function(found, autograph=False) if compiled else found
        at_once, halves, none = run(*params)
        assert distance(at_once, right) <= 1e-15 and same(at_once, halves)
        assert none == []


def test_a_pass_has_what_it_was_given_and_listens_to_nothing_else():
    outside, W = tf.Variable(2.0), tf.Variable(3.0)
    kept = kept_pass(lambda h, W: h * W * outside, tf.constant(5.0), (W,))
    assert (float(kept.input), kept.params, float(kept.output)) == (5.0, (W,), 30.0)
    assert gradients_of(kept, tf.constant(1.0), [outside]) == [None]


# Gradients and places.


@given(chain=chains(), samples=st.integers(1, 7), dtype=st.sampled_from(list(BOUND)))
@quick
def test_any_cut_of_any_chain_gives_the_unsplit_gradients(chain, samples, dtype):
    widths, cuts, count = chain
    widths[-1] = 10
    rng = np.random.default_rng(1)
    X = tf.constant(rng.normal(size=(samples, widths[0])), dtype)
    y = tf.constant(rng.integers(0, 10, samples), tf.int32)
    layers = dense_layers(widths, dtype)
    stages = make_stages(layers, cuts, EIGHT[:count])
    loss, grads = partitioned_gradients(X, y, stages)
    whole, reference = whole_gradients(X, y, layers)
    assert [len(own) for own in grads] == [len(stage.params) for stage in stages]
    assert distance(sum(grads, []), reference) <= BOUND[dtype]
    np.testing.assert_allclose(loss, whole, rtol=BOUND[dtype])
    assert [s.device for s in stages] == [
        EIGHT[i % count] for i in range(len(cuts) + 1)
    ]


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_lenet_in_so_many_stages_is_lenet(count, dtype):
    X, y = batch(7)
    params = init_params(dtype=tf.as_dtype(dtype))
    stages = make_stages(lenet_layers(params), even_cuts(4, count), EIGHT)
    _, grads = partitioned_gradients(X, y, stages)
    assert distance(sum(grads, []), gradients(X, y, params)[1]) <= BOUND[dtype]
    for stage, own in zip(stages, grads, strict=True):
        assert {short_device_name(g.device) for g in own} == {stage.device}
        assert {short_device_name(p.device) for p in stage.params} == {stage.device}


def test_a_compiled_step_moves_each_parameter_by_the_mean_gradient():
    X, y = batch(5)
    params = init_params(dtype=tf.float64)
    stages = make_stages(lenet_layers(params), [1, 3], EIGHT)
    step = tf.function(lambda X, y: partitioned_step(X, y, stages, 0.1))
    loss = step(X, y)
    summed, grads = gradients(X, y, params)
    moved = [p for stage in stages for p in stage.params]
    right = [p - 0.1 / 5 * g for p, g in zip(params, grads, strict=True)]
    assert distance(moved, right) <= 1e-14
    np.testing.assert_allclose(loss, summed / 5, rtol=1e-13)
    start = init_params(dtype=tf.float64)  # stages have copies of their own
    assert all(np.array_equal(p, s) for p, s in zip(params, start, strict=True))


def test_the_backward_pass_is_on_its_stages_devices():
    X, y = batch(4)
    stages = make_stages(lenet_layers(init_params()), [1, 2, 3], EIGHT)
    step = tf.function(lambda X, y: partitioned_gradients(X, y, stages))
    operations = step.get_concrete_function(X, y).graph.get_operations()
    made = {o.device for o in operations if o.name.startswith("gradient_tape/")}
    assert {short_device_name(d) for d in made} == set(EIGHT[:4])


@given(layers=st.integers(1, 40), data=st.data())
@quick
def test_even_cuts_are_even(layers, data):
    stages = data.draw(st.integers(1, layers))
    edges = [0, *even_cuts(layers, stages), layers]
    lengths = np.diff(edges)
    assert len(lengths) == stages
    assert lengths.max() - lengths.min() <= 1


# Bad input.


@pytest.mark.parametrize(
    "layers, stages, kind",
    [(4, 5, ValueError), (4, 0, ValueError), (4, 1.5, TypeError), (0, 1, ValueError)],
)
def test_bad_counts_are_refused(layers, stages, kind):
    with pytest.raises(kind, match="stages|layers"):
        even_cuts(layers, stages)


@pytest.mark.parametrize(
    "change, kind, match",
    [
        ({"layers": []}, ValueError, "layers is empty"),
        ({"layers": [tf.ones(2)]}, TypeError, r"layers\[0\] must be a Layer"),
        ({"cuts": 2}, TypeError, "cuts must be a list, got 2"),
        ({"cuts": [1.5]}, TypeError, "cuts"),
        ({"cuts": [0]}, ValueError, "cuts"),
        ({"cuts": [4]}, ValueError, "cuts must rise from 1 to at most 3"),
        ({"cuts": [2, 2]}, ValueError, "cuts must rise"),
        ({"cuts": [3, 1]}, ValueError, "cuts must rise"),
        ({"devices": []}, ValueError, "devices is empty"),
        ({"devices": "/device:CPU:0"}, TypeError, "devices must be a list"),
        ({"devices": ["/device:CPU:99"]}, ValueError, "devices.*does not exist"),
    ],
)
def test_bad_stages_are_refused_by_name(change, kind, match):
    good = {"layers": lenet_layers(init_params()), "cuts": [2], "devices": EIGHT}
    with pytest.raises(kind, match=match):
        make_stages(**(good | change))


def test_a_variable_in_two_layers_is_refused():
    one, two = dense_layers([3, 3])[0], dense_layers([3, 3])[1]
    with pytest.raises(ValueError, match="layers share a variable"):
        make_stages([one, two, one], [1], EIGHT)


def test_a_moving_average_in_two_layers_is_refused():
    """The weights are each layer's own here."""
    one, two = norm_layer(2), norm_layer(2, seed=1)
    with pytest.raises(ValueError, match="layers share a variable"):
        make_stages([one, two._replace(state=one.state)], [1], EIGHT)


@pytest.mark.parametrize(
    "make", [lambda: lenet_layers(init_params()), guide_cnn_layers]
)
@pytest.mark.parametrize("compiled", [False, True])
def test_a_batch_that_is_refused_moves_nothing_not_even_an_average(make, compiled):
    stages = make_stages(make(), [2], EIGHT[:2])
    kept = [v for stage in stages for one in stage.layers for v in one[2] + one[3]]

    def step(X, y):
        return partitioned_step(X, y, stages, 0.1)

    run = tf.function(step, autograph=False) if compiled else step
    (X, y), before = batch(4), values(kept)
    late = tf.errors.InvalidArgumentError if compiled else ValueError
    cases = [
        (X, tf.constant([1, 2, 10, 3]), late, "y must hold labels from 0 to 9"),
        (X, tf.constant([1, -1, 0, 3]), late, "y must hold labels from 0 to 9"),
        (X[..., 0], y, ValueError, r"X must have shape .* X\[..., tf.newaxis\]"),
        (X[:, :, :27], y, ValueError, r"X must have shape \(samples, 28, 28, 1\)"),
        (tf.tile(X, (1, 1, 1, 3)), y, ValueError, "X must have shape"),
    ]
    for *bad, kind, said in cases:
        with pytest.raises(kind, match=said):
            run(*bad)
        assert same(values(kept), before)
    run(X, y)
    assert not same(values(kept), before)


@pytest.mark.parametrize("lr", [-0.1, 0.0, np.nan])
def test_a_rate_that_comes_late_moves_no_average(lr):
    stages = make_stages(guide_cnn_layers(), [3], EIGHT[:2])
    kept = [v for stage in stages for one in stage.layers for v in one[2] + one[3]]
    step = tf.function(lambda X, y, lr: partitioned_step(X, y, stages, lr))
    before = values(kept)
    with pytest.raises(tf.errors.InvalidArgumentError, match="lr must be positive"):
        step(*batch(4), tf.constant(lr, tf.float32))
    assert same(values(kept), before)


def test_a_rate_of_any_kind_of_number_is_that_rate():
    """In float64, where a detour by way of float32 would show."""
    (X, y), moved = batch(4), []
    for lr in (0.25, np.float32(0.25), np.float64(0.25), tf.constant(0.25)):
        stages = make_stages(lenet_layers(init_params(dtype=tf.float64)), [2], EIGHT)
        partitioned_step(X, y, stages, lr)
        moved.append(values(stages[1].params))
    assert all(same(moved[0], other) for other in moved)
    exact, by_tenths = (lenet_layers(init_params(dtype=tf.float64)) for _ in "ab")
    stages = make_stages(by_tenths, [], EIGHT)
    partitioned_step(X, y, stages, 0.1)
    params = [p for one in exact for p in one.params]
    grads = gradients(X, y, params)[1]
    right = [p - 0.1 / 4 * g for p, g in zip(params, grads, strict=True)]
    assert distance(stages[0].params, right) <= 1e-14


def test_the_loss_itself_refuses_a_label_of_no_class():
    """Where the last layer doesn't tell what it gives."""
    stage = make_stages(dense_layers([3, 4]), [], EIGHT)[0]
    with pytest.raises(ValueError, match="y must hold labels from 0 to 3, got 0 to 4"):
        loss_gradient(stage, tf.ones((2, 4), tf.float64), tf.constant([0, 4]))


def test_bad_batches_and_rates_are_refused():
    X, y = batch(4)
    stages = make_stages(lenet_layers(init_params()), [2], EIGHT)
    with pytest.raises(ValueError, match="X and y must have the same length"):
        partitioned_gradients(X, y[:3], stages)
    with pytest.raises(ValueError, match="stages is empty"):
        partitioned_gradients(X, y, [])
    with pytest.raises(ValueError, match="lr must be positive"):
        partitioned_step(X, y, stages, -0.1)


@pytest.mark.parametrize("samples, labels", [(0, 0), (3, 2)])
def test_a_graph_for_any_batch_size_refuses_and_changes_nothing(samples, labels):
    """An empty batch fails in some convolutions, and makes NaNs behind others."""
    stages = make_stages(guide_cnn_layers(), [3], EIGHT[:2])
    kept = [v for stage in stages for one in stage.layers for v in one[2] + one[3]]
    kinds = [tf.TensorSpec((None, 28, 28, 1)), tf.TensorSpec((None,), tf.int32)]
    step = tf.function(
        lambda X, y: partitioned_step(X, y, stages, 0.1), input_signature=kinds
    )
    before, (X, y) = [v.numpy() for v in kept], batch(3)
    said = "devices has 1 entries for|X and y must have the same length"
    with pytest.raises(tf.errors.InvalidArgumentError, match=said):
        step(X[:samples], y[:labels])
    for v, was in zip(kept, before, strict=True):
        np.testing.assert_array_equal(v, was)


# Bytes.


@pytest.mark.parametrize("cuts", [[], [1], [2], [3], [1, 2, 3]])
def test_each_cut_moves_its_activation_and_its_gradient(cuts):
    X, y = batch(6)
    stages = make_stages(lenet_layers(init_params()), cuts, EIGHT)
    step = tf.function(lambda X, y: partitioned_step(X, y, stages, 0.1))
    moves = transfers(step.get_concrete_function(X, y).graph)
    numbers = {1: 13 * 13 * 20, 2: 4 * 4 * 50, 3: 128}
    sizes = [4 * 6 * numbers[c] for c in cuts]
    there = [(m.source, m.target, m.bytes) for m in moves if not m.backward]
    back = [(m.source, m.target, m.bytes) for m in moves if m.backward]
    pairs = list(zip(EIGHT, EIGHT[1:], sizes, strict=False))
    assert there == pairs
    assert back == [(b, a, size) for a, b, size in reversed(pairs)]


def test_what_lenet_keeps_is_what_its_backward_pass_reads():
    X, y = batch(6)
    conv, rest = 28 * 28 + 26 * 26 * 20 + 13 * 13 * 20 + 9 * 9 * 50, 800 + 128 + 10
    for cuts, kept in ([], [conv + rest]), ([2], [conv, rest]):
        stages = make_stages(lenet_layers(init_params()), cuts, EIGHT)
        step = tf.function(lambda X, y, s=stages: partitioned_step(X, y, s, 0.1))
        held = held_for_backward(step.get_concrete_function(X, y).graph)
        sizes = [4 * 6 * n for n in kept]
        assert held == dict(zip(EIGHT, sizes, strict=False))


def test_a_cut_within_a_device_keeps_nothing_twice_between_devices_it_does():
    X, y = batch(6)
    held = []
    for cuts, devices in ([], EIGHT[:1]), ([3], EIGHT[:1]), ([3], EIGHT[:2]):
        stages = make_stages(lenet_layers(init_params()), cuts, devices)
        step = tf.function(lambda X, y, s=stages: partitioned_gradients(X, y, s))
        graph = step.get_concrete_function(X, y).graph
        held.append(sum(held_for_backward(graph).values()))
    whole, within, between = held
    assert within == whole
    assert between == whole + 4 * 6 * 128  # both sides need what the ReLU gave


def test_unknown_sizes_are_refused():
    stages = make_stages(lenet_layers(init_params()), [2], EIGHT)
    step = tf.function(lambda X, y: partitioned_gradients(X, y, stages))
    shapes = tf.TensorSpec([None, 28, 28, 1]), tf.TensorSpec([None], tf.int32)
    graph = step.get_concrete_function(*shapes).graph
    for count in transfers, held_for_backward:
        with pytest.raises(ValueError, match="trace with a batch of known size"):
            count(graph)


# The guide's CNN and its batch normalization.


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("cuts", [GUIDE_CUT, [1, 2, 5]])
def test_a_cut_leaves_batch_normalization_as_it_is(cuts, dtype):
    X, y = batch(4)
    layers = guide_cnn_layers(dtype=tf.as_dtype(dtype))
    stages = make_stages(layers, cuts, EIGHT)
    _, grads = partitioned_gradients(X, y, stages)
    _, reference = whole_gradients(X, y, layers)
    assert distance(sum(grads, []), reference) <= BOUND[dtype]
    moved = [v for s in stages for one in s.layers for v in one.state]
    assert distance(moved, [v for one in layers for v in one.state]) <= BOUND[dtype]
    assert sum(int(tf.size(p)) for s in stages for p in s.params) == 2_004_298


def test_one_seed_is_one_model_in_both_dtypes_and_another_is_another():
    narrow, wide, other = (
        [p.numpy() for one in guide_cnn_layers(s, d) for p in one.params]
        for s, d in ((0, tf.float32), (0, tf.float64), (1, tf.float32))
    )
    for a, b, c in zip(narrow, wide, other, strict=True):
        np.testing.assert_array_equal(a, b.astype(np.float32))
        assert a.std() == 0 or not np.array_equal(a, c)


def test_the_guides_layers_are_those_of_its_picture_with_he_weights():
    layers = guide_cnn_layers(dtype=tf.float64)
    rng = np.random.default_rng(0)
    conv, dense = layers[3], layers[6]
    for fan_in, W in (9 * 32, conv.params[0]), (256, dense.params[0]):
        spread = np.sqrt(2 / fan_in)
        assert abs(np.std(W) / spread - 1) < 5 / np.sqrt(2 * tf.size(W).numpy())
    # A bias is added, before the ReLU.
    for layer, h in (
        (conv, rng.normal(size=(2, 4, 4, 32))),
        (
            dense,
            rng.normal(size=(2, 256)),
        ),
    ):
        W, b = layer.params
        without = layer.apply(h, W, tf.zeros_like(b))
        assert not np.any(b)  # they begin at zero
        b.assign(tf.fill(b.shape, tf.cast(1e6, b.dtype)))
        np.testing.assert_array_less(9e5, layer.apply(h, W, b))
        b.assign(tf.zeros_like(b))
        np.testing.assert_array_equal(layer.apply(h, W, b), without)


def norm_layer(channels: int, seed: int = 0) -> Layer:
    rng = np.random.default_rng(seed)
    gamma, beta, mean, variance = (
        tf.Variable(v) for v in rng.random((4, channels)) + 0.5
    )
    return Layer("norm", batch_norm, (gamma, beta), (mean, variance))


@given(
    samples=st.integers(2, 12),
    count=st.integers(1, 8),
    sides=st.lists(st.integers(1, 3), max_size=2),
    channels=st.integers(1, 5),
    compiled=st.booleans(),
)
@settings(deadline=None, max_examples=8)
def test_synced_normalization_is_that_of_the_whole_batch(
    samples, count, sides, channels, compiled
):
    count = min(samples, count)
    shape = (samples, *sides, channels)
    rng = np.random.default_rng(2)
    h = tf.constant(rng.normal(2, 3, shape))
    g = tf.constant(rng.normal(size=shape))
    one, places = norm_layer(channels), EIGHT[:count]
    own = [make_stages([one], [], [place])[0].layers[0] for place in places]
    with tf.GradientTape() as tape:
        tape.watch(h)
        out = one.apply(h, *one.params, *one.state)
    reference = tape.gradient(out, [h, *one.params], g)
    sizes, log, back_log = shares(samples, count), MessageLog(), MessageLog()

    def synced():
        hs, gs = tf.split(h, sizes), tf.split(g, sizes)
        results = synced_batch_norm(hs, own, places, log)
        found, of_params = synced_batch_norm_gradients(
            results, gs, own, places, back_log
        )
        return tf.concat([r.output for r in results], 0), tf.concat(found, 0), of_params

    output, inputs, of_params = (in_graph(synced) if compiled else synced)()
    # Conditioning: with few values a channel the variance may be small.
    np.testing.assert_allclose(output, out, rtol=0, atol=1e-10)
    for params in of_params:
        found = [inputs, *params]
        for a, b in zip(found, reference, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)
    for layer in own:
        for a, b in zip(layer.state, one.state, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
    if count > 1:
        sent = sum(map(log.sent, range(count)))
        back = sum(map(back_log.sent, range(count)))
        assert sent == 2 * (count - 1) * 8 * (2 * channels + 1)
        steps = {hop.step for hop, _ in log.messages}  # of one ring after the other
        assert steps == set(range(4 * (count - 1)))
        assert back == 2 * (count - 1) * 8 * 2 * channels


@pytest.mark.parametrize("centre", [0.0, 100.0, 300.0, 1000.0, 3000.0])
@pytest.mark.parametrize("count", [1, 3])
def test_synced_normalization_keeps_its_digits_far_from_zero(centre, count):
    """Against the same float32 numbers, normalized in float64.

    The mean is known to a few roundings of its own size, and the spread is 1: so much
    each output may be off. From E[x^2] - E[x]^2 it would be NaN at 3,000.
    """
    rng = np.random.default_rng(3)
    h = tf.constant(centre + rng.normal(size=(64, 5, 2)), tf.float32)
    wide, places = norm_layer(2), EIGHT[:count]
    right = wide.apply(tf.cast(h, tf.float64), *wide.params, *wide.state)
    narrow = [Layer("norm", batch_norm, *map(in_float32, norm_layer(2)[2:4]))]
    own = [make_stages(narrow, [], [place])[0].layers[0] for place in places]
    results = synced_batch_norm(tf.split(h, shares(64, count)), own, places)
    found = tf.concat([r.output for r in results], 0)
    rounding = 2.0**-24
    np.testing.assert_allclose(found, right, rtol=0, atol=8 * (centre + 8) * rounding)
    for layer in own:
        assert distance(layer.state, wide.state) <= 8 * rounding


def in_float32(variables):
    return tuple(tf.Variable(tf.cast(v, tf.float32)) for v in variables)


@pytest.mark.parametrize(
    ("momentum", "kind"),
    [
        (5, ValueError),
        (float("nan"), ValueError),
        (-0.1, ValueError),
        ("a", TypeError),
        (True, TypeError),
    ],
)
def test_a_momentum_that_is_no_share_is_refused_and_moves_nothing(momentum, kind):
    one, h = norm_layer(2), tf.ones((4, 2), tf.float64)
    before = values(one.state)
    with pytest.raises(kind, match="momentum must be"):
        one.apply(h, *one.params, *one.state, momentum=momentum)
    with pytest.raises(kind, match="momentum must be"):
        synced_batch_norm([h], [one], EIGHT[:1], momentum=momentum)
    assert same(values(one.state), before)


@pytest.mark.parametrize(
    "change, match",
    [
        ({"layers": [norm_layer(2)] * 2}, "layers share a variable"),
        (
            {"layers": [norm_layer(2), norm_layer(3)]},
            r"shards\[1\] has 2 channels, layers\[1\] 3",
        ),
        ({"shards": []}, "shards is empty"),
        ({"layers": [norm_layer(2)]}, "layers has 1 entries for 2 shards"),
        ({"devices": EIGHT[:3]}, "devices has 3 entries for 2 shards"),
        ({"devices": ["/device:CPU:0", "/device:CPU:99"]}, "does not exist"),
    ],
)
def test_shards_that_do_not_match_are_refused(change, match):
    good = {
        "shards": [tf.ones((2, 2), tf.float64)] * 2,
        "layers": [norm_layer(2), norm_layer(2)],
        "devices": EIGHT[:2],
    }
    with pytest.raises(ValueError, match=match):
        synced_batch_norm(**(good | change))
