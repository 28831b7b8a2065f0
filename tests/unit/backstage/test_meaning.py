"""Types ask a step that is written with lists and the book's collectives."""

import pytest
import tensorflow as tf

from manygpu.backstage.meaning import ask_step, on_devices
from manygpu.scratch import ring_allreduce, tree_allreduce
from manygpu.scratch.data_parallel.collectives import all_gather, reduce_scatter
from manygpu.scratch.splitting.what_a_tensor_means import P, R, S

X, A, B = (on_devices((8, 8), kind) for kind in (R, S(-1), S(-2)))
TOKENS = on_devices((8, 8), S(-2))
BIAS, SUMMANDS = on_devices((8,), R), on_devices((8, 8), P)


def hidden(h, weight):
    return tf.nn.relu(h @ weight)


def product(h, weight):
    return h @ weight


def test_a_pair_is_right_whole_and_with_cut_tokens():
    def pair(xs, As, Bs):
        first = [hidden(x, a) for x, a in zip(xs, As, strict=True)]
        out = [product(h, b) for h, b in zip(first, Bs, strict=True)]
        return ring_allreduce(out)

    def cut_tokens(xs, As, Bs):
        entered = all_gather(xs, dim=0)
        first = [hidden(h, a) for h, a in zip(entered, As, strict=True)]
        out = [product(h, b) for h, b in zip(first, Bs, strict=True)]
        return reduce_scatter(out, dim=-2)

    assert ask_step(pair, X, A, B) == "(8, 8): R on devices"
    assert ask_step(cut_tokens, TOKENS, A, B) == "(8, 8): S(-2) on devices"
    said = ask_step(pair, TOKENS, A, B)  # nobody gathers the tokens
    assert said.startswith("refused, @ of S(-2) and S(-1)")


def test_a_bias_counts_once_a_device_that_adds_it():
    def layer(xs, As, Bs, bs, adding):
        outs = [x @ a @ b for x, a, b in zip(xs, As, Bs, strict=True)]
        for i in range(adding):
            outs[i] = bs[i] + outs[i]
        return ring_allreduce(outs)

    for adding in (0, 1):
        said = ask_step(layer, X, A, B, BIAS, adding, count=3)
        assert said == "(8, 8): R on devices"
    for adding in (2, 3):
        said = ask_step(layer, X, A, B, BIAS, adding, count=3)
        assert said.startswith(f"refused, + of P and R on {adding} devices")


def test_an_activation_before_the_sum_or_no_sum_at_all_is_refused():
    def early(outs):
        return ring_allreduce([tf.nn.gelu(out) for out in outs])

    def gate(outs):
        return ring_allreduce([tf.multiply(out, out) for out in outs])

    def twice(outs):
        return ring_allreduce(ring_allreduce(outs))

    def late(outs):
        return [tf.nn.gelu(out) for out in ring_allreduce(outs)]

    assert "of P on axis 'devices'" in ask_step(early, SUMMANDS)
    assert "* of P and P" in ask_step(gate, SUMMANDS)
    assert "move from P to R on axis 'devices':\n    the tensor is R" in ask_step(
        twice, SUMMANDS
    )
    assert ask_step(late, SUMMANDS) == "(8, 8): R on devices"
    assert ask_step(lambda outs: outs, SUMMANDS) == "(8, 8): P on devices"


def test_the_two_halves_of_a_ring_and_other_all_reduces():
    def halves(outs):
        return all_gather(reduce_scatter(outs))

    assert ask_step(halves, SUMMANDS) == "(64,): R on devices"
    assert ask_step(tree, SUMMANDS) == "(8, 8): R on devices"


def tree(outs):
    return tree_allreduce(outs)


def test_devices_that_hold_different_things_are_refused():
    def mixed(xs, outs):
        return ring_allreduce([xs[0], outs[1]])

    assert "different things" in ask_step(mixed, X, SUMMANDS)


def test_a_steps_module_has_its_collectives_back_afterwards():
    def broken(outs):
        raise RuntimeError("in the middle")

    before = ring_allreduce
    with pytest.raises(RuntimeError, match="in the middle"):
        ask_step(broken, SUMMANDS)
    assert ring_allreduce is before
