"""What the calculators' scripts find is what Python finds, and is said in words."""

from __future__ import annotations

import math
import random
import re
from typing import Any

import pytest

from manygpu.choosing import formulas, presets
from manygpu.choosing.search import divisors
from manygpu.widgets import chooser, memory, scaling, spending
from manygpu.widgets.calculator import Number, Pick, first_values
from tests.rendered.calculators import MODULES, asked, opened

PYTHON = {"memory": memory.found}
PYTHON |= {"scaling": lambda v: formulas.scaling(**v)}
PYTHON |= {"spending": lambda v: formulas.spending(**v)}


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
        if kind in ("memory", "scaling") and draw.random() < 0.8:
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


@pytest.mark.parametrize("kind", PYTHON)
def test_its_numbers_cells_and_complaints_are_pythons(lone, kind):
    """The sentence has the numbers of the row that is marked."""
    figure, settings = opened(lone, kind).figure, drawn(kind, 320)
    wrong = asked(figure, "wrong", settings)
    right = [v for v, said in zip(settings, wrong, strict=True) if not said]
    assert len(right) >= 200
    if kind == "scaling":  # where it fits and where not, and over machines
        fits = {row["fits"] for v in right for row in formulas.scaling(**v)}
        assert fits == set(formulas.FITS)
        assert sum(v["devices"] > v["gpus"] for v in right) >= 50
    for values, found in zip(right, asked(figure, "work", right), strict=True):
        assert_same(found, PYTHON[kind](values), values)
    table = MODULES[kind].TABLE
    for values, shown in zip(right, asked(figure, "shown", right[:60]), strict=False):
        found = PYTHON[kind](values)
        rows = found[0] if kind == "spending" else found
        assert shown["tables"] == [[table.cells(row) for row in rows]], values
        marked = shown["tables"][0][shown["chosen"]]
        said = re.split(r"[ (.,;]+(?=\D|$)|[ (]", shown["said"])
        for cell in {"memory": [1], "scaling": [0, 1], "spending": [0, 2, 6]}[kind]:
            assert marked[cell].split(" ")[0] in said, (values, shown["said"])
    if kind == "spending":  # nothing lost, nobody waits: each costs the same
        for values in right:
            values |= {
                "speedups": "own",
                "efficiency": 1.0,
                "waiting": 0.0,
                "at_once": 1,
            }
        for shown in asked(figure, "shown", right[:60]):  # the fastest is the best
            assert shown["chosen"] == len(shown["tables"][0]) - 1
    refused = [(v, said) for v, said in zip(settings, wrong, strict=True) if said]
    names = {"memory": {"batch"}, "scaling": {"devices", "batch", "cards"}}
    assert {n for _, said in refused for n, _ in said} == names.get(kind, set())
    for values, _ in refused:
        with pytest.raises(ValueError, match="must be a multiple|must divide"):
            PYTHON[kind](values)


PCIE = formulas.link_numbers("8 by PCIe 3, Ethernet 100G between")
LOTS = {"at_once": 8, "waiting": 0}
# What differs from the first values, and what is said then.
SAID = [
    ("memory", {}, memory.SAID),
    (
        "memory",
        {"capacity": 1e9},
        "not even one would fit. As it is, no stage of ZeRO fits.$",
    ),
    (
        "memory",
        {"zero": 0},
        "that doesn't fit.*With ZeRO 1 or 2 or 3 it fits as it is.",
    ),
    (
        "memory",
        {"recompute": False},
        "It works on 8 samples at once; 6 would fit. With 2 micro-batches it would.",
    ),
    ("scaling", {}, scaling.SAID),
    ("scaling", PCIE | {"rate": 150e12}, "Fewer are faster: 4 devices, "),
    ("scaling", PCIE | {"each": True}, "^(?!.*Fewer)"),
    ("scaling", PCIE | {"link": 1e6}, "One device is faster."),
    (
        "scaling",
        {"parameters": 174e9},
        "It doesn't fit: a whole replica with one sample takes 2.78 TB of the 36 GB",
    ),
    ("scaling", {"capacity": 1e9}, "in micro-batches only: all at once takes 1.75 GB"),
    (
        "scaling",
        {"devices": 1},
        "^(?!.*efficiency).* take one device 0.12 hours.$",
    ),
    ("spending", {}, spending.SAID),
    ("spending", LOTS, "^Best: 8 devices, .*Whatever an hour of .* costs: 8 devices.$"),
    ("spending", LOTS | {"devices": 1}, r"1 device \(billed as 8\)"),
    ("spending", {"efficiency": 0.3, "price": 0, "waiting": 0}, "^Best: 1 device, "),
    (
        "spending",
        {"speedups": "epochs", "devices": 128},
        "The guide's table ends at 8 devices.$",
    ),
]


@pytest.mark.parametrize("kind", PYTHON)
def test_what_is_said_fits_the_values(lone, kind):
    figure, first = opened(lone, kind).figure, first_values(MODULES[kind].FIELDS)
    for changed, said in [row[1:] for row in SAID if row[0] == kind]:
        (found,) = asked(figure, "shown", [first | changed])
        if not changed:
            assert found["said"] == said
        assert re.search(said if changed else "", found["said"]), found["said"]


# How long dashes and gaps are, in the legend and in the drawing.
DASHES = """e => {
    const found = getComputedStyle(e, "::before").backgroundImage.match(/(\\d+)px/g);
    const [dash, end] = [...new Set(found.map(parseFloat))].filter(n => n);
    return [`${dash}`, `${end - dash}`];
}"""
STROKES = "e => getComputedStyle(e).strokeDasharray.match(/\\d+/g)"


def test_a_bar_is_as_long_as_its_bytes(lone):
    """Parts end to end, and the dashed line where memory ends."""
    figure = opened(lone, "memory", width="700px").figure
    rects = figure.locator(".calculator-picture rect")
    widths = rects.evaluate_all("all => all.map(r => r.width.baseVal.value)")
    limit = figure.locator("path.limit").get_attribute("d")
    rows = memory.found(first_values(memory.FIELDS))
    sizes = [row[part] for row in rows for part in memory.PARTS]
    scale = sum(widths) / sum(sizes)
    assert widths == pytest.approx([scale * size for size in sizes], abs=0.11)
    legend = figure.locator(".calculator-legend span").all_text_contents()
    assert legend == [*memory.PARTS, "may be filled"]
    mark = figure.locator(".calculator-legend span.limit").evaluate(DASHES)
    assert mark == figure.locator("path.limit").evaluate(STROKES) == ["5", "4"]
    at = float(limit[1 : limit.index(" ")]) - 8
    assert at == pytest.approx(0.9 * 80e9 * scale, abs=0.5)


# The chooser


def test_the_chooser_finds_the_answer_to_each_setting(lone):
    settings = drawn("chooser", 240)
    found = asked(opened(lone, "chooser").figure, "work", settings)
    for v, answer in zip(settings, found, strict=True):
        names = ("model", "cluster", "device", "batch", "goal")
        setting = presets.setting(*(v[name] for name in names))
        assert answer == chooser.answer(setting)
    nothing = sum(answer["said"].startswith("Nothing fits") for answer in found)
    assert 20 <= nothing <= 220


def test_chapters_are_led_to_also_where_nothing_fits(lone):
    figure = opened(lone, "chooser").figure
    for options in ({}, {"Model": "174 B, transformer", "Devices": "1 GPU"}):
        for name, option in options.items():
            box = figure.get_by_role("combobox", name=name, exact=True)
            box.select_option(option)
        links = figure.locator(".calculator-links a")
        assert links.count() >= 1
        for link in links.all():
            assert re.fullmatch(r"\.\./.+\.html", link.get_attribute("href"))
            assert link.bounding_box()["height"] >= 24
    said = figure.locator(".calculator-said").text_content()
    assert said.startswith("Nothing fits")
    assert figure.locator("tbody").first.text_content() == "none––––"
