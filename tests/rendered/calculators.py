"""What the tests of all calculators share."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from types import SimpleNamespace

from manygpu.widgets import chooser, memory, pipeline, scaling, spending

MODULES = {
    "chooser": chooser,
    "scaling": scaling,
    "memory": memory,
    "spending": spending,
    "explorer": pipeline,
}
SHOWN = {
    "chooser": functools.cache(chooser.chooser),
    "scaling": functools.cache(scaling.scaling_calculator),
    "memory": functools.cache(memory.memory_calculator),
    "spending": functools.cache(spending.cost_calculator),
    "explorer": functools.cache(pipeline.pipeline_explorer),
}


def opened(lone: Callable, kind: str, **settings) -> SimpleNamespace:
    """A calculator on a page of its own, all its fields unfolded."""
    page = lone(SHOWN[kind]().data, "calculator", **settings)
    page.figure.locator("details").evaluate_all("all => all.map(d => d.open = true)")
    return page


def asked(figure, what: str, settings: list[dict]) -> list:
    """What the script finds for each setting: "work", "wrong" or "shown"."""
    found = "all.map((v) => root.calculator[what](v))"
    script = f"(root, [what, all]) => JSON.stringify({found})"  # as it is takes long
    return json.loads(figure.evaluate(script, [what, settings]))
