"""A transformer's block, split: equal to one device, bytes by formula, bad input."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch.data_parallel.collectives import MessageLog
from manygpu.scratch.splitting.layerwise import (
    SUMMED,
    cut_tensor,
    pass_back,
    pass_on,
)
from manygpu.scratch.splitting.transformer import (
    CUT_TOKENS,
    NORMS,
    BlockParams,
    cut_block,
    gather_tokens,
    heads,
    join_block,
    joined_heads,
    layer_norm,
    scatter_tokens,
    split_block,
    transformer_block,
)
from tests.unit.helpers import EIGHT, distance, runs_on

D, SIZE = 6, 2
quick = settings(deadline=None, max_examples=12)


def block(heads: int, hidden: int, seed: int = 0) -> BlockParams:
    rng = np.random.default_rng(seed)
    shapes = [(D,), (D,), *[(D, heads, SIZE)] * 3, (heads, SIZE, D)]
    shapes += [(D,), (D,), (D, hidden), (hidden, D)]
    return BlockParams(*(tf.constant(rng.normal(size=shape)) for shape in shapes))


def tokens(count: int, sequences: int, seed: int = 1) -> tf.Tensor:
    rng = np.random.default_rng(seed)
    return tf.constant(rng.normal(size=(count, sequences, D)))


def on_one_device(x: tf.Tensor, dout: tf.Tensor, params: BlockParams) -> list:
    kept = pass_on(EIGHT[0], transformer_block, x, *params)
    return [kept.output, *pass_back(kept, dout)]


# The block on one device.


def test_a_token_sees_those_before_it_and_itself():
    params, x = block(2, 5), tokens(5, 2)
    changed = tf.concat([x[:3], x[3:] + 1.0], 0)
    before, after = (transformer_block(t, *params) for t in (x, changed))
    np.testing.assert_array_equal(before[:3], after[:3])
    assert np.all(before[3:] != after[3:])


def test_attention_is_that_of_the_formula_head_by_head():
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


# The block on several devices.


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
    xs, douts = (cut_tensor(t, axis, EIGHT[:k]) for t in (x, dout))
    log, parts = MessageLog(), cut_block(params, EIGHT[:k])
    outs, dxs, grads = split_block(xs, douts, parts, ends, log)
    join = (lambda pieces: tf.concat(pieces, 0)) if cut else (lambda pieces: pieces[-1])
    found = [join(outs), join(dxs), *join_block(grads)]
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
    parts = cut_block(params, EIGHT[:k])
    for whole, joined in zip(params, join_block(parts), strict=True):
        np.testing.assert_array_equal(whole, joined)
    heads = [own.out.shape[0] for own in parts]
    assert sum(heads) == k + extra
    assert max(heads) - min(heads) <= 1
    for device, own in zip(EIGHT[:k], parts, strict=True):
        assert all(runs_on(t, device) for t in own)


def test_a_gather_undoes_a_scatter_and_is_its_way_back():
    """For any x and y, <scatter(x), y> is <x, gather(y)>."""
    rng, send = np.random.default_rng(0), MessageLog()
    summands = [tf.identity(tokens(6, 2, seed)) for seed in range(3)]
    pieces = cut_tensor(tf.constant(rng.normal(size=(6, 2, D))), 0, EIGHT[:3])
    summands = [cut_tensor(s, None, EIGHT[:3])[i] for i, s in enumerate(summands)]
    scattered = scatter_tokens(summands, send)
    one = sum(
        float(tf.reduce_sum(a * b)) for a, b in zip(scattered, pieces, strict=True)
    )
    gathered = gather_tokens(pieces, send)
    other = sum(
        float(tf.reduce_sum(a * b)) for a, b in zip(summands, gathered, strict=True)
    )
    assert one == pytest.approx(other, rel=1e-12)
    for whole in gather_tokens(scattered, send):
        np.testing.assert_allclose(whole, sum(s.numpy() for s in summands), rtol=1e-12)


# Bad input.


@pytest.mark.parametrize(
    "heads, hidden, devices, kind, named",
    [
        (2, 9, EIGHT[:3], ValueError, "devices has 3 entries.* only 2 heads"),
        (9, 2, EIGHT[:3], ValueError, "devices has 3 entries.* only 2 heads or"),
        (4, 4, [], ValueError, "devices is empty"),
        (4, 4, EIGHT[0], TypeError, "devices must be a list"),
        (4, 4, ["/device:GPU:99"], ValueError, "does not exist"),
    ],
)
def test_a_block_that_cannot_be_shared_is_refused(heads, hidden, devices, kind, named):
    with pytest.raises(kind, match=named):
        cut_block(block(heads, hidden), devices)


@pytest.mark.parametrize("name", ["xs", "upstreams", "parts"])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_split_block_takes_one_of_each_for_each_device(name, count):
    given = {"xs": [tokens(2, 1)] * 3, "upstreams": [tokens(2, 1)] * 3}
    given["parts"] = cut_block(block(3, 6), EIGHT[:3])
    given[name] = given[name][:count] if count < 3 else given[name] * 2
    with pytest.raises(
        ValueError, match=f"{name} (has|is empty)|for {len(given['xs'])} xs"
    ):
        split_block(**given)


def test_tokens_that_the_devices_do_not_divide_are_refused():
    parts = cut_block(block(2, 4), EIGHT[:2])
    xs = [tokens(2, 1), tokens(1, 1)]
    with pytest.raises(ValueError, match="3 tokens can't be shared evenly by 2"):
        split_block(xs, xs, parts, CUT_TOKENS)
    with pytest.raises(ValueError, match="parts is empty"):
        join_block([])
