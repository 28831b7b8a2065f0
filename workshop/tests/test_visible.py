"""What visible code needs of the folds, and how much of it teaches."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from workshop import visible
from workshop.reading import SET_UP


def page(folder: Path, *cells: str) -> list[visible.Cell]:
    """A page of these cells: "-" begins a fold, ">" a text."""
    made = []
    for source in cells:
        kind, rest = source[0], source[1:].lstrip()
        if kind == ">":
            made.append(nbformat.v4.new_markdown_cell(rest))
        elif kind == "-":
            tags = {"tags": ["hide-input"]}
            made.append(nbformat.v4.new_code_cell(rest, metadata=tags))
        else:
            made.append(nbformat.v4.new_code_cell(source))
    nbformat.write(nbformat.v4.new_notebook(cells=made), folder / "page.ipynb")
    return visible.cells(folder / "page.ipynb")


@pytest.mark.parametrize(
    ("cells", "names"),
    [
        (["-def f(): pass", "f()"], ["f"]),
        (["-class A: pass", "def g() -> A:\n    return A()"], ["A"]),
        (["-n = 3", "print(n)"], ["n"]),
        (["-for n in range(3):\n    m, *k = n, n", "n, m, k"], ["k", "m", "n"]),
        (["-with f() as n: pass", "lambda: n"], ["n"]),
        (["-n = 3", "def g():\n    return [n for _ in 'ab']"], ["n"]),
        (["-n = 3", "class A:\n    size = n"], ["n"]),
        (["n", "-n = 3"], ["n"]),  # wherever the fold is
        (["-def f(): pass", "> The fold above makes `f`.", "f()"], ["f"]),
        (["-n = 3", "n", "> Here `n` is 3."], ["n"]),  # stated too late
        (["-n = 3", "> Here n is 3.", "n"], ["n"]),  # stated as no name
        # What is visible, or imported, or a function's own, or stated:
        (["-n = 3", "n = 4", "n"], []),
        (["-from a import b\nimport c", "b, c"], []),
        (["-n = 3", "def f(n):\n    return n"], []),
        (["-n = 3", "[n for n in 'ab']"], []),
        (["-[n for n in 'ab']\ndef f():\n    m = 1", "n, m"], []),
        (["-n = 3", "> With `n = 3` devices:", "n"], []),
        (["-D = 8", "> The width is $D = 8$.", "D"], []),
        (["-def check_n(n): pass", "check_n(3)"], []),
        (["-n = 3", "-n"], []),
        (["%matplotlib inline\nx = 1", "x, unknown, len"], []),
        (["-def f(): pass", "!ls f"], []),
    ],
)
def test_a_name_that_only_a_fold_makes_is_named(tmp_path, cells, names):
    found = visible.hidden_names(page(tmp_path, *cells))
    assert [sentence.split("`")[1] for sentence in found] == names


def test_it_is_said_what_to_do(tmp_path):
    value, made = visible.hidden_names(page(tmp_path, "-n = 3\ndef f(): pass", "f(n)"))
    assert (
        made == "cell 1 shows `n`, which only a fold makes (cell 0): show it, or "
        "state it in a text above"
    )
    assert value == "cell 1 shows `f`, which only a fold makes (cell 0): show it"


def test_cells_of_the_reader_and_the_set_up_are_left_out(tmp_path):
    asked = 'def my_x():\n    raise NotImplementedError("?")\n\n\ncheck("a/x", my_x)'
    assert page(tmp_path, f"-{SET_UP}\nassert 0", asked) == []


@pytest.mark.parametrize(
    "code",
    [
        "assert n == 1",
        "def f():\n    assert n",
        "raise AssertionError('n')",
        "np.testing.assert_allclose(a, b)",
        "tf.debugging.assert_equal(a, b)",
    ],
)
def test_a_fold_that_can_fail_says_that_it_proves_or_checks(tmp_path, code):
    for title in ("", "# How this is drawn.\n", "#| exporti\n# The table. A proof.\n"):
        (said,) = visible.unnamed_proofs(page(tmp_path, f"-{title}{code}"))
        assert "is a fold that can fail, and its title is 'Show" in said
    for title in ("# Proof: all are equal.\n", "#| exporti\n# Check of the table.\n"):
        assert visible.unnamed_proofs(page(tmp_path, f"-{title}{code}")) == []
    assert visible.unnamed_proofs(page(tmp_path, code)) == []  # visible


def test_a_fold_that_cannot_fail_needs_no_such_title(tmp_path):
    code = "-raise ValueError('n')\nfirst.asserts(n)"
    assert visible.unnamed_proofs(page(tmp_path, code)) == []


def test_a_long_line_is_named_where_it_is_seen(tmp_path):
    long, most = "x = " + 76 * "1", "x = " + 75 * "1"
    (said,) = visible.long_lines(
        page(tmp_path, f"-{long}", f"{most}\n{long}", f">{long}")
    )
    assert "cell 1 shows a line of 80 letters, 79 at most: x = 11" in said


@pytest.mark.parametrize(
    ("code", "teach", "shown"),
    [
        ("#| export\ndef f(n):\n    '''Say\n\n    it.'''\n\n    return n", 2, 4),
        ("check_count('n', n)\nchecks.check_rank(r, n)\nx = n", 1, 3),
        ("if n < 1:\n    raise ValueError(\n        'n'\n    )\nx = n", 1, 5),
        ("assert n == (\n    1\n)\nx = n", 1, 4),
        ("for n in ns:\n    print(n)\n    here.show('n')\nx = n", 1, 4),
        ("for n in ns:\n    print(n)\n    x += n", 2, 3),
        ("figures.show(\n    plot, caption='x'\n)\ncaption = 'y'\nx = n", 1, 5),
        ("table = figures.table(rows)\nx, caption = 1, 2", 1, 2),
        ("try:\n    f()\nexcept ValueError as e:\n    print(e)", 2, 4),
    ],
)
def test_a_line_teaches_that_is_no_docstring_check_assert_or_report(
    tmp_path, code, teach, shown
):
    assert visible.teaching(page(tmp_path, code)) == (teach, shown)
    assert visible.teaching(page(tmp_path, f"-{code}")) == (0, 0)
