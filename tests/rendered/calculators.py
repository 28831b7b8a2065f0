"""What the tests of all calculators share: random settings, and results compared."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from manygpu.choosing.search import divisors
from manygpu.widgets import chooser, memory, scaling, spending
from manygpu.widgets.calculator import Number, Pick

MODULES = {
    "chooser": chooser,
    "scaling": scaling,
    "memory": memory,
    "spending": spending,
}
HTML = {
    "chooser": functools.cache(chooser.chooser_html),
    "scaling": functools.cache(scaling.scaling_html),
    "memory": functools.cache(memory.memory_html),
    "spending": functools.cache(spending.cost_html),
}


def opened(lone: Callable, kind: str, **settings) -> SimpleNamespace:
    """A calculator on a page of its own, all its fields unfolded."""
    page = lone(HTML[kind](), "calculator", **settings)
    page.figure.locator("details").evaluate_all("all => all.map(d => d.open = true)")
    return page


def drawn(kind: str, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Random settings. Four of five have a batch that the devices can share."""
    draw, found = random.Random(seed), []
    for _ in range(count):
        values = {}
        for field in MODULES[kind].FIELDS:
            if isinstance(field, Pick):
                values[field.name] = draw.choice(list(field.options.values()))
            elif isinstance(field, Number):
                values[field.name] = any_number(draw, field)
        if "batch" in values and kind != "chooser" and draw.random() < 0.8:
            even_out(values, draw)
        found.append(values)
    return found


def any_number(draw: random.Random, field: Number) -> float:
    """A number that the field takes, within a factor of a hundred of its first."""
    about = (field.first or 1) * 100 ** draw.uniform(-1, 1)
    number = min(max(about, field.least), field.most)
    if field.least == 0 and draw.random() < 0.1:
        number = 0
    return round(number) if field.whole else number * field.size


def even_out(values: dict[str, Any], draw: random.Random) -> None:
    """Let whole machines share the batch."""
    if "gpus" in values:
        values["gpus"] = draw.choice([1, 2, 4, 8, 8, 8])
        values["cards"] = draw.choice(divisors(values["gpus"]))
    if values["devices"] > 8:
        values["devices"] -= values["devices"] % 8
    parts = values["devices"] * values.get("micro_batches", 1)
    values["batch"] = parts * draw.randint(1, 300)


def asked(figure, what: str, settings: list[dict[str, Any]]) -> list[Any]:
    """What the script finds for each setting: "work", "wrong" or "shown"."""
    script = "(root, [what, all]) => all.map((v) => root.calculator[what](v))"
    return figure.evaluate(script, [what, settings])


def sorted_out(
    figure, settings: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[tuple[dict[str, Any], Any]]]:
    """The settings that the script takes, at least 200, and the others' complaints."""
    both = list(zip(settings, asked(figure, "wrong", settings), strict=True))
    right = [values for values, wrong in both if not wrong]
    assert len(right) >= 200
    return right, [(values, wrong) for values, wrong in both if wrong]


def assert_same(found: Any, expected: Any, about: Any) -> None:
    """Equal, but for rounding of numbers; whole numbers and texts exactly."""
    if isinstance(expected, dict):
        assert set(found) == set(expected), about
        for name, value in expected.items():
            assert_same(found[name], value, about)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), about
        for a, b in zip(found, expected, strict=True):
            assert_same(a, b, about)
    elif isinstance(expected, float):
        assert math.isfinite(expected), about
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12), about
    else:
        assert found == expected, about


def assert_words_are_pythons(figure, kind: str, settings: list[dict]) -> None:
    """The sentence and the cells of all tables, letter by letter."""
    for values, found in zip(settings, asked(figure, "shown", settings), strict=True):
        expected = MODULES[kind].shown(values)
        assert found["said"] == expected.said, values
        tables = [[list(row) for row in rows] for rows in expected.tables]
        assert found["tables"] == tables, values
        assert found["chosen"] == expected.chosen, values
        links = [list(link) for link in expected.links]
        assert found.get("links", []) == links, values
