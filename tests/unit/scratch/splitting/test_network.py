"""Network partitioning: passes, cuts, and what they move and keep.

That gradients are those of one device is in trainings/test_one_device.py.
"""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch import MessageLog, init_params
from manygpu.scratch.data_parallel.collectives import deliver
from manygpu.scratch.splitting import network
from manygpu.scratch.splitting.network import gradients_of, kept_pass
from tests.unit.helpers import EIGHT, batch, distance, in_graph, same

quick = settings(deadline=None, max_examples=15)


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
        run = in_graph(found) if compiled else found
        at_once, halves, none = run(*params)
        assert distance(at_once, right) <= 1e-15 and same(at_once, halves)
        assert none == []


def test_a_pass_has_what_it_was_given_and_listens_to_nothing_else():
    outside, W = tf.Variable(2.0), tf.Variable(3.0)
    kept = kept_pass(lambda h, W: h * W * outside, tf.constant(5.0), (W,))
    assert (float(kept.input), kept.params, float(kept.output)) == (5.0, (W,), 30.0)
    found = gradients_of(kept, tf.constant(1.0), [outside, *kept.params])
    assert [float(g) for g in found] == [0.0, 10.0]


@given(layers=st.integers(1, 40), data=st.data())
@quick
def test_even_cuts_are_even(layers, data):
    stages = data.draw(st.integers(1, layers))
    edges = [0, *network.even_cuts(layers, stages), layers]
    lengths = np.diff(edges)
    assert len(lengths) == stages
    assert lengths.max() - lengths.min() <= 1


def traced(cuts: list[int], devices: list[str], send=deliver) -> tf.Graph:
    """LeNet's step for six images."""
    stages = network.make_stages(network.lenet_layers(init_params()), cuts, devices)
    step = in_graph(lambda X, y: network.partitioned_step(X, y, stages, 0.1, send=send))
    return step.get_concrete_function(*batch(6)).graph


@pytest.mark.parametrize("cuts", [[], [1], [2], [3], [1, 2, 3]])
def test_each_cut_moves_its_activation_and_its_gradient(cuts):
    log = MessageLog()
    moves = network.transfers(traced(cuts, EIGHT, log))
    numbers = {1: 13 * 13 * 20, 2: 4 * 4 * 50, 3: 128}
    sizes = [4 * 6 * numbers[c] for c in cuts]
    there = [(m.source, m.target, m.bytes) for m in moves if not m.backward]
    back = [(m.source, m.target, m.bytes) for m in moves if m.backward]
    pairs = list(zip(EIGHT, EIGHT[1:], sizes, strict=False))
    assert there == pairs
    assert back == [(b, a, size) for a, b, size in reversed(pairs)]
    messages = [(EIGHT[h.source], EIGHT[h.target], size) for h, size in log.messages]
    assert messages == there + back  # and nothing crosses that is no message


CONV = 28 * 28 + 26 * 26 * 20 + 13 * 13 * 20 + 9 * 9 * 50  # numbers an image


@pytest.mark.parametrize(
    "cuts, devices, kept",
    [
        ([], 1, [CONV + 800 + 128 + 10]),
        ([2], 2, [CONV, 800 + 128 + 10]),
        ([3], 1, [CONV + 800 + 128 + 10]),
        ([3], 2, [CONV + 800 + 128, 128 + 10]),  # both need what the ReLU gave
    ],
)
def test_what_lenet_keeps_is_what_its_backward_pass_reads(cuts, devices, kept):
    held = network.held_for_backward(traced(cuts, EIGHT[:devices]))
    assert held == {d: 4 * 6 * n for d, n in zip(EIGHT, kept, strict=False)}
