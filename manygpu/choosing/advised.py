"""Settings, and the plans that experts advise for them.

`data/experts.csv` has one a row, looked up on 26 November 2026, but for the judgements.
Its columns:

- `model`, or its `shape`; `gpu` to `memory`: the setting. `assumed`: what the source
  leaves open.
- `advice`: families, joined by a plus. The first is the source's; those after a bar are
  others that it allows, or differ in what it leaves open. `hsdp`: sharded in a node,
  copies across; `cp`: the sequence cut; `tables`: embeddings cut; `offload`: state in
  the host's memory. Data parallelism takes the devices that are left.
- `kind`: `judgement`, a reading of this book; `rule`, a document's, in a setting made
  up for it; `recipe`, a vendor's configuration; `run`, a published one, which shows
  that it works and not that it is best; `compared`, faster than another on the same
  GPUs; `sweep`, the best of a sweep.
- `said`: the source in other words.

Of what is advised, the way to share the work out is compared, not its numbers.
"""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from manygpu._files import data_file
from manygpu.choosing import asking, presets, tables
from manygpu.choosing.question import Setting
from manygpu.costs.layout import Layout
from manygpu.costs.shape import Shape

FILE = data_file("choosing/data/experts.csv")
# What `choose` doesn't know: the sequence cut, tables cut, state on the host.
BEYOND = ("cp", "tables", "offload")
SIZES = ("layers", "hidden", "inner", "heads", "kv_heads", "vocabulary")
# Kinds of advice that were run, or are sold to be run.
PUBLISHED = ("recipe", "run", "compared", "sweep")


class Advice(NamedTuple):
    """A row.

    Attributes:
        number: of the row.
        name: of the model.
        setting: what is asked; None where a model of equal layers can't say it.
        families: that are advised, such as "zero1+tp", the source's first.
        gpu: as the table of GPUs calls it.
        kind: "judgement", "rule", "recipe", "run", "compared" or "sweep".
        said: the source in other words.
        source: its address.
    """

    number: int
    name: str
    setting: Setting | None
    families: tuple[str, ...]
    gpu: str
    kind: str
    said: str
    source: str

    @property
    def sayable(self) -> bool:
        """Whether some advised family is one that `choose` knows."""
        known = [f for f in self.families if not {*f.split("+")} & {*BEYOND}]
        return self.setting is not None and bool(known)

    def agrees(self, options: Iterable[Any]) -> bool:
        """Whether one of these is what is advised; none, where nothing fits."""
        options = list(options)
        if not options:
            return "nothing" in self.families
        return any(family(option.plan) in self.families for option in options)


def nearest(setting: Setting) -> Advice | None:
    """The published configuration whose model, sequence and devices are most alike.

    Factors between the two are added up, in doublings; another GPU counts as one.
    None for a model that is no transformer of texts.
    """
    shape = setting.model.shape
    if shape is None or not shape.vocabulary:
        return None

    def apart(one: Advice) -> float:
        other = one.setting.model.shape
        pairs = [(shape.parameters, other.parameters)]
        pairs += [(shape.sequence, other.sequence)]
        pairs += [(setting.machine.cluster.count, one.setting.machine.cluster.count)]
        same = one.setting.machine.rate == setting.machine.rate
        return sum(abs(math.log2(a / b)) for a, b in pairs) + (not same)

    found = [one for one in advice() if one.kind in PUBLISHED and one.setting]
    return min((one for one in found if one.setting.model.shape), key=apart)


def family(layout: Layout) -> str:
    """What a layout is called in the table: "zero1+tp", "data", "one"."""
    parts = [f"zero{layout.zero}"] * bool(layout.zero)
    if layout.copies > 1:
        parts = ["hsdp"]
    parts += ["tp"] * (layout.layerwise > 1) + ["pp"] * (layout.stages > 1)
    return "+".join(parts) or ("data" if layout.devices > 1 else "one")


@functools.cache
def advice() -> tuple[Advice, ...]:
    """All rows."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return tuple(_advice(row) for row in csv.DictReader(file))


def _advice(row: dict[str, str]) -> Advice:
    families = tuple(row["advice"].split("|"))
    about = row["gpu"], row["kind"], row["said"], row["source"]
    known = row["shape"] or tables.named(row["model"], tables.models())
    setting = _setting(row) if known else None
    return Advice(int(row["number"]), row["model"], setting, families, *about)


def _setting(row: dict[str, str]) -> Setting:
    """The question of a row."""
    given = _model(row)
    nodes, devices = int(row["nodes"]), int(row["gpus"])
    gpu = tables.gpu(row["gpu"])
    given |= asking.of_gpu(gpu, given, devices // nodes, nodes)
    given |= {"batch": int(row["batch"]), "goal": row["goal"], "nodes": nodes}
    given["price"] = given["price"] or 1.0
    given["gpus"] = devices // nodes
    across, _, cards = row["across"].partition(" x ")
    links = {"inside": row["inside"], "across": across}
    given |= {name: link for name, link in links.items() if link}
    numbers = {"cards": cards and int(cards), "memory": float(row["memory"] or 0)}
    return asking.setting_of(given | {k: n for k, n in numbers.items() if n})


def _model(row: dict[str, str]) -> dict:
    """Names and values of a row's model."""
    tokens = int(row["sequence"]) if row["sequence"] else None
    if not row["shape"]:
        return asking.of_model(row["model"], tokens)
    if row["shape"] == "lenet":
        return asking.values_of(presets.MODELS["LeNet"])
    said = dict(pair.split("=") for pair in row["shape"].split(";"))
    if "hidden" not in said:
        cut = said.pop("cut", "1") == "1"
        sizes = {name: float(value) for name, value in said.items()}
        return sizes | {"cut": cut, "name": row["model"]}
    size = {name: int(said[name]) for name in SIZES}
    flags = {name: said[name] == "1" for name in ("gated", "tied")}
    shape = Shape(sequence=tokens, **size, **flags)
    return asking.values_of(presets.of_shape(row["model"], shape))
