"""Numbers of a command's options: read from their text, within bounds.

Only the digits 0 to 9 make a number here. Python's `int` would also take those of
other scripts, and 1_000: in a script that somebody copies, these are slips.
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable

LONG = 40  # letters of a text that are shown


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return what reads a whole number from `least` to `most`, for argparse's `type`.

    For another text it raises argparse.ArgumentTypeError, which names the option.
    """
    return functools.partial(_read, int, "a whole number", least, most)


def number(least: float, most: float) -> Callable[[str], float]:
    """Return what reads a number from `least` to `most`; see `whole`."""
    return functools.partial(_read, float, "a number", least, most)


def plain(kind: type) -> Callable[[str], float]:
    """Return what reads a number of this kind, `int` or `float`, without bounds.

    For a command that says itself what its numbers must be; errors: see `whole`.
    """
    words = {int: "a whole number", float: "a number"}[kind]
    return functools.partial(_number, kind, words)


def _read(kind: type, words: str, least: float, most: float, text: str) -> float:
    """The number that a text says; ArgumentTypeError if it is none, or out of bounds.

    NaN is within no bounds.
    """
    bounds = f"from {least:,} to {most:,}"
    if most == math.inf:
        bounds = f"of at least {least:,}"
    found = _number(kind, f"{words} {bounds}", text)
    if not least <= found <= most or found == math.inf:
        raise _refusal(f"{words} {bounds}", text)
    return found


def _number(kind: type, words: str, text: str) -> float:
    """The number that a text says; ArgumentTypeError if it is none."""
    if not text.isascii() or "_" in text:
        raise _refusal(words, text, ": write it in digits 0 to 9")
    try:
        return kind(text)
    except ValueError:
        raise _refusal(words, text) from None


def _refusal(words: str, text: str, advice: str = "") -> argparse.ArgumentTypeError:
    """What argparse shows behind the option's name."""
    return argparse.ArgumentTypeError(f"must be {words}, got {text[:LONG]!r}{advice}")
