"""The line after a result: what this figure or table shows, from its own numbers.

A page's prose says what must hold on any machine. A line that begins with "Here:" is
written by a cell, so it says what this run found: how much, against what was foreseen,
and where it is noise::

    here.show(f"two devices are {here.times(ratios, 'as fast as one')}")
    Here: two devices are 1.43 times as fast as one (1.31 to 1.50).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from numbers import Real

from manygpu import _page
from manygpu.tables import spread

CLEAR = 0.8  # of the rounds: won by fewer, nobody won
Measured = Real | Iterable[Real]


def show(text: str) -> None:
    """Show a line that begins with "Here:", as HTML on a page and text in a terminal.

    Args:
        text: what this run found, one sentence or a few. A full stop is added. Names in
            backticks are shown as code.

    Raises:
        ValueError: there is no text.
    """
    words = _page.plain(" ".join(text.split()))
    if not words:
        raise ValueError("text must say what this result shows, got nothing")
    words += "" if words[-1] in ".!?" else "."
    page = f'<p class="manygpu-here"><b>Here:</b> {_page.words(words)}</p>'
    _page.show(page, f"Here: {words}")


def measured(values: Measured, spec: str = ".2f") -> str:
    """The median of some rounds and their range: "38% (31% to 44%)"; one number alone.

    Args:
        values: a number, or one of each round.
        spec: how they are written, such as ".0%".

    Raises:
        ValueError: no values.
    """
    middle, least, most = _spread(values)
    return f"{middle:{spec}}{_range(least, most, spec)}"


def against(values: Measured, foreseen: Real, spec: str = ".2f") -> str:
    """What was measured, what was foreseen, and whether any round reaches it.

    "38% (31% to 44%), foreseen 41%: inside the range", "foreseen 50%: every round is
    below". Arguments and errors are those of `measured`.
    """
    middle, least, most = _spread(values)
    said = f"{measured(values, spec)}, foreseen {foreseen:{spec}}"
    if f"{middle:{spec}}" == f"{foreseen:{spec}}":
        return said
    if least == most:
        return f"{said}: it is {'above' if middle > foreseen else 'below'}"
    if least <= foreseen <= most:
        return f"{said}: inside the range"
    return f"{said}: every round is {'above' if least > foreseen else 'below'}"


def times(ratios: Measured, what: str, spec: str = ".2f") -> str:
    """A ratio in words: "1.43 times as fast as one device (1.31 to 1.50)".

    Where the rounds lie on both sides of 1, no difference is shown, and it says so:
    "as fast as one device, but for noise (0.94 to 1.07 times)".

    Args:
        ratios: one of each round, or one number.
        what: what 1 would mean, such as "as fast as one device".
        spec: how a ratio is written.

    Raises:
        ValueError: no ratios, or one that isn't positive.
    """
    middle, least, most = _spread(ratios)
    if least <= 0:
        raise ValueError(f"ratios must be positive, got {least}")
    if least <= 1 <= most and least != most:
        return f"{what}, but for noise ({least:{spec}} to {most:{spec}} times)"
    return f"{middle:{spec}} times {what}{_range(least, most, spec)}"


def faster(own: Sequence[Real], other: Sequence[Real]) -> str:
    """Who took less time, round by round: "faster in 7 of 8 rounds", or noise.

    Args:
        own: seconds of each round.
        other: those of the same rounds of what it is compared with.

    Raises:
        ValueError: no rounds, or not the same number of each.
    """
    if not len(own) or len(own) != len(other):
        raise ValueError(
            f"own and other must be of the same rounds, got {len(own)} and {len(other)}"
        )
    rounds = len(own)
    won = sum(a < b for a, b in zip(own, other, strict=True))
    lost = sum(a > b for a, b in zip(own, other, strict=True))
    if won >= CLEAR * rounds:
        return f"faster in {won} of {rounds} rounds"
    if lost >= CLEAR * rounds:
        return f"slower in {lost} of {rounds} rounds"
    return f"faster in {won} of {rounds} rounds, which is noise"


def under(value: Real, bound: Real, spec: str = ".1e") -> str:
    """A number beside its bound: "3.1e-16, below 1.0e-12" or "0.2, NOT below 0.1".

    A number that isn't only rounded to 0 but is 0 is "exactly 0, below 1.0e-12".
    """
    said = "below" if value <= bound else "NOT below"  # a NaN is below nothing
    number = f"{value:{spec}}" if value else "exactly 0"
    return f"{number}, {said} {bound:{spec}}"


def least(value: Real, spec: str = ".2f") -> str:
    """A lower bound, rounded down: 47.76 by ".0f" is "47": it isn't at least 48."""
    return _bound(value, spec, ROUND_FLOOR)


def most(value: Real, spec: str = ".2f") -> str:
    """An upper bound, rounded up: 0.432 by ".0%" is "44%": it isn't at most 43%."""
    return _bound(value, spec, ROUND_CEILING)


def _bound(value: Real, spec: str, rounding: str) -> str:
    """The value with as many digits as it is written with, rounded to one side."""
    written = f"{value:{spec}}"
    exact = Decimal(f"{float(value):.12g}")  # 0.57 is 0.57, not the float just below
    if not exact.is_finite():
        return written
    scale = 100 if written.endswith("%") else 1
    digits = Decimal(written.rstrip("%").replace(",", ""))
    if "e" in written:
        few = Context(len(digits.as_tuple().digits), rounding)
        bound = few.create_decimal(exact)
    else:
        bound = (scale * exact).quantize(digits, rounding)
    return f"{float(bound) / scale:{spec}}"


def _spread(values: Measured) -> tuple[float, float, float]:
    """Middle, least and most of some rounds, or of one number."""
    return spread([values] if isinstance(values, Real) else values)


def _range(least: float, most: float, spec: str) -> str:
    """The range in brackets, if there is one to see."""
    low, high = f"{least:{spec}}", f"{most:{spec}}"
    return f" ({low} to {high})" if low != high else ""
