"""The calculators' HTML: fields, fallback, data. Their scripts: tests/rendered."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode

import pytest
from bs4 import BeautifulSoup

from manygpu import figures
from manygpu.choosing import presets
from manygpu.choosing.prices import prices
from manygpu.choosing.search import choose
from manygpu.widgets import calculator, chooser, memory, pipeline, scaling, spending
from manygpu.widgets.calculator import FORMS, Number, Pick, Start

MODULES = {"chooser": chooser, "scaling": scaling}
MODULES |= {"memory": memory, "spending": spending, "explorer": pipeline}
SHOW = {"chooser": chooser.chooser, "scaling": scaling.scaling_calculator}
SHOW |= {"memory": memory.memory_calculator, "spending": spending.cost_calculator}
SHOW |= {"explorer": lambda: pipeline.pipeline_explorer("2 < 3.", "plans")}
VERBS = "has", "costs", "reaches", "is", "are"  # half a sentence, among other names


@pytest.fixture(scope="module")
def html() -> dict[str, str]:
    """What each calculator shows."""
    return {kind: show().data for kind, show in SHOW.items()}


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


def test_numbers_get_the_largest_unit_they_reach():
    said = [FORMS["bytes"](size) for size in (0, 12, 1.5e3, 2e9, 3e15)]
    assert said == ["0 B", "12 B", "1.5 kB", "2 GB", "3,000 TB"]
    assert FORMS["seconds"](2.5e-5) == "25 µs"
    assert FORMS["percent"](0.125) == "12.5%"
    assert FORMS["whole"](2048) == "2,048"


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
            ends = [float(control[f"data-{end}"]) for end in ("least", "most")]
            assert ends == [field.least, field.most]
            assert field.least <= field.first <= field.most
            assert control.has_attr("data-whole") == field.whole
            slider = control["type"], *map(control.get, ("min", "max", "step"))
            if field.step:
                assert slider == (
                    "range",
                    str(field.least),
                    str(field.most),
                    str(field.step),
                )
                assert made.output.text == control["value"]
            else:
                assert slider == ("text", None, None, None) and not made.output
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
                names = filled.removeprefix("Fills: ").removesuffix(".").split("; ")
                assert set(names) <= labels
                assert not [name for name in names if name.endswith(VERBS)]


@pytest.mark.parametrize("kind", MODULES)
def test_lists_fill_in_what_fields_start_with_and_what_they_take(kind):
    """Nothing is left behind by an option that says less than the others."""
    fields = MODULES[kind].FIELDS
    first = calculator.first_values(fields)
    by_name = {f.name: f for f in fields if not isinstance(f, Start)}
    for start in (f for f in fields if isinstance(f, Start)):
        assert len({tuple(values) for values in start.options.values()}) == 1
        for name, value in start.options[start.text].items():
            assert first[name] == pytest.approx(value, rel=1e-9), name
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


# Fallback and data


@pytest.mark.parametrize("kind", MODULES)
def test_without_a_script_the_first_values_are_said(soups, kind):
    """Their result: see tests/rendered, where the script says the same."""
    page = soups[kind]
    assert all(th["scope"] == "col" for th in page.select("thead th"))
    setting = page.select_one(".calculator-setting").text
    for field in MODULES[kind].FIELDS:
        assert isinstance(field, Start) or f"{field.label}: {field.text}" in setting


@pytest.mark.parametrize("kind", MODULES)
def test_nothing_is_fetched_and_nothing_has_an_id(html, soups, kind):
    outside = soups[kind].select("[id], [src]")
    assert [each for each in outside if not each.find_parent("svg")] == []
    outside = {a["href"] for a in soups[kind].select("a")}
    sources = {price.source for price in prices()}
    assert all(a in sources or a.startswith("../") for a in outside)
    found = set(re.findall(r"https?://[^\"' )`&<]+", html[kind]))
    names = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert found <= sources | names  # names, not addresses


def test_a_caption_comes_last_and_a_name_leads_to_it(soups):
    figure = soups["explorer"].figure
    assert figure.find_all(recursive=False)[-1].get_text() == "2 < 3."
    assert figure["data-name"] == "plans"
    assert soups["memory"].figcaption is None


def test_its_colors_are_the_books(soups):
    style = soups["explorer"].figure["style"]
    fills = re.findall("--part-[0-9]:(#[0-9a-f]{6})", style)
    assert fills == list(figures.COLORS[:3])
    assert re.findall("--line-[0-9]:([^;]+)", style) == [*map(figures.edge, fills)]


def test_all_four_are_small(html):
    assert sum(len(html[kind]) for kind in MODULES if kind != "explorer") < 250_000


def test_the_chooser_brings_the_answer_of_each_setting(soups):
    data = json.loads(soups["chooser"].select_one("script").string)
    found = json.loads(zlib.decompress(b64decode(data["packed"])))
    grid = list(presets.grid())
    assert len(found) == len(grid)
    assert [len(values) for values in data["fields"].values()] == [8, 9, 3, 3, 3]
    fitting = 0
    for i in range(0, len(grid), 97):
        choice, answer = choose(grid[i][1]), found[i]
        rows, asked = answer["tables"]
        assert answer["chapters"] == list(choice.chapters)
        assert [tuple(each) for each in asked] == list(choice.reasons)
        if choice.plan is None:
            assert rows[0][0] == "none" and answer["said"].startswith("Nothing fits")
            continue
        fitting += 1
        assert len(rows) == len(choice.options)
        for row, option in zip(rows, choice.options, strict=True):
            cents = f"{calculator.short(100 * option.dollars)} cents"
            numbers = FORMS["seconds"](option.seconds), FORMS["bytes"](option.memory)
            assert row == [option.plan.words, option.engine, *numbers, cents]
        for words in (rows[0][0], *rows[0][2:4]):
            assert words in answer["said"]
    assert 5 <= fitting < 20
