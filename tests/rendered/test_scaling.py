"""The scaling calculator's script finds what Python finds."""

from __future__ import annotations

import pytest

from manygpu.choosing import pages
from tests.rendered.calculators import (
    asked,
    assert_same,
    assert_words_are_pythons,
    drawn,
    opened,
)

pytestmark = pytest.mark.rendered


def test_its_numbers_words_and_complaints_are_pythons(lone):
    figure, settings = opened(lone, "scaling").figure, drawn("scaling", 320)
    complaints = asked(figure, "wrong", settings)
    right = [v for v, wrong in zip(settings, complaints, strict=True) if not wrong]
    assert len(right) >= 200
    fits = set()
    for values, found in zip(right, asked(figure, "work", right), strict=True):
        assert_same(found, pages.scaling(**values), values)
        fits |= {row["fits"] for row in found}
    assert fits == set(pages.FITS)
    assert sum(v["devices"] > v["gpus"] for v in right) >= 50
    assert_words_are_pythons(figure, "scaling", right[:60])
    named = {name for wrong in complaints for name, _ in wrong}
    assert named == {"devices", "batch", "cards"}
    for values, wrong in zip(settings, complaints, strict=True):
        if wrong:
            with pytest.raises(
                ValueError, match="devices must divide|cards must divide"
            ):
                pages.scaling(**values)
