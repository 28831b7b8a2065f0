"""What all calculators share: fields, results as tables, a fallback, one script.

A calculator is a few fields and a formula. Python writes the fields, and the result of
their first values; that is what is seen where no JavaScript runs. A script in the same
output computes the result again as fields change, in the same words::

    calculator_html("memory", "Memory", FIELDS, HEADERS, shown(first_values(FIELDS)))
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context
from typing import Any

from manygpu import figures, tables
from manygpu.choosing import formulas, presets
from manygpu.choosing.prices import Price, prices
from manygpu.choosing.question import Model
from manygpu.widgets.stepper import static_text

LONG = 24  # letters of an option: its list takes a line
OWN = "your own numbers"
SPOT = "May be taken away: lower the share of useful time by what you lose."
Values = dict[str, Any]
# Three digits, as JavaScript rounds them.
THREE_DIGITS = Context(prec=3, rounding=ROUND_HALF_UP)
BYTES = {1e12: "TB", 1e9: "GB", 1e6: "MB", 1e3: "kB", 1.0: "B"}
SECONDS = {1.0: "s", 1e-3: "ms", 1e-6: "µs"}
# Those of the grid by whose numbers they have, and one more: 2,039 GB/s by NVIDIA's
# data sheet, computing like the other A100.
DEVICES = {
    "V100, 16 GB": presets.DEVICES["16 GB"],
    "A100, 40 GB": presets.DEVICES["40 GB"],
    "A100, 80 GB": (80e9, presets.DEVICES["40 GB"][1], 2.04e12),
    "H100, 80 GB": presets.DEVICES["80 GB"],
}


@dataclass(frozen=True)
class Number:
    """A field for a number.

    Attributes:
        name: of the value.
        label: what it is, for people.
        first: where it starts.
        least, most: what makes sense; these three in `unit`.
        unit: behind the label, in brackets.
        size: of the unit: values are in seconds, bytes, FLOPs.
        whole: whether it counts something.
    """

    name: str
    label: str
    first: float
    least: float
    most: float
    unit: str = ""
    size: float = 1.0
    whole: bool = False

    @property
    def value(self) -> float:
        """Where it starts, in seconds, bytes or FLOPs."""
        return int(self.first) if self.whole else self.first * self.size


@dataclass(frozen=True)
class Pick:
    """A field that offers a few values, by their texts."""

    name: str
    label: str
    options: Mapping[str, Any]
    value: Any


@dataclass(frozen=True)
class Start:
    """A field that fills others: an option has values for some of them, and a note.

    It ends with an option of its own, `OWN`: taken when what was filled is edited.
    """

    label: str
    options: Mapping[str, Values]
    notes: Mapping[str, str]
    first: str


@dataclass(frozen=True)
class Shown:
    """A result in words.

    Attributes:
        said: a sentence or two.
        tables: rows of texts, for each table of the calculator.
        chosen: which row of the first table the sentence is about; a script marks it.
        links: (address, text) of chapters to read.
    """

    said: str
    tables: Sequence[Sequence[Sequence[str]]]
    chosen: int | None = None
    links: Sequence[tuple[str, str]] = ()


def model_start(first: str, *names: str) -> Start:
    """A field that takes these values from a model of the rule's grid."""
    models = presets.MODELS.items()
    options = {
        called(key): {name: readable(model_number(model, name)) for name in names}
        for key, model in models
    }
    return Start("Start from the model", options, {}, called(first))


def called(model: str) -> str:
    """A model of the grid for people: those named by size are transformers."""
    return f"{model}, transformer" if model.endswith(" B") else model


def model_number(model: Model, name: str) -> float:
    """An attribute of the model; "kept16" and such: in numbers of 16 bits."""
    if name.endswith("16"):
        return getattr(model, name[:-2]) * 2 / model.sent
    return getattr(model, name)


def device_start(first: str, *names: str) -> Start:
    """A field that takes these values from a device of the rule's grid."""
    options = {}
    for key, (capacity, rate, bandwidth) in DEVICES.items():
        known = {"capacity": capacity, "rate": rate, "bandwidth": bandwidth}
        options[key] = {name: known[name] for name in names}
    return Start("Start from the device", options, {}, first)


def link_start(first: str) -> Start:
    """A field that takes all numbers of the links from a machine that is known."""
    options = {name: formulas.link_numbers(name) for name in formulas.INTERCONNECTS}
    return Start("Start from the links", options, {}, first)


def price_start(first: str, *names: str) -> Start:
    """A field that takes numbers from the price table, with day and source."""
    options, notes = {}, {}
    for p in gpu_prices():
        known = {"price": round(p.each, 4), "at_once": p.devices, "watts": p.watts}
        at_once = f"{p.devices} at once, " * (p.devices > 1)
        key = f"{p.device}, {p.provider}, {at_once}{p.terms}"
        options[key] = {name: known[name] for name in names}
        notes[key] = (
            f"{html.escape(key)}: {short(p.each)} dollars an hour for one device "
            f"({html.escape(p.product)}), on {p.date}, read in "
            f'<a href="{html.escape(p.source)}">this list</a>.'
            + f" {SPOT}"
            * (p.terms == "spot")
        )
    return Start("Start from the price", options, notes, first)


def gpu_prices() -> list[Price]:
    """Those of GPUs: rates and watts of the CPU are not known."""
    return [price for price in prices() if price.watts]


def readable(number: float) -> float:
    """A number with six digits, so that people can read the field that it fills."""
    return type(number)(float(f"{number:.6g}"))


def first_values(fields: Sequence[Number | Pick | Start]) -> Values:
    """Where the fields start."""
    return {f.name: f.value for f in fields if not isinstance(f, Start)}


def short(number: float) -> str:
    """A number with three digits, and commas between thousands."""
    rounded = THREE_DIGITS.create_decimal(number)
    text = f"{rounded:,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def scaled(number: float, units: Mapping[float, str]) -> str:
    """A number in the largest unit that it reaches, else in the smallest."""
    size = next((size for size in units if number >= size), min(units))
    return f"{short(number / size)} {units[size]}"


def percent(share: float) -> str:
    """A share as a percentage."""
    return f"{short(100 * share)}%"


def counted(number: int, noun: str) -> str:
    """ "1 device", "1,024 devices"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def calculator_html(
    kind: str,
    label: str,
    fields: Sequence[Number | Pick | Start],
    headers: Mapping[str, Sequence[str]],
    shown: Shown,
    data: Mapping[str, Any] | None = None,
    fills: Sequence[int | str] = range(5),
    ahead: int | None = None,
) -> str:
    """Return a calculator: fields, result and script.

    Args:
        kind: of the script that computes: its file is "KIND.js".
        label: what the calculator is called.
        fields: in order.
        headers: of the result's tables, by their captions.
        shown: the result of the fields' first values.
        data: numbers that the script needs.
        fills: of the picture's parts, in order, each for `figures.color`.
        ahead: how many fields are always seen; None for all. The others unfold.
    """
    made = [
        tables.table_html(tables.columns_of(rows, heads, (), {}), caption)
        for rows, (caption, heads) in zip(shown.tables, headers.items(), strict=True)
    ]
    # '<' can't end the script element early, whatever the data hold.
    as_json = json.dumps(data or {}, separators=(",", ":")).replace("<", "\\u003c")
    style = ";".join(
        f"--part-{i}:{fill};--line-{i}:{figures.edge(fill)}"
        for i, fill in enumerate(map(figures.color, fills))
    )
    return f"""\
<figure class="manygpu-figure manygpu-calculator" role="group" style="{style}"
 data-lm-suppress-shortcuts="true" data-kind="{kind}" aria-label="{html.escape(label)}">
<style>{static_text("calculator.css")}</style>
<output class="calculator-said" aria-live="polite">{html.escape(shown.said)}</output>
<div class="calculator-fields" hidden>{_fields(fields, ahead)}
<p class="calculator-bar"><span class="calculator-look" role="status"></span></p>
</div>
<p class="calculator-setting">{html.escape(_said(fields))}</p>
<div class="calculator-result"><div class="calculator-picture"></div>
{"".join(made)}
<ul class="calculator-links">{"".join(map(_link, shown.links))}</ul></div>
<p class="calculator-note">{_note(fields)}</p>
<script type="application/json">{as_json}</script>
<script>(() => {{
"use strict";
{static_text("calculator.js")}
{static_text(f"{kind}.js")}
}})();</script>
</figure>"""


def _fields(fields: Sequence[Number | Pick | Start], ahead: int | None) -> str:
    """The most important fields, and below them the others, folded."""
    made = [_field(field, fields) for field in fields]
    first, others = made[:ahead], made[len(made) if ahead is None else ahead :]
    shown = f'<div class="calculator-grid">{"".join(first)}</div>'
    if others:
        shown += (
            f"<details><summary>{len(others)} more fields</summary>"
            f'<div class="calculator-grid">{"".join(others)}</div></details>'
        )
    return shown


def _field(field: Number | Pick | Start, fields: Sequence) -> str:
    """A label with its control, what it fills, a place for what is wrong with it."""
    unit, wide, sets = "", "", ""
    if isinstance(field, Number):
        control = _input(field)
        unit = f" <small>[{html.escape(field.unit)}]</small>" if field.unit else ""
    else:
        control = _select(field)
        wide = " calculator-wide" * (max(map(len, field.options)) > LONG)
    if isinstance(field, Start):
        named = {f.name: f.label for f in fields if not isinstance(f, Start)}
        filled = "; ".join(named[name] for name in field.options[field.first])
        sets = f'<small class="calculator-sets">fills: {html.escape(filled)}</small>'
    label = f"<span>{html.escape(field.label)}{unit}</span>{control}"
    return (
        f'<div class="calculator-field{wide}"><label>{label}</label>{sets}'
        '<span class="calculator-wrong" hidden></span></div>'
    )


def _input(field: Number) -> str:
    """A text field: unlike a number's, it may hold commas between thousands."""
    size = 1 if field.whole else field.size
    return (
        f'<input type="text" inputmode="decimal" autocomplete="off" spellcheck="false" '
        f'name="{field.name}" value="{_written(field)}" data-size="{size!r}" '
        f'data-least="{field.least!r}" data-most="{field.most!r}"'
        f"{' data-whole' if field.whole else ''}>"
    )


def _select(field: Pick | Start) -> str:
    """A list of options; their values are JSON."""
    if isinstance(field, Pick):
        name, notes = f'name="{field.name}"', {}
        first = next(t for t, value in field.options.items() if value == field.value)
    else:
        name, notes, first = "data-start", field.notes, field.first
    offered = field.options | ({OWN: {}} if isinstance(field, Start) else {})
    made = []
    for text, value in offered.items():
        note = _attribute("data-note", notes.get(text, ""))
        given = f'value="{html.escape(json.dumps(value))}"{note}'
        chosen = " selected" * (text == first)
        made.append(f"<option {given}{chosen}>{html.escape(text)}</option>")
    return f'<select {name} autocomplete="off">{"".join(made)}</select>'


def _attribute(name: str, text: str) -> str:
    return f' {name}="{html.escape(text)}"' if text else ""


def _written(field: Number) -> str:
    """Where a number starts, as people write it."""
    return f"{int(field.first):,}" if field.whole else f"{field.first:,.10g}"


def _said(fields: Sequence[Number | Pick | Start]) -> str:
    """The first values in words, for those who see no fields."""
    found = []
    for field in fields:
        if isinstance(field, Number):
            unit = f" {field.unit}" if field.unit else ""
            found.append(f"{field.label}: {_written(field)}{unit}")
        elif isinstance(field, Pick):
            texts = [t for t, value in field.options.items() if value == field.value]
            found.append(f"{field.label}: {texts[0]}")
    return "; ".join(found) + "."


def _note(fields: Sequence[Number | Pick | Start]) -> str:
    """The notes of the options that fill the fields at first; they are HTML."""
    starts = [field for field in fields if isinstance(field, Start)]
    return " ".join(filter(None, (start.notes.get(start.first) for start in starts)))


def _link(link: tuple[str, str]) -> str:
    """A link to a chapter."""
    address, text = map(html.escape, link)
    return f'<li><a href="{address}">{text}</a></li>'
