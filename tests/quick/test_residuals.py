"""Forecasts against what others measured: which steps, and how far they are off."""

from dataclasses import replace

import numpy as np
import pytest

from manygpu import records
from manygpu.choosing import forecast, presets, residuals, tables
from manygpu.costs.layout import Layout


def by_table() -> dict[str, list[residuals.Step]]:
    found: dict[str, list[residuals.Step]] = {name: [] for name in residuals.TABLES}
    for step in residuals.steps():
        found[step.table].append(step)
    return found


@pytest.mark.parametrize("name", residuals.TABLES)
def test_forecasts_of_each_table_are_of_the_size_that_was_measured(name):
    """Within a factor of two in the median, though nothing is fitted."""
    steps = by_table()[name]
    assert len(steps) > 5 and all(step.seconds > 0 for step in steps)
    assert 0.5 < np.median([step.ratio for step in steps]) < 2
    for step in steps:
        assert step.layout.devices == step.setting.machine.cluster.count
        assert step.setting.batch % step.layout.data == 0


def test_a_published_step_is_asked_with_its_own_numbers():
    """NVIDIA's ResNet-50 on the V100s of a DGX-1, by TensorFlow."""
    name = "resnet-50, 8 v100-16, TensorFlow"
    (step,) = (s for s in residuals.steps() if s.name == name)
    assert step.setting.model == presets.known_model(tables.model("resnet-50"))
    assert step.setting.machine.rate == tables.gpu("v100-16").conv
    assert (step.layout, step.setting.batch) == (Layout(8), 8 * 256)
    said = float(forecast.seconds(step.setting, step.layout))
    assert step.ratio == step.seconds / said


@pytest.mark.parametrize("model", ["1.5 B", "ResNet-50", "LeNet"])
def test_the_likely_range_holds_four_of_five(model):
    asked = presets.setting(model, "1 GPU", "40 GB", 8)
    if model == "ResNet-50":
        named = replace(asked.model, name="resnet-50")
        asked = replace(asked, model=named)
    low, high = residuals.likely(asked)
    ratios = residuals.ratios(residuals.kind(asked))
    assert len(ratios) > 8
    within = np.mean((low <= ratios) & (ratios <= high))
    assert within == pytest.approx(0.8, abs=2 / len(ratios))  # ends lie between two
    assert low < np.median(ratios) < high


def test_records_of_machines_are_asked_by_their_own_rate():
    steps = residuals.kept()
    assert {step.table for step in steps} == {*records.machines()}
    assert {residuals.kind(step.setting) for step in steps} == {"measured"}
    assert {step.layout.devices for step in steps} >= {1, 2}
