"""Each name of d2l that the book uses works with today's TensorFlow and NumPy.

The lock takes d2l without its pins, so nothing else vouches for it. The names are
read from the notebooks and the package: a chapter that starts to use another one
turns `test_each_name_the_book_uses_is_tested_here` red.
"""

from __future__ import annotations

import ast
from importlib.metadata import version

import nbformat
import numpy as np
import pytest
import tensorflow as tf
from d2l import tensorflow as d2l
from matplotlib import pyplot as plt

from manygpu import data
from workshop import notebooks


def code_of_the_book() -> dict[str, str]:
    """All Python of notebooks and package, by file."""
    found = {}
    for path in notebooks.chapters():
        cells = nbformat.read(path, as_version=4).cells
        for i, cell in enumerate(c for c in cells if c.cell_type == "code"):
            found[f"{path.name} cell {i}"] = cell.source
    for folder in ("manygpu", "workshop"):
        for path in (notebooks.ROOT / folder).rglob("*.py"):
            found[str(path)] = path.read_text(encoding="utf-8")
    return found


def names_used(code: str) -> set[str]:
    """x for each `d2l.x` and `from d2l.tensorflow import x` in the code."""
    used = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "d2l":
            used.add(node.attr)
        if isinstance(node, ast.ImportFrom) and node.module == "d2l.tensorflow":
            used |= {name.name for name in node.names}
    return used


def test_names_are_found_in_both_ways_of_writing_them():
    code = "from d2l.tensorflow import a\nd2l.b(d2l.c.d, other.e)  # d2l.f\n'd2l.g'"
    assert names_used(code) == {"a", "b", "c"}


def test_each_name_the_book_uses_is_tested_here():
    used = set().union(*map(names_used, code_of_the_book().values()))
    assert used >= {"Timer", "Animator", "evaluate_accuracy"}, "nothing was looked at"
    tests = [name for name in globals() if name.startswith("test_")]
    untested = [u for u in used if not any(t.startswith(f"test_{u}_") for t in tests)]
    assert untested == [], "write a test for each of these in this file"


def test_Timer_measures_from_its_last_start_and_adds_up(monkeypatch):
    clock = iter([10.0, 20.0, 21.0, 30.0, 33.0])
    monkeypatch.setattr(d2l.time, "time", lambda: next(clock))
    timer = d2l.Timer()
    for seconds in (1.0, 3.0):
        timer.start()
        assert timer.stop() == seconds
    assert timer.times == [1.0, 3.0]
    assert (timer.avg(), timer.sum(), timer.cumsum()) == (2.0, 4.0, [1.0, 4.0])


def test_Animator_keeps_and_draws_what_is_added():
    animator = d2l.Animator("epoch", "test acc", xlim=[1, 3], ylim=[0, 1])
    animator.add(1, 0.25)
    animator.add(2, np.float64(0.5))
    assert animator.X == [[1, 2]]
    assert animator.Y == [[0.25, 0.5]]
    axes = animator.fig.axes[0]
    assert axes.lines[0].get_xydata().tolist() == [[1, 0.25], [2, 0.5]]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("epoch", "test acc")
    assert axes.get_xlim() == (1, 3)


def test_plot_draws_arrays_and_tensors_with_their_labels():
    x, up, down = np.array([1, 2, 4]), tf.constant([1.0, 2.0, 3.0]), [3, 2, 1]
    d2l.plot(x, [up, down], "x", "y", legend=["up", "down"], yscale="log")
    axes = plt.gca()
    drawn = [line.get_xydata().tolist() for line in axes.lines]
    assert drawn == [[[1, 1], [2, 2], [4, 3]], [[1, 3], [2, 2], [4, 1]]]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x", "y")
    assert axes.get_yscale() == "log"
    assert [t.get_text() for t in axes.get_legend().texts] == ["up", "down"]


def test_plt_holds_the_figure_that_plot_drew():
    d2l.plot([1, 2], [3, 4])
    assert d2l.plt.gcf() is plt.gcf()
    assert d2l.plt.gca().lines[0].get_ydata().tolist() == [3, 4]


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_evaluate_accuracy_counts_samples_over_uneven_batches(dtype):
    logits = tf.one_hot([0, 1, 2, 2, 2], 3, dtype=dtype)
    labels = tf.constant([0, 1, 2, 0, 1], tf.int32)
    batches = tf.data.Dataset.from_tensor_slices((logits, labels)).batch(2)
    assert d2l.evaluate_accuracy(lambda X: X, batches) == 3 / 5


# The contract that manygpu.data.fashion_mnist takes over.


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch):
    """d2l's and our loader on the same arrays, batches of 300."""
    monkeypatch.setenv("MANYGPU_DATA", "shipped")
    stored = data.load(quiet=True)
    pairs = (stored.X_train, stored.y_train), (stored.X_test, stored.y_test)
    monkeypatch.setattr(tf.keras.datasets.fashion_mnist, "load_data", lambda: pairs)
    return d2l.load_data_fashion_mnist(300), data.fashion_mnist(300, quiet=True)


def test_load_data_fashion_mnist_gives_the_test_batches_that_ours_gives(both):
    (_, theirs), (_, ours) = both
    assert len(theirs) == len(ours) == 7
    for (X, y), (our_X, our_y) in zip(theirs, ours, strict=True):
        assert (X.dtype, y.dtype) == (our_X.dtype, our_y.dtype)
        np.testing.assert_array_equal(X, our_X)
        np.testing.assert_array_equal(y, our_y)


def test_load_data_fashion_mnist_gives_training_batches_of_our_form(both):
    (theirs, _), (ours, _) = both
    assert len(theirs) == len(ours) == 34
    for one, other in zip(theirs.element_spec, ours.element_spec, strict=True):
        assert one.is_compatible_with(other)
    assert sum(len(y) for _, y in theirs) == sum(len(y) for _, y in ours) == 10_000


def test_load_data_fashion_mnist_shuffles_whole_batches_which_ours_does_not(both):
    """The weak spot that the book names: its batches are the same in every epoch."""
    (theirs, _), (ours, _) = both
    stored = data.load(quiet=True).y_train
    unshuffled = {tuple(stored[i : i + 300]) for i in range(0, 10_000, 300)}
    assert {tuple(y.numpy()) for _, y in theirs} == unshuffled
    assert not {tuple(y.numpy()) for _, y in ours} & unshuffled


def test_load_data_fashion_mnist_asks_keras_for_the_data(monkeypatch):
    """The other weak spot: it goes to the network where Keras' cache is empty."""

    def no_network():
        raise OSError("no network")

    monkeypatch.setattr(tf.keras.datasets.fashion_mnist, "load_data", no_network)
    with pytest.raises(OSError, match="no network"):
        d2l.load_data_fashion_mnist(300)


def test_the_d2l_tested_is_the_one_that_lock_and_notebooks_name():
    named = f"d2l=={version('d2l')}"
    assert f"\n{named} " in (notebooks.ROOT / "requirements.txt").read_text(
        encoding="utf-8"
    )
    assert f'"{named}"' in notebooks.FIRST_CELL
