"""Bookkeeping: counts of any parts add up to one device's; decisions and orders agree.

The page proves the same for LeNet and 53 images, and runs the mistakes.
"""

import math

import numpy as np
import pytest
import tensorflow as tf

from manygpu import scratch
from tests.unit.helpers import EIGHT, batch, in_graph

MODEL = scratch.get_params(scratch.init_params(dtype=tf.float64), EIGHT[0])


def alone(X, y):
    """Return the three counts of one device, by NumPy."""
    logits = scratch.lenet(X, MODEL).numpy()
    shifted = logits - logits.max(1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(y)), y]
    return losses.sum(), int(np.sum(np.argmax(logits, 1) == y)), len(y)


def replicas(k):
    return [scratch.get_params(MODEL, device) for device in EIGHT[:k]]


@pytest.mark.parametrize("k", [1, 2, 3, 4, 8])
@pytest.mark.parametrize(("samples", "size"), [(1, 64), (5, 2), (13, 64), (29, 3)])
def test_counts_are_those_of_one_device(k, samples, size):
    """Also where ranks have different numbers of batches, or no sample at all."""
    X, y = batch(samples)
    loss, right, seen = scratch.evaluate(X, y, replicas(k), EIGHT[:k], size)
    expected = alone(X, y.numpy())
    assert abs(float(loss) / expected[0] - 1) <= 1e-13
    assert (int(right), int(seen)) == expected[1:]
    assert right.dtype == seen.dtype == tf.int64


def test_a_rank_has_every_kth_sample_in_batches():
    seen = {}

    def of(X, y, params):
        assert len(X) == len(y) <= 2
        seen.setdefault(params[0], []).extend(y.numpy().tolist())
        return [tf.reduce_sum(y)]

    y = tf.range(13)
    [total] = scratch.evaluate(y, y, [["a"], ["b"], ["c"]], EIGHT[:3], 2, of)
    assert int(total) == 78
    assert seen == {"a": [0, 3, 6, 9, 12], "b": [1, 4, 7, 10], "c": [2, 5, 8, 11]}


def test_padding_has_no_weight():
    X, y = batch(5)
    padded = tf.gather(X, [0, 1, 2, 3, 4, 0, 1, 0]), tf.gather(y, [*range(5), 0, 1, 0])
    weights = [1, 1, 1, 1, 1, 0, 0, 0]
    found = scratch.count(*padded, MODEL, weights=weights)
    expected = alone(X, y.numpy())
    assert abs(float(found[0]) / expected[0] - 1) <= 1e-13
    assert [int(c) for c in found[1:]] == [*expected[1:]]


def test_counting_works_in_a_graph_for_any_size():
    counted = in_graph(lambda X, y: scratch.count(X, y, MODEL))
    for samples in (3, 7):
        X, y = batch(samples)
        loss, *whole = counted(X, y)
        expected = alone(X, y.numpy())
        assert abs(float(loss) / expected[0] - 1) <= 1e-13
        assert [int(c) for c in whole] == [*expected[1:]]


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"batch": 0}, ValueError, "batch"),
        ({"batch": 2.0}, TypeError, "batch"),
        ({"devices": EIGHT[:1]}, ValueError, "replicas"),
        ({"devices": []}, ValueError, "devices"),
        ({"y": [1]}, ValueError, "one label per sample"),
        ({"X": [], "y": []}, ValueError, "at least one sample"),
    ],
)
def test_what_can_not_be_evaluated_is_refused(change, error, said):
    X, y = batch(3)
    given = {"X": X, "y": y, "replicas": replicas(2), "devices": EIGHT[:2]} | change
    with pytest.raises(error, match=said):
        scratch.evaluate(**given)


@pytest.mark.parametrize("seed", range(8))
def test_auc_is_the_share_of_pairs(seed):
    draw = np.random.default_rng(seed)
    ones, others = (draw.integers(0, 6, draw.integers(1, 30)) for _ in range(2))
    histograms = [np.bincount(scores, minlength=6) for scores in (ones, others)]
    pairs = [(a > b) + (a == b) / 2 for a in ones for b in others]
    assert scratch.auc_of_counts(*histograms) == sum(pairs) / len(pairs)


def test_auc_of_one_answer_only_is_no_number():
    assert math.isnan(scratch.auc_of_counts([1, 2], [0, 0]))
    assert math.isnan(scratch.auc_of_counts([0, 0], [3, 0]))
    with pytest.raises(ValueError, match="positive"):
        scratch.auc_of_counts([1, 2], [1, 2, 3])


@pytest.mark.parametrize("patience", [1, 2, 3])
def test_it_stops_where_keras_does(patience):
    draw = np.random.default_rng(patience)
    for _ in range(20):
        losses = draw.integers(0, 8, 12) / 8
        callback = tf.keras.callbacks.EarlyStopping("val_loss", patience=patience)
        callback.set_model(type("Trained", (), {"stop_training": False})())
        callback.on_train_begin()
        stopper = scratch.EarlyStopping(patience)
        for epoch, loss in enumerate(losses):
            callback.on_epoch_end(epoch, {"val_loss": loss})
            better = stopper.note(loss)
            assert better == (callback.best_epoch == epoch)
            assert stopper.stop == callback.model.stop_training
            assert stopper.best == callback.best
            if stopper.stop:
                break


def test_a_loss_that_is_no_number_is_never_the_best():
    stopper = scratch.EarlyStopping(2)
    assert not stopper.note(math.nan)
    assert stopper.note(3.0)
    assert not stopper.note(3.0)
    assert not stopper.stop
    assert not stopper.note(math.nan)
    assert stopper.stop
    with pytest.raises(ValueError, match="patience"):
        scratch.EarlyStopping(0)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 8])
def test_an_epochs_parts_are_all_samples_once(k):
    orders = [scratch.epoch_order(29, seed=4, epoch=e) for e in range(6)]
    for order in orders:
        parts = [scratch.own_part(order, r, k) for r in range(k)]
        assert sorted(np.concatenate(parts)) == list(range(29))
        assert {len(part) for part in parts} <= {29 // k, -(-29 // k)}
        assert [part[0] for part in parts] == list(order[:k])  # one device's batch
    assert len({tuple(order) for order in orders}) == 6


def test_an_order_follows_from_seed_and_epoch_alone():
    np.random.seed(1)  # noqa: NPY002 (it must not matter)
    first = scratch.epoch_order(29, seed=4, epoch=2)
    np.random.seed(2)  # noqa: NPY002
    assert np.array_equal(first, scratch.epoch_order(29, seed=4, epoch=2))
    assert not np.array_equal(first, scratch.epoch_order(29, seed=5, epoch=2))
    with pytest.raises(ValueError, match="samples"):
        scratch.epoch_order(0, seed=4, epoch=2)
    with pytest.raises(ValueError, match="rank"):
        scratch.own_part(first, 3, 3)
