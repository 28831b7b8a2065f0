"""The numbers that interactive pages replay, computed here: one source for both.

`python -m manygpu.choosing.pages` prints them as JSON. A page may look a number up, or
compute it by the same formula; then its test compares the two.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

from manygpu.choosing import forecast, settings
from manygpu.choosing.prices import prices
from manygpu.choosing.search import one_of, plans
from manygpu.choosing.setting import ROOM, Plan, Setting
from manygpu.choosing.tree import choose

# The guide's tables of several GPUs, by their number.
GUIDE = {
    "epochs": {1: 1.0, 2: 1.9, 4: 3.4, 8: 5.7},
    "ideal vs reality": {1: 1.0, 2: 1.8, 4: 3.2, 8: 5.6, 16: 9.6},
}
# Bytes a parameter: as it computes, its gradient, the optimizer's state with Adam.
PRECISIONS = {"float32": (4, 4, 8), "mixed": (2, 2, 12)}
ZERO = {0: (1, 1, 1), 1: (1, 1, 0), 2: (1, 0, 0), 3: (0, 0, 0)}  # 1: held whole


def state_bytes(parameters: float, devices: int, precision: str, zero: int) -> float:
    """Bytes of parameters, gradients and state on a device (Rajbhandari et al. 2020).

    Args:
        parameters: of the model.
        devices: that share what is sharded.
        precision: a key of `PRECISIONS`; "mixed" keeps float32 copies with the state.
        zero: the stage, 0 to 3: nothing, state, gradients too, parameters too.
    """
    parts = zip(PRECISIONS[precision], ZERO[zero], strict=True)
    return parameters * sum(b if held else b / devices for b, held in parts)


def chooser() -> list[dict[str, Any]]:
    """What the rule says of each setting of the grid."""
    rows = []
    for name, setting in settings.grid():
        found = choose(setting)
        row = {"setting": name, "leaf": found.leaf, "seconds": found.seconds}
        row |= {"memory": found.memory, "dollars": found.cost}
        row["plan"] = found.plan and found.plan.words
        row["reasons"] = [list(reason) for reason in found.reasons]
        rows.append(row | {"chapters": list(found.chapters)})
    return rows


def scaling() -> list[dict[str, Any]]:
    """Data parallel training by model, cluster and devices: seconds, speedup, cost."""
    rows = []
    axes = settings.MODELS.items(), settings.CLUSTERS, settings.BATCHES
    for (name, model), cluster, batch in itertools.product(*axes):
        setting = Setting(model, settings.machine(cluster, "40 GB"), batch)
        one = float(forecast.seconds(setting, Plan(1)))
        for n in setting.machine.counts():
            if batch % n:
                continue
            taken = float(forecast.seconds(setting, Plan(n)))
            row = {"model": name, "cluster": cluster, "batch": batch, "devices": n}
            row |= {"seconds": taken, "speedup": one / taken}
            row["efficiency"] = one / taken / n
            rows.append(row | {"dollars": float(forecast.cost(setting, Plan(n)))})
    return rows


def memory() -> list[dict[str, Any]]:
    """A device's state by model, devices, precision and stage of ZeRO."""
    rows = []
    axes = settings.MODELS.values(), (1, 2, 4, 8, 64), PRECISIONS, ZERO
    for model, n, precision, zero in itertools.product(*axes):
        size = state_bytes(model.parameters, n, precision, zero)
        row = {"model": model.name, "devices": n, "precision": precision}
        row |= {"zero": zero, "state": size, "kept a sample": model.kept}
        again = model.layers * model.handed + model.kept / model.layers
        rows.append(row | {"kept a sample, recomputing": again})
    return rows


def examples(setting: Setting, every: int = 1) -> list[dict[str, Any]]:
    """Plans of a setting with their forecasts, for a page's own formula to meet."""
    found = plans(setting)
    taken, needed = forecast.seconds(setting, found), forecast.memory(setting, found)
    return [
        one_of(found, i)._asdict()
        | {"seconds": float(taken[i]), "memory": float(needed[i])}
        for i in range(0, len(taken), every)
    ]


def tables() -> dict[str, Any]:
    """All tables, as JSON can hold them."""
    costs = [p._asdict() | {"date": str(p.date), "each": p.each} for p in prices()]
    models = {
        name: {field: getattr(model, field) for field in model.__dataclass_fields__}
        for name, model in settings.MODELS.items()
    }
    return {
        "room": ROOM,
        "models": models,
        "prices": costs,
        "guide": GUIDE,
        "chooser": chooser(),
        "scaling": scaling(),
        "memory": memory(),
    }


if __name__ == "__main__":
    print(json.dumps(tables()))
