"""Each name of d2l that the book uses works with today's TensorFlow and NumPy.

The lock takes d2l without its pins, so nothing else vouches for it. The names are
read from the notebooks and the package: a chapter that starts to use another one
turns `test_each_name_the_book_uses_is_used_here` red.
"""

from __future__ import annotations

import ast
from importlib.metadata import version

import nbformat
import numpy as np
import pytest
import tensorflow as tf
from d2l import tensorflow as d2l

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


def use_animator() -> bool:
    animator = d2l.Animator("epoch", "test acc", xlim=[1, 3], ylim=[0, 1])
    animator.add(1, 0.25)
    animator.add(2, np.float64(0.5))
    line = animator.fig.axes[0].lines[0]
    return line.get_xydata().tolist() == [[1, 0.25], [2, 0.5]]


def use_plot() -> bool:
    d2l.plot(np.array([1, 2]), [tf.constant([1.0, 2.0])], "x", "y", legend=["up"])
    return d2l.plt.gca().lines[0].get_ydata().tolist() == [1, 2]


def use_accuracy() -> bool:
    logits = tf.one_hot([0, 1, 2, 2, 2], 3)
    labels = tf.constant([0, 1, 2, 0, 1], tf.int32)
    batches = tf.data.Dataset.from_tensor_slices((logits, labels)).batch(2)
    return d2l.evaluate_accuracy(lambda X: X, batches) == 3 / 5


USES = {"Animator": use_animator, "plot": use_plot}
USES |= {"plt": use_plot, "evaluate_accuracy": use_accuracy}


def test_each_name_the_book_uses_is_used_here():
    used = set().union(*map(names_used, code_of_the_book().values()))
    assert used == set(USES), "add a use of it here, or take it out"


@pytest.mark.parametrize("name", USES)
def test_a_name_works_with_todays_libraries(name):
    assert USES[name]()


# The contract that manygpu.data.fashion_mnist takes over.


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch):
    """d2l's and our loader on the same arrays, batches of 300."""
    monkeypatch.setenv("MANYGPU_DATA", "shipped")
    stored = data.load(quiet=True)
    pairs = (stored.X_train, stored.y_train), (stored.X_test, stored.y_test)
    monkeypatch.setattr(tf.keras.datasets.fashion_mnist, "load_data", lambda: pairs)
    return d2l.load_data_fashion_mnist(300), data.fashion_mnist(300, quiet=True)


def test_load_data_fashion_mnist_gives_batches_of_the_form_of_ours(both):
    (train, test), (our_train, our_test) = both
    assert (len(train), len(test)) == (len(our_train), len(our_test)) == (34, 7)
    for (X, y), (our_X, our_y) in zip(test, our_test, strict=True):
        assert (X.dtype, y.dtype) == (our_X.dtype, our_y.dtype)
        np.testing.assert_array_equal(X, our_X)
        np.testing.assert_array_equal(y, our_y)
    for one, other in zip(train.element_spec, our_train.element_spec, strict=True):
        assert one.is_compatible_with(other)


def test_load_data_fashion_mnist_shuffles_whole_batches_which_ours_does_not(both):
    """The weak spot that the book names: its batches are the same in every epoch."""
    (theirs, _), (ours, _) = both
    stored = data.load(quiet=True).y_train
    unshuffled = {tuple(stored[i : i + 300]) for i in range(0, 10_000, 300)}
    assert {tuple(y.numpy()) for _, y in theirs} == unshuffled
    assert not {tuple(y.numpy()) for _, y in ours} & unshuffled


def test_the_d2l_tested_is_the_one_that_lock_and_notebooks_name():
    named = f"d2l=={version('d2l')}"
    assert f"\n{named} " in (notebooks.ROOT / "requirements.txt").read_text(
        encoding="utf-8"
    )
    assert f'"{named}"' in notebooks.FIRST_CELL
