"""The chooser: a model, a machine, a batch and a goal; a plan and its reasons.

Its answers are those of `manygpu.choosing.search.choose` for the grid of settings. The
page brings them all; a script looks one up::

    chooser()
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

from IPython.display import HTML

from manygpu.chapters import TITLES
from manygpu.choosing import presets, search
from manygpu.choosing.question import Setting
from manygpu.choosing.search import Option, choose
from manygpu.widgets import calculator
from manygpu.widgets.calculator import FORMS, Pick, Table
from manygpu.widgets.parts import packed

# The chapters that an answer may name, by their titles.
NAMED = itertools.chain(*search.WAYS.values(), search.NONE, search.ALSO.values())
CHAPTERS = {path: TITLES[path] for path in NAMED}
GPUS = {"16 GB": "V100, 16 GB", "40 GB": "A100, 40 GB", "80 GB": "H100, 80 GB"}
WANTED = {"the shortest step": "time", "the cheapest step": "money"}
WANTED |= {"the fewest devices that hold it": "fits"}
# In the order of the grid: a script counts through it.
FIELDS = (
    Pick("model", "Model", {calculator.called(m): m for m in presets.MODELS}, "6.4 B"),
    Pick("cluster", "Devices", {name: name for name in presets.CLUSTERS}, "8, NVLink"),
    Pick("device", "Each with", {said: name for name, said in GPUS.items()}, "80 GB"),
    Pick("batch", "Batch", {f"{n:,}": n for n in presets.BATCHES}, 256),
    Pick("goal", "You want", WANTED, "time"),
)
PLAN = ("plan", "who has it", "a step takes", "a device holds", "a step costs")
TABLES = (
    Table("The best plans.", tuple((name, i, "text") for i, name in enumerate(PLAN))),
    Table("Why.", (("question", 0, "text"), ("answer", 1, "text"))),
)


def answer(setting: Setting) -> dict[str, Any]:
    """What is said of a setting: a sentence, rows of both tables, paths of chapters."""
    found = choose(setting)
    rows = [_row(option) for option in found.options] or [["none", *["–"] * 4]]
    said = "Nothing fits: take more devices, more memory, or a smaller model."
    if found.options:
        plan, _, taken, holds, _ = rows[0]
        said = f"{plan}. A step takes {taken}, a device holds {holds}."
    tables = [rows, [list(reason) for reason in found.reasons]]
    return {"said": said, "tables": tables, "chapters": list(found.chapters)}


def _row(option: Option) -> list[str]:
    """A plan in words."""
    sizes = FORMS["seconds"](option.seconds), FORMS["bytes"](option.memory)
    cents = f"{FORMS['short'](100 * option.dollars)} cents"
    return [option.plan.words, option.engine, *sizes, cents]


@cache
def packed_answers() -> str:
    """The answers to all settings of the grid, for the script to look up."""
    return packed([answer(setting) for _, setting in presets.grid()])


def chooser() -> HTML:
    """The chooser; without JavaScript, the answer to its first values."""
    v = calculator.first_values(FIELDS)
    first = answer(presets.setting(*(v[field.name] for field in FIELDS)))
    links = [(f"../{path}.html", CHAPTERS[path]) for path in first["chapters"]]
    offered = {field.name: [*field.options.values()] for field in FIELDS}
    data = {"titles": CHAPTERS, "fields": offered, "packed": packed_answers()}
    said, rows = first["said"], first["tables"]
    return calculator.calculator_html(
        "chooser", "Chooser", FIELDS, said, TABLES, rows, data=data, links=links
    )
