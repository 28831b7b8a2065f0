"""All plans of a setting, forecast: the best one, why, and the chapters that build it.

A formula forecasts an array of plans at once, so even thousands take milliseconds.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from manygpu.choosing import forecast
from manygpu.choosing.question import Layout, Setting, divisors

# Ways of cutting, in the order of `way_of`.
WAYS = ("data", "pipeline", "layerwise", "layerwise and pipeline", "sharded")
# What a plan may be, and the chapters that build it.
LEAVES = {
    "one device": ("start/one-device",),
    "data": ("data-parallel/many-devices", "engine/mirrored-strategy"),
    "sharded": ("splitting/sharded-state",),
    "layerwise": ("splitting/layerwise", "splitting/transformer"),
    "pipeline": ("splitting/pipeline", "splitting/running-a-pipeline"),
    "layerwise and pipeline": ("splitting/hybrid-meshes",),
    "nothing fits": ("splitting/recomputation", "beyond/whole-cluster"),
}
ALSO = {
    "micro-batches": "data-parallel/gradient-accumulation",
    "recompute": "splitting/recomputation",
    "mesh": "splitting/mesh-layout",
}


class Reason(NamedTuple):
    """A question about a setting, and its answer."""

    question: str
    answer: str


class Choice(NamedTuple):
    """The best plan.

    Attributes:
        leaf: a key of `LEAVES`.
        plan: None where nothing fits.
        reasons: what it was compared with.
        seconds, memory, cost: forecast of a step, of a device, in dollars of a step;
            None where nothing fits.
        chapters: that show how, as paths in the book.
    """

    leaf: str
    plan: Layout | None
    reasons: tuple[Reason, ...]
    seconds: float | None
    memory: float | None
    cost: float | None
    chapters: tuple[str, ...]


def plans(setting: Setting, counts: Sequence[int] | None = None) -> Layout:
    """All plans for this setting, an array a field.

    Stages divide the layers, layerwise devices lie in one node, and replicas and
    micro-batches divide the batch.

    Args:
        setting: says what there is.
        counts: of devices; None for all that a plan may take.
    """
    machine, layers = setting.machine, setting.model.layers
    counts = machine.counts() if counts is None else tuple(counts)
    return _plans(counts, machine.cluster.gpus, setting.batch, layers)


@functools.lru_cache(maxsize=256)
def _plans(counts: tuple[int, ...], gpus: int, batch: int, layers: int) -> Layout:
    """See `plans`."""
    rows, micro_batches, shares = [], [], functools.cache(divisors)
    for n, t, p in itertools.product(counts, divisors(gpus), divisors(layers)):
        if n % (t * p) or batch % (n // (t * p)):
            continue
        ways = (False, True) if t == p == 1 and n > 1 else (False,)
        for sharded, again in itertools.product(ways, (False, True)):
            rows.append((n, t, p, sharded, again))
            micro_batches.append(shares(batch * t * p // n))
    lengths = np.array([len(each) for each in micro_batches], dtype=int)
    columns = np.repeat(np.array(rows, dtype=int).reshape(-1, 5), lengths, axis=0).T
    n, t, p, sharded, again = columns
    m = np.concatenate([np.array([], dtype=int), *micro_batches])
    return Layout(n, t, p, m, sharded.astype(bool), again.astype(bool))


def one_of(found: Layout, i: int) -> Layout:
    """The plan at this place of the arrays, in plain numbers."""
    return Layout(*(field[i].item() for field in found))


def way_of(plan: Layout) -> int | np.ndarray:
    """How a plan cuts the work, as a place in `WAYS`."""
    cut = 2 * (plan.layerwise > 1) + (plan.stages > 1)
    return np.where(plan.sharded, WAYS.index("sharded"), cut)[()]


def fastest(setting: Setting, devices: int) -> dict[str, Layout]:
    """The fastest plan of each way of cutting that fits so many devices, by `WAYS`."""
    return dict(_fastest(replace(setting, goal="time"), devices))


@functools.lru_cache(maxsize=128)
def _fastest(setting: Setting, devices: int) -> dict[str, Layout]:
    """See `fastest`; found once for all goals."""
    found = plans(setting, [devices])
    fits = forecast.memory(setting, found) <= setting.machine.usable
    taken = np.where(fits, forecast.seconds(setting, found), np.inf)
    ways = way_of(found)
    times = {way: np.where(ways == i, taken, np.inf) for i, way in enumerate(WAYS)}
    fit = {way: own for way, own in times.items() if np.isfinite(own).any()}
    return {way: one_of(found, int(own.argmin())) for way, own in fit.items()}


@functools.lru_cache(maxsize=128)
def on(setting: Setting, devices: int) -> Layout | None:
    """The best plan for so many devices, all of them at work; None if none fits.

    Each goal wants the fastest of them: with their number, the price is given too.
    """
    ways = fastest(setting, devices).values()
    return min(ways, key=lambda plan: forecast.seconds(setting, plan), default=None)


def best(setting: Setting) -> Layout | None:
    """The plan that serves the goal best, or None where none fits."""
    each = (on(setting, n) for n in setting.machine.counts())
    fitting = [plan for plan in each if plan is not None]
    return min(fitting, key=lambda plan: score(setting, plan), default=None)


def score(setting: Setting, plan: Layout) -> float | np.ndarray:
    """What the goal wants least of: seconds, dollars, or devices and then seconds.

    The seconds of "fits" are made a share of a device, below 1.
    """
    if setting.goal == "money":
        return forecast.cost(setting, plan)
    taken = forecast.seconds(setting, plan)
    return taken if setting.goal == "time" else plan.devices + taken / (1 + taken)


def leaf_of(plan: Layout | None) -> str:
    """What a plan is, a key of `LEAVES`."""
    if plan is None:
        return "nothing fits"
    return "one device" if plan.devices == 1 else WAYS[way_of(plan)]


def chapters_of(plan: Layout | None) -> tuple[str, ...]:
    """The chapters that build a plan's parts, its way of cutting first."""
    found = list(LEAVES[leaf_of(plan)])
    if plan is not None:
        mesh = plan.data > 1 and plan.layerwise * plan.stages > 1
        many = plan.micro_batches > 1 and plan.stages == 1
        wanted = {"mesh": mesh, "micro-batches": many, "recompute": plan.recompute}
        found += [ALSO[name] for name, needed in wanted.items() if needed]
    return tuple(dict.fromkeys(found))


def choose(setting: Setting) -> Choice:
    """Which plan serves the goal, why, what it takes, and where it is built.

    A pure function: nothing is measured, nothing is looked up. What it forecasts is as
    good as `setting.machine.rate` and the links, so measure those two.
    """
    plan, forecasts = best(setting), (forecast.seconds, forecast.memory, forecast.cost)
    numbers = (plan and float(of(setting, plan)) for of in forecasts)
    why = reasons(setting, plan)
    return Choice(leaf_of(plan), plan, why, *numbers, chapters_of(plan))


def reasons(setting: Setting, plan: Layout | None) -> tuple[Reason, ...]:
    """What was asked on the way to a plan, answered with this setting's numbers."""
    fits = _whole_replica(setting)
    if plan is None:
        said = f"no: not even all {setting.machine.cluster.count} hold it"
        return (fits, Reason("Does it fit on all devices together?", said))
    found = [fits, _how_many(setting, plan)]
    if plan.devices > 1:
        found.append(_which_way(setting, plan))
    return (*found, _activations(setting, plan))


def _whole_replica(setting: Setting) -> Reason:
    """Whether one device can hold the state, and one sample's activations."""
    need = forecast.memory(setting, Layout(1, 1, 1, setting.batch, False, True))
    usable = setting.machine.usable
    said = f"{need / 1e9:.3g} GB at least, of {usable / 1e9:.3g} GB that may be filled"
    word = "yes" if need <= usable else "no"
    return Reason("Does a whole replica fit on one device?", f"{word}: {said}")


def _how_many(setting: Setting, plan: Layout) -> Reason:
    """What fewer devices, or all of them, would take."""
    counts = setting.machine.counts()
    others = sorted({counts[0], counts[-1]} - {plan.devices})
    said = [f"{n}: {_taken(setting, on(setting, n))}" for n in (plan.devices, *others)]
    return Reason("How many devices?", "; ".join(said))


def _taken(setting: Setting, plan: Layout | None) -> str:
    """A plan's seconds and dollars in words."""
    if plan is None:
        return "doesn't fit"
    taken, dollars = forecast.seconds(setting, plan), forecast.cost(setting, plan)
    return f"{taken:.3g} s and {100 * dollars:.3g} cents a step"


def _which_way(setting: Setting, plan: Layout) -> Reason:
    """What as many devices take if they cut the work otherwise, the fastest first."""
    ways = fastest(setting, plan.devices)
    taken = {way: float(forecast.seconds(setting, of)) for way, of in ways.items()}
    said = [f"{way}: {taken[way]:.3g} s" for way in sorted(taken, key=taken.get)]
    if "data" not in ways:
        said.append("data: doesn't fit")
    return Reason("Which way of cutting?", "; ".join(said))


def _activations(setting: Setting, plan: Layout) -> Reason:
    """How the activations are made to fit."""
    said = f"{float(forecast.memory(setting, plan)) / 1e9:.3g} GB"
    if plan.micro_batches > 1:
        said += f" with {plan.micro_batches} micro-batches"
    said += ", recomputing" if plan.recompute else ", nothing recomputed"
    return Reason("How do the activations fit?", said)
