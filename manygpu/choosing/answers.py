"""What the rule says of a whole grid, so folded that a page can bring it along."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from manygpu.choosing import presets
from manygpu.choosing.tree import Choice, choose

NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def told(choice: Choice) -> str:
    """What the rule says, in lines: plan, seconds, bytes, dollars, chapters, reasons.

    Where nothing fits, the first four lines are empty.
    """
    numbers = (choice.seconds, choice.memory, choice.cost)
    lines = [choice.plan.words if choice.plan else ""]
    lines += ["" if number is None else f"{number:.6g}" for number in numbers]
    lines.append(" ".join(choice.chapters))
    return "\n".join([*lines, *(f"{q}\t{answer}" for q, answer in choice.reasons)])


def of_grid() -> list[str]:
    """What the rule says of each setting of the grid, in its order."""
    return [told(choose(setting)) for _, setting in presets.grid()]


def folded(texts: Iterable[str]) -> tuple[list[str], list[str]]:
    """Texts as templates, with # for each number, and rows: "template number ..."."""
    templates: dict[str, int] = {}
    rows = []
    for text in texts:
        place = templates.setdefault(NUMBER.sub("#", text), len(templates))
        rows.append(" ".join([str(place), *NUMBER.findall(text)]))
    return list(templates), rows


def unfolded(templates: Sequence[str], row: str) -> str:
    """The text that a row of `folded` stands for."""
    place, *numbers = row.split(" ")
    following = iter(numbers)
    return re.sub("#", lambda _: next(following), templates[int(place)])
