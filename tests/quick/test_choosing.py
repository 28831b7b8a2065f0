"""The rule, its forecasts and what things cost; held against a loop and a search."""

from __future__ import annotations

import datetime
import functools
import itertools
import json
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as slow
from hypothesis import strategies as st

from manygpu.__main__ import main
from manygpu.choosing import command, cost, forecast, pages, search, settings, tree
from manygpu.choosing import prices as prices_module
from manygpu.choosing.cost import Job
from manygpu.choosing.prices import prices
from manygpu.choosing.setting import GOALS, Machine, Model, Plan, Setting
from manygpu.simulate.cluster import LINKS, Cluster, Link
from manygpu.trace.spans import length
from tests.quick.test_simulate import Op, Slot, needs, simulate

NEAR = 0.05  # of the best: what the rule may lose


def one_forward_one_backward(p: int, m: int) -> list[Slot]:
    """1F1B, written here a second time: the chapter's needs TensorFlow."""
    orders = []
    for s in range(p):
        ahead = min(p - 1 - s, m)
        order = [Op("F", s, i) for i in range(ahead)]
        for i in range(m):
            order += [Op("F", s, ahead + i)] if ahead + i < m else []
            order.append(Op("B", s, i))
        orders.append(order)
    plan, done, tick = [], set(), 0
    while any(orders):
        ready = [
            (s, order.pop(0))
            for s, order in enumerate(orders)
            if order and done.issuperset(needs(order[0], p))
        ]
        plan += [Slot(s, tick, op) for s, op in ready]
        done |= {op for _, op in ready}
        tick += 1
    return plan


def played(setting: Setting, plan: Plan) -> float:
    """A step's seconds, event by event."""
    works = forecast.agenda(setting, plan, one_forward_one_backward, needs)
    return length(simulate(works))


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
    model = Model("any", draw(st.sampled_from([2, 4, 6, 12])), *sizes)
    rates = [draw(powers(*ends)) for ends in ((12, 14.6), (11, 12.5), (-6, -4))]
    machine = Machine(cluster, 1e12, *rates)
    setting = Setting(model, machine, draw(st.sampled_from([8, 12, 36])))
    found = search.plans(setting)
    small = np.flatnonzero(found.stages * found.micro_batches <= 64)
    return setting, search.one_of(found, draw(st.sampled_from(small.tolist())))


@slow(max_examples=80, deadline=None)
@given(asked())
def test_a_forecast_is_what_the_loop_plays(question):
    setting, plan = question
    said = forecast.seconds(setting, plan)
    assert said == pytest.approx(played(setting, plan), rel=1e-9)


def setting_on(
    cluster="8, NVLink", device="80 GB", model="1.5 B", batch=256, goal="time"
):
    machine = settings.machine(cluster, device)
    return Setting(settings.MODELS[model], machine, batch, goal)


def test_what_a_device_holds():
    setting = setting_on()
    model = setting.model
    state = 16 * model.parameters
    whole = forecast.memory(setting, Plan(8))
    assert whole == pytest.approx(state + 32 * model.kept)
    again = forecast.memory(setting, Plan(8, recompute=True))
    kept = 32 * (model.layers * model.handed + model.kept / model.layers)
    assert again == pytest.approx(state + kept)
    shard = forecast.memory(setting, Plan(8, sharded=True, micro_batches=32))
    ahead = 2 * 2 * model.parameters / model.layers
    assert shard == pytest.approx(state / 8 + ahead + model.kept)
    stages = forecast.memory(setting, Plan(8, 2, 4, 256))
    assert stages == pytest.approx(state / 8 + 4 * model.kept / 4 / 2)


def test_an_array_of_plans_is_answered_like_each_of_them():
    setting = setting_on("4 x 8, NVLink, Ethernet")
    found = search.plans(setting)
    for of in (forecast.seconds, forecast.memory, forecast.cost):
        together = of(setting, found)
        for i in range(0, len(together), 97):
            alone = of(setting, search.one_of(found, i))
            assert alone == pytest.approx(together[i], rel=1e-12)


def test_the_search_tries_each_plan_once_and_none_that_can_not_be():
    setting = setting_on("4 x 8, NVLink, Ethernet", batch=96)
    found = search.plans(setting)
    rows = list(zip(*(field.tolist() for field in found), strict=True))
    assert len(rows) == len(set(rows)) > 500
    assert (found.data * found.layerwise * found.stages == found.devices).all()
    assert (setting.batch % (found.data * found.micro_batches) == 0).all()
    assert (8 % found.layerwise == 0).all()


# ------------------------------------------------------------------ the rule


@functools.cache
def compared() -> tuple[tuple[str, Setting, Plan | None, Plan | None], ...]:
    """Each setting of the grid, with what the rule and the search say."""
    return tuple(
        (name, setting, tree.count(setting), search.best(setting))
        for name, setting in settings.grid()
    )


def lost(setting: Setting, plan: Plan, best: Plan) -> float:
    """What the rule's plan is worse than the best, as a share."""
    return float(search.score(setting, plan) / search.score(setting, best) - 1)


def test_the_rule_finds_a_plan_wherever_there_is_one():
    assert all((plan is None) == (best is None) for _, _, plan, best in compared())


def test_the_rule_s_plans_fit_and_can_be():
    for name, setting, plan, best in compared():
        if best is not None:
            usable = setting.machine.usable
            assert forecast.memory(setting, plan) <= usable * (1 + 1e-9), name
            assert setting.batch % (plan.data * plan.micro_batches) == 0, name
            assert plan.data * plan.layerwise * plan.stages == plan.devices, name


def test_the_rule_agrees_with_the_search():
    losses = {n: lost(s, p, b) for n, s, p, b in compared() if b is not None}
    assert len(losses) >= 1000
    others = {name: value for name, value in losses.items() if value > NEAR}
    assert len(others) <= 0.05 * len(losses)
    assert set(others) == set(settings.APART), sorted(others.items())


def test_the_rule_agrees_where_it_was_not_made():
    found = [(s, tree.count(s), search.best(s)) for s in settings.drawn(150, seed=2026)]
    losses = [lost(s, p, b) for s, p, b in found if b is not None]
    assert len(losses) >= 90
    assert np.mean(np.array(losses) <= NEAR) >= 0.95


def test_more_plans_are_tried_than_forecast_by_the_rule(monkeypatch):
    setting = setting_on("4 x 8, NVLink, Ethernet", "40 GB", "6.4 B")
    asked_for, plain = [], tree.score

    def counted(setting, plan):
        asked_for.append(np.size(plan.devices))
        return plain(setting, plan)

    monkeypatch.setattr(tree, "score", counted)
    tree._on.cache_clear()
    tree.count(setting)
    assert sum(asked_for) < len(search.plans(setting).devices) / 4


REACHED = {
    "one device": setting_on("8, NVLink", "80 GB", "LeNet", 32),
    "data": setting_on("8, PCIe", "40 GB", "1.5 B", 256),
    "sharded": setting_on("8, NVLink", "80 GB", "6.4 B", 1024),
    "layerwise": setting_on("8, NVLink", "16 GB", "6.4 B", 32),
    "pipeline": setting_on("4, PCIe", "40 GB", "0.3 B", 32),
    "layerwise and pipeline": setting_on(
        "16 x 8, NVLink, InfiniBand", "80 GB", "13 B", 32
    ),
    "nothing fits": setting_on("1 GPU", "16 GB", "13 B", 32),
}


@pytest.mark.parametrize("leaf", tree.LEAVES)
def test_each_leaf_is_reached(leaf):
    assert tree.choose(REACHED[leaf]).leaf == leaf


def test_the_grid_reaches_each_leaf():
    found = Counter(tree.leaf_of(plan) for _, _, plan, _ in compared())
    assert set(found) == set(tree.LEAVES)


@pytest.mark.parametrize("goal", GOALS)
def test_each_goal_gets_what_it_asks_for(goal):
    settings_ = [setting_on("8, PCIe", "40 GB", "1.5 B", 256, g) for g in GOALS]
    found = {s.goal: tree.choose(s) for s in settings_}
    value = {
        "time": lambda c: c.seconds,
        "money": lambda c: c.cost,
        "fits": lambda c: c.plan.devices,
    }[goal]
    assert value(found[goal]) == min(map(value, found.values()))


def test_a_choice_says_why_and_where():
    found = tree.choose(REACHED["layerwise and pipeline"])
    assert len(found.reasons) >= 4
    assert all(any(c.isdigit() for c in reason.answer) for reason in found.reasons[:2])
    there = {path for paths in tree.LEAVES.values() for path in paths}
    there |= set(tree.ALSO.values())
    book = prices_module.FILE.parents[3] / "book"
    assert all((book / f"{path}.ipynb").exists() for path in there)
    assert set(found.chapters) <= there


def test_a_choice_changes_nothing_and_is_the_same_twice():
    setting = REACHED["pipeline"]
    assert tree.choose(setting) == tree.choose(replace(setting))


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: Model("x", 0, 1, 1, 1, 1), "layers"),
        (lambda: Model("x", 2, math.nan, 1, 1, 1), "parameters"),
        (lambda: Model("x", 2, 1, "1", 1, 1), "flops"),
        (lambda: replace(setting_on().machine, memory=0), "memory"),
        (lambda: replace(setting_on().machine, price=-1), "price"),
        (lambda: setting_on(batch=1.0), "batch"),
        (lambda: setting_on(goal="fame"), "goal"),
        (
            lambda: replace(
                setting_on().machine,
                cluster=Cluster(1, 2, LINKS["PCIe 5"], LINKS["PCIe 5"], bus=True),
            ),
            "bus",
        ),
    ],
)
def test_a_setting_that_can_not_be_is_refused(make, said):
    with pytest.raises((TypeError, ValueError), match=said):
        make()


# --------------------------------------------------------------------- money

JOBS = [Job("one", 1, 3600, 2.5), Job("two", 2, 1900, 5.0), Job("four", 4, 1100, 10.0)]
JOBS.append(Job("eight", 8, 700, 20.0))


def test_the_guide_s_bill():
    assert [round(job.dollars, 2) for job in JOBS] == [2.5, 2.64, 3.06, 3.89]
    edge = cost.worth_from(JOBS)
    assert [job.name for _, job in edge] == ["one", "two", "four", "eight"]
    found = [round(waiting, 2) for waiting, _ in edge]
    assert found == [0.0, 0.29, 1.88, 7.5]


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


def test_other_costs():
    assert cost.billed(1, 60) == 60 and cost.billed(60, 60) == 60
    assert cost.spot_dollars(1.0, 0.5) == 2.0
    assert cost.steps_to_goal(100, 1000, 100) == 2000
    job = Job("eight", 8, 7200, 1.0)
    assert cost.energy_dollars(job, 500, 10, 1.5) == pytest.approx(1.2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: cost.best_for([], 1.0),
        lambda: cost.spot_dollars(1.0, 0.0),
        lambda: cost.steps_to_goal(0, 1, 1),
    ],
)
def test_costs_that_can_not_be_are_refused(make):
    with pytest.raises(ValueError, match="must be|empty"):
        make()


def test_each_price_has_a_day_and_a_source():
    assert len(prices()) >= 10
    for price in prices():
        assert price.source.startswith("https://")
        assert datetime.date(2020, 1, 1) < price.date <= datetime.date(2026, 11, 22)
        assert 0.05 < price.each < 20


@pytest.mark.parametrize(
    "old, new",
    [
        ("https://", "see "),
        ("on demand", "maybe"),
        (",24.48,", ",0,"),
        ("-11-", "/11/"),
    ],
)
def test_a_price_without_them_is_refused(old, new, tmp_path, monkeypatch):
    text = prices_module.FILE.read_text(encoding="utf-8")
    file = tmp_path / "prices.csv"
    file.write_text(text.replace(old, new), encoding="utf-8")
    monkeypatch.setattr(prices_module, "FILE", file)
    with pytest.raises(ValueError, match=r"can't be right|isoformat"):
        prices.__wrapped__()


# ------------------------------------------------------- command, and pages

GIVEN = {"layers": 24, "parameters": 3e8, "flops": 3e11, "handed": 1e6, "kept": 4e8}
GIVEN |= {"batch": 64, "gpus": 8, "inside": "NVLink 4", "memory": 80e9, "rate": 3e14}


def words(given: dict) -> list[str]:
    said = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    return ["choose", *said]


def test_the_command_says_what_the_rule_says(capsys):
    assert main(words(GIVEN)) == 0
    choice = tree.choose(command.setting_of(GIVEN))
    out = capsys.readouterr().out
    assert choice.plan.words in out
    assert all(reason.answer in out for reason in choice.reasons)


def test_the_command_reads_a_file_and_writes_json(tmp_path, capsys):
    file = tmp_path / "bench.json"
    of_file = GIVEN | {"inside": [1e-5, 1e10], "goal": "fits"}
    file.write_text(json.dumps({"choose": of_file, "times": []}), encoding="utf-8")
    asked = ["choose", "--file", str(file), "--goal", "money", "--json"]
    assert main(asked) == 0
    found = json.loads(capsys.readouterr().out)
    expected = tree.choose(command.setting_of(of_file | {"goal": "money"}))
    assert found == json.loads(json.dumps(command.as_json(expected)))


def test_what_is_said_of_a_number_goes_when_another_is_given(tmp_path, capsys):
    file = tmp_path / "bench.json"
    how = {"rate": "as measured", "inside": "as assumed"}
    file.write_text(json.dumps(GIVEN | {"how": how}), encoding="utf-8")
    assert main(["choose", "--file", str(file), "--rate", "1e14"]) == 0
    out = capsys.readouterr().out
    assert "inside: as assumed" in out and "as measured" not in out


def test_the_command_says_that_nothing_fits(capsys):
    assert main(words(GIVEN | {"memory": 1e8})) == 1
    assert "Nothing fits" in capsys.readouterr().out


@pytest.mark.parametrize(
    "given_, said",
    [
        ({"memory": None}, "missing: memory; give --memory"),
        ({"inside": "string"}, "--inside must be one of NVLink 4"),
        ({"inside": "1e-6,0"}, "--inside must be one of"),
        ({"across": "1e-6"}, "--across must be one of"),
        ({"batch": 0}, "--batch must be"),
        ({"rate": "nan"}, "--rate must be finite"),
        ({"cards": 3}, "--cards must divide"),
        ({"file": "nowhere.json"}, "--file nowhere.json can't be read"),
    ],
)
def test_the_command_refuses_what_it_can_not_use(given_, said, capsys):
    given_ = {k: v for k, v in (GIVEN | given_).items() if v is not None}
    assert main(words(given_)) == 2
    printed = capsys.readouterr()
    assert f"manygpu choose: {said}" in printed.err and printed.out == ""


@pytest.mark.parametrize("given_", [{"layers": "2.5"}, {"goal": "fame"}, {"speed": 4}])
def test_what_can_not_be_read_is_refused(given_, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words(GIVEN | given_))
    assert ended.value.code == 2
    assert next(iter(given_)) in capsys.readouterr().err


@pytest.mark.parametrize(
    "content, said",
    [
        ("[1]", "must hold an object"),
        ("{", "can't be read"),
        (json.dumps(GIVEN | {"layer": 3}), "mean nothing here: ['layer']"),
        (json.dumps(GIVEN | {"layers": 2.5}), "--layers must be a whole number"),
        (json.dumps(GIVEN | {"kept": "much"}), "--kept must be a number"),
        (json.dumps(GIVEN | {"goal": "fame"}), "--goal must be one of"),
        (
            json.dumps(GIVEN | {"kept": None, "missing": {"kept": "no shape"}}),
            "missing: kept (no shape); give --kept",
        ),
    ],
)
def test_a_file_that_can_not_be_used_is_refused(content, said, tmp_path, capsys):
    file = tmp_path / "a.json"
    file.write_text(content, encoding="utf-8")
    assert main(["choose", "--file", str(file)]) == 2
    assert said in capsys.readouterr().err


def test_help_tells_each_option_its_unit_and_default(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["choose", "--help"])
    assert ended.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Exit status: 0 a plan was found, 1 nothing fits, 2 bad arguments" in said
    for name, option in command.NUMBERS.items():
        end = "needed" if option.default is None else f"default: {option.default:g}"
        assert f"--{name} N {option.about}; {end}" in said


def test_pages_get_the_package_s_own_numbers():
    rows = {
        (r["model"], r["cluster"], r["batch"], r["devices"]): r for r in pages.scaling()
    }
    setting = setting_on("8, PCIe", "40 GB", "ResNet-50", 256)
    row = rows["ResNet-50", "8, PCIe", 256, 8]
    assert row["seconds"] == forecast.seconds(setting, Plan(8))
    assert row["efficiency"] == pytest.approx(row["speedup"] / 8)
    # The example of the ZeRO paper: 7.5 billion parameters, 64 devices.
    found = [pages.state_bytes(7.5e9, 64, "mixed", zero) / 1e9 for zero in range(4)]
    assert found == pytest.approx([120, 31.4, 16.6, 1.9], abs=0.05)
    examples = pages.examples(setting, 37)
    for row in examples:
        plan = Plan(*itertools.islice(row.values(), len(Plan._fields)))
        assert row["seconds"] == pytest.approx(forecast.seconds(setting, plan))


def test_pages_tables_are_json():
    found = {name: getattr(pages, name)() for name in ("scaling", "memory")}
    assert json.loads(json.dumps(found)) == found
