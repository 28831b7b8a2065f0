"""What layers cost: LeNet's numbers by hand, what graphs keep, bad input."""

from functools import partial

import pytest
import tensorflow as tf

from manygpu.choosing import presets
from manygpu.choosing.question import Model
from manygpu.costs import layer_costs, model_costs
from manygpu.scratch.splitting.batch_normalization import guide_cnn_layers
from manygpu.scratch.splitting.network import (
    Layer,
    held_for_backward,
    lenet_layers,
    make_stages,
    partitioned_gradients,
)
from manygpu.scratch.splitting.recomputation import recomputed
from manygpu.scratch.start.one_device import init_params
from tests.unit.helpers import EIGHT, in_graph, same, values

# LeNet by hand, in numbers a sample: what each layer reads again on the way back.
KEPT = [28 * 28 + 26 * 26 * 20, 13 * 13 * 20 + 9 * 9 * 50, 4 * 4 * 50, 128]
FLOPS = [2 * 26 * 26 * 9 * 20, 2 * 9 * 9 * 500 * 50, 2 * 800 * 128, 2 * 128 * 10]
PARAMS = [9 * 20 + 20, 500 * 50 + 50, 800 * 128 + 128, 128 * 10 + 10]
OUTPUTS = [13 * 13 * 20, 4 * 4 * 50, 128, 10]


@pytest.mark.parametrize("dtype, size", [(tf.float32, 4), (tf.float64, 8)])
def test_lenets_costs_are_those_by_hand(dtype, size):
    costs = layer_costs(lenet_layers(init_params(dtype=dtype)))
    assert [cost.name for cost in costs] == ["conv 1", "conv 2", "dense 1", "dense 2"]
    assert [cost.flops for cost in costs] == FLOPS
    assert [cost.activations for cost in costs] == [size * n for n in KEPT]
    assert [cost.params for cost in costs] == [size * n for n in PARAMS]
    assert [cost.output for cost in costs] == [size * n for n in OUTPUTS]
    sizes = sum(FLOPS), 4 * sum(OUTPUTS[:-1]) / 3, 4 * sum(KEPT)
    assert presets.MODELS["LeNet"] == Model("LeNet", 4, sum(PARAMS), *sizes)


@pytest.mark.parametrize(
    ("make", "once"),
    [
        (lambda: lenet_layers(init_params()), 0),
        (guide_cnn_layers, 4 * 4 * (32 + 64)),  # four numbers a channel, once a batch
    ],
)
def test_a_whole_model_keeps_what_its_compiled_step_keeps(make, once):
    samples, layers = 7, make()
    stages = make_stages(layers, [], EIGHT[:1])
    step = in_graph(lambda X, y: partitioned_gradients(X, y, stages))
    X, y = tf.zeros((samples, 28, 28, 1)), tf.zeros(samples, tf.int32)
    held = held_for_backward(step.get_concrete_function(X, y).graph)[EIGHT[0]]
    softmax = 4 * samples * 10
    found = samples * sum(cost.activations for cost in layer_costs(layers))
    assert 0 <= found - (held - softmax) <= samples * once


def test_a_recomputed_layer_keeps_its_input_and_computes_once_ahead():
    layers = [
        one._replace(apply=recomputed(one.apply)) for one in lenet_layers(init_params())
    ]
    costs = layer_costs(layers)
    inputs = [28 * 28, *OUTPUTS[:-1]]
    assert [cost.activations for cost in costs] == [4 * n for n in inputs]
    assert [cost.flops for cost in costs] == FLOPS


def test_a_relu_keeps_its_sign_only_where_nobody_needs_its_output():
    """Behind a ReLU, a pooling asks for shapes only, a product for the numbers."""

    @tf.custom_gradient
    def by_sign(x):
        positive = x > 0
        return tf.nn.relu(x), lambda g: tf.where(positive, g, tf.zeros_like(g))

    def pooled(h, relu):
        return tf.nn.avg_pool2d(relu(h), 2, 2, "VALID")

    W = tf.Variable(tf.zeros((64, 3)))

    def product(h, W, relu):
        return relu(tf.reshape(h, (-1, 64))) @ W

    kept = {}
    for relu in tf.nn.relu, by_sign:
        made = (
            Layer("pool", partial(pooled, relu=relu)),
            Layer("dense", partial(product, relu=relu), (W,)),
        )
        kept[relu] = [layer_costs([one], (8, 8, 1))[0].activations for one in made]
    assert kept == {tf.nn.relu: [4 * 64, 4 * 64], by_sign: [64, 64 + 4 * 64]}


def test_products_of_many_matrices_and_of_turned_ones_count():
    q = Layer("scores", lambda h: tf.matmul(h, h, transpose_b=True))
    turned = Layer("turned", lambda h: tf.matmul(h, h, transpose_a=True))
    assert layer_costs([q], (3, 5, 7))[0].flops == 2 * 3 * 5 * 5 * 7
    assert layer_costs([turned], (3, 5, 7))[0].flops == 2 * 3 * 7 * 7 * 5
    flat = Layer("flat", lambda h: tf.matmul(h[0], h[0], transpose_a=True))
    assert layer_costs([flat], (5, 7))[0].flops == 2 * 7 * 7 * 5
    sums = Layer(
        "sums", lambda h: tf.einsum("bij,bjk->bik", h, tf.einsum("bij->bji", h))
    )
    assert layer_costs([sums], (5, 7))[0].flops == 2 * 5 * 7 * 5
    W = tf.Variable(tf.zeros((3, 3, 4, 2)))
    deep = Layer(
        "depthwise", lambda h, W: tf.nn.depthwise_conv2d(h, W, [1] * 4, "SAME"), (W,)
    )
    assert layer_costs([deep], (5, 6, 4))[0].flops == 2 * 5 * 6 * 8 * 9


def test_a_whole_model_costs_what_its_layers_do():
    layers, X = lenet_layers(init_params()), tf.zeros((3, 28, 28, 1))
    params = [p for one in layers for p in one.params]

    def loss(X):
        for one in layers:
            X = one.apply(X, *one.params)
        return tf.reduce_sum(X)

    flops, kept = model_costs(loss, X, params)
    costs = layer_costs(layers)
    assert flops == 3 * sum(cost.flops for cost in costs)
    assert kept == 3 * sum(cost.activations for cost in costs)


def test_counting_changes_nothing():
    layers = guide_cnn_layers()
    kept = [v for one in layers for v in one.params + one.state]
    before = values(kept)
    layer_costs(layers)
    assert same(values(kept), before)
