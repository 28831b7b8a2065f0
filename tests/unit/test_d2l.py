"""d2l, of which the book draws and names a weak spot, with today's libraries.

The lock takes it without its pins. Each name that a chapter uses runs with the chapter.
"""

from importlib.metadata import version

import numpy as np
import tensorflow as tf
from d2l import tensorflow as d2l

from manygpu import data
from workshop import notebooks


def test_our_batches_have_the_form_of_d2ls_and_its_are_the_same_in_every_epoch(
    monkeypatch,
):
    """It shuffles whole batches, which the book names, and ours doesn't."""
    monkeypatch.setenv("MANYGPU_DATA", "shipped")
    stored = data.load(quiet=True)
    pairs = (stored.X_train, stored.y_train), (stored.X_test, stored.y_test)
    monkeypatch.setattr(tf.keras.datasets.fashion_mnist, "load_data", lambda: pairs)
    train, test = d2l.load_data_fashion_mnist(300)
    our_train, our_test = data.fashion_mnist(300, quiet=True)
    assert (len(train), len(test)) == (len(our_train), len(our_test)) == (34, 7)
    for (X, y), (our_X, our_y) in zip(test, our_test, strict=True):
        assert (X.dtype, y.dtype) == (our_X.dtype, our_y.dtype)
        np.testing.assert_array_equal(X, our_X)
        np.testing.assert_array_equal(y, our_y)
    unshuffled = {tuple(stored.y_train[i : i + 300]) for i in range(0, 10_000, 300)}
    assert {tuple(y.numpy()) for _, y in train} == unshuffled
    assert not {tuple(y.numpy()) for _, y in our_train} & unshuffled


def test_the_d2l_tested_is_the_one_that_lock_and_notebooks_name():
    named = f"d2l=={version('d2l')}"
    lock = (notebooks.ROOT / "requirements.txt").read_text(encoding="utf-8")
    assert f"\n{named} " in lock
    assert f'"{named}"' in notebooks.FIRST_CELL
