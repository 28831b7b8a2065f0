"""What the simulator, the chooser and its costs refuse; without TensorFlow."""

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
from tests.refusals import good

LINK = Link(10e-6, 5e9)
CLUSTER = Cluster(2, 4, LINK, LINK)
MACHINE = Machine(CLUSTER, 80e9, 3e14)
MODEL = Model("x", 2, 1.0, 1.0, 1.0, 1.0)
RUN = published.runs()[0].run
BUS = Cluster(1, 2, LINKS["PCIe 5"], LINKS["PCIe 5"], bus=True)
SENT = {"n": 4, "size": 8.0, "link": LINK}
CUT = {"n": 4, "size": 8.0, "pieces": 1}

SIMULATED = [
    *good(simulate, works=[Work("a", ("x",), 1.0)]).refuses(
        ("works", [[]], ValueError, "works is empty"),
        ("works", [[Work("a", ("x",), 1.0, after=(0,))]], ValueError),
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
    *good(collectives.ring_seconds, **SENT).refuses(("size", [-8.0], ValueError)),
    *good(collectives.halving_doubling_seconds, **SENT).refuses(
        ("n", [6], ValueError, "power of two")
    ),
    *good(collectives.double_tree_messages, **CUT).refuses(("pieces", [0], ValueError)),
    *good(collectives.switch_messages, **CUT).refuses(("pieces", [0], ValueError)),
    *good(collectives.switch_seconds, size=8.0, link=LINK, pieces=1).refuses(
        ("pieces", [0], ValueError)
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
    *good(cost.best_for, jobs=JOBS, waiting=1.0).refuses(("jobs", [[]], ValueError)),
    *good(cost.worth_from, jobs=JOBS).refuses(("jobs", [[]], ValueError)),
    *good(cost.spot_dollars, dollars_an_hour=1.0, goodput=0.5).refuses(
        ("goodput", [0.0], ValueError, "must be")
    ),
    *good(cost.steps_to_goal, batch=100, least_steps=1000, critical_batch=100).refuses(
        ("batch", [0], ValueError, "must be")
    ),
    *good(formulas.scaling, **SCALED).refuses(
        ("devices", [12], ValueError, "devices must divide the batch"),
        ("batch", [250], ValueError, "devices must divide the batch"),
    ),
    *good(formulas.memory, **HELD, precision="mixed", recompute=False).refuses(
        ("batch", [64], ValueError, "batch must be a multiple")
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
