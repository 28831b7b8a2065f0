"""The memory calculator's script finds what Python finds."""

from __future__ import annotations

import pytest

from manygpu.widgets.calculator import first_values
from manygpu.widgets.memory import FIELDS
from manygpu.widgets.memory import found as found_by_python
from tests.rendered.calculators import (
    asked,
    assert_same,
    assert_words_are_pythons,
    drawn,
    opened,
    sorted_out,
)

pytestmark = pytest.mark.rendered


def test_its_numbers_words_and_complaints_are_pythons(lone):
    figure = opened(lone, "memory").figure
    right, refused = sorted_out(figure, drawn("memory", 320))
    for values, found in zip(right, asked(figure, "work", right), strict=True):
        assert_same(found, found_by_python(values), values)
    assert_words_are_pythons(figure, "memory", right[:60])
    assert refused
    for values, _ in refused:
        with pytest.raises(ValueError, match="batch must be a multiple"):
            found_by_python(values)


def test_a_bar_is_as_long_as_its_bytes(lone):
    """Parts end to end, and the dashed line where memory ends."""
    figure = opened(lone, "memory", width="700px").figure
    rects = figure.locator(".calculator-picture rect")
    widths = rects.evaluate_all("all => all.map(r => r.width.baseVal.value)")
    limit = figure.locator("path.limit").get_attribute("d")
    first = asked(figure, "work", [first_values(FIELDS)])[0]
    parts = ("parameters", "gradients", "optimizer", "gathered", "activations")
    sizes = [row[part] for row in first for part in parts]
    scale = sum(widths) / sum(sizes)
    assert widths == pytest.approx([scale * size for size in sizes], abs=0.11)
    at = float(limit[1 : limit.index(" ")]) - 8
    assert at == pytest.approx(0.9 * 80e9 * scale, abs=0.5)
