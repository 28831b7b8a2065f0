"""The chooser: a model, a machine, a batch and a goal; a plan and its reasons.

Its answers are those of `manygpu.choosing.tree.choose` for the grid of settings. The
page brings them all, folded; a script looks one up::

    chooser()
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from functools import cache

from IPython.display import HTML, display

from manygpu.choosing import answers, presets
from manygpu.choosing.question import Setting
from manygpu.choosing.tree import choose
from manygpu.widgets.calculator import (
    BYTES,
    SECONDS,
    Pick,
    Shown,
    Values,
    calculator_html,
    called,
    first_values,
    scaled,
    short,
)

# The chapters that the rule may name, by their titles.
CHAPTERS = {
    "start/one-device": "One device",
    "data-parallel/many-devices": "A step on many devices",
    "data-parallel/gradient-accumulation": "Gradient accumulation",
    "engine/mirrored-strategy": "MirroredStrategy",
    "splitting/sharded-state": "Sharded state",
    "splitting/layerwise": "Layerwise partitioning",
    "splitting/transformer": "A transformer, split",
    "splitting/pipeline": "Pipeline",
    "splitting/running-a-pipeline": "Running a pipeline",
    "splitting/hybrid-meshes": "Hybrid meshes",
    "splitting/mesh-layout": "Laying out a mesh",
    "splitting/recomputation": "Recomputation",
    "beyond/whole-cluster": "To the whole cluster",
}
GPUS = {"16 GB": "V100, 16 GB", "40 GB": "A100, 40 GB", "80 GB": "H100, 80 GB"}
WANTED = {"the shortest step": "time", "the cheapest step": "money"}
WANTED |= {"the fewest devices that hold it": "fits"}
# In the order of the grid: a script counts through it.
FIELDS = (
    Pick("model", "Model", {called(name): name for name in presets.MODELS}, "6.4 B"),
    Pick("cluster", "Devices", {name: name for name in presets.CLUSTERS}, "8, NVLink"),
    Pick(
        "device", "Each with", {GPUS[name]: name for name in presets.DEVICES}, "80 GB"
    ),
    Pick("batch", "Batch", {f"{n:,}": n for n in presets.BATCHES}, 256),
    Pick("goal", "You want", WANTED, "time"),
)
HEADERS = {
    "The plan.": ("plan", "a step takes", "a device holds", "a step costs"),
    "Why: the rule's questions.": ("question", "answer"),
}


def shown_of(told: str) -> Shown:
    """The result in words, from the lines of `answers.told`."""
    words, seconds, memory, dollars, chapters, *reasons = told.split("\n")
    links = [(f"../{path}.html", CHAPTERS[path]) for path in chapters.split(" ")]
    asked = [tuple(reason.split("\t")) for reason in reasons]
    if not words:
        said = "Nothing fits: take more devices, more memory, or a smaller model."
        return Shown(said, [[("none", "–", "–", "–")], asked], 0, links)
    row = (
        words,
        scaled(float(seconds), SECONDS),
        scaled(float(memory), BYTES),
        f"{short(100 * float(dollars))} cents",
    )
    said = f"{words}. A step takes {row[1]}, a device holds {row[2]}."
    return Shown(said, [[row], asked], 0, links)


def shown(values: Values) -> Shown:
    """The result in words, asked from the rule itself."""
    machine = presets.machine(values["cluster"], values["device"])
    model, batch = presets.MODELS[values["model"]], values["batch"]
    return shown_of(
        answers.told(choose(Setting(model, machine, batch, values["goal"])))
    )


@cache
def packed_answers() -> str:
    """All answers, for the script to look up: folded, as JSON, deflated, base64."""
    as_json = json.dumps(answers.folded(answers.of_grid()), separators=(",", ":"))
    return b64encode(zlib.compress(as_json.encode(), 9)).decode()


def chooser_html() -> str:
    """The chooser; without JavaScript, the answer to its first values."""
    offered = {field.name: [*field.options.values()] for field in FIELDS}
    data = {"chapters": CHAPTERS, "fields": offered, "answers": packed_answers()}
    first = shown(first_values(FIELDS))
    return calculator_html("chooser", "Chooser", FIELDS, HEADERS, first, data)


def chooser() -> None:
    """Show the chooser."""
    display(HTML(chooser_html()))
