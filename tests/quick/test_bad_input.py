"""What the simulator, the chooser and its costs refuse; without TensorFlow."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from manygpu.choosing import cost, formulas
from manygpu.choosing.question import GOALS, Machine, Model, Setting
from manygpu.simulate import collectives, published, steps, transformer
from manygpu.simulate.cluster import LINKS, Cluster, Link
from manygpu.simulate.works import Agenda, Work
from manygpu.sources import page
from tests import refusals
from tests.quick.test_choosing import HELD, JOBS, SCALED
from tests.quick.test_simulate import gpipe, needs, simulate
from tests.refusals import of

LINK = Link(10e-6, 5e9)
CLUSTER = Cluster(2, 4, LINK, LINK)
MACHINE = Machine(CLUSTER, 80e9, 3e14)
MODEL = Model("x", 2, 1.0, 1.0, 1.0, 1.0)
RUN = published.runs()[0].run
BUS = Cluster(1, 2, LINKS["PCIe 5"], LINKS["PCIe 5"], bus=True)

SIMULATED = [
    *of(
        simulate,
        {"works": [Work("a", ("x",), 1.0)]},
        ("works", [[]], ValueError, "works is empty"),
        ("works", [[Work("a", ("x",), 1.0, after=(0,))]], ValueError, "works"),
    ),
    *of(
        lambda agenda, **named: agenda.put(**named),
        lambda: {"agenda": Agenda(), "name": "work", "lanes": ["a"], "seconds": 1.0},
        ("lanes", [[]], ValueError, "lanes"),
        ("seconds", [-1.0], ValueError, "seconds"),
        ("latency", [math.nan], ValueError, "latency"),
        ("shares", [[("x", 0.0)]], ValueError, "shares"),
        ("after", [[0]], ValueError, "after"),
    ),
    *of(
        Cluster,
        {"nodes": 2, "gpus": 4, "inside": LINK, "across": LINK, "cards": 2},
        ("nodes", [0], ValueError, "nodes must be"),
        ("gpus", [True], TypeError, "gpus must be"),
        ("cards", [3], ValueError, "cards must divide"),
        ("overlap", [1.0], ValueError, "overlap must be"),
    ),
    *of(
        CLUSTER.route,
        {"source": 0, "target": 7, "size": 1.0},
        ("target", [8], ValueError, "0 to 7"),
    ),
    *of(
        Link,
        {"latency": 0.0, "bandwidth": 5.0},
        ("bandwidth", [-5.0, 0], ValueError, "bandwidth must be finite and above 0"),
        ("latency", [-1e-6], ValueError, "latency must be"),
    ),
    *of(
        collectives.ring_seconds,
        {"n": 4, "size": 8.0, "link": LINK},
        ("size", [-8.0], ValueError, "size must not be negative, got -2.0"),
    ),
    *of(
        collectives.double_tree_messages,
        {"n": 4, "size": 1.0, "pieces": 1},
        ("pieces", [0], ValueError, "pieces must be"),
    ),
    *of(
        collectives.switch_seconds,
        {"size": 8.0, "link": LINK, "pieces": 1},
        ("pieces", [0], ValueError, "pieces must be"),
    ),
    *of(
        collectives.switch_messages,
        {"n": 4, "size": 8.0, "pieces": 1},
        ("pieces", [0], ValueError, "pieces must be"),
    ),
    *of(
        steps.Layers,
        {"count": 2, "forward": 1.0, "backward": 2.0, "gradients": 1, "activations": 1},
        ("count", [0], ValueError, "count must be at least 1"),
        ("count", [2.5, True], TypeError, "count must be"),
        ("forward", [-1.0], ValueError, "forward must be"),
        ("update", [math.inf], ValueError, "update must be"),
        ("gradients", ["a"], TypeError, "gradients must be"),
    ),
    *of(
        steps.pipelined,
        {
            "layers": steps.Layers(24, 1e-3, 2e-3, 1e8, 1e7),
            "cluster": CLUSTER,
            "plan": gpipe(4, 4),
            "needs": needs,
        },
        ("cluster", [Cluster(3, 2, LINK, LINK)], ValueError, "divide"),
    ),
    *of(
        transformer.works_of,
        {
            "run": RUN,
            "hardware": transformer.Hardware(),
            "plan": gpipe(RUN.stages, RUN.accumulation),
            "needs": needs,
        },
        ("plan", [gpipe(4, 2)], ValueError, "2 stages and 1 micro-batches, got 4 and"),
    ),
]
CHOSEN = [
    *of(
        Model,
        vars(MODEL),
        ("layers", [0], ValueError, "layers"),
        ("parameters", [math.nan], ValueError, "parameters"),
        ("flops", ["1"], TypeError, "flops"),
    ),
    *of(
        lambda **change: replace(MACHINE, **change),
        {"memory": 1e9},
        ("memory", [0], ValueError, "memory"),
        ("price", [-1], ValueError, "price"),
        ("cluster", [BUS], ValueError, "bus"),
    ),
    *of(
        Setting,
        {"model": MODEL, "machine": MACHINE, "batch": 256, "goal": GOALS[0]},
        ("batch", [1.0], TypeError, "batch"),
        ("batch", [10**10], ValueError, "batch must be at most"),
        ("goal", ["fame"], ValueError, "goal"),
    ),
    *of(
        cost.best_for,
        {"jobs": JOBS, "waiting": 1.0},
        ("jobs", [[]], ValueError, "empty"),
    ),
    *of(cost.worth_from, {"jobs": JOBS}, ("jobs", [[]], ValueError, "empty")),
    *of(
        cost.spot_dollars,
        {"dollars_an_hour": 1.0, "goodput": 0.5},
        ("goodput", [0.0], ValueError, "must be"),
    ),
    *of(
        cost.steps_to_goal,
        {"batch": 100, "least_steps": 1000, "critical_batch": 100},
        ("batch", [0], ValueError, "must be"),
    ),
    *of(
        formulas.state_parts,
        {"parameters": 1.0, "devices": 2, "precision": "mixed", "zero": 3},
        ("zero", [7], ValueError, "must be"),
        ("precision", ["float64"], ValueError, "must be"),
    ),
    *of(
        formulas.scaling,
        SCALED,
        ("devices", [12], ValueError, "devices must divide the batch"),
        ("batch", [250], ValueError, "devices must divide the batch"),
    ),
    *of(
        formulas.memory,
        HELD | {"precision": "mixed", "recompute": False},
        ("batch", [64], ValueError, "batch must be a multiple"),
    ),
    *of(
        page.show,
        {"claims": [], "caption": "None.", "name": "none"},
        ("claims", [[]], ValueError, "needs claims"),
    ),
]
REFUSED = [*SIMULATED, *CHOSEN]


@pytest.mark.parametrize("refusal", REFUSED, ids=str)
def test_it_is_refused_by_name_and_nothing_has_changed(refusal):
    refusals.is_refused(refusal)


@pytest.mark.parametrize(
    "refusal", [r for r in refusals.goods(REFUSED) if r.call is not page.show], ids=str
)
def test_the_rest_of_the_call_is_right(refusal):
    refusals.is_taken(refusal)
