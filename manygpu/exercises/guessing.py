"""Guess first: a page asks for a number before it measures it.

For example::

    asked = guess("why-slower/speedup", "How many times as fast?", "times", yours=1.9)
    asked.told(measured=ratios, foreseen=2, by="two halves at once")
    Guess: you said 1.9, foreseen 2 (two halves at once), found 1.43 times.

In a notebook your guess is `yours`. In the rendered page, which has no kernel, a script
(workshop/static/guess.js) asks for it, and hides until then what lies between the two.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable
from numbers import Real
from typing import NamedTuple

import numpy as np

from manygpu import _page
from manygpu.exercises.kept import keep

NAME = re.compile(r"[a-z0-9-]+/[a-z0-9-]+")
ONE = ("cores", "steps", "ranks", "pairs", "samples", "all-reduces")
ONE += ("dollars", "mistakes")
WHOLE = 100  # from here on, numbers are written without decimals


class Asked(NamedTuple):
    """A question whose answer is one number.

    Attributes:
        name: "page/its-own-name".
        question: one sentence that ends with a question mark.
        unit: what the answer counts, such as "times" or "%".
        yours: your guess in that unit; None if you made none.
        least: no answer can be less; None if there is no such end.
        most: no answer can be more; None if there is no such end.
    """

    name: str
    question: str
    unit: str
    yours: float | None = None
    least: float | None = 0
    most: float | None = None

    def told(
        self,
        measured: Real | Iterable[Real],
        foreseen: Real | None = None,
        by: str = "",
    ) -> None:
        """Show your guess beside what was foreseen and what was measured.

        Args:
            measured: a number in the question's unit, or one of each round: then their
                median and range are shown.
            foreseen: what a formula or an ideal says; None if nothing does.
            by: a few words that say where it comes from.

        Raises:
            TypeError: a number is none.
            ValueError: a number isn't finite, there is no round, or `by` explains
                what isn't foreseen.
        """
        rounds = [measured] if isinstance(measured, Real) else list(measured)
        found = [_number("measured", each) for each in rounds]
        if not found:
            raise ValueError("measured must hold at least one number, got none")
        if foreseen is not None:
            foreseen = _number("foreseen", foreseen)
        elif by:
            raise ValueError(
                f"by says what foreseen comes from, but that is None: {by!r}"
            )
        middle = float(np.median(found))
        values = {"guess": self.yours, "foreseen": foreseen, "measured": middle}
        said = _parts(self.unit, values, found, by)
        page = self.name.partition("/")[0]
        keep("guesses", self.name, values | {"unit": self.unit, "page": page})
        _page.show(
            _told_html(self, values, said), f"Guess: {', '.join(said.values())}."
        )


def guess(
    name: str,
    question: str,
    unit: str = "",
    yours: float | None = None,
    least: float | None = 0,
    most: float | None = None,
) -> Asked:
    """Ask for a number before a page measures it; see `Asked.told`.

    Args:
        name: "page/its-own-name", in small letters, digits and hyphens.
        question: one sentence that ends with a question mark.
        unit: what the answer counts, such as "times" or "%".
        yours: your guess in that unit; None makes none.
        least: no answer can be less, such as a time below 0; None for no such end.
        most: no answer can be more, such as a share above 100%; None for no such end.

    Raises:
        TypeError: `yours` is no number.
        ValueError: a name or a question that isn't one, or a guess that isn't finite
            or is outside what can be.
    """
    if not NAME.fullmatch(name):
        raise ValueError(f"name must be like 'page/its-own-name', got {name!r}")
    if not question.strip().endswith("?"):
        raise ValueError(f"question must end with a question mark, got {question!r}")
    if yours is not None:
        yours = _possible(yours, unit, least, most)
    said = _page.plain(" ".join(question.split()))
    asked = Asked(name, said, unit, yours, least, most)
    said = "" if not unit or unit in asked.question else f" (In {unit}.)"
    if yours is not None:
        said += f" You said {written(yours, unit)}."
    _page.show(_asked_html(asked, said), f"Guess first: {asked.question}{said}")
    return asked


def written(value: float, unit: str = "") -> str:
    """A number as a page says it, with its unit: "1.43 times", "38%", "44,426 bytes".

    Three digits, and all those before the point.
    """
    digits = f"{value:,.0f}" if WHOLE <= abs(value) < 1e9 else f"{value:.3g}"
    if digits == "1" and unit in ONE:
        unit = unit[:-1]
    return f"{digits}{'' if unit in ('', '%') else ' '}{unit}"


def _number(argument: str, value: Real) -> float:
    """A finite float; errors name the argument."""
    if not isinstance(value, Real) or isinstance(value, bool | np.bool_):
        raise TypeError(f"{argument} must be a number, such as 1.5, got {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"{argument} must be a finite number, got {value!r}")
    return float(value)


def _possible(yours: Real, unit: str, least: float | None, most: float | None) -> float:
    """A guess that can be so; errors say what can."""
    found = _number("yours", yours)
    for end, is_outside, side in (
        (least, least is not None and found < least, "least"),
        (most, most is not None and found > most, "most"),
    ):
        if is_outside:
            raise ValueError(
                f"yours must be at {side} {written(end, unit)}, got "
                f"{written(found, unit)}: guess a number that can be so"
            )
    return found


def _parts(
    unit: str, values: dict[str, float | None], rounds: list[float], by: str
) -> dict[str, str]:
    """What is said of each value that is there; the last names the unit."""
    said = {}
    if values["guess"] is not None:
        said["guess"] = f"you said {written(values['guess'], _close(unit))}"
    if values["foreseen"] is not None:
        reason = f" ({by})" if by else ""
        said["foreseen"] = (
            f"foreseen {written(values['foreseen'], _close(unit))}{reason}"
        )
    low, high = (written(end, _close(unit)) for end in (min(rounds), max(rounds)))
    spread = f" ({low} to {high})" if low != high else ""
    said["measured"] = f"found {written(values['measured'], unit)}{spread}"
    return said


def _close(unit: str) -> str:
    """A unit that is repeated with each number; others are named once."""
    return unit if unit == "%" else ""


def _asked_html(asked: Asked, said: str) -> str:
    """The question, for guess.js to ask."""
    unit = html.escape(asked.unit)
    ends = {"yours": asked.yours, "least": asked.least, "most": asked.most}
    known = "".join(
        f' data-{key}="{value!r}"' for key, value in ends.items() if value is not None
    )
    return (
        f'<p class="manygpu-here manygpu-guess" data-name="{asked.name}"'
        f' data-unit="{unit}"{known}>'
        f"<b>Guess first:</b> {html.escape(asked.question + said)}</p>"
    )


def _told_html(
    asked: Asked, values: dict[str, float | None], said: dict[str, str]
) -> str:
    """The answer, for guess.js to hide; its numbers are in attributes, too."""
    known = {key: value for key, value in values.items() if value is not None}
    numbers = "".join(f' data-{key}="{value!r}"' for key, value in known.items())
    parts = ", ".join(
        f'<span class="told-{key}">{html.escape(words)}</span>'
        for key, words in said.items()
    )
    return (
        f'<p class="manygpu-here manygpu-told" data-name="{asked.name}"{numbers}>'
        f"<b>Guess:</b> {parts}.</p>"
    )
