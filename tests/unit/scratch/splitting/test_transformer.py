"""A transformer's block, split: as on one device, bytes by formula; a small GPT."""

import math

import numpy as np
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from manygpu import scratch
from manygpu.scratch.data_parallel.collectives import deliver
from manygpu.scratch.splitting.program_over_ranks import Mesh, joined, spread_out
from manygpu.scratch.splitting.transformer import (
    BLOCK,
    BLOCK_CUT_TOKENS,
    block_gradients,
    gpt_layers,
    heads,
    joined_heads,
    layer_norm,
)
from manygpu.scratch.splitting.what_a_tensor_means import S
from tests.unit.helpers import EIGHT, distance, runs_on

D, SIZE = 6, 2
quick = settings(deadline=None, max_examples=6)


def block(heads: int, hidden: int, seed: int = 0) -> scratch.BlockParams:
    rng = np.random.default_rng(seed)
    shapes = [(D,), (D,), *[(D, heads, SIZE)] * 3, (heads, SIZE, D)]
    shapes += [(D,), (D,), (D, hidden), (hidden, D)]
    return scratch.BlockParams(
        *(tf.constant(rng.normal(size=shape)) for shape in shapes)
    )


def tokens(count: int, sequences: int, seed: int = 1) -> tf.Tensor:
    rng = np.random.default_rng(seed)
    return tf.constant(rng.normal(size=(count, sequences, D)))


def on_one_device(x: tf.Tensor, dout: tf.Tensor, params: scratch.BlockParams) -> list:
    with tf.GradientTape() as tape:
        tape.watch([x, *params])
        output = scratch.transformer_block(x, *params)
    return [output, *tape.gradient(output, [x, *params], dout)]


def on_mesh(cut, mesh, x, dout, params, send=deliver, **samples) -> tuple[list, list]:
    """Output, input's gradient and parameters' gradients, and what each means."""
    given, gives, *letters = (
        {"layerwise": kind} for kind in (cut.takes, cut.gives, *cut.letters)
    )
    h = spread_out(x, given | samples, mesh, send)
    upstream = spread_out(dout, gives | samples, mesh, send)
    pairs = zip(params, letters, strict=True)
    held = [spread_out(p, m, mesh, send) for p, m in pairs]
    output, dx, grads = block_gradients(cut, h, upstream, held)
    return [output, dx, *grads], [gives | samples, given | samples, *letters]


def joint(found: list, meanings: list) -> list:
    """Whole tensors; copies that differ in one bit are refused."""
    pairs = zip(found, meanings, strict=True)
    return [joined(one, meaning, within=0.0) for one, meaning in pairs]


def test_attention_is_that_of_the_formula_head_by_head():
    """A token sees those before it, and itself."""
    params, x = block(3, 5), tokens(4, 1)
    expected = np.zeros((4, D))
    for h in range(3):
        q, k, v = (x[:, 0].numpy() @ W[:, h].numpy() for W in params[2:5])
        scores = np.where(np.tri(4) > 0, q @ k.T / SIZE**0.5, -np.inf)
        weights = np.exp(scores - scores.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        expected += weights @ v @ params.out[h].numpy()
    found = joined_heads(heads(x, *params[2:5]), params.out)[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_the_norm_gives_mean_zero_and_variance_one_then_gain_and_shift():
    x, ones = 100 * tokens(3, 2), tf.ones(D, tf.float64)
    found = layer_norm(x, 3 * ones, 5 * ones).numpy()
    np.testing.assert_allclose(found.mean(-1), 5, rtol=1e-9)
    np.testing.assert_allclose(found.std(-1), 3, rtol=1e-3)


@given(
    k=st.integers(1, 8),
    count=st.integers(1, 9),
    hidden=st.integers(1, 10),
    sequences=st.integers(1, 3),
    length=st.integers(1, 12),
    cut_tokens=st.booleans(),
)
@example(k=3, count=4, hidden=5, sequences=2, length=7, cut_tokens=True)
@example(k=3, count=4, hidden=5, sequences=2, length=7, cut_tokens=False)
@example(k=4, count=2, hidden=3, sequences=1, length=2, cut_tokens=True)
@quick
def test_it_is_the_block_of_one_device_for_the_bytes_of_the_formula(
    k, count, hidden, sequences, length, cut_tokens
):
    """Also where heads, hidden numbers or tokens don't divide, or a rank gets none."""
    params, mesh = block(count, hidden), Mesh(EIGHT, layerwise=k)
    x, dout = (tokens(length, sequences, seed) for seed in (1, 2))
    cut, log = BLOCK_CUT_TOKENS if cut_tokens else BLOCK, scratch.MessageLog()
    found, meanings = on_mesh(cut, mesh, x, dout, params, log)
    for whole, right in zip(
        joint(found, meanings), on_one_device(x, dout, params), strict=True
    ):
        np.testing.assert_allclose(whole, right, rtol=1e-10, atol=1e-10)
    for one in found:
        for device, part in zip(EIGHT[:k], one.parts, strict=True):
            assert runs_on(part, device)
    numbers = 4 * length * sequences * D + (4 * D if cut_tokens else 0)
    assert sum(map(log.sent, range(k))) == 2 * (k - 1) * numbers * 8


def test_a_mesh_may_cut_the_sequences_too():
    params, mesh = block(3, 5), Mesh(EIGHT, data=2, layerwise=3)
    x, dout = (tokens(7, 5, seed) for seed in (1, 2))
    right = on_one_device(x, dout, params)
    for cut in (BLOCK, BLOCK_CUT_TOKENS):
        found = joint(*on_mesh(cut, mesh, x, dout, params, data=S(-2)))
        assert distance(found, right) <= 1e-12


def test_a_gpt_has_one_matrix_at_both_ends_and_reads_no_later_token():
    """On meshes it has one device's gradients: unit/test_compositions.py."""
    sizes = {"vocabulary": 11, "tokens": 7, "width": 8, "heads": 4}
    model = scratch.Model(gpt_layers(2, **sizes, dtype="float64"))
    first, *_, last = model.layers
    assert first.params[0] is last.params[-1]
    assert len(model.params) == 2 + 2 * 10 + 2
    X = tf.constant(np.random.default_rng(3).integers(0, 11, size=(2, 7)))
    before = model.outputs(X, model.params)
    assert before.shape == (2, 7, 11)
    changed = tf.concat([X[:, :4], (X[:, 4:] + 1) % 11], 1)
    after = model.outputs(changed, model.params)
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    moved = abs(before - after).numpy().max((0, 2)) > 1e-6
    assert moved.tolist() == [False] * 4 + [True] * 3
    assert model.outputs(X[:, :3], model.params).shape == (2, 3, 11)


def test_the_uncut_blocks_mlp_is_what_numpy_computes():
    """Cut and uncut share its functions, so comparing those two can't tell."""
    rng = np.random.default_rng(5)
    x, A, B = (rng.normal(size=s) for s in ((5, 2, 4), (4, 8), (8, 4)))
    gain, shift = rng.normal(size=(2, 4))
    silent = [
        np.ones(4),
        np.zeros(4),
        *rng.normal(size=(3, 4, 2, 2)),
        np.zeros((2, 2, 4)),
    ]
    params = [tf.constant(p) for p in (*silent, gain, shift, A, B)]
    found = scratch.transformer_block(tf.constant(x), *params)
    centred = x - x.mean(-1, keepdims=True)
    normed = centred / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * gain + shift
    inner = normed.reshape(-1, 4) @ A
    inner *= [[(1 + math.erf(v / math.sqrt(2))) / 2 for v in row] for row in inner]
    expected = x + (inner @ B).reshape(x.shape)
    # tf.nn.gelu has the root of 2 in float32's digits, also for float64.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
