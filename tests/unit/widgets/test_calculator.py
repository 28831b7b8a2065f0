"""The calculators' HTML: fields, fallback, data. Their scripts: tests/rendered."""

from __future__ import annotations

import json
import math
import re
import zlib
from base64 import b64decode

import pytest
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

from manygpu.choosing import answers, formulas, presets
from manygpu.choosing.prices import prices
from manygpu.widgets import calculator, chooser, memory, scaling, spending
from manygpu.widgets.calculator import Number, Pick, Start

MODULES = {"chooser": chooser, "scaling": scaling}
MODULES |= {"memory": memory, "spending": spending}
SHOW = {"chooser": chooser.chooser, "scaling": scaling.scaling_calculator}
SHOW |= {"memory": memory.memory_calculator, "spending": spending.cost_calculator}


@pytest.fixture(scope="module")
def html() -> dict[str, str]:
    """What each calculator shows."""
    shown: list = []
    with pytest.MonkeyPatch.context() as patch:
        for kind, module in MODULES.items():
            patch.setattr(module, "display", shown.append)
            SHOW[kind]()
    return {kind: s.data for kind, s in zip(MODULES, shown, strict=True)}


@pytest.fixture(scope="module")
def soups(html) -> dict[str, BeautifulSoup]:
    return {kind: BeautifulSoup(text, "html.parser") for kind, text in html.items()}


# Words


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "0"),
        (1, "1"),
        (1234, "1,230"),
        (999.9, "1,000"),
        (1.125, "1.13"),
        (0.000123456, "0.000123"),
        (25.0, "25"),
        (1e21, "1,000,000,000,000,000,000,000"),
    ],
)
def test_a_number_is_said_in_three_digits(number, said):
    assert calculator.short(number) == said


@given(st.floats(1e-12, 1e12))
@given_settings(deadline=None)
def test_what_is_said_is_near(number):
    said = float(calculator.short(number).replace(",", ""))
    assert math.isclose(said, number, rel_tol=5.01e-3)


def test_numbers_get_the_largest_unit_they_reach():
    units = calculator.BYTES
    said = [calculator.scaled(size, units) for size in (0, 12, 1.5e3, 2e9, 3e15)]
    assert said == ["0 B", "12 B", "1.5 kB", "2 GB", "3,000 TB"]
    assert calculator.scaled(2.5e-5, calculator.SECONDS) == "25 µs"
    assert calculator.percent(0.125) == "12.5%"
    assert calculator.counted(1, "device") == "1 device"
    assert calculator.counted(2048, "device") == "2,048 devices"


# Fields


@pytest.mark.parametrize("kind", MODULES)
def test_each_field_has_a_label_and_a_place_for_a_sentence(soups, kind):
    page, fields = soups[kind], MODULES[kind].FIELDS
    found = page.select(".calculator-field")
    assert page.select_one(".calculator-fields").has_attr("hidden")
    for field, made in zip(fields, found, strict=True):
        assert made.label.span.text.startswith(field.label)
        assert made.select_one(".calculator-wrong").has_attr("hidden")
        control = made.label.find(["input", "select"])
        if isinstance(field, Number):
            size = float(control["data-size"])
            typed = float(control["value"].replace(",", ""))
            assert typed * size == pytest.approx(field.value, rel=1e-9)
            least, most = (float(control[f"data-{end}"]) for end in ("least", "most"))
            assert least <= field.first <= most
            assert control.has_attr("data-whole") == field.whole
            assert f"[{field.unit}]" in made.label.text or not field.unit
        else:
            chosen = [o for o in control.select("option") if o.has_attr("selected")]
            assert len(chosen) == 1
            values = [json.loads(o["value"]) for o in control.select("option")]
            own = [{}] * isinstance(field, Start)
            assert values == [*field.options.values(), *own]
            labels = {f.label for f in fields if not isinstance(f, Start)}
            if isinstance(field, Start):
                filled = made.select_one(".calculator-sets").text
                assert set(filled.removeprefix("fills: ").split("; ")) <= labels


@pytest.mark.parametrize("kind", MODULES)
def test_fields_start_with_what_their_lists_fill_in(kind):
    fields = MODULES[kind].FIELDS
    first = calculator.first_values(fields)
    for start in (f for f in fields if isinstance(f, Start)):
        for values in start.options.values():
            assert set(values) <= set(first)
        for name, value in start.options[start.first].items():
            assert first[name] == pytest.approx(value, rel=1e-9), name


def test_numbers_that_lists_fill_in_make_sense():
    for module in MODULES.values():
        by_name = {f.name: f for f in module.FIELDS if not isinstance(f, Start)}
        for start in (f for f in module.FIELDS if isinstance(f, Start)):
            for values in start.options.values():
                for name, value in values.items():
                    field = by_name[name]
                    if isinstance(field, Pick):
                        assert value in field.options.values()
                    else:
                        size = 1 if field.whole else field.size
                        assert field.least <= value / size <= field.most


def test_prices_come_from_the_table_with_day_and_source(soups):
    for kind in ("scaling", "spending"):
        notes = [o["data-note"] for o in soups[kind].select("option[data-note]")]
        found = [note for note in notes if "<a href=" in note]
        gpus = [price for price in prices() if not price.device.startswith("CPU")]
        for price, note in zip(gpus, found, strict=True):
            assert str(price.date) in note
            assert f'href="{price.source}"' in note
            assert ("taken away" in note) == (price.terms == "spot")
        first = soups[kind].select_one(".calculator-note").decode_contents()
        assert any(note in str(first) for note in found)


def test_a_preset_fills_all_that_it_names():
    """Nothing is left behind by an option that says less than the others."""
    for module in MODULES.values():
        for start in (f for f in module.FIELDS if isinstance(f, Start)):
            assert len({tuple(values) for values in start.options.values()}) == 1


# Fallback and data


@pytest.mark.parametrize("kind", MODULES)
def test_without_a_script_the_first_result_is_seen(soups, kind):
    page, module = soups[kind], MODULES[kind]
    shown = module.shown(calculator.first_values(module.FIELDS))
    assert page.select_one(".calculator-said").text == shown.said
    for table, rows in zip(page.select("table"), shown.tables, strict=True):
        found = [
            [c.text for c in tr.select("th, td")] for tr in table.select("tbody tr")
        ]
        assert found == [list(row) for row in rows]
        assert all(th["scope"] == "col" for th in table.select("thead th"))
    setting = page.select_one(".calculator-setting").text
    for field in module.FIELDS:
        assert isinstance(field, Start) or f"{field.label}: " in setting


@pytest.mark.parametrize("kind", MODULES)
def test_nothing_is_fetched_and_nothing_has_an_id(html, soups, kind):
    assert soups[kind].select("[id], [src]") == []
    outside = {a["href"] for a in soups[kind].select("a")}
    sources = {price.source for price in prices()}
    assert all(a in sources or a.startswith("../") for a in outside)
    found = set(re.findall(r"https?://[^\"' )`&<]+", html[kind]))
    assert found <= sources | {"http://www.w3.org/2000/svg"}


def test_all_four_are_small(html):
    assert sum(map(len, html.values())) < 250_000


def test_the_chooser_brings_the_answer_of_each_setting(soups):
    data = json.loads(soups["chooser"].select_one("script").string)
    packed = zlib.decompress(b64decode(data["answers"]))
    templates, rows = json.loads(packed)
    grid = list(presets.grid())
    assert len(rows) == len(grid)
    assert [len(values) for values in data["fields"].values()] == [8, 9, 3, 3, 3]
    for i in range(0, len(grid), 211):
        _, setting = grid[i]
        told = answers.unfolded(templates, rows[i])
        assert told == answers.told(chooser.choose(setting))


# Sentences


def test_memory_says_which_stages_fit():
    first = calculator.first_values(memory.FIELDS)
    none = memory.shown(first | {"capacity": 1e9}).said
    assert none.endswith("not even one would fit. As it is, no stage of ZeRO fits.")
    some = memory.shown(first | {"zero": 0}).said
    assert "that doesn't fit" in some
    assert some.endswith("With ZeRO 1 or 2 or 3 it fits as it is.")
    kept = memory.shown(first | {"recompute": False}).said
    assert "It works on 8 samples at once; 6 would fit. With 2 micro-batches" in kept


def test_scaling_says_where_fewer_are_faster():
    first = calculator.first_values(scaling.FIELDS)
    first |= formulas.link_numbers("8 by PCIe 3, Ethernet 100G between")
    assert "Fewer are faster: 4 devices" in scaling.shown(first).said
    assert "Fewer" not in scaling.shown(first | {"each": True}).said
    assert "One device is faster." in scaling.shown(first | {"link": 1e6}).said


def test_scaling_says_what_does_not_fit_and_what_is_billed():
    first = calculator.first_values(scaling.FIELDS)
    assert "(billed as 8)" in scaling.shown(first).said
    assert "fit" not in scaling.shown(first).said
    said = scaling.shown(first | {"parameters": 174e9}).said
    assert "It doesn't fit: a whole replica with one sample takes 2.78 TB" in said
    assert "in micro-batches only" in scaling.shown(first | {"capacity": 2e9}).said
    alone = scaling.shown(first | {"devices": 1}).said
    assert "efficiency" not in alone
    assert "one device 0.0578 hours." in alone


def test_spending_says_which_devices_are_billed_and_what_waiting_changes():
    first = calculator.first_values(spending.FIELDS)
    said = spending.shown(first | {"at_once": 8, "waiting": 0}).said
    assert said.startswith("Best: 8 devices, ")
    assert said.endswith("Whatever an hour of waiting costs: 8 devices.")
    one = spending.shown(first | {"at_once": 8, "devices": 1}).said
    assert "1 device (billed as 8)" in one
    worse = first | {"efficiency": 0.3, "price": 0, "waiting": 0}
    assert spending.shown(worse).said.startswith("Best: 1 device, ")
    ends = spending.shown(first | {"speedups": "epochs", "devices": 128}).said
    assert ends.endswith("The guide's table ends at 8 devices.")


def test_the_chooser_says_that_nothing_fits():
    first = calculator.first_values(chooser.FIELDS)
    shown = chooser.shown(first | {"model": "174 B", "cluster": "1 GPU"})
    assert shown.said.startswith("Nothing fits")
    assert len(shown.links) >= 1
