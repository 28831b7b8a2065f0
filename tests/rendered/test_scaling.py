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
    assert {v["links"] for v in right} == set(pages.INTERCONNECTS)
    for values, found in zip(right, asked(figure, "work", right), strict=True):
        assert_same(found, pages.scaling(**values), values)
    assert_words_are_pythons(figure, "scaling", right[:60])
    assert {name for wrong in complaints for name, _ in wrong} == {"devices", "batch"}
    for values, wrong in zip(settings, complaints, strict=True):
        if wrong:
            with pytest.raises(ValueError, match="devices must divide"):
                pages.scaling(**values)
