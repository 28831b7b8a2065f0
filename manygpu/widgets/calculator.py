"""What all calculators share: fields, results as tables, a fallback, one script.

A calculator is a few fields and a formula. Python writes the fields, and the result of
their first values; that is what is seen where no JavaScript runs. A script in the same
output computes the result again as fields change, and says it in words.
"""

from __future__ import annotations

import html
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context
from typing import Any

from IPython.display import HTML

from manygpu import _page, figures, tables
from manygpu.choosing import formulas, presets
from manygpu.choosing.prices import Price, prices
from manygpu.choosing.question import Model
from manygpu.choosing.tables import gpu as known_gpu
from manygpu.widgets.parts import data_script, script, static_text

LONG = 24  # letters of an option: its list takes a line
OWN = "your own numbers"
SPOT = "May be taken away: lower the share of useful time by what you lose."
Values = dict[str, Any]
# Three digits, as JavaScript rounds them.
THREE_DIGITS = Context(prec=3, rounding=ROUND_HALF_UP)
# GPUs by their titles; what they reach differs with what they train.
GPUS = {"V100 16 GB": "v100-16", "A100 40 GB": "a100-40"}
GPUS |= {"A100 80 GB": "a100-80", "H100 80 GB": "h100"}
TRAINED = ("images", "transformers")


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
        step: if not 0, it is moved by a slider, so far at a time.
    """

    name: str
    label: str
    first: float
    least: float
    most: float
    unit: str = ""
    size: float = 1.0
    whole: bool = False
    step: float = 0.0

    @property
    def value(self) -> float:
        """Where it starts, in seconds, bytes or FLOPs."""
        return int(self.first) if self.whole else self.first * self.size

    @property
    def text(self) -> str:
        """Where it starts, as people write it."""
        return f"{self.first:,}" if self.whole else f"{self.first:,.10g}"


@dataclass(frozen=True)
class Pick:
    """A field that offers a few values, by their texts."""

    name: str
    label: str
    options: Mapping[str, Any]
    value: Any
    unit: str = ""

    @property
    def text(self) -> str:
        """The option where it starts."""
        return next(t for t, value in self.options.items() if value == self.value)


@dataclass(frozen=True)
class Start:
    """A field that fills others: an option has values for some of them, and a note.

    It ends with an option of its own, `OWN`: taken when what was filled is edited.
    """

    label: str
    options: Mapping[str, Values]
    notes: Mapping[str, str]
    text: str


@dataclass(frozen=True)
class Table:
    """A table of a result: what it is called, and (header, key, form) of its columns.

    A row has a value for each key; `FORMS` and a script's `FORMS` write it.
    """

    caption: str
    columns: Sequence[tuple[str, Any, str]]

    def cells(self, row: Any) -> list[str]:
        """A row in words."""
        return [FORMS[form](row[key]) for _, key, form in self.columns]


def model_start(first: str, *names: str) -> Start:
    """A field that takes these values from a model of the grid."""
    options = {
        called(key): {name: readable(model_number(model, name)) for name in names}
        for key, model in presets.MODELS.items()
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


def device_numbers(title: str, trained: str = TRAINED[0]) -> dict[str, float]:
    """Memory and bandwidth of one of `GPUS`, and the rate it reaches with a model."""
    gpu, net = known_gpu(GPUS[title]), presets.MODELS["ResNet-50"]
    found = {"capacity": gpu.memory, "bandwidth": gpu.bandwidth}
    if trained == "transformers":
        return found | {"rate": gpu.rate(transformer=True)[0]}
    rate, _ = gpu.image_rate(net.flops, net.kept)
    return found | {"rate": float(f"{rate:.3g}")}


def device_start(first: str, *names: str) -> Start:
    """A field that takes these values from a known device; the first one's title."""
    known = {title: device_numbers(title) for title in GPUS}
    if "rate" in names:
        pairs = itertools.product(GPUS, TRAINED)
        known = {
            f"{title}, {what}": device_numbers(title, what) for title, what in pairs
        }
    options = {key: {name: of[name] for name in names} for key, of in known.items()}
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
        )
        notes[key] += f" {SPOT}" * (p.terms == "spot")
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


def _scaled(units: Mapping[float, str]) -> Callable[[float], str]:
    """Writes a number in the largest unit that it reaches, else in the smallest."""

    def write(number: float) -> str:
        size = next((size for size in units if number >= size), min(units))
        return f"{short(number / size)} {units[size]}"

    return write


# How a table's values are written; calculator.js has the same.
FORMS = {
    "text": str,
    "whole": "{:,}".format,
    "short": short,
    "percent": lambda share: f"{short(100 * share)}%",
    "bytes": _scaled({1e12: "TB", 1e9: "GB", 1e6: "MB", 1e3: "kB", 1.0: "B"}),
    "seconds": _scaled({1.0: "s", 1e-3: "ms", 1e-6: "µs"}),
    "yes or no": lambda answer: "yes" if answer else "no",
}


def calculator_html(
    kind: str,
    label: str,
    fields: Sequence[Number | Pick | Start],
    said: str,
    results: Sequence[Table],
    rows: Sequence[Sequence[Any]],
    data: Mapping[str, Any],
    links: Sequence[tuple[str, str]] = (),
    fills: Sequence[int | str] = (),
    ahead: int | None = None,
    picture: str = "",
    caption: str = "",
    name: str = "",
) -> HTML:
    """Return a calculator, as a page shows it: fields, result and script.

    Args:
        kind: of the script that computes: its file is "KIND.js".
        label: what the calculator is called.
        fields: in order.
        said: the result of the fields' first values, in a sentence or two.
        results: the tables of the result.
        rows: of each table, for the fields' first values.
        data: numbers that the script needs.
        links: (address, text) of chapters to read.
        fills: of the picture's parts, in order, each for `figures.color`.
        ahead: how many fields are always seen; None for all. The others unfold.
        picture: of the fields' first values, as HTML.
        caption: what all readers are told below it; the book numbers it.
        name: prose links to [Figure](#figure-name); the book adds the number.

    Raises:
        ValueError: no link could hold `name`.
    """
    made = [_table(table, of) for table, of in zip(results, rows, strict=True)]
    columns = [[column[1:] for column in table.columns] for table in results]
    style = ";".join(
        f"--part-{i}:{fill};--line-{i}:{figures.edge(fill)}"
        for i, fill in enumerate(map(figures.color, fills))
    )
    shown = f"""\
<figure class="manygpu-figure manygpu-calculator"{_page.named(name)} style="{style}"
 data-lm-suppress-shortcuts="true" data-kind="{kind}" aria-label="{html.escape(label)}">
<style>{static_text("calculator.css")}</style>
<output class="calculator-said" aria-live="polite">{html.escape(said)}</output>
<div class="calculator-fields" hidden>{_fields(fields, ahead)}
<p class="calculator-bar"><span class="calculator-look" role="status"></span></p>
</div>
<p class="calculator-setting">{html.escape(_said(fields))}</p>
<div class="calculator-result"><div class="calculator-picture">{picture}</div>
{"".join(made)}
<ul class="calculator-links">{"".join(map(_link, links))}</ul></div>
<p class="calculator-note">{_note(fields)}</p>
{data_script({**data, "columns": columns})}
{script("calculator.js", f"{kind}.js")}
{_page.caption("figcaption", caption)}</figure>"""
    return HTML(shown)


def _table(table: Table, rows: Sequence[Any]) -> str:
    """A table, filled with these rows."""
    heads = [head for head, *_ in table.columns]
    columns = tables.columns_of([table.cells(row) for row in rows], heads, (), {})
    return tables.table_html(columns, table.caption)


def _fields(fields: Sequence[Number | Pick | Start], ahead: int | None) -> str:
    """The most important fields, and below them the others, folded."""
    made = [_field(field, fields) for field in fields]
    ahead = len(made) if ahead is None else ahead
    shown = f'<div class="calculator-grid">{"".join(made[:ahead])}</div>'
    if made[ahead:]:
        shown += (
            f"<details><summary>{len(made[ahead:])} more fields</summary>"
            f'<div class="calculator-grid">{"".join(made[ahead:])}</div></details>'
        )
    return shown


def _field(field: Number | Pick | Start, fields: Sequence) -> str:
    """A label with its control, what it fills, a place for what is wrong with it."""
    words, wide, sets, beside = html.escape(field.label), "", "", ""
    if isinstance(field, Number):
        control = _input(field)
        beside = f'<output aria-live="off">{field.text}</output>' * bool(field.step)
        words += f" <small>[{html.escape(field.unit)}]</small>" if field.unit else ""
    else:
        control = _select(field)
        wide = " calculator-wide" * (max(map(len, field.options)) > LONG)
    if isinstance(field, Start):
        wide = " calculator-wide"  # for what it fills, below it
        named = {f.name: f.label for f in fields if not isinstance(f, Start)}
        filled = "; ".join(named[name] for name in field.options[field.text])
        sets = f'<small class="calculator-sets">Fills: {html.escape(filled)}.</small>'
    return (
        f'<div class="calculator-field{wide}"><label><span>{words}</span>{control}'
        f'</label>{beside}{sets}<span class="calculator-wrong" hidden></span></div>'
    )


def _input(field: Number) -> str:
    """A slider, or a text field: unlike a number's, it may hold commas."""
    size = 1 if field.whole else field.size
    kind = 'type="text" inputmode="decimal" spellcheck="false"'
    if field.step:
        kind = 'type="range" step="{step}" min="{least}" max="{most}"'
    return (
        f'<input {kind.format(**vars(field))} autocomplete="off" '
        f'name="{field.name}" value="{field.text}" data-size="{size!r}" '
        f'data-least="{field.least!r}" data-most="{field.most!r}"'
        f"{' data-whole' if field.whole else ''}>"
    )


def _select(field: Pick | Start) -> str:
    """A list of options; their values are JSON."""
    starts = isinstance(field, Start)
    name = "data-start" if starts else f'name="{field.name}"'
    made = []
    for text, value in (field.options | ({OWN: {}} if starts else {})).items():
        given = f'value="{html.escape(json.dumps(value))}"'
        if starts and text in field.notes:
            given += f' data-note="{html.escape(field.notes[text])}"'
        chosen = " selected" * (text == field.text)
        made.append(f"<option {given}{chosen}>{html.escape(text)}</option>")
    return f'<select {name} autocomplete="off">{"".join(made)}</select>'


def _said(fields: Sequence[Number | Pick | Start]) -> str:
    """The first values in words, for those who see no fields."""
    said = [f for f in fields if not isinstance(f, Start)]
    return "; ".join(f"{f.label}: {f.text} {f.unit}".rstrip() for f in said) + "."


def _note(fields: Sequence[Number | Pick | Start]) -> str:
    """The notes of the options that fill the fields at first; they are HTML."""
    starts = [field for field in fields if isinstance(field, Start)]
    return " ".join(filter(None, (start.notes.get(start.text) for start in starts)))


def _link(link: tuple[str, str]) -> str:
    """A link to a chapter."""
    address, text = map(html.escape, link)
    return f'<li><a href="{address}">{text}</a></li>'
