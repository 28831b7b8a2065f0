"""Attention over split tokens: five ways, for any ranks, lengths and documents."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import manygpu
from manygpu.measure import distance, shares
from manygpu.scratch.data_parallel.collectives import MessageLog
from manygpu.scratch.splitting.network import Layer
from manygpu.scratch.splitting.program_over_ranks import (
    Backward,
    Mesh,
    joined,
    spread_out,
    summed,
)
from manygpu.scratch.splitting.transformer import joined_heads, layer_norm
from manygpu.scratch.splitting.what_a_tensor_means import S
from manygpu.scratch.today import long_sequences as long
from manygpu.scratch.today.long_sequences import (
    TOKENS,
    WAYS,
    Held,
    arranged,
    attention_plan,
    document_of,
    ideal_share,
    long_cut,
    mean_loss,
    next_tokens,
    pairs_of,
    planned_bytes,
    planned_memory,
    restored,
    rotated,
    seen_in,
    split_attention,
    token_order,
)

DEVICES = manygpu.devices()
COUNTS = (1, 2, 3, 4, 8)
BOUND = 1e-13
CASES = {  # tokens, heads, documents
    "even": (16, 8, None),
    "uneven": (19, 5, None),
    "packed": (21, 3, (7, 1, 13)),
    "fewer tokens than ranks": (5, 2, None),
}


def drawn(*shape, seed=0):
    """Return random numbers in float64."""
    return tf.constant(np.random.default_rng(seed).normal(size=shape))


def mask_of(tokens, documents):
    """Return who looks at whom, token by token."""
    number, found = [], []
    for n, length in enumerate(documents or [tokens]):
        number += [n] * length
    for t, u in itertools.product(range(tokens), repeat=2):
        found.append(u <= t and number[t] == number[u])
    return np.reshape(found, (tokens, tokens))


def reference(q, k, v, dout, documents):
    """Return the output and the gradients of one device, by a plain softmax."""
    with tf.GradientTape() as tape:
        tape.watch([q, k, v])
        scores = tf.einsum("tnhs,unhs->nhtu", q, k) / np.sqrt(q.shape[-1])
        scores = tf.where(mask_of(len(q), documents), scores, -np.inf)
        out = tf.einsum("nhtu,unhs->tnhs", tf.nn.softmax(scores), v)
    return [out, *tape.gradient(out, [q, k, v], dout)]


def given(case):
    """Return queries, keys, values, an upstream gradient, and the documents."""
    tokens, heads, documents = CASES[case]
    tensors = [drawn(tokens, 2, heads, 4, seed=seed) for seed in range(4)]
    return tensors, documents


def over_ranks(tensors, documents, travels, where, mesh, send, note=None):
    """Return the output and the gradients, arranged; and what was held forward."""
    cut = {"context": TOKENS}
    *parts, up = (spread_out(arranged(x, where, 0), cut, mesh, send) for x in tensors)
    more = {} if note is None else {"note": note}
    out = split_attention(travels, "context", *parts, where, documents, **more)
    held = [(note.now[r], note.most[r]) for r in range(mesh.count)] if note else []
    return [out, *Backward(out, up.parts).to(parts)], held


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("way", WAYS)
def test_outputs_gradients_bytes_and_memory_are_those_of_one_device_and_the_plan(
    way, case
):
    (travels, order), (tensors, documents) = WAYS[way], given(case)
    right, (tokens, _, heads, size) = reference(*tensors, documents), tensors[0].shape
    for ranks in COUNTS:
        where, log, note = token_order(order, tokens, ranks), MessageLog(), Held()
        mesh = Mesh(DEVICES, shared=True, context=ranks)
        found, held = over_ranks(tensors, documents, travels, where, mesh, log, note)
        whole = [restored(joined(one, {"context": TOKENS}), where, 0) for one in found]
        for one, expected in zip(whole, right, strict=True):
            assert distance([one], [expected]) < BOUND
        for one in found:
            assert [p.device[-5:] for p in one.parts] == [
                mesh.device(r)[-5:] for r in range(ranks)
            ]
        plan = attention_plan(travels, where, heads)
        sent = sum(bytes_ for _, bytes_ in log.messages)
        assert sent == sum(planned_bytes(plan, where, 2 * size * 8))
        document = document_of(tokens, documents)
        for rank in range(ranks):
            planned = planned_memory(plan, rank, document, 2, size, 8)
            assert held[rank] == planned


@pytest.mark.parametrize("way", WAYS)
def test_a_compiled_step_is_the_eager_one(way):
    (travels, order), (tensors, documents) = WAYS[way], given("packed")
    where = token_order(order, len(tensors[0]), 3)
    mesh = Mesh(DEVICES, shared=True, context=3)

    @tf.function(autograph=False)
    def compiled():
        found, _ = over_ranks(tensors, documents, travels, where, mesh, MessageLog())
        return [one.parts for one in found]

    right = [arranged(x, where, 0) for x in reference(*tensors, documents)]
    for parts, expected in zip(compiled(), right, strict=True):
        assert distance([tf.concat(parts, 0)], [expected]) < BOUND


@pytest.mark.parametrize("travels", long.TRAVELS)
def test_each_group_of_a_mesh_has_a_sequence_of_its_own(travels):
    tensors, documents = given("packed")
    mesh = Mesh(DEVICES, shared=True, data=2, context=3)
    where = token_order("zigzag", len(tensors[0]), 3)
    meaning = {"data": S(-3), "context": TOKENS}
    *parts, up = (spread_out(arranged(x, where, 0), meaning, mesh) for x in tensors)
    out = split_attention(travels, "context", *parts, where, documents)
    found = [out, *Backward(out, up.parts).to(parts)]
    whole = [restored(joined(one, meaning), where, 0) for one in found]
    for one, right in zip(whole, reference(*tensors, documents), strict=True):
        assert distance([one], [right]) < BOUND


def test_without_the_axis_a_rank_has_all_tokens():
    tensors, documents = given("packed")
    mesh = Mesh(DEVICES, shared=True, data=1)
    where = token_order("zigzag", len(tensors[0]), 1)
    parts = [spread_out(x, {}, mesh) for x in tensors[:3]]
    out = split_attention("ring", "context", *parts, where, documents)
    right = reference(*tensors, documents)[:1]
    assert distance(out.parts, right) < BOUND


def test_a_ring_takes_any_share_of_the_tokens():
    tensors, _ = given("uneven")
    where = [np.array([4, 0, 18]), np.arange(5, 18), np.array([3, 1, 2])]
    mesh, cuts = Mesh(DEVICES, shared=True, context=3), np.cumsum([3, 13, 3])[:-1]
    parts = []
    for x in tensors[:3]:
        pieces = np.split(arranged(x, where, 0).numpy(), cuts)
        placed = []
        for rank, piece in enumerate(pieces):
            with tf.device(mesh.device(rank)):
                placed.append(tf.identity(piece))
        parts.append(long.Spread(mesh, placed))
    out = split_attention("ring", "context", *parts, where)
    found = restored(tf.concat(out.parts, 0), where, 0)
    assert distance([found], reference(*tensors, None)[:1]) < BOUND


@pytest.mark.parametrize("order", long.ORDERS)
@pytest.mark.parametrize(
    ("tokens", "ranks"), [(1, 1), (7, 3), (16, 4), (50, 4), (3, 8)]
)
def test_an_order_has_each_token_once_in_fair_shares(order, tokens, ranks):
    where = token_order(order, tokens, ranks)
    assert [len(own) for own in where] == shares(tokens, ranks)
    assert sorted(np.concatenate(where)) == list(range(tokens))
    x = tf.range(2 * tokens)
    x = tf.reshape(x, (2, tokens))
    assert (restored(arranged(x, where, -1), where, -1) == x).numpy().all()


def test_zigzag_takes_a_piece_from_each_end():
    found = [own.tolist() for own in token_order("zigzag", 8, 2)]
    assert found == [[0, 1, 6, 7], [2, 3, 4, 5]]


@pytest.mark.parametrize("way", WAYS)
def test_pairs_are_those_of_the_mask(way):
    travels, order = WAYS[way]
    for documents in (None, (4, 1, 9, 7)):
        document = document_of(21, documents)
        total = 0
        for one in attention_plan(travels, token_order(order, 21, 4), 6):
            assert pairs_of(one, document) == one.heads * seen_in(one, document).sum()
            total += pairs_of(one, document)
        assert total == 6 * mask_of(21, documents).sum()  # each pair once


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_contiguous_ring_has_the_ceiling_by_pairs(ranks):
    plan = attention_plan("ring", token_order("contiguous", 4096 * ranks, ranks), 1)
    share = ideal_share(plan, document_of(4096 * ranks, None))
    assert share == pytest.approx(ranks / (2 * ranks - 1), rel=2e-4)


def test_zigzag_waits_in_no_turn():
    plan = attention_plan("ring", token_order("zigzag", 64, 4), 1)
    assert ideal_share(plan, document_of(64, None)) == 1


def test_rotary_scores_depend_on_the_distance_only():
    q, k = drawn(1, 1, 1, 6), drawn(1, 1, 1, 6, seed=1)

    def score(a, b):
        turned = rotated(q, np.array([a])), rotated(k, np.array([b]))
        return float(tf.reduce_sum(turned[0] * turned[1]))

    assert score(3, 1) == pytest.approx(score(103, 101), rel=1e-12)
    assert score(3, 1) != pytest.approx(score(3, 2), rel=1e-3)


def test_labels_end_with_their_documents():
    text = np.array([[3, 1, 4, 1, 5]])
    labels, counts = next_tokens(text, [3, 2])
    assert labels[:, :4].tolist() == [[1, 4, 1, 5]]
    assert counts.tolist() == [[1, 1, 0, 1, 0]]


def test_a_mean_loss_is_that_of_all_labels():
    mesh = Mesh(DEVICES, shared=True, context=3)
    losses, counts = drawn(2, 7), tf.constant(np.eye(2, 7) + np.eye(2, 7, 3))
    parts = [spread_out(x, {"context": S(-1)}, mesh) for x in (losses, counts)]
    loss = mean_loss("context", *parts)
    right = tf.reduce_sum(losses * counts) / tf.reduce_sum(counts)
    for part in loss.parts:
        assert distance([part], [right]) < BOUND


def plain_block(x, documents, gain, shift, Q, K, V, out, gain2, shift2, A, B):
    """Return a block with rotary positions, on one device."""
    normed = layer_norm(x, gain, shift)
    q, k, v = (tf.einsum("tnd,dhs->tnhs", normed, W) for W in (Q, K, V))
    q, k = (rotated(one, np.arange(len(x))) for one in (q, k))
    scores = tf.einsum("tnhs,unhs->nhtu", q, k) / np.sqrt(q.shape[-1])
    scores = tf.where(mask_of(len(x), documents), scores, -np.inf)
    x += joined_heads(tf.einsum("nhtu,unhs->tnhs", tf.nn.softmax(scores), v), out)
    return x + tf.nn.gelu(layer_norm(x, gain2, shift2) @ A) @ B


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("data", [1, 2])
def test_a_block_has_the_gradients_of_one_device_on_every_rank(way, data):
    width, heads, documents, (travels, order) = 12, 3, (4, 9), WAYS[way]
    shapes = [(width,), (width,), *[(width, heads, 4)] * 3, (heads, 4, width)]
    shapes += [(width,), (width,), (width, 20), (20, width)]
    params = [drawn(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    x, dout = drawn(13, 3, width, seed=20), drawn(13, 3, width, seed=21)
    with tf.GradientTape() as tape:
        tape.watch([x, *params])
        expected = plain_block(x, documents, *params)
    right = [expected, *tape.gradient(expected, [x, *params], dout)]
    for ranks in (2, 4):
        mesh = Mesh(DEVICES, shared=True, data=data, context=ranks)
        where = token_order(order, 13, ranks)
        cut = long_cut(travels, where, documents)
        meaning = {"data": S(-2), "context": cut.takes}
        h, up = (
            spread_out(arranged(one, where, 0), meaning, mesh) for one in (x, dout)
        )
        held = [spread_out(p, {}, mesh) for p in params]
        apply = Layer("block", tf.identity).apply
        out = cut.program("context", apply, h, *held)
        dh, *grads = Backward(out, up.parts).to([h, *held])
        for one, expected in ((out, right[0]), (dh, right[1])):
            found = restored(joined(one, meaning), where, 0)
            assert distance([found], [expected]) < BOUND
        for one, expected in zip(grads, right[2:], strict=True):
            for part in summed(one, {}).parts:
                assert distance([part], [expected]) < BOUND


def attempt(travels="ring", where=None, k=None, documents=None, ranks=2, tokens=8):
    """Try attention of 8 tokens on two ranks."""
    mesh = Mesh(DEVICES, shared=True, context=2)
    q = spread_out(drawn(8, 1, 4, 2), {"context": TOKENS}, mesh)
    where = token_order("contiguous", tokens, ranks) if where is None else where
    return split_attention(travels, "context", q, k or q, q, where, documents)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (lambda: token_order("snake", 8, 2), "order must be one of"),
        (lambda: token_order("zigzag", 0, 2), "tokens must be"),
        (lambda: token_order("zigzag", 8, 0), "ranks must be"),
        (lambda: attempt("broadcast"), "travels must be one of"),
        (lambda: attempt(where=[np.arange(4)] * 2), "where must hold each position"),
        (lambda: attempt("all-gather", [np.arange(5), np.arange(5, 8)]), "give ranks"),
        (lambda: attempt(ranks=4), "plan must be for 2 ranks"),
        (lambda: attempt(tokens=10), "q and kv of rank 0 must have"),
        (lambda: attempt(documents=[3, 4]), "documents must be lengths that add up"),
        (lambda: attempt(documents=[8, 0]), "documents must be lengths that add up"),
        (lambda: rotated(drawn(3, 1, 1, 3), np.arange(3)), "heads of an even size"),
        (lambda: rotated(drawn(3, 1, 1, 4), np.arange(2)), "must have 3 entries"),
        (lambda: arranged(drawn(3), [np.arange(2)], 0), "where must hold"),
    ],
)
def test_what_is_refused_is_named(job, said):
    with pytest.raises(ValueError, match=said):
        job()


def test_keys_of_fewer_heads_are_refused():
    mesh = Mesh(DEVICES, shared=True, context=2)
    few = spread_out(drawn(8, 1, 2, 2), {"context": TOKENS}, mesh)
    with pytest.raises(ValueError, match="q, k and v must have one shape"):
        attempt(k=few)
