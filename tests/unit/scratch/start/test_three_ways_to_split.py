"""Three ways to split LeNet: each gives its logits; the page says which piece where."""

import pytest
import tensorflow as tf

from manygpu.scratch import init_params, lenet
from manygpu.scratch.start.three_ways_to_split import (
    LAYERS,
    by_data,
    by_layer,
    by_network,
    owners,
)
from tests.unit.helpers import EIGHT, batch, distance

WAYS = pytest.mark.parametrize("way", [by_network, by_layer, by_data])
BOUND = {tf.float32: 1e-5, tf.float64: 1e-12}


@WAYS
@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_a_way_gives_the_unsplit_logits(way, k, dtype):
    X, _ = batch(11)
    params = init_params(dtype=dtype)
    for p in params[1::2]:
        p.assign(tf.linspace(tf.constant(-0.1, dtype), 0.1, p.shape[0]))
    logits = way(X, params, EIGHT[:k])
    assert logits.dtype == dtype
    assert distance([logits], [lenet(X, params)]) <= BOUND[dtype]


@pytest.mark.parametrize(
    "k, owning", [(1, [0] * 4), (2, [0, 0, 1, 1]), (3, [0, 0, 1, 2]), (8, [0, 1, 2, 3])]
)
def test_neighbouring_layers_share_a_device(k, owning):
    assert len(LAYERS) == 4
    assert owners(EIGHT[:k]) == [EIGHT[i] for i in owning]
