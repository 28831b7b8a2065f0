"""The faults that are put in to try the tests: each is one, in code that runs."""

from __future__ import annotations

import ast

import pytest

from tools import mutate

TEXT = '''"""A docstring with 1 + 1."""

__all__ = ["f"]


def f(n: int = 3) -> list[int]:
    """Says 2 < 3."""
    if not n < 2 or n == 7:
        raise ValueError(f"n is {n + 1}, not {1 + 1}")
    with tf.control_dependencies([n]):
        n += 1
    print("ü", n)
    return min(n, 5) if True else [n * 2]
'''


def lines() -> list[str]:
    return [fault.shown for fault in mutate.faults_of("x.py", TEXT)]


@pytest.mark.parametrize(
    "line",
    [
        "def f(n: int = 4) -> list[int]:",
        "if not ((n) <= (2)) or n == 7:",
        "if (n < 2) or n == 7:",
        "if ((not n < 2) and (n == 7)):",
        "if not n < 2 or ((n) != (7)):",
        "if not n < 3 or n == 7:",
        "with tf.control_dependencies([]):",
        "pass",
        "return max(n, 5) if True else [n * 2]",
        "return min(n, 5) if False else [n * 2]",
        "return min(n, 5) if True else [((n) + (2))]",
    ],
)
def test_a_fault_is_found(line):
    assert line in lines()


def test_docstrings_names_and_messages_are_left_alone():
    numbers = {fault.line for fault in mutate.faults_of("x.py", TEXT)}
    assert numbers == {6, 8, 10, 11, 12, 13}


def test_each_fault_changes_one_place_and_can_be_read():
    faults = mutate.faults_of("x.py", TEXT)
    assert len({fault.applied(TEXT) for fault in faults}) == len(faults)
    for fault in faults:
        changed = fault.applied(TEXT)
        assert changed != TEXT
        ast.parse(changed)
        apart = zip(TEXT.splitlines(), changed.splitlines(), strict=True)
        assert [i for i, (a, b) in enumerate(apart, 1) if a != b] == [fault.line]


def test_the_draw_is_the_same_each_time_and_of_the_whole_package():
    drawn = mutate.chosen(60, 0, "")
    assert drawn == mutate.chosen(60, 0, "") and len(drawn) == 60
    assert len({fault.file.split("/")[0] for fault in drawn}) == 2
    assert {fault.file for fault in mutate.chosen(5, 1, "measure")} == {
        "manygpu/measure.py"
    }


def test_each_module_has_tests_that_exist():
    for module in mutate.modules():
        tests = mutate.tests_of(module)
        assert tests and all((mutate.ROOT / test).is_file() for test in tests)
    own = mutate.tests_of("manygpu/scratch/splitting/pipeline.py")[0]
    assert own == "tests/unit/scratch/splitting/test_pipeline.py"
    assert mutate.tests_of("manygpu/workers.py")[0] == "tests/unit/test_workers.py"
