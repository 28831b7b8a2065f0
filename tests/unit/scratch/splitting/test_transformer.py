"""A transformer's block, split: equal to one device, bytes by formula, bad input."""

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu import scratch
from manygpu.scratch.splitting.layerwise import SUMMED, pass_back, pass_on
from manygpu.scratch.splitting.transformer import (
    CUT_TOKENS,
    NORMS,
    heads,
    joined_heads,
    layer_norm,
)
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
    kept = pass_on(EIGHT[0], scratch.transformer_block, x, *params)
    return [kept.output, *pass_back(kept, dout)]


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
    extra=st.integers(0, 3),
    sequences=st.integers(1, 3),
    each=st.integers(1, 2),
    cut=st.booleans(),
)
@quick
def test_it_is_the_block_of_one_device_for_the_bytes_of_the_formula(
    k, extra, sequences, each, cut
):
    params = block(heads=k + extra, hidden=2 * k + extra)
    x, dout = (tokens(each * k, sequences, seed) for seed in (1, 2))
    axis, ends = (0, CUT_TOKENS) if cut else (None, SUMMED)
    xs, douts = (scratch.cut_tensor(t, axis, EIGHT[:k]) for t in (x, dout))
    log, parts = scratch.MessageLog(), scratch.cut_block(params, EIGHT[:k])
    outs, dxs, grads = scratch.split_block(xs, douts, parts, ends, log)
    join = (lambda pieces: tf.concat(pieces, 0)) if cut else (lambda pieces: pieces[-1])
    found = [join(outs), join(dxs), *scratch.join_block(grads)]
    assert distance(found, on_one_device(x, dout, params)) <= 1e-12
    for device, out, dx, own in zip(EIGHT[:k], outs, dxs, grads, strict=True):
        assert all(runs_on(t, device) for t in (out, dx, *own))
        for name in NORMS:  # whole on every device: equal, or copies drift apart
            np.testing.assert_array_equal(getattr(own, name), getattr(grads[0], name))
    numbers = 4 * each * k * sequences * D + (4 * D if cut else 0)
    assert sum(map(log.sent, range(k))) == 2 * (k - 1) * numbers * 8


@given(k=st.integers(1, 8), extra=st.integers(0, 3))
@quick
def test_parts_joined_are_the_block_and_lie_on_their_devices(k, extra):
    params = block(heads=k + extra, hidden=k + 2 * extra)
    parts = scratch.cut_block(params, EIGHT[:k])
    for whole, joined in zip(params, scratch.join_block(parts), strict=True):
        np.testing.assert_array_equal(whole, joined)
    heads = [own.out.shape[0] for own in parts]
    assert sum(heads) == k + extra
    assert max(heads) - min(heads) <= 1
    for device, own in zip(EIGHT[:k], parts, strict=True):
        assert all(runs_on(t, device) for t in own)
