"""Settings and what an expert advises, held against what `choose` says.

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
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from manygpu._files import data_file
from manygpu.choosing import asking, forecast, presets, search, tables
from manygpu.choosing.question import Setting
from manygpu.choosing.search import Option
from manygpu.costs.layout import Layout
from manygpu.costs.shape import Shape

FILE = data_file("choosing/data/experts.csv")
# What `choose` doesn't know: the sequence cut, tables cut, state on the host.
BEYOND = ("cp", "tables", "offload")
PARTS = {  # of a step, in words; see `manygpu.costs.seconds.Parts`
    "gradients": "sums of gradients",
    "update": "the update",
    "gather": "gathering parameters",
    "once": "what is done once",
}
SIZES = ("layers", "hidden", "inner", "heads", "kv_heads", "vocabulary")


class Advice(NamedTuple):
    """A row.

    Attributes:
        number: of the row.
        name: of the model.
        setting: what is asked; None where a model of equal layers can't say it.
        families: that are advised, such as "zero1+tp", the source's first.
        kind: "judgement", "rule", "recipe", "run", "compared" or "sweep".
        said: the source in other words.
        source: its address.
    """

    number: int
    name: str
    setting: Setting | None
    families: tuple[str, ...]
    kind: str
    said: str
    source: str

    @property
    def sayable(self) -> bool:
        """Whether some advised family is one that `choose` knows."""
        known = [f for f in self.families if not {*f.split("+")} & {*BEYOND}]
        return self.setting is not None and bool(known)

    def agrees(self, options: Iterable[Option]) -> bool:
        """Whether one of these is what is advised; none, where nothing fits."""
        options = list(options)
        if not options:
            return "nothing" in self.families
        return any(family(option.plan) in self.families for option in options)


def longer(advice: Advice) -> float:
    """How many times as long as the best plan the best one of what is advised takes.

    By forecast; infinite where none of these fits.
    """
    found = search.forecasts(advice.setting)
    taken = found.seconds[_advised(advice, found.layouts)]
    return float(taken.min(initial=np.inf) / found.seconds.min(initial=np.inf))


def _advised(advice: Advice, plans: Layout) -> np.ndarray:
    """Which of these plans are of an advised family."""
    parts = [plans.zero, plans.layerwise > 1, plans.stages > 1, plans.copies > 1]
    kinds = np.stack([plans.devices > 1, *parts]).astype(int)
    _, first, of = np.unique(kinds, axis=1, return_index=True, return_inverse=True)
    named = [family(plans.at(int(i))) in advice.families for i in first]
    return np.array(named, dtype=bool)[of.ravel()]


def why(advice: Advice) -> str:
    """Why the command's first plan is of another kind; "" where it is of this one.

    Of what is advised, the best plan is held against the first one, both by forecast:
    no such plan fits, or it is as good and less simple, or some part of its step takes
    longer.
    """
    setting, found = advice.setting, search.forecasts(advice.setting)
    places = search.ranked(setting)
    if not places:
        return "" if "nothing" in advice.families else "no plan fits"
    own = np.flatnonzero(_advised(advice, found.layouts))
    if places[0] in own:
        return ""
    if not len(own):
        return "no such plan fits"
    score, first = search.scores(setting, found), places[0]
    best = own[score[own].argmin()]
    plans = found.layouts.at(int(first)), found.layouts.at(int(best))
    worse = float(score[best] / score[first] - 1)
    if score[best] <= search.NEAR * score.min():
        simple, less = (search.STEPS_UP[search.way_of(plan)] for plan in plans)
        if simple < less:
            return f"as good ({worse:+.1%}); the first is simpler"
        if plans[0].recompute < plans[1].recompute:
            return f"as good ({worse:+.1%}); the first recomputes less"
        return f"as simple, {worse:+.1%}"
    if setting.goal != "time":
        return f"{worse:+.0%} in {setting.goal}"
    part, more = _longest(setting, *plans)
    return f"{part} ({more / found.seconds[first]:+.0%} of a step)"


def _longest(setting: Setting, first: Layout, other: Layout) -> tuple[str, float]:
    """The part of a step that takes more of the other plan, and its seconds."""
    a, b = (forecast.parts(setting, plan)._asdict() for plan in (first, other))
    more = {name: float(b[name] - a[name]) for name in a}
    name = max(more, key=more.get)
    if name != "pipeline":
        return PARTS[name], more[name]
    free = [forecast.parts(_endless(setting), p).pipeline for p in (first, other)]
    sent = more[name] - float(free[1] - free[0])
    if sent > more[name] / 2:
        return "sums and messages between layers", more[name]
    if other.stages > 1:
        return "stages that wait", more[name]
    if other.recompute > first.recompute:
        return "computing again", more[name]
    return "computing", more[name]


def _endless(setting: Setting) -> Setting:
    """The same with links that take next to no time."""
    cluster = setting.machine.cluster
    fast = {
        name: replace(getattr(cluster, name), latency=0.0, bandwidth=1e20)
        for name in ("inside", "across")
    }
    machine = replace(setting.machine, cluster=replace(cluster, **fast))
    return replace(setting, machine=machine)


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
    about = row["kind"], row["said"], row["source"]
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
