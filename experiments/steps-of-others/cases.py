"""The list of all steps: what each is, what the judge should say, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from manygpu.prove import Subject


class Case(NamedTuple):
    """A step that somebody could write.

    Attributes:
        name: of the function that makes it.
        kind: right, odd (right, and unusual), wrong, or hard (wrong, and hard to see).
        names: of the properties that it breaks: any of them names it rightly.
        about: one sentence that says what the step is.
        make: makes the subject.
        needs: the package without which it is skipped; "" for TensorFlow.
        of_rule: whether it is an optimizer, or a number of one, that a rule must know.
    """

    name: str
    kind: str
    names: tuple[str, ...]
    about: str
    make: Callable[[], Subject]
    needs: str = ""
    of_rule: bool = False

    @property
    def expected(self) -> str:
        """What the judge should say of it."""
        return "wrong" if self.names else "right"


CASES: list[Case] = []


def case(kind: str, *names: str, needs: str = "", of_rule: bool = False) -> Callable:
    """Return a decorator that puts a function, which makes a subject, on the list.

    Its docstring is the sentence that says what the step is.
    """

    def added(make: Callable[[], Subject]) -> Callable[[], Subject]:
        about = " ".join(make.__doc__.split())
        called = make.__name__
        CASES.append(Case(called, kind, names, about, make, needs, of_rule))
        return make

    return added
