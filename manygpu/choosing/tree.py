"""The rule: questions with numbers in them, and at the end a plan with its reasons.

Each way of cutting gets its layout from a formula, not from a search: how many stages,
how wide, how many micro-batches. The tree asks which ways fit, which of these is
fastest, and whether fewer devices would do. So it forecasts a few dozen plans where
`search` forecasts thousands; tests hold the one against the other.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from manygpu.choosing import forecast
from manygpu.choosing.question import Layout, Setting
from manygpu.choosing.search import divisors, score

HIDDEN = 0.02  # what such replicas may lose to the network before others are asked

# A leaf's plan, and the chapters that build it.
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
    """A question of the tree, and how it was answered for this setting."""

    question: str
    answer: str


class Choice(NamedTuple):
    """What the tree answers.

    Attributes:
        leaf: a key of `LEAVES`.
        plan: None where nothing fits.
        reasons: the questions on the way, and their answers.
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


@functools.lru_cache(maxsize=512)
def _divisors(number: int) -> tuple[int, ...]:
    """`divisors`, remembered."""
    return tuple(divisors(number))


def least_micro_batches(setting: Setting, plan: Layout) -> float:
    """How many micro-batches a plan needs to fit, at least; infinite if none will do.

    Activations are a micro-batch's, so their bytes fall as micro-batches get more:
    solve for the number. In a pipeline, m up to its stages keep the whole batch.
    """
    model, d = setting.model, plan.data
    empty = forecast.memory(setting, plan._replace(micro_batches=math.inf))
    room = setting.machine.usable - float(empty)
    kept = model.kept / plan.layerwise
    if plan.recompute:
        kept = model.layers * model.handed + kept / model.layers
    need = setting.batch / d * kept / room if room > 0 else math.inf
    return need if need > plan.stages or plan.stages == 1 else 0.0


def best_micro_batches(setting: Setting, plan: Layout) -> float:
    """The number that costs a pipeline least, if it may be any: a square root.

    p stages and m micro-batches take (m + p - 1) (c + w / m): c is the overhead of
    each turn, w the work of all. The least is at m = sqrt((p - 1) w / c).
    """
    model, machine, n = setting.model, setting.machine, setting.model.layers
    rounds = 4 if plan.recompute else 3
    share = n / plan.stages
    work = rounds * setting.batch / plan.data * model.flops / machine.rate
    far = plan.devices > machine.cluster.gpus
    link = machine.cluster.across if far else machine.cluster.inside
    sums = 8 * (plan.layerwise - 1) * machine.cluster.inside.latency
    alone = share * (rounds * machine.launch + sums) + 2 * link.latency
    parts = plan.stages * plan.layerwise
    return math.sqrt((plan.stages - 1) * work / parts / alone) if alone else math.inf


def filled(setting: Setting, plan: Layout) -> Layout | None:
    """The plan with as many micro-batches as it needs, and wants; None if it can't be.

    Without stages, as few as fit; with stages, the divisor nearest to the square root.
    """
    cut = plan.layerwise * plan.stages
    if setting.batch % (plan.devices // cut):
        return None
    allowed = _divisors(setting.batch * cut // plan.devices)
    least = least_micro_batches(setting, plan)
    first = bisect.bisect_left(allowed, least * (1 - 1e-12))
    if first == len(allowed):
        return None
    if plan.stages == 1:
        return plan._replace(micro_batches=allowed[first])
    wanted = max(best_micro_batches(setting, plan), 1.0)
    near = min(allowed[first:], key=lambda m: abs(math.log(m / wanted)))
    return plan._replace(micro_batches=near)


def faster(setting: Setting, plans: Iterable[Layout | None]) -> Layout | None:
    """Which of a few plans serves the goal best; None if there is none."""
    found = [plan for plan in plans if plan is not None]
    if len(found) < 2:
        return found[0] if found else None
    side_by_side = Layout(*(np.array(column) for column in zip(*found, strict=True)))
    return found[int(np.argmin(score(setting, side_by_side)))]


def plain_or_recomputing(setting: Setting, layout: Layout) -> Layout | None:
    """A layout with its micro-batches, recomputing where that is the better way."""
    plain = filled(setting, layout)
    if plain is not None and plain.micro_batches == 1:
        return plain  # it fits as it is
    return faster(setting, [plain, filled(setting, layout._replace(recompute=True))])


def deep(setting: Setting, devices: int, layerwise: int) -> Layout | None:
    """How many stages: none, one a node, or as many as there can be.

    With a sample a micro-batch, p stages wait (1 - 1/p) of one sample's passes, and
    leave 1/p of the gradients to be summed. Both go with 1/p, so what is longer
    decides: cut deeper as long as a whole replica's sums take longer than a sample's
    passes, or as memory makes it recompute. Of the depths asked, the fastest is taken.
    """
    model, cluster = setting.model, setting.machine.cluster
    can = [p for p in _divisors(devices // layerwise) if model.layers % p == 0]
    passes = 3 * model.flops / setting.machine.rate / layerwise
    nodes = max(1, devices // cluster.gpus)
    asked = []
    for p in sorted({1, nodes, can[-1]} & set(can)):
        layout = Layout(devices, layerwise, p)
        plan = plain_or_recomputing(setting, layout) if layerwise * p > 1 else None
        asked.append(plan)
        sums = p * forecast.replicas_seconds(setting, layout)
        if plan is not None and not plan.recompute and sums <= passes:
            break
    return faster(setting, asked)


def cut(setting: Setting, devices: int) -> Layout | None:
    """The best width: a layer over one device, or over more of its node's."""
    best = None
    for t in _divisors(min(setting.machine.cluster.gpus, devices)):
        if devices % t == 0:
            best = faster(setting, [best, deep(setting, devices, t)])
    return best


def hidden(setting: Setting, plan: Layout) -> bool:
    """Whether a plan that cuts no layer loses next to nothing to one free of sending.

    One that recomputes loses a quarter of its time to that, so it is never hidden.
    """
    one = Layout(1, micro_batches=plan.micro_batches)
    alone = forecast.seconds(replace(setting, batch=setting.batch // plan.data), one)
    return bool(forecast.seconds(setting, plan) <= (1 + HIDDEN) * alone)


def on(setting: Setting, devices: int) -> Layout | None:
    """The plan for so many devices, all of them at work; None if none fits.

    Each goal wants the fastest of them: with their number, the price is given too.
    """
    return _on(replace(setting, goal="time"), devices)


@functools.lru_cache(maxsize=8192)
def _on(setting: Setting, devices: int) -> Layout | None:
    """See `on`."""
    whole = plain_or_recomputing(setting, Layout(devices))
    if devices == 1:
        return whole
    sharded = plain_or_recomputing(setting, Layout(devices, sharded=True))
    whole = faster(setting, [whole, sharded])
    if whole is not None and hidden(setting, whole):
        return whole
    return faster(setting, [whole, cut(setting, devices)])


def count(setting: Setting) -> Layout | None:
    """How many devices: the plan of the number that serves the goal best.

    "fits" takes the first number at which anything fits. For time and money, more
    devices may be slower, and fewer dearer, if they must recompute: so each is asked.
    """
    best = None
    for n in setting.machine.counts():
        plan = on(setting, n)
        if plan is not None and setting.goal == "fits":
            return plan
        best = faster(setting, [best, plan])
    return best


def leaf_of(plan: Layout | None) -> str:
    """The way of cutting that a plan takes, a key of `LEAVES`."""
    if plan is None:
        return "nothing fits"
    if plan.layerwise > 1:
        return "layerwise and pipeline" if plan.stages > 1 else "layerwise"
    if plan.stages > 1:
        return "pipeline"
    if plan.sharded:
        return "sharded"
    return "data" if plan.devices > 1 else "one device"


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
    plan = count(setting)
    leaf = leaf_of(plan)
    why = reasons(setting, plan)
    if plan is None:
        return Choice(leaf, None, why, None, None, None, chapters_of(None))
    numbers = (f(setting, plan) for f in (forecast.seconds, forecast.memory))
    taken, needed = map(float, numbers)
    dollars = float(forecast.cost(setting, plan))
    return Choice(leaf, plan, why, taken, needed, dollars, chapters_of(plan))


def reasons(setting: Setting, plan: Layout | None) -> tuple[Reason, ...]:
    """The questions on the way to a plan, each answered with this setting's numbers."""
    fits = _whole_replica(setting)
    if plan is None:
        said = f"no: not even all {setting.machine.cluster.count} hold it"
        return (fits, Reason("Does it fit on all devices together?", said))
    found = [fits, _how_many(setting, plan)]
    if plan.devices > 1:
        found.append(_sums(setting, plan))
    if plan.layerwise * plan.stages > 1:
        found.append(_passes(setting, plan))
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
    others = {n: on(setting, n) for n in {counts[0], counts[-1]} - {plan.devices}}
    said = [f"{plan.devices}: {_taken(setting, plan)}"]
    said += [f"{n}: {_taken(setting, other)}" for n, other in sorted(others.items())]
    return Reason("How many devices?", "; ".join(said))


def _taken(setting: Setting, plan: Layout | None) -> str:
    """A plan's seconds and dollars in words."""
    if plan is None:
        return "doesn't fit"
    taken, dollars = forecast.seconds(setting, plan), forecast.cost(setting, plan)
    return f"{taken:.3g} s and {100 * dollars:.3g} cents a step"


def _sums(setting: Setting, plan: Layout) -> Reason:
    """Whether whole or sharded replicas would lose time to their sums."""
    question = "Do the sums of whole or sharded replicas hide behind computing?"
    layouts = (Layout(plan.devices), Layout(plan.devices, sharded=True))
    made = [plain_or_recomputing(setting, layout) for layout in layouts]
    whole = faster(setting, made)
    if whole is None:
        return Reason(question, "no whole replica fits, nor a sharded one")
    taken = forecast.seconds(setting, whole)
    word = "yes" if hidden(setting, whole) else "no"
    return Reason(question, f"{word}: {whole.words} takes {taken:.3g} s")


def _passes(setting: Setting, plan: Layout) -> Reason:
    """What decides about stages: sums against a sample's passes."""
    t, n = plan.layerwise, plan.devices
    sums = float(forecast.replicas_seconds(setting, Layout(n, t)))
    passes = 3 * setting.model.flops / setting.machine.rate / t
    question = "Do gradients take longer to sum than a sample to pass?"
    word = "yes" if sums > passes else "no"
    return Reason(question, f"{word}: {sums:.3g} s against {passes:.3g} s")


def _activations(setting: Setting, plan: Layout) -> Reason:
    """How the activations are made to fit."""
    said = f"{float(forecast.memory(setting, plan)) / 1e9:.3g} GB"
    if plan.micro_batches > 1:
        said += f" with {plan.micro_batches} micro-batches"
    said += ", recomputing" if plan.recompute else ", nothing recomputed"
    return Reason("How do the activations fit?", said)
