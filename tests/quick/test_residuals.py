"""Forecasts against what others measured: which steps, and how far they are off."""

import numpy as np
import pytest

from manygpu import records
from manygpu.choosing import forecast, presets, residuals, tables
from manygpu.costs.layout import Layout


def by_table() -> dict[str, list[residuals.PublishedStep]]:
    found: dict[str, list[residuals.PublishedStep]] = {
        name: [] for name in residuals.TABLES
    }
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
    one = next(s for s in residuals.steps() if s.name == name.replace("8", "1", 1))
    assert one.ratio == pytest.approx(1, abs=0.02)  # the table's own rate is of this
    assert (step.layout, step.setting.batch) == (Layout(8), 8 * 256)
    said = float(forecast.seconds(step.setting, step.layout))
    assert step.ratio == step.seconds / said


@pytest.mark.parametrize(
    ("kind", "way", "size"),
    [
        ("transformers", (False, False, False), 0),
        ("transformers", (True, False, False), 1),
        ("transformers", (False, True, True), 2),
        ("transformers", (True, False, True), 0),  # nobody published any
        ("images", (False, False, False), 0),
        ("measured", (False, False, False), 0),
    ],
)
def test_the_likely_range_holds_four_of_five_of_its_kind(kind, way, size):
    low, high = residuals._likely(kind, way, size)
    ratios = residuals.ratios(kind)
    own = [
        step.ratio
        for step in (residuals.kept() if kind == "measured" else residuals.steps())
        if residuals.kind(step.setting) == kind
        and residuals._sort(step.setting, step.layout) == (way, size)
    ]
    asked = np.array(own) if len(own) >= residuals.ENOUGH else ratios
    within = np.mean((low <= asked) & (asked <= high))
    assert low < high
    assert within == pytest.approx(0.8, abs=max(0.04, 3 / len(asked)))


def test_records_of_machines_are_asked_by_their_own_rate():
    steps = residuals.kept()
    assert {step.table for step in steps} == {*records.machines()}
    assert {residuals.kind(step.setting) for step in steps} == {"measured"}
    assert {step.layout.devices for step in steps} >= {1, 2}
