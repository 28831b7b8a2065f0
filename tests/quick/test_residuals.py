"""Forecasts against what others measured: which steps, and how far they are off."""

import csv

import numpy as np
import pytest

from manygpu import records
from manygpu.choosing import forecast, presets, residuals, tables
from manygpu.costs.layout import ALL, Layout
from manygpu.costs.memory import ROOM
from workshop.pages import ROOT


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
    least = 2 if name == "llama3" else 6
    assert len(steps) >= least and all(step.seconds > 0 for step in steps)
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


def test_our_own_steps_are_apart_and_were_not_fitted_to():
    """Measured by `experiments/one_gpu.py`; ranges are of published steps alone."""
    own = residuals.own()
    assert len(own) >= 70 and {step.table for step in own} == {"one_gpu"}
    assert {step.layout.devices for step in own} == {1}
    assert not {*own} & {*residuals.steps()}
    assert {step.name for step in own} >= {"resnet-50, 1 h100", "gpt 4096, 1 h200"}


def test_the_range_holds_as_many_of_our_own_transformers_as_it_says():
    """Four of five, of steps that it has never seen."""
    own = [s for s in residuals.own() if residuals.kind(s.setting) == "transformers"]
    assert np.mean([step.expected for step in own]) == pytest.approx(0.8, abs=0.1)
    assert 0.9 < np.median([step.ratio for step in own]) < 1.2


def test_a_step_of_our_own_is_a_row_of_the_table():
    row = residuals._rows("one_gpu")[4]
    step = residuals.own()[4]
    assert (row["hidden"], row["recompute"]) == ("1024", "full")
    assert step.layout == Layout(1, recompute=ALL)
    assert step.setting.batch == int(row["micro_batch"]) == 1
    assert step.seconds == float(row["seconds"])
    assert step.held == float(row["peak_gb"]) * 1e9
    shape = step.setting.model.shape
    assert 4 * shape.parameters / 1e9 == pytest.approx(
        float(row["parameters_gb"]), rel=1e-3
    )


def test_no_step_of_ours_held_more_than_the_room_that_is_kept_free():
    held = [step.held_ratio for step in residuals.own()]
    assert min(held) > 0.7 and max(held) < 1 / ROOM


def test_gradients_are_there_at_the_peak_only_where_they_are_added_up():
    """PyTorch frees them before the forward pass: else state and activations add up."""
    steps = [s for s in residuals.own() if s.name == "gpt 4096, 1 h200"]
    steps = [s for s in steps if not (s.layout.recompute or s.compiled)]
    held = {(s.setting.batch // s.layout.micro_batches, s.layout.micro_batches): s.held
            for s in steps}  # fmt: skip
    gradients = 4 * steps[0].setting.model.shape.parameters
    assert held[2, 4] - held[2, 1] == pytest.approx(gradients, rel=1e-3)


def test_each_card_s_own_steps_are_counted_once():
    rows = residuals.by_card()
    assert sum(row[1] for row in rows) == len(residuals.own())
    assert sum(row[2] for row in rows) == sum(s.expected for s in residuals.own())
    assert all(
        low <= middle <= high for *_, held in rows for middle, low, high in [held]
    )


def test_llama_3_s_steps_lie_in_their_range():
    """Its stages are interleaved: 8 runs of one layer on each of 16 stages."""
    llama = [step for step in residuals.steps() if step.table == "llama3"]
    assert [step.layout.chunks for step in llama] == [8, 8]
    assert all(step.expected for step in llama)
    plain = [step.layout._replace(chunks=1) for step in llama]
    for step, layout in zip(llama, plain, strict=True):
        slow = float(forecast.seconds(step.setting, layout))
        assert slow > 1.2 * float(forecast.seconds(step.setting, step.layout))


def test_what_is_usual_lies_in_the_range_and_arrays_are_like_each():
    settings = [step.setting for step in residuals.steps()[::31]]
    layouts = [Layout(8), Layout(8, 2), Layout(8, zero=3), Layout(8, 2, zero=3)]
    layouts += [Layout(8, stages=4, micro_batches=8), Layout(512, 8, 4, 8)]
    many = Layout(*map(np.array, zip(*layouts, strict=True)))
    for setting in settings:
        together = residuals.usual(setting, many)
        for layout, factor in zip(layouts, together, strict=True):
            low, high = residuals.likely(setting, layout)
            assert low <= factor <= high
            assert factor == residuals.usual(setting, layout)


def test_ways_are_compared_inside_of_tables_only(monkeypatch):
    """A table of slow steps does not make its own way slow."""
    steps = [s for s in residuals.steps() if s.layout.devices <= residuals.COMPARED]
    before = residuals.ways("transformers")
    slow = [
        s._replace(seconds=5 * s.seconds) if s.table == "dataparallel" else s
        for s in steps
    ]
    residuals.ways.cache_clear()
    monkeypatch.setattr(
        residuals,
        "_of_kind",
        lambda kind: [s for s in slow if residuals.kind(s.setting) == kind],
    )
    monkeypatch.setattr(
        residuals,
        "_sorts",
        lambda kind: [
            residuals._sort(s.setting, s.layout) for s in residuals._of_kind(kind)
        ],
    )
    after = residuals.ways("transformers")
    residuals.ways.cache_clear()
    assert after == pytest.approx(before, rel=0.01)
    assert max(before.values()) == before[True, True, False] > 1.1


def test_errors_begin_above_so_many_gpus():
    """Up to `MANY` three of four steps are within a quarter of what is printed."""
    rows = residuals.by_size()
    assert sum(row[1] for row in rows) == len(residuals.steps())
    for (_, _, near, middle, *_), most in zip(rows, residuals.SIZES, strict=True):
        if most <= residuals.MANY:
            assert near >= 0.75 and abs(middle - 1) < 0.05
    worse = rows[residuals.SIZES.index(residuals.MANY) + 1]
    assert worse[2] < 0.75 and abs(worse[3] - 1) > 0.1


def test_measured_bytes_of_a_kind_lie_in_their_range():
    for kind in ("transformers", "images"):
        low, high = residuals._likely_held(kind)
        steps = [s for s in (*residuals.steps(), *residuals.own()) if s.held]
        own = [s.held_ratio for s in steps if residuals.kind(s.setting) == kind]
        within = np.mean((low <= np.array(own)) & (np.array(own) <= high))
        assert low < high and within == pytest.approx(0.8, abs=0.15)


def test_selective_recomputing_holds_what_torchtitan_measured():
    """Llama 3 8B on 8 and 128 GPUs, two sequences of 8,192 on each."""
    steps = [s for s in residuals.steps() if s.table == "torchtitan" and s.held]
    assert len(steps) >= 2
    for step in steps:
        assert 0.75 < step.held_ratio < 1.15


def test_what_the_experiment_wrote_is_of_this_formula():
    """`experiments/choose-against-published/compare.py` writes it."""
    folder = ROOT / "experiments/choose-against-published"
    with (folder / "steps.csv").open(encoding="utf-8", newline="") as file:
        rows = {(r["by"], r["which"], r["of"]): r for r in csv.DictReader(file)}
    for name, count, middle, low, high, _ in residuals.by_table():
        row = rows["table", name, "forecast"]
        assert int(row["steps"]) == count
        said = [float(row[of]) for of in ("median", "tenth", "ninetieth")]
        assert said == pytest.approx([middle, low, high], abs=6e-4)
    with (folder / "sweep.csv").open(encoding="utf-8", newline="") as file:
        options = list(csv.DictReader(file))
    assert len(options) >= 92 and {row["outside"] for row in options} == {"0"}
