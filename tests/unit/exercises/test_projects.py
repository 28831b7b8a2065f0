"""The project that trains on real devices: broken, half mended and mended."""

from __future__ import annotations

import pytest

from manygpu.exercises.projects import judges, project
from tests.quick.exercises.mends import BY_SAMPLES, BY_SUMS, DIVIDED, NO_RATE, mended

ODD = project("odd-batch")
CASES = [
    ([], judges.SAMPLE),
    ([BY_SAMPLES], judges.LENGTH),
    ([BY_SUMS], judges.LENGTH),
    ([NO_RATE], judges.SAMPLE),
    ([DIVIDED], judges.SAMPLE),
    (
        [NO_RATE, [("tf.add_n(gradients)", "tf.add_n(gradients) / len(devices)")]],
        judges.SAMPLE,
    ),
    ([BY_SAMPLES, NO_RATE], ""),
    ([BY_SUMS, DIVIDED], ""),
]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("ways", "broken"), CASES)
def test_what_still_breaks_is_named(tmp_path, ways, broken, seed):
    file = tmp_path / "mine.py"
    file.write_text(mended(ODD.code, *ways), encoding="utf-8")
    found = ODD.check(file, seed)
    assert found.broken == broken, found


def test_the_symptom_is_a_loss_that_explodes(capsys):
    ODD.symptom()
    assert "on 2" in capsys.readouterr().out
