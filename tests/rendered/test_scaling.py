"""The scaling calculator's script finds what Python finds."""

from __future__ import annotations

import pytest

from manygpu.choosing import formulas
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
    figure = opened(lone, "scaling").figure
    right, refused = sorted_out(figure, drawn("scaling", 320))
    fits = set()
    for values, found in zip(right, asked(figure, "work", right), strict=True):
        assert_same(found, formulas.scaling(**values), values)
        fits |= {row["fits"] for row in found}
    assert fits == set(formulas.FITS)
    assert sum(v["devices"] > v["gpus"] for v in right) >= 50
    assert_words_are_pythons(figure, "scaling", right[:60])
    named = {name for _, wrong in refused for name, _ in wrong}
    assert named == {"devices", "batch", "cards"}
    for values, _ in refused:
        with pytest.raises(ValueError, match="devices must divide|cards must divide"):
            formulas.scaling(**values)
