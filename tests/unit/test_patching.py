"""Methods that are written after their class."""

from __future__ import annotations

import pytest

from manygpu.patching import patch


class Counter:
    """Counts."""

    def __init__(self) -> None:
        self.count = 0


def add(a, b):
    return a + b


kept = add


@patch
def add(self: Counter, more: int) -> int:  # noqa: F811
    """Count on."""
    self.count += more
    return self.count


def test_a_patched_function_is_a_method_and_hides_no_other_name():
    counter = Counter()
    assert (counter.add(2), counter.add(3)) == (2, 5)
    assert add is kept and add(1, 2) == 3
    assert (Counter.add.__qualname__, Counter.add.__doc__) == (
        "Counter.add",
        "Count on.",
    )


def test_a_function_that_names_no_class_is_refused():
    for wrong in (lambda: None, lambda self: None):
        with pytest.raises(TypeError, match="must say of which class it is"):
            patch(wrong)
