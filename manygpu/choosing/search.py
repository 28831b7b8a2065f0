"""All plans, tried: what the rule is held against. Not how it finds its answer."""

from __future__ import annotations

import functools
import itertools

import numpy as np

from manygpu.choosing import forecast
from manygpu.choosing.question import Layout, Setting, divisors


def plans(setting: Setting) -> Layout:
    """All plans for this setting, an array a field.

    Stages divide the layers, layerwise devices lie in one node, and replicas and
    micro-batches divide the batch.
    """
    machine = setting.machine
    counts, gpus = machine.counts(), machine.cluster.gpus
    return _plans(counts, gpus, setting.batch, setting.model.layers)


@functools.lru_cache(maxsize=256)
def _plans(counts: tuple[int, ...], gpus: int, batch: int, layers: int) -> Layout:
    """See `plans`."""
    rows = []
    for n, t, p in itertools.product(counts, divisors(gpus), divisors(layers)):
        if n % (t * p) or batch % (n // (t * p)):
            continue
        ways = (False, True) if t == p == 1 and n > 1 else (False,)
        for m in divisors(batch * t * p // n):
            for sharded, again in itertools.product(ways, (False, True)):
                rows.append((n, t, p, m, sharded, again))
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return Layout(*columns)


def one_of(found: Layout, i: int) -> Layout:
    """The plan at this place of the arrays, in plain numbers."""
    return Layout(*(field[i].item() for field in found))


def best(setting: Setting) -> Layout | None:
    """The plan that serves the goal best, or None where none fits."""
    found = plans(setting)
    fits = forecast.memory(setting, found) <= setting.machine.usable
    if not fits.any():
        return None
    wanted = score(setting, found)
    return one_of(found, int(np.argmin(np.where(fits, wanted, np.inf))))


def score(setting: Setting, plan: Layout) -> float | np.ndarray:
    """What the goal wants least of: seconds, dollars, or devices and then seconds.

    The seconds of "fits" are made a share of a device, below 1.
    """
    if setting.goal == "money":
        return forecast.cost(setting, plan)
    taken = forecast.seconds(setting, plan)
    return taken if setting.goal == "time" else plan.devices + taken / (1 + taken)
