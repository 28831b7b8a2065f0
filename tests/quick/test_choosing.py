"""The search, its forecasts and what things cost; held against a loop, and counted."""

from __future__ import annotations

import datetime
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as slow
from hypothesis import strategies as st

from manygpu.choosing import cost, forecast, formulas, presets, search, tables
from manygpu.choosing.cost import Job
from manygpu.choosing.prices import prices
from manygpu.choosing.question import Machine, Model, Setting
from manygpu.costs import seconds as costs
from manygpu.costs.layout import ALL, ATTENTION, NOTHING, SELECTIVE, Layout
from manygpu.costs.shape import Shape
from manygpu.scratch.beyond.whole_cluster import simulate
from manygpu.scratch.splitting.pipeline import needs, one_forward_one_backward
from manygpu.scratch.splitting.smaller_bubble import interleaved
from manygpu.simulate.cluster import LINKS, Cluster, Link
from manygpu.trace.spans import length
from workshop.pages import ROOT


def played(setting: Setting, plan: Layout) -> float:
    """A step's seconds, event by event."""
    order = interleaved if plan.chunks > 1 else one_forward_one_backward
    return length(simulate(forecast.agenda(setting, plan, order, needs)))


# ----------------------------------------------------------------- forecasts


def powers(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high).map(lambda exponent: 10**exponent)


LINK_SETS = st.builds(Link, powers(-6, -4), powers(8.5, 11.5))


@st.composite
def asked(draw):
    """A setting, and one of its plans that is quick to play."""
    gpus, nodes = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 1, 2, 4]))
    cards = draw(st.sampled_from([1, gpus]))
    cluster = Cluster(nodes, gpus, draw(LINK_SETS), draw(LINK_SETS), cards)
    sizes = [draw(powers(*ends)) for ends in ((6, 10), (8, 13), (3, 8), (5, 9))]
    shape = draw(st.sampled_from([None, Shape(12, 64, 256, True, 100, 64, heads=8)]))
    layers = 12 if shape else draw(st.sampled_from([1, 2, 4, 6, 12]))
    model = Model("any", layers, *sizes, shape=shape)
    rates = [draw(powers(*ends)) for ends in ((12, 14.6), (11, 12.5), (-6, -4))]
    machine = Machine(cluster, 1e12, *rates)
    setting = Setting(model, machine, draw(st.sampled_from([8, 12, 36])))
    found = search.layouts(setting)
    works = found.stages * found.micro_batches * found.chunks
    small = np.flatnonzero(works <= 64)
    return setting, found.at(draw(st.sampled_from(small.tolist())))


@slow(max_examples=80, deadline=None)
@given(asked())
def test_a_forecast_is_what_the_loop_plays(question):
    """Exactly, but where stages are unequal or interleaved, or transfers sharded."""
    setting, plan = question
    over = forecast.seconds(setting, plan) / played(setting, plan) - 1
    if plan.chunks > 1:
        # Passes are exact; gradients of early chunks hide better than is said.
        assert -0.01 <= over <= (0.2 if plan.data > 1 else 1e-9)
    elif setting.model.layers % plan.stages:
        assert abs(over) <= 0.1
    else:
        # One draw in tens of thousands has shown 5.4%: tiny layers, two copies.
        assert abs(over) <= (0.06 if plan.zero == 3 else 1e-9)


# Slow enough links that messages are worth as much as turns: there it is off the most.
UNEQUAL = [
    (layers, stages, micro_batches)
    for layers in range(3, 13)
    for stages in range(2, 8)
    for micro_batches in (1, 2, 3, 8, 16, 32, 64)
    if stages < layers and layers % stages and stages * micro_batches <= 256
]


@pytest.mark.parametrize("handed", [1e5, 3e5, 1e6, 3e6])
def test_unequal_stages_are_said_within_two_percent(handed):
    """Where all turns were the slowest stage's, this would be 31% too much.

    With messages as long as turns, or longer, it may say up to 9% too much.
    """
    link = Link(0, 1e9)
    over = {}
    for layers, stages, m in UNEQUAL:
        model = Model("any", layers, 1e6, 1e9, handed, 1e5)
        cluster = Cluster(1, stages, link, link)
        setting = Setting(model, Machine(cluster, 8e10, 1e12), 64)
        plan = Layout(stages, stages=stages, micro_batches=m)
        said = forecast.seconds(setting, plan) / played(setting, plan) - 1
        over[layers, stages, m] = said
        most = 0.09 if handed >= 1e6 else 0.002 if m > 2 else 0.02
        assert -0.02 <= said <= most, (layers, stages, m)
    assert len(over) == len(UNEQUAL) > 150
    exact = np.abs([*over.values()]) < 1e-9
    assert np.mean(exact) > (0.9 if handed == 1e5 else 0.5)


@slow(max_examples=40, deadline=None)
@given(
    st.sampled_from([(2, 2), (2, 4), (4, 2), (4, 3)]),
    st.sampled_from([1, 2, 3]),
    st.booleans(),
    st.tuples(powers(3, 8), powers(9, 13), powers(6, 9)),
)
def test_interleaved_stages_take_what_the_loop_plays(cut, n, more, sizes):
    """(p - 1) / v of a turn for the bubble, v hops for one, as the loop has it."""
    (p, v), (handed, flops, parameters) = cut, sizes
    model = Model("any", p * v * n, parameters, flops, handed, 1e5)
    link = Link(1e-6, 1e11)
    setting = Setting(model, Machine(Cluster(1, p, link, link), 8e10, 1e13), 64)
    m = p * (2 if more else 1)
    plan = Layout(p, stages=p, micro_batches=m, chunks=v)
    made = forecast.pieces(setting, plan)
    if not costs.queues(made, plan):
        said = forecast.seconds(setting, plan)
        assert said == pytest.approx(played(setting, plan), rel=1e-9)
        bubble = (p - 1) / v * made.turn
        hops = 2 * (p * v - 1) * (made.hop + made.late)
        update = model.layers / p * made.update
        assert said == pytest.approx(m * made.turn + bubble + hops + update)


def test_messages_that_queue_between_chunks_are_not_offered():
    """On a slow link a chunk's message takes longer than its passes."""
    fast, slow_ = (
        setting_on("4 x 8, NVLink, InfiniBand", "80 GB", "13 B", 512),
        setting_on("4 x 8, PCIe, Ethernet", "80 GB", "0.3 B", 512),
    )
    assert (search.layouts(fast).chunks > 1).sum() > 0
    for setting in (fast, slow_):
        found = search.layouts(setting)
        assert not np.any(costs.queues(forecast.pieces(setting, found), found))
    plan = Layout(32, stages=8, micro_batches=64, chunks=3)
    assert costs.queues(forecast.pieces(slow_, plan), plan)
    assert not costs.queues(forecast.pieces(slow_, plan), plan._replace(chunks=1))


def test_what_is_recomputed_in_part_costs_the_bytes_between_products():
    setting = setting_on("8, NVLink", "80 GB", "6.4 B", 256)
    passes = {
        kind: forecast.passes(setting, Layout(8, recompute=kind))
        for kind in (NOTHING, SELECTIVE, ALL)
    }
    nothing, part, all_ = (float(b - 2 * f) for f, b in passes.values())
    assert nothing == 0 < part < 0.1 * all_
    shape = setting.model.shape
    samples = 256 / 8
    # GPT: two norms' results and two masks (6 h), GELU's result (2 x 4 h).
    moved = 2 * samples * shape.sequence * (6 + 8) * shape.hidden
    assert part == pytest.approx(moved / setting.machine.bandwidth)


@pytest.mark.parametrize("bandwidth", [1e12, 1e10])
@pytest.mark.parametrize("plan", [Layout(4, zero=zero) for zero in range(4)])
@pytest.mark.parametrize("layers", range(1, 6))
def test_whichever_chain_is_the_longest_the_forecast_has_it(plan, layers, bandwidth):
    """From sums that are longer than all passes to sums that hide; slow updates."""
    link = Link(1e-6, 1e11)
    machine = Machine(Cluster(1, 4, link, link), 8e10, 1e13, bandwidth)
    sums = 2 * 3 * (1e-6 + 4 * 1e9 / 4 / 1e11)  # of a layer, by a ring
    for passes in (0.1, 0.3, 0.6, 0.9, 1.5, 4.0):  # a backward pass, in sums
        work = passes * sums / 2 * machine.rate * 4 / 64
        model = Model("any", layers, layers * 1e9, layers * work, 1.0, 1.0)
        setting = Setting(model, machine, 64)
        for m, again in itertools.product((1, 2), (NOTHING, ALL)):
            one = plan._replace(micro_batches=m, recompute=again)
            said = forecast.seconds(setting, one)
            assert said == pytest.approx(played(setting, one), rel=1e-9), (passes, one)


def test_copies_of_what_is_sharded_save_gathers_between_machines():
    """A gather stays in its machine; sums go to the other ones in parts."""
    setting = setting_on("4 x 8, NVLink, InfiniBand", "80 GB", "6.4 B", 1024)
    one, copies = Layout(32, zero=3), Layout(32, zero=3, copies=4)
    made = [forecast.pieces(setting, layout) for layout in (one, copies)]
    assert made[1].gather < 0.6 * made[0].gather
    assert made[1].sums > made[1].gather  # and all-reduced among the copies
    parts = [forecast.parts(setting, layout) for layout in (one, copies)]
    assert sum(parts[1]) == pytest.approx(forecast.seconds(setting, copies))
    assert all(np.all(np.asarray(part) >= 0) for found in parts for part in found)


def test_attention_that_is_computed_again_costs_its_share():
    setting = setting_on("8, NVLink", "80 GB", "6.4 B", 256)
    passes = {
        kind: forecast.passes(setting, Layout(8, recompute=kind))
        for kind in (NOTHING, ATTENTION, ALL)
    }
    again = {kind: float(b / f) - 2 for kind, (f, b) in passes.items()}
    assert again[NOTHING] == 0 and again[ALL] == 1
    shape = setting.model.shape
    scores = 2 * 2 * shape.sequence * shape.hidden  # FLOPs a token, forward
    assert again[ATTENTION] == pytest.approx(scores / (scores + 2 * shape.layer))


def test_an_update_moves_the_bytes_that_the_page_says():
    """The loop is told the seconds of an update, so it can't tell them itself."""
    setting = setting_on()
    bytes_moved = 30 * setting.model.parameters / setting.model.layers
    assert forecast.update_seconds(setting) == bytes_moved / setting.machine.bandwidth
    text = (ROOT / "book/choosing/calculators.ipynb").read_text(encoding="utf-8")
    assert "the update moves 30 bytes per parameter" in text


def setting_on(
    cluster="8, NVLink", device="80 GB", model="1.5 B", batch=256, goal="time"
):
    return presets.setting(model, cluster, device, batch, goal)


def test_what_a_device_holds():
    setting = setting_on()
    model = replace(setting.model, shape=None)  # a chain of equal layers
    setting = replace(setting, model=model)
    state = 16 * model.parameters
    whole = forecast.memory(setting, Layout(8))
    assert whole == pytest.approx(state + 32 * model.kept)
    again = forecast.memory(setting, Layout(8, recompute=ALL))
    kept = 32 * (model.layers * model.handed + model.kept / model.layers)
    assert again == pytest.approx(state + kept)
    shard = forecast.memory(setting, Layout(8, zero=3, micro_batches=32))
    ahead = 2 * (2 + 2) * model.parameters / model.layers  # parameters and gradients
    assert shard == pytest.approx(state / 8 + ahead + model.kept)
    stages = forecast.memory(setting, Layout(8, 2, 4, 256))
    assert stages == pytest.approx(state / 8 + 4 * model.kept / 4 / 2)


def test_an_array_of_plans_is_answered_like_each_of_them():
    setting = setting_on("4 x 8, NVLink, Ethernet")
    found = search.layouts(setting)
    for of in (forecast.seconds, forecast.memory):
        together = of(setting, found)
        for i in range(0, len(together), 97):
            alone = of(setting, found.at(i))
            assert alone == pytest.approx(together[i], rel=1e-12)


# --------------------------------------------------------------------- money

JOBS = [Job("one", 1, 3600, 2.5), Job("two", 2, 1900, 5.0), Job("four", 4, 1100, 10.0)]
JOBS.append(Job("eight", 8, 700, 20.0))


def test_the_guide_s_bill_and_other_costs():
    assert [round(job.dollars, 2) for job in JOBS] == [2.5, 2.64, 3.06, 3.89]
    edge = cost.worth_from(JOBS)
    assert [job.name for _, job in edge] == ["one", "two", "four", "eight"]
    found = [round(waiting, 2) for waiting, _ in edge]
    assert found == [0.0, 0.29, 1.88, 7.5]
    assert cost.billed(1, 60) == 60 and cost.billed(60, 60) == 60
    assert cost.spot_dollars(1.0, 0.5) == 2.0
    assert cost.steps_to_goal(100, 1000, 100) == 2000
    job = Job("eight", 8, 7200, 1.0)
    assert cost.energy_dollars(job, 500, 10, 1.5) == pytest.approx(1.2)


@slow(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=6),
    st.integers(0, 200),
)
def test_the_lower_edge_is_the_best_everywhere(lines, tenths):
    jobs = [Job(str(i), 1, 3600.0 * h, d) for i, (h, d) in enumerate(lines)]
    waiting = tenths / 10
    job = [job for start, job in cost.worth_from(jobs) if start <= waiting][-1]
    best = cost.best_for(jobs, waiting)
    found = [j.dollars + waiting * j.hours for j in (job, best)]
    assert found[0] == pytest.approx(found[1])


def test_each_price_has_a_day_and_a_source():
    assert len(prices()) >= 10
    for price in prices():
        assert price.source.startswith("https://")
        assert price.terms in ("on demand", "spot") and price.devices > 0
        assert datetime.date(2020, 1, 1) < price.date <= datetime.date(2026, 11, 29)
        assert 0.05 < price.each < 20


# --------------------------------------------------------------------- pages

RESNET = presets.MODELS["ResNet-50"]
SCALED = {name: getattr(RESNET, name) for name in ("parameters", "flops", "kept")}
SCALED |= {"layers": 16, "sent": 4.0, "price": 2.0}
SCALED["rate"], _ = tables.gpu("a100-40").image_rate(RESNET.flops, RESNET.kept)
SCALED |= {"batch": 256, "each": False, "devices": 8}
SCALED |= formulas.link_numbers("8 by NVLink 4, Ethernet 100G between")
SCALED |= {"bandwidth": 1.555e12, "launch": 50e-6, "capacity": 40e9}
SCALED |= {"at_once": 1}


def test_pages_scale_as_the_forecast_says():
    """Inside a machine, and over several, which share a batch or bring their own."""
    setting = setting_on("4 x 8, NVLink, Ethernet", "40 GB", "ResNet-50", 256)
    for n, each in itertools.product((8, 32), (False, True)):
        rows = formulas.scaling(**SCALED | {"devices": n, "each": each})
        assert [row["devices"] for row in rows] == [2**k for k in range(len(rows))]
        row, first = rows[-1], rows[0]
        grown = [256 * row["devices"] if each else 256 for row in rows]
        assert [row["batch"] for row in rows] == grown
        whole = replace(setting, batch=256 * n if each else 256)
        alone = replace(setting, batch=256)
        assert row["seconds"] == pytest.approx(forecast.seconds(whole, Layout(n)))
        speedup = (
            forecast.seconds(alone, Layout(1)) / row["seconds"] * (n if each else 1)
        )
        assert row["speedup"] == pytest.approx(speedup)
        assert row["efficiency"] == pytest.approx(row["speedup"] / n)
        taken = forecast.seconds(whole, Layout(n))
        bill = forecast.dollars(whole, n, taken) * 1e6 / whole.batch
        assert row["dollars"] == pytest.approx(bill)
        assert first["speedup"] == 1


def test_pages_bill_whole_lots():
    """Eight rented at once: one that works is billed as eight, nine as sixteen."""
    assert [cost.billed(n, 8) for n in (1, 7, 8, 9, 16)] == [8, 8, 8, 16, 16]
    plain, lots = (formulas.scaling(**SCALED | {"at_once": n}) for n in (1, 8))
    for one, row in zip(plain, lots, strict=True):
        share = 8 / one["devices"]
        assert row["billed"] == 8 == one["billed"] * share
        assert row["dollars"] == pytest.approx(one["dollars"] * share)
    given = SPENT | {"devices": 16, "at_once": 8, "efficiency": 0.5}
    rows, edge = formulas.spending(**given)
    assert [row["billed"] for row in rows] == [8, 8, 8, 8, 16]
    assert [row["rent"] for row in rows] == pytest.approx([20, 20, 20, 20, 40])
    assert len(edge) == 1


def test_pages_say_whether_a_whole_replica_fits():
    for capacity, fits in ((0.4e9, "no"), (1e9, "in micro-batches"), (40e9, "yes")):
        row = formulas.scaling(**SCALED | {"capacity": capacity})[-1]
        assert row["fits"] == fits
        state = 16 * RESNET.parameters
        assert row["held"] == pytest.approx(state + 32 * RESNET.kept)
        assert row["least"] == pytest.approx(state + RESNET.kept)


def test_pages_leave_out_devices_that_can_not_share():
    rows = formulas.scaling(**SCALED | {"devices": 6, "batch": 18})
    assert [row["devices"] for row in rows] == [1, 2, 6]


HELD = {"parameters": 7.5e9, "layers": 32, "kept": 9e9, "handed": 1.6e7}
HELD |= {"batch": 128, "devices": 64, "micro_batches": 2, "capacity": 80e9}


def test_pages_hold_what_the_zero_paper_says():
    """Its example: 7.5 billion parameters, 64 devices."""
    rows = formulas.memory(**HELD, precision="mixed", recompute=False)
    parts = ("parameters", "gradients", "optimizer")
    state = [sum(row[part] for part in parts) for row in rows]
    assert state == pytest.approx([120e9, 31.4e9, 16.6e9, 1.88e9], rel=4e-3)


def test_the_most_samples_are_counted_one_by_one():
    """Added up by hand: as many samples as still fit beside what is there at none."""
    for zero, row in enumerate(
        formulas.memory(**HELD, precision="mixed", recompute=False)
    ):
        shared = [1, 64][zero > 0], [1, 64][zero > 1], [1, 64][zero > 2]
        state = 7.5e9 * (12 / shared[0] + 2 / shared[1] + 2 / shared[2])
        ahead = 2 * 7.5e9 / 32  # two layers whole: gradients, and parameters
        state += 2 * ahead * (zero > 1) + 2 * ahead * (zero > 2)
        most = 0
        while state + (most + 1) * HELD["kept"] <= 0.9 * 80e9:
            most += 1
        assert row["most"] == most, zero
    assert most > 0


SMALL = {"kept": 1e8, "micro_batches": 1}  # beside a layer, which must have room


@pytest.mark.parametrize("changed", [{}, SMALL | {"capacity": 20e9}, SMALL])
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("precision", formulas.PRECISIONS)
def test_pages_hold_what_the_forecast_says(precision, recompute, changed):
    """It knows two of the stages: nothing is sharded, or all is."""
    given = HELD | changed
    rows = formulas.memory(**given, precision=precision, recompute=recompute)
    sent = formulas.PRECISIONS[precision].weight
    wide = sent / 2  # activations are given in 16 bits
    model = Model("any", 32, 7.5e9, 1.0, wide * 1.6e7, wide * given["kept"], sent=sent)
    machine = Machine(Cluster(8, 8, *[LINKS["PCIe 5"]] * 2), given["capacity"], 1e14)
    for zero in (0, 3):
        row = rows[zero]
        plan = Layout(64, zero=zero, recompute=ALL * recompute)

        def held(samples, plan=plan):
            """With so many samples at once on each device."""
            return forecast.memory(Setting(model, machine, 64 * samples), plan)

        at_once = 128 // 64 // given["micro_batches"]
        assert row["total"] == pytest.approx(held(at_once))
        assert row["fits"] == (held(at_once) <= machine.usable)
        assert row["most"] == 0 or held(row["most"]) <= machine.usable
        assert held(row["most"] + 1) > machine.usable


@slow(deadline=None)
@given(
    st.sampled_from([*formulas.PRECISIONS]),
    st.booleans(),
    *[st.integers(2, 99)] * 5,
)
def test_a_script_adds_up_what_memory_says(precision, recompute, p, layers, k, h, d):
    given_ = {"parameters": p, "layers": layers, "kept": k, "handed": h, "devices": d}
    names = {"precision": precision, "recompute": recompute}
    rows = formulas.memory(
        **given_, **names, batch=3 * d, micro_batches=3, capacity=50 * p
    )

    for row in rows:
        sums = formulas.memory_terms(**names, zero=row["zero"])
        for part in formulas.PARTS:
            assert row[part] == pytest.approx(worth(sums[part], given_)), part
    assert worth(formulas.replica_terms()["state"], given_) == 16 * p


def test_a_script_adds_up_what_a_step_takes():
    """On one machine, on several, with slow and fast links, with and without launch."""
    found, draw, ends = formulas.step_terms(), np.random.default_rng(0), set()
    for _ in range(60):
        cards, per, nodes = (int(draw.choice(few)) for few in ((1, 2), (1, 4), (1, 8)))
        v = {name: 10 ** draw.uniform(*span) for name, span in REACH.items()}
        v |= {"layers": int(draw.integers(1, 60)), "cards": cards, "gpus": cards * per}
        v |= {"devices": cards * per * nodes, "batch": 1024, "each": False}
        v |= {"launch": float(draw.choice([0, 5e-5])), "kept": 1.0, "sent": 4.0}
        for row in formulas.scaling(**v, capacity=1.0, price=1.0, at_once=1):
            n = row["devices"]
            at = v | {"n": n, "samples": v["batch"] / n, "nodes": n / v["gpus"]}
            at["per"] = per
            far = at | {"latency": v["far_latency"], "link": v["far_link"]}
            sums = [worth(found["ring"], at)]
            if n > v["gpus"]:
                sums = [worth(found["ring"], far), worth(found["levels"], at)]
            at["sums"] = min(sums)
            for name in ("forward", "backward", "update"):
                at[name] = worth(found[name], at)
            chains = [worth(chain, at) for chain in found["chains"]]
            assert row["seconds"] == pytest.approx(max(chains), rel=1e-9)
            ends.add((np.argmax(chains), len(sums)))
    assert {(0, 1), (0, 2), (2, 1), (3, 1), (3, 2)} <= ends  # several chains were tried


REACH = {"parameters": (4, 10), "flops": (6, 13), "latency": (-6, -4), "link": (9, 12)}
REACH |= {"far_latency": (-6, -4), "far_link": (8, 11), "rate": (13, 15)}
REACH |= {"bandwidth": (11, 12.5)}


def worth(terms, values):
    """What a page's script makes of terms."""
    return sum(
        number * math.prod(values[n] for n in up) / math.prod(values[n] for n in down)
        for number, up, down in terms
    )


def test_what_is_no_sum_is_refused():
    with pytest.raises(ValueError, match="don't add up to what is asked"):
        formulas.terms(lambda a: a**2, ["a"])


SPENT = {"price": 2.5, "hours": 1.0, "speedups": "own", "efficiency": 0.9}
SPENT |= {"devices": 8, "goodput": 1.0, "waiting": 0.0, "watts": 0.0, "cents": 0.0}
SPENT |= {"overhead": 1.0, "at_once": 1, "owned": False, "purchase": 0.0}
SPENT |= {"years": 4.0, "use": 0.5}


def test_pages_spend_what_the_costs_say():
    rows, edge = formulas.spending(**SPENT | {"waiting": 3.0, "goodput": 0.5})
    for row in rows:
        job = Job("any", row["devices"], 3600 * row["hours"], 0.0)
        speedup = row["devices"] * 0.9 ** math.log2(row["devices"])
        assert job.hours == pytest.approx(2 / speedup)
        an_hour = cost.spot_dollars(2.5, 0.5) * row["devices"]
        assert row["rent"] == pytest.approx(an_hour / speedup)
        assert row["waiting"] == pytest.approx(3 * job.hours)
        assert row["dollars"] == pytest.approx(row["rent"] + row["waiting"])
    assert [n for _, n in edge] == [1, 2, 4, 8]
    guide, _ = formulas.spending(**SPENT | {"speedups": "epochs", "devices": 4})
    assert [row["hours"] for row in guide] == pytest.approx([1, 1 / 1.9, 1 / 3.4])


def test_pages_add_energy_to_what_is_owned():
    """A purchase is spread over the hours in use; who rents pays no energy."""
    given = SPENT | {"watts": 500.0, "cents": 20.0, "overhead": 1.5}
    assert all(row["energy"] == 0 for row in formulas.spending(**given)[0])
    given |= {"owned": True, "purchase": 4 * 8766 * 0.5 * 2.5, "at_once": 8}
    rows, edge = formulas.spending(**given)
    assert [row["billed"] for row in rows] == [1, 2, 4, 8]
    assert rows[0]["rent"] == pytest.approx(2.5)
    assert rows[0]["energy"] == pytest.approx(0.15)
    jobs = [
        Job("", r["devices"], 3600 * r["hours"], (r["rent"] + r["energy"]) / r["hours"])
        for r in rows
    ]
    expected = [(start, job.devices) for start, job in cost.worth_from(jobs)]
    assert [n for _, n in edge] == [n for _, n in expected]
    assert [s for s, _ in edge] == pytest.approx([s for s, _ in expected])


def test_pages_name_the_fastest_of_what_costs_the_same():
    _, edge = formulas.spending(**SPENT | {"efficiency": 1.0})
    assert edge == [(0.0, 8)]
