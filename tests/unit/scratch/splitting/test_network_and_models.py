"""A model of the book: its gradients, its loss, and how variables are moved."""

import numpy as np
import pytest
import tensorflow as tf

from manygpu import scratch
from manygpu.scratch import Model
from tests.unit.helpers import EIGHT, batch, distance, in_graph, same, values


def test_lenet_is_a_model_and_parameters_given_stand_in_place_of_its_own():
    (images, labels), params = batch(5), scratch.init_params(dtype=tf.float64)
    model = Model(scratch.lenet_layers(params))
    others = [tf.Variable(1.5 * p) for p in params]
    loss, grads = scratch.gradients(images, labels, others)
    found, found_grads = model.gradients(images, labels, others)
    assert float(found) == pytest.approx(float(loss), rel=1e-12)
    assert distance(found_grads, grads) <= 1e-12
    assert (model.classes, model.state) == (10, [])
    assert all(a is b for a, b in zip(model.params, params, strict=True))


def test_a_model_has_the_loss_that_it_is_given():
    """A mean of squares, a row of numbers a sample; a parameter that nothing uses."""
    idle, W = tf.Variable(1.0), tf.Variable([[2.0], [1.0]])
    layer = scratch.Layer("line", lambda h, W, idle: h @ W, (W, idle))
    model = Model([layer], lambda found, y: tf.reduce_sum((found - y) ** 2, -1))
    two = tf.constant([[1.0, 0.0], [0.0, 3.0]])
    loss, grads = model.gradients(two, tf.constant([[1.0], [1.0]]), model.params)
    assert float(loss) == 1 + 4
    assert grads[0].numpy().tolist() == [[2.0], [12.0]]
    assert float(grads[1]) == 0
    assert model.classes is None


def test_what_an_embedding_looks_up_stays_whole_and_its_gradient_is_a_tensor():
    table = tf.Variable(tf.reshape(tf.range(10.0), (5, 2)))
    layer = scratch.Layer(
        "look up", lambda h, E: tf.gather(E, h), (table,), casts=False
    )
    tokens = tf.constant([4, 1, 4])
    assert scratch.ready_batch(tokens, tokens, [layer])[0].dtype == tf.int32
    _, (grad,) = Model([layer]).gradients(tokens, tf.constant([0, 1, 1]), [table])
    assert isinstance(grad, tf.Tensor)
    assert grad.shape == (5, 2)
    assert np.all(grad.numpy()[[0, 2, 3]] == 0) and np.all(grad.numpy()[[1, 4]] != 0)


def test_each_variable_moves_where_it_lies_and_an_empty_replica_is_left_alone():
    moving = []
    for device in EIGHT[:2]:
        with tf.device(device):
            moving.append(tf.Variable([1.0, 2.0]))
    sums = [[tf.constant([3.0, 3.0])], [], [tf.constant([6.0, 0.0])]]
    step = in_graph(
        lambda: scratch.take_step([[moving[0]], [], [moving[1]]], sums, 0.5, 3)
    )
    step()
    assert same(values(moving), [[0.5, 1.5], [0.0, 2.0]])
    ops = step.get_concrete_function().graph.get_operations()
    places = [op.device[-5:] for op in ops if op.type == "AssignSubVariableOp"]
    assert places == ["CPU:0", "CPU:1"]


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
@pytest.mark.parametrize("samples", [70_000, tf.constant(70_000)])
def test_a_batch_of_more_samples_than_float16_can_count_is_divided_by(dtype, samples):
    p = tf.Variable([1.0], dtype=dtype)
    scratch.take_step([[p]], [[tf.constant([35_000.0])]], 1.0, samples)
    np.testing.assert_allclose(tf.cast(p, tf.float64), [0.5], rtol=2e-2)
