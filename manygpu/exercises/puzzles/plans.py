"""Read what a reader has written: lists, pairs, numbers, or words that say why not."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from manygpu.exercises.puzzles.scoring import FORM, Refused

FITS = "Nothing holds more than fits into it"
MOST = 10_000  # items of a list: an answer is to be drawn


def listed(value: Any, what: str) -> list:
    """A list or tuple, or what can be made into a list, such as a range.

    Raises:
        Refused: it can't, or is too long to be a plan.
    """
    if isinstance(value, str | bytes | dict | set) or not hasattr(value, "__iter__"):
        raise Refused(FORM, f"{what} must be a list, got {shown(value)}")
    found = []
    for item in value:
        found.append(item)
        if len(found) > MOST:
            raise Refused(FORM, f"{what} has more than {MOST} items")
    return found


def row(value: Any, length: int, what: str) -> list:
    """A list of so many items.

    Raises:
        Refused: it is none, or has more or fewer.
    """
    found = listed(value, what)
    if len(found) != length:
        raise Refused(FORM, f"{what} must have {length} items, got {len(found)}")
    return found


def index(value: Any, count: int, what: str) -> int:
    """A whole number from 0 to `count` - 1.

    Raises:
        Refused: it is another.
    """
    try:
        found = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = -1
    if not 0 <= found < count:
        asked = f"a whole number from 0 to {count - 1}"
        raise Refused(FORM, f"{what} must be {asked}, got {shown(value)}")
    return found


def one_of(value: Any, words: Sequence[str], what: str) -> str:
    """One of some words.

    Raises:
        Refused: it is none of them.
    """
    if not isinstance(value, str) or value not in words:
        known = " or ".join(map(repr, words))
        raise Refused(FORM, f"{what} must be {known}, got {shown(value)}")
    return value


def parts(value: Any, whole: int, what: str, each: str) -> list[range]:
    """Cut 0 to `whole` - 1 into stretches of so many each, in order.

    Args:
        value: how many each has.
        whole: how many there are.
        what: the list's name, in what is said.
        each: the property that they break whose sum is another.

    Raises:
        Refused: a count isn't 1 or more, or their sum isn't `whole`.
    """
    counts = [
        index(one, whole + 1, f"a number of {what}") for one in listed(value, what)
    ]
    if 0 in counts:
        raise Refused(FORM, f"a number of {what} must be at least 1, got 0")
    if sum(counts) != whole:
        raise Refused(each, f"the numbers add up to {sum(counts)}, not to {whole}")
    ends = [sum(counts[: i + 1]) for i in range(len(counts))]
    return [range(end - count, end) for count, end in zip(counts, ends, strict=True)]


def shown(value: Any) -> str:
    """A value as it is typed, cut where it is long."""
    said = " ".join(repr(value).split())
    return said if len(said) <= 60 else f"{said[:57]}..."
