"""Layers of experts: each step is one device's, forward and back, dropped or not.

The reference computes each expert on each token, and leaves out what isn't chosen. With
a capacity, a loop over the choices says which of them are kept, rank by rank.
"""

from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from manygpu.checks import short_device_name
from manygpu.scratch.data_parallel.collectives import MessageLog
from manygpu.scratch.splitting.program_over_ranks import (
    Backward,
    Mesh,
    Spread,
    joined,
    spread_out,
    summed,
)
from manygpu.scratch.splitting.what_a_tensor_means import P, R, S
from manygpu.scratch.today.experts import (
    balance_loss,
    choose_experts,
    dropless_layer,
    exchange_rows,
    expert_layer,
    expert_load,
    pushed_bias,
    quantile_bias,
    seats_of,
)
from tests.unit.helpers import EIGHT, in_graph

TOKENS, WIDTH, HIDDEN, K = 19, 3, 5, 2
BOUND = 1e-13
MESHES = [
    {"expert": 1},
    {"expert": 2},
    {"expert": 3},
    {"expert": 4},
    {"expert": 8},
    {"data": 3},
    {"data": 2, "expert": 2},
    {"data": 2, "expert": 4},
    {"data": 4, "expert": 2},
    {"expert": 3, "data": 2},
]
LETTERS = {
    "x": {"data": S(-2), "expert": S(-2)},
    "router": {},
    "A": {"expert": S(-3)},
    "B": {"expert": S(-3)},
}


def drawn(*shape, seed=0):
    return tf.constant(np.random.default_rng(seed).normal(size=shape))


def whole_tensors(experts):
    shapes = (TOKENS, WIDTH), (WIDTH, experts)
    shapes += (experts, WIDTH, HIDDEN), (experts, HIDDEN, WIDTH)
    return [drawn(*shape, seed=seed) for seed, shape in enumerate(shapes)]


def dense(x, router, A, B, kept, bias=0.0):
    """Each expert on each token, on one device; kept: 1 or 0 (tokens, experts)."""
    scores = x @ router
    least = tf.sort(scores + bias, -1)[:, -K, tf.newaxis]
    likely = tf.where(scores + bias >= least, tf.exp(scores), 0.0)
    gates = likely / tf.reduce_sum(likely, -1, keepdims=True) * kept
    answers = [tf.nn.gelu(x @ A[e]) @ B[e] for e in range(A.shape[0])]
    return x + tf.add_n([gates[:, e, None] * one for e, one in enumerate(answers)])


def one_device(wholes, upstream, kept, bias=0.0):
    """The output, and the gradients of x, the router and the experts."""
    with tf.GradientTape() as tape:
        tape.watch(wholes)
        output = dense(*wholes, kept, bias)
    return [output, *tape.gradient(output, wholes, upstream)]


def ranks_of_tokens(mesh):
    """The tokens of each rank."""
    spread = spread_out(tf.range(TOKENS)[:, tf.newaxis], LETTERS["x"], mesh)
    return [part.numpy().ravel() for part in spread.parts]


def kept_choices(wholes, mesh, capacity, real=None, bias=0.0):
    """1 where a choice is kept, 0 elsewhere; and how many aren't: one by one."""
    x, router = wholes[:2]
    scores = (x @ router).numpy() + np.asarray(bias)
    chosen = np.argsort(-scores, -1, kind="stable")[:, :K]
    kept, dropped = np.zeros(scores.shape), 0
    for own in ranks_of_tokens(mesh):
        queues = np.zeros(scores.shape[1], int)
        for token in own:
            for e in chosen[token] if real is None or real[token] else []:
                kept[token, e] = queues[e] < capacity
                dropped += queues[e] >= capacity
                queues[e] += 1
    return kept, dropped


def on_ranks(layer, mesh, wholes, upstream, send=None, **spreads):
    """The output and the gradients on a mesh, joined; copies must agree."""
    held = [
        spread_out(whole, own, mesh, *([send] if send else []))
        for whole, own in zip(wholes, LETTERS.values(), strict=True)
    ]
    output = layer("expert", *held, **spreads)
    dout = spread_out(upstream, LETTERS["x"], mesh)
    grads = Backward(output, dout.parts).to(held)
    letters = list(LETTERS.values())
    sums = [grads[0], *map(summed, grads[1:], letters[1:])]
    return [output, *sums], [letters[0], *letters]


def off(found, letters, right):
    """The largest relative difference of any of the tensors."""
    apart = []
    for one, own, r in zip(found, letters, right, strict=True):
        r = np.asarray(r)
        difference = np.abs(joined(one, own, BOUND) - r).max()
        apart.append(difference / np.abs(r).max())
    return max(apart)


def most_tokens(mesh):
    return max(map(len, ranks_of_tokens(mesh)))


@pytest.mark.parametrize(
    ("axes", "experts"),
    [*((axes, 5) for axes in MESHES), (MESHES[2], 8), (MESHES[2], 2), (MESHES[4], 8)],
    ids=str,
)
def test_no_drops_is_one_device_for_each_tensor_and_copy(axes, experts):
    mesh, wholes = Mesh(EIGHT, **axes), whole_tensors(experts)
    upstream, ones = drawn(TOKENS, WIDTH, seed=9), np.ones((TOKENS, experts))
    right = one_device(wholes, upstream, ones)
    seats = partial(expert_layer, k=K, capacity=most_tokens(mesh))
    for layer in (seats, partial(dropless_layer, k=K)):
        found, letters = on_ranks(layer, mesh, wholes, upstream)
        assert off(found, letters, right) <= BOUND
        for one in found:
            lie = [short_device_name(part.device) for part in one.parts]
            assert lie == EIGHT[: mesh.count]


@pytest.mark.parametrize("axes", MESHES, ids=str)
def test_with_a_capacity_the_same_choices_are_dropped_as_one_by_one(axes):
    mesh, wholes = Mesh(EIGHT, **axes), whole_tensors(4)
    upstream = drawn(TOKENS, WIDTH, seed=9)
    total = 0
    for capacity in (1, 2, 3):
        kept, dropped = kept_choices(wholes, mesh, capacity)
        total += dropped
        right = one_device(wholes, upstream, kept)
        layer = partial(expert_layer, k=K, capacity=capacity)
        found, letters = on_ranks(layer, mesh, wholes, upstream)
        assert off(found, letters, right) <= BOUND
        seats = 0
        for own in ranks_of_tokens(mesh):
            x, router = tf.gather(wholes[0], own), wholes[1]
            chosen = choose_experts(x, router, k=K)
            seats += int(tf.reduce_sum(seats_of(chosen, 4, capacity)))
        assert TOKENS * K - seats == dropped
    assert total > 0


@pytest.mark.parametrize("axes", [{"expert": 3}, {"data": 2, "expert": 2}], ids=str)
def test_compiled_it_is_the_same(axes):
    mesh, wholes = Mesh(EIGHT, **axes), whole_tensors(5)
    upstream = drawn(TOKENS, WIDTH, seed=9)
    layer = partial(expert_layer, k=K, capacity=most_tokens(mesh))

    def run():
        found, _ = on_ranks(layer, mesh, wholes, upstream)
        return [one.parts for one in found]

    _, letters = on_ranks(layer, mesh, wholes, upstream)
    compiled = []
    for parts in in_graph(run)():
        placed = []
        for rank, part in enumerate(parts):
            with tf.device(mesh.device(rank)):
                placed.append(tf.identity(part))
        compiled.append(Spread(mesh, placed))
    right = one_device(wholes, upstream, np.ones((TOKENS, 5)))
    assert off(compiled, letters, right) <= BOUND


@pytest.mark.parametrize("axes", MESHES, ids=str)
def test_bytes_are_those_of_the_plan(axes):
    """Queues there and back, forward and backward; then sums of what is replicated."""
    mesh, wholes = Mesh(EIGHT, **axes), whole_tensors(5)
    upstream = drawn(TOKENS, WIDTH, seed=9)
    d, p = axes.get("data", 1), axes.get("expert", 1)
    capacity = most_tokens(mesh)
    router, held = wholes[1].numpy().nbytes, sum(w.numpy().nbytes for w in wholes[2:])
    sums = 2 * (d - 1) * (p * router + held) + 2 * (p - 1) * d * router
    log = MessageLog()
    layer = partial(expert_layer, k=K, capacity=capacity)
    on_ranks(layer, mesh, wholes, upstream, log)
    queues = 4 * d * (p - 1) * 5 * capacity * WIDTH * 8
    assert sum(size for _, size in log.messages) == queues + sums
    log = MessageLog()
    on_ranks(partial(dropless_layer, k=K), mesh, wholes, upstream, log)
    owners = np.repeat(np.arange(p), [len(one) for one in np.array_split(range(5), p)])
    chosen, leave = choose_experts(*wholes[:2], k=K).numpy(), 0
    groups = np.arange(d * p).reshape(list(axes.values()))
    for rank, own in enumerate(ranks_of_tokens(mesh)):
        at = dict(zip(axes, map(int, np.argwhere(groups == rank)[0]), strict=True))
        leave += (owners[chosen[own]] != at.get("expert", 0)).sum()
    counts = d * (p - 1) * 5 * 4
    rows = 4 * int(leave) * WIDTH * 8
    assert sum(size for _, size in log.messages) == rows + counts + sums


@pytest.mark.parametrize("layer", ["seats", "dropless"])
def test_padding_takes_no_seat_and_gets_no_answer(layer):
    mesh, wholes = Mesh(EIGHT, data=2, expert=2), whole_tensors(4)
    real = np.arange(TOKENS) % 3 > 0
    upstream = drawn(TOKENS, WIDTH, seed=9)
    flags = spread_out(tf.constant(real), {"data": S(-1), "expert": S(-1)}, mesh)
    capacity = 2 if layer == "seats" else TOKENS
    kept, dropped = kept_choices(wholes, mesh, capacity, real)
    assert (dropped > 0) == (layer == "seats")
    right = one_device(wholes, upstream, kept)
    run = partial(expert_layer, capacity=capacity)
    run = partial(run if layer == "seats" else dropless_layer, k=K, real=flags)
    found, letters = on_ranks(run, mesh, wholes, upstream)
    assert off(found, letters, right) <= BOUND


@pytest.mark.parametrize("name", ["seats", "dropless"])
def test_a_bias_changes_the_choice_and_no_gate(name):
    mesh, wholes = Mesh(EIGHT, expert=2), whole_tensors(4)
    bias, upstream = drawn(4, seed=7) * 2, drawn(TOKENS, WIDTH, seed=9)
    right = one_device(wholes, upstream, np.ones((TOKENS, 4)), bias)
    layer = dropless_layer
    if name == "seats":
        layer = partial(expert_layer, capacity=TOKENS)
    run = partial(layer, k=K, bias=spread_out(bias, {}, mesh))
    found, letters = on_ranks(run, mesh, wholes, upstream)
    assert off(found, letters, right) <= BOUND
    plain = one_device(wholes, upstream, np.ones((TOKENS, 4)))
    assert off(found, letters, plain) > 0.01


@pytest.mark.parametrize("axes", MESHES, ids=str)
@pytest.mark.parametrize("padded", [False, True])
def test_the_auxiliary_loss_is_that_of_all_tokens(axes, padded):
    mesh, (x, router, *_) = Mesh(EIGHT, **axes), whole_tensors(5)
    real = np.arange(TOKENS) % 3 > 0 if padded else np.ones(TOKENS, bool)
    with tf.GradientTape() as tape:
        tape.watch([x, router])
        own = tf.boolean_mask(x, real)
        counts = expert_load(choose_experts(own, router, k=K), experts=5)[0]
        share = tf.cast(counts, x.dtype) / len(own) / K
        likely = tf.reduce_mean(tf.nn.softmax(own @ router), 0)
        right = 5 * tf.reduce_sum(share * likely)
    held = [spread_out(x, LETTERS["x"], mesh), spread_out(router, {}, mesh)]
    chosen = held[0].each(partial(choose_experts, k=K), held[1])
    flags = spread_out(tf.constant(real), dict.fromkeys(axes, S(-1)), mesh)
    loss = balance_loss(*held, chosen, list(axes), flags if padded else None)
    assert np.isclose(joined(loss, dict.fromkeys(axes, P)), right, rtol=BOUND)
    dx, drouter = Backward(loss, [tf.ones_like(one) for one in loss.parts]).to(held)
    found = [dx, summed(drouter, {})]
    assert off(found, [LETTERS["x"], {}], tape.gradient(right, [x, router])) <= BOUND


def test_balanced_counts_have_an_auxiliary_loss_of_1():
    x, mesh = tf.constant(np.tile(np.eye(4), (3, 1))), Mesh(EIGHT, expert=2)
    held = [
        spread_out(x, LETTERS["x"], mesh),
        spread_out(tf.zeros((4, 4), "double"), {}, mesh),
    ]
    parts = spread_out(
        tf.constant(np.tile([[0, 1], [2, 3]], (6, 1))), {"expert": S(-2)}, mesh
    )
    loss = balance_loss(*held, parts, ["expert"])
    assert np.isclose(joined(loss, {"expert": P}), 1)


def test_rows_of_any_lengths_come_back_in_their_order():
    mesh, log = Mesh(EIGHT, data=2, expert=3), MessageLog()
    lengths = [[1, 0, 2], [3, 1, 0], [0, 0, 0], [2, 2, 2], [0, 5, 1], [1, 1, 1]]
    parts = []
    for rank, own in enumerate(lengths):
        with tf.device(mesh.device(rank)):
            rows = 100.0 * rank + tf.range(sum(own), dtype=tf.float64)
            parts.append(tf.reshape(rows, (-1, 1)))
    rows = Spread(mesh, parts, log)
    sent = exchange_rows(rows, "expert", lengths)
    ranks = [[int(r // 100) for r in part.numpy().ravel()] for part in sent.parts]
    assert ranks[:3] == [[0, 1, 1, 1], [1], [0, 0]]
    assert ranks[3:] == [[3, 3, 5], [3, 3, 4, 4, 4, 4, 4, 5], [3, 3, 4, 5]]
    assert sum(n for _, n in log.messages) == 8 * sum(
        n for i, own in enumerate(lengths) for j, n in enumerate(own) if j != i % 3
    )
    (back,) = Backward(sent, sent.parts).to([rows])
    for found, one in zip(back.parts, parts, strict=True):
        assert np.array_equal(found, one)


def test_the_bias_rules_move_choices_to_idle_experts():
    scores, k = drawn(400, 6, seed=3) + tf.range(6, dtype=tf.float64) / 4, 2
    bias = tf.zeros(6, tf.float64)

    def busiest(bias):
        chosen = tf.math.top_k(scores + bias, k)[1]
        counts = tf.cast(expert_load(chosen, experts=6)[0], tf.float64)
        return counts, float(tf.reduce_max(counts) / tf.reduce_mean(counts))

    first = busiest(bias)[1]
    for rule in (
        lambda bias: pushed_bias(bias, busiest(bias)[0], 0.02),
        lambda bias: quantile_bias(scores, bias, k),
    ):
        found = bias
        for _ in range(60):
            found = rule(found)
            assert abs(float(tf.reduce_mean(found))) < 1e-12
        assert busiest(found)[1] < 1.05 < first


def layer_with(**changes):
    mesh, wholes = Mesh(EIGHT, expert=2), whole_tensors(4)
    held = {
        name: spread_out(whole, own, mesh)
        for whole, (name, own) in zip(wholes, LETTERS.items(), strict=True)
    }
    arguments = {"k": K, "capacity": 3} | held | changes
    return expert_layer("expert", **arguments)


def test_what_is_refused_is_named():
    mesh, (x, _, A, _) = Mesh(EIGHT, expert=2), whole_tensors(4)
    with pytest.raises(ValueError, match="k must be at most 4, the number of expe"):
        layer_with(k=5)
    with pytest.raises(ValueError, match="capacity must be"):
        layer_with(capacity=0)
    with pytest.raises(ValueError, match=r"A must have \[2, 2\] experts on ranks"):
        layer_with(A=spread_out(A, {"expert": R}, mesh))
    with pytest.raises(ValueError, match=r"x must be \(tokens, width\), got"):
        layer_with(x=spread_out(x[tf.newaxis], {"expert": S(-2)}, mesh))

    @in_graph
    def compiled():
        wholes = whole_tensors(4)
        held = [
            spread_out(whole, own, mesh)
            for whole, own in zip(wholes, LETTERS.values(), strict=True)
        ]
        return dropless_layer("expert", *held, k=K).parts

    with pytest.raises(RuntimeError, match="dropless_layer must run eagerly"):
        compiled()
