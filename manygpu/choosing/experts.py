"""What `choose` says beside what experts advise (`manygpu.choosing.advised`).

Of what is advised, the way to share the work out is compared, not its numbers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from manygpu.choosing import forecast, residuals, search
from manygpu.choosing.advised import BEYOND, Advice, advice, family
from manygpu.choosing.question import Setting
from manygpu.costs.layout import Layout

__all__ = ["BEYOND", "Advice", "advice", "family", "longer", "why"]
PARTS = {  # of a step, in words; see `manygpu.costs.seconds.Parts`
    "gradients": "sums of gradients",
    "update": "the update",
    "gather": "gathering parameters",
    "once": "what is done once",
}


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

    Of what is advised, the best plan is compared with the first one, both by forecast:
    no such plan fits, or it is as good and less simple, or it needs more devices than
    the goal allows, or some part of its step takes longer.
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
    top, best = score.best(), score.best(own)
    plans = found.layouts.at(int(first)), found.layouts.at(int(best))
    worse = float(score.cost[best] / score.cost[first] - 1)
    if score.near(top, search.NEAR)[best]:
        simple, less = (search.STEPS_UP[search.way_of(plan)] for plan in plans)
        if simple < less:
            return f"as good ({worse:+.1%}); the first is simpler"
        if plans[0].recompute < plans[1].recompute:
            return f"as good ({worse:+.1%}); the first recomputes less"
        return f"as simple, {worse:+.1%}"
    if score.devices[best] > score.devices[first]:
        return f"needs {plans[1].devices} devices"
    if setting.goal == "money":
        return f"{worse:+.0%} in money"
    usual = [float(residuals.usual(setting, plan)) for plan in plans]
    if float(forecast.seconds(setting, plans[1])) * usual[0] <= found.seconds[first]:
        return (
            f"its kind usually takes {usual[1] / usual[0] - 1:.0%} longer than forecast"
        )
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
