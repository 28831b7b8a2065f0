"""What the simulator, the chooser and its costs refuse; without TensorFlow."""

import math
from dataclasses import replace

import pytest

from manygpu.choosing import cost, forecast, formulas
from manygpu.choosing.cost import Job
from manygpu.choosing.question import GOALS, Machine, Model, Setting, divisors
from manygpu.costs import memory
from manygpu.costs.layout import Layout
from manygpu.costs.shape import Shape
from manygpu.exercises.hunts import hunt
from manygpu.simulate import collectives, published, steps, transformer
from manygpu.simulate.cluster import LINKS, Cluster, Link
from manygpu.simulate.works import Agenda, Work
from manygpu.sources import page
from tests import refusals
from tests.quick.test_choosing import HELD, JOBS, SCALED, SPENT
from tests.quick.test_simulate import gpipe, needs, simulate
from tests.refusals import good

LINK = Link(10e-6, 5e9)
CLUSTER = Cluster(2, 4, LINK, LINK)
MACHINE = Machine(CLUSTER, 80e9, 3e14)
MODEL = Model("x", 2, 1.0, 1.0, 1.0, 1.0)
RUN = published.runs()[0].run
BUS = Cluster(1, 2, LINKS["PCIe 5"], LINKS["PCIe 5"], bus=True)
SENT = {"n": 4, "size": 8.0, "link": LINK}
CUT = {"n": 4, "size": 8.0, "pieces": 1}

ODD_TIMES = [[Work("a", ("x",), time)] for time in (math.nan, math.inf, -1.0)]
MANY = 10**400  # must be refused before anything is counted
NO_COUNTS = [1.5, True, 2.0, None]
NO_SIZES = [math.nan, math.inf, -8.0]


def no_count(*more: int) -> list[tuple]:
    """Rows for `n`, a number of participants."""
    few = ("n", [0, -1, *more], ValueError, "n must be")
    return [few, ("n", NO_COUNTS, TypeError, "n must be a whole number, got {!r}")]


SIMULATED = [
    *good(simulate, works=[Work("a", ("x",), 1.0)]).refuses(
        ("works", [[]], ValueError, "works is empty"),
        ("works", [[Work("a", ("x",), 1.0, after=(0,))]], ValueError),
        ("works", ODD_TIMES, ValueError, "works[0] must have finite times"),
        ("works", [[Work("a", (), 1.0)]], ValueError, "works[0].lanes is empty"),
        ("works", [[Work("a", ("x",), 1.0, after=(7,))]], ValueError, "works 0 to 0"),
        (
            "works",
            [[Work("a", ("x",), 1.0, shares=(("b", math.nan),))]],
            ValueError,
            "works[0].shares must be above 0",
        ),
    ),
    *good(simulate, works=[Work("a", ("x",), 1.0, latency=1.0)]).refuses(
        ("works", [[Work("a", ("x",), 1.0, math.nan)]], ValueError, "(1.0, nan)")
    ),
    *good(
        lambda agenda, **named: agenda.put(**named),
        lambda: {"agenda": Agenda(), "name": "work", "lanes": ["a"], "seconds": 1.0},
    ).refuses(
        ("lanes", [[]], ValueError),
        ("seconds", [-1.0], ValueError),
        ("latency", [math.nan], ValueError),
        ("shares", [[("x", 0.0)]], ValueError),
        ("after", [[0]], ValueError),
    ),
    *good(Cluster, nodes=2, gpus=4, inside=LINK, across=LINK, cards=2).refuses(
        ("nodes", [0], ValueError),
        ("gpus", [True], TypeError),
        ("cards", [3], ValueError, "cards must divide"),
        ("overlap", [1.0], ValueError),
    ),
    *good(CLUSTER.route, source=0, target=7, size=1.0).refuses(
        ("target", [8], ValueError, "0 to 7")
    ),
    *good(Link, latency=0.0, bandwidth=5.0).refuses(
        ("bandwidth", [-5.0, 0], ValueError, "bandwidth must be finite and above 0"),
        ("latency", [-1e-6], ValueError),
    ),
    *(
        row
        for name in ("naive", "ring", "half_ring", "tree", "halving_doubling")
        for row in good(getattr(collectives, f"{name}_seconds"), **SENT).refuses(
            ("size", NO_SIZES, ValueError), *no_count(MANY)
        )
    ),
    *good(collectives.halving_doubling_seconds, **SENT).refuses(
        ("n", [6], ValueError, "power of two")
    ),
    *(
        row
        for name in ("hierarchical", "trees_across")
        for row in good(
            getattr(collectives, f"{name}_seconds"), cluster=CLUSTER, size=8.0
        ).refuses(("size", NO_SIZES, ValueError, "size must be finite", "got {!r}"))
    ),
    *(
        row
        for name in ("double_tree", "switch")
        for row in good(getattr(collectives, f"{name}_messages"), **CUT).refuses(
            ("pieces", [0, 10**9, MANY], ValueError),
            ("size", NO_SIZES, ValueError),
            *no_count(MANY),
        )
    ),
    *good(collectives.double_tree_messages, **CUT, late=0).refuses(
        ("late", [-1, math.nan], ValueError)
    ),
    *good(collectives.double_tree_parents, n=4).refuses(*no_count(MANY)),
    *good(collectives.switch_seconds, size=8.0, link=LINK, pieces=1).refuses(
        ("pieces", [0, MANY], ValueError), ("size", NO_SIZES, ValueError)
    ),
    *good(
        steps.Layers, count=2, forward=1.0, backward=2.0, gradients=1, activations=1
    ).refuses(
        ("count", [0], ValueError, "count must be at least 1"),
        ("count", [2.5, True], TypeError),
        ("forward", [-1.0], ValueError),
        ("update", [math.inf], ValueError),
        ("gradients", ["a"], TypeError),
    ),
    *good(
        steps.pipelined,
        layers=steps.Layers(24, 1e-3, 2e-3, 1e8, 1e7),
        cluster=CLUSTER,
        plan=gpipe(4, 4),
        needs=needs,
    ).refuses(("cluster", [Cluster(3, 2, LINK, LINK)], ValueError, "divide")),
    *good(
        transformer.works_of,
        run=RUN,
        hardware=transformer.Hardware(),
        plan=gpipe(RUN.stages, RUN.accumulation),
        needs=needs,
    ).refuses(
        ("plan", [gpipe(4, 2)], ValueError, "2 stages and 1 micro-batches, got 4 and")
    ),
]
SETTING = Setting(MODEL, MACHINE, 64)
STORED = memory.Stored(2, 1.0, 1.0, 1.0, 1.0, 1.0)
# Each beside a plan of 8 devices, two of which share each layer, in two stages.
PLANS = [
    *((n, [0, -1], ValueError) for n in ("devices", "layerwise", "stages", "copies")),
    ("micro_batches", [0], ValueError),
    ("micro_batches", [math.nan, 1.5, "2", None], TypeError),
    ("zero", [-1, 7], ValueError, "zero must be from 0 to 3, got {!r}"),
    ("recompute", [9], ValueError, "recompute must be from 0 to"),
    ("stages", [3], ValueError, "layerwise x stages must divide devices"),
    ("copies", [3], ValueError, "copies must divide the 2 replicas, got 3"),
]
NO_JOBS = [
    ("jobs", [[Job("a", 1, math.nan, 1.0)]], ValueError, "jobs[0].seconds must be"),
    ("jobs", [[JOBS[0], Job("b", 1, 1.0, -1.0)]], ValueError, "jobs[1].dollars_an"),
    ("jobs", [[Job("a", 0, 1.0, 1.0)]], ValueError, "jobs[0].devices must be"),
]
CHOSEN = [
    *good(Model, **vars(MODEL)).refuses(
        ("layers", [0], ValueError),
        ("parameters", [math.nan], ValueError),
        ("flops", ["1"], TypeError),
    ),
    *good(lambda **change: replace(MACHINE, **change), memory=1e9).refuses(
        ("memory", [0], ValueError),
        ("price", [-1], ValueError),
        ("cluster", [BUS], ValueError, "bus"),
    ),
    *good(Setting, model=MODEL, machine=MACHINE, batch=256, goal=GOALS[0]).refuses(
        ("batch", [1.0], TypeError),
        ("batch", [10**10], ValueError, "batch must be at most"),
        ("goal", ["fame"], ValueError),
    ),
    *good(divisors, number=12).refuses(
        ("number", [0, 10**18, MANY], ValueError), ("number", [1.5], TypeError)
    ),
    *(
        row
        for part in (forecast.seconds, forecast.memory)
        for row in good(
            lambda part=part, **plan: part(SETTING, Layout(**plan)),
            devices=8,
            layerwise=2,
            stages=2,
            micro_batches=2,
            zero=0,
            copies=1,
            recompute=0,
        ).refuses(*PLANS, ("devices", [64], ValueError, "devices must be from 1 to 8"))
    ),
    *good(
        lambda **plan: memory.held(STORED, Layout(**plan), 1),
        devices=8,
        layerwise=2,
        stages=2,
        micro_batches=2,
        zero=0,
        copies=1,
        recompute=0,
    ).refuses(*PLANS),
    *good(
        lambda **heads: Shape(2, 8, 16, True, **heads).parameters, heads=8, kv_heads=2
    ).refuses(
        ("heads", [0], ValueError),
        ("kv_heads", [0, -1], ValueError),
        ("kv_heads", [3, 16], ValueError, "kv_heads must divide the 8 heads, got {!r}"),
        ("kv_heads", [2.0], TypeError),
    ),
    *good(hunt, chapter="pipeline", number=1).refuses(
        ("chapter", [5, None], TypeError, "chapter must be the name of a page, got"),
        ("chapter", ["nothing"], ValueError, "chapter must be one of"),
        ("number", [True, 1.0, "x", math.nan], TypeError, "whole number, got {!r}"),
        ("number", [0, 99], ValueError, "number must be from 1 to"),
    ),
    *good(cost.best_for, jobs=JOBS, waiting=1.0).refuses(
        ("jobs", [[]], ValueError),
        ("waiting", [math.nan, math.inf, -1.0], ValueError),
        *NO_JOBS,
    ),
    *good(cost.worth_from, jobs=JOBS).refuses(("jobs", [[]], ValueError), *NO_JOBS),
    *good(
        cost.energy_dollars, job=JOBS[0], watts=500.0, cents=10.0, overhead=1.0
    ).refuses(
        ("watts", [math.nan, -5.0], ValueError),
        ("cents", [math.inf], ValueError),
        ("overhead", [-1.0], ValueError),
        ("job", [Job("a", 1, math.nan, 1.0)], ValueError, "seconds must be finite"),
    ),
    *good(cost.billed, seconds=600.0, unit=3600.0).refuses(
        ("seconds", [math.inf, math.nan, -1.0], ValueError),
        ("unit", [0, math.nan, -1], ValueError),
        ("unit", ["h"], TypeError),
    ),
    *good(cost.spot_dollars, dollars_an_hour=1.0, goodput=0.5).refuses(
        ("goodput", [0.0], ValueError, "must be")
    ),
    *good(cost.steps_to_goal, batch=100, least_steps=1000, critical_batch=100).refuses(
        ("batch", [0], ValueError, "must be")
    ),
    *good(formulas.scaling, **SCALED).refuses(
        ("devices", [0], ValueError, "devices must be at least 1"),
        ("at_once", [0], ValueError),
        ("at_once", [1.5], TypeError),
        ("batch", [0], ValueError),
        ("devices", [12], ValueError, "devices must divide the batch"),
        ("batch", [250], ValueError, "devices must divide the batch"),
    ),
    *good(formulas.memory, **HELD, precision="mixed", recompute=False).refuses(
        ("batch", [64], ValueError, "batch must be a multiple"),
        ("precision", ["x"], ValueError, "one of float32, mixed, got 'x'"),
        *((name, [0], ValueError) for name in ("kept", "layers", "devices", "batch")),
        *((name, [math.nan], ValueError) for name in ("parameters", "capacity")),
        ("micro_batches", [1.5], TypeError),
    ),
    *good(formulas.spending, **SPENT).refuses(
        *((n, [0, math.nan], ValueError) for n in ("use", "goodput", "hours", "years")),
        *((n, [1.5], ValueError) for n in ("use", "goodput", "efficiency")),
        *((n, [-1.0], ValueError) for n in ("price", "watts", "cents", "waiting")),
        *((n, [0], ValueError) for n in ("devices", "at_once")),
        ("speedups", ["x"], ValueError, "speedups must be one of own, epochs"),
    ),
    *good(page.show, claims=[], caption="None.", name="none").refuses(
        ("claims", [[]], ValueError, "needs claims")
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
