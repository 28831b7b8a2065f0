"""The rule, its forecasts and what things cost; held against a loop and a search."""

from __future__ import annotations

import datetime
import functools
import itertools
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as slow
from hypothesis import strategies as st

from manygpu.__main__ import main
from manygpu.choosing import (
    answers,
    command,
    cost,
    forecast,
    formulas,
    presets,
    search,
    tree,
)
from manygpu.choosing import prices as prices_module
from manygpu.choosing.cost import Job
from manygpu.choosing.prices import prices
from manygpu.choosing.question import GOALS, Layout, Machine, Model, Setting
from manygpu.simulate.cluster import LINKS, Cluster, Link
from manygpu.trace.spans import length
from manygpu.widgets import chooser
from tests.quick.test_simulate import Op, Slot, needs, simulate
from workshop.pages import ROOT

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


def played(setting: Setting, plan: Layout) -> float:
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
    model = Model("any", draw(st.sampled_from([1, 2, 4, 6, 12])), *sizes)
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


@pytest.mark.parametrize("bandwidth", [1e12, 1e10])
@pytest.mark.parametrize("plan", [Layout(4), Layout(4, sharded=True)])
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
        for m, again in itertools.product((1, 2), (False, True)):
            one = plan._replace(micro_batches=m, recompute=again)
            said = forecast.seconds(setting, one)
            assert said == pytest.approx(played(setting, one), rel=1e-9), (passes, one)


def test_an_update_moves_the_bytes_that_the_page_says():
    """The loop is told the seconds of an update, so it can't tell them itself."""
    setting = setting_on()
    bytes_moved = 30 * setting.model.parameters / setting.model.layers
    assert forecast.update_seconds(setting) == bytes_moved / setting.machine.bandwidth
    text = (ROOT / "book/choosing/calculators.ipynb").read_text(encoding="utf-8")
    assert "The update moves 30 bytes a parameter" in text


def setting_on(
    cluster="8, NVLink", device="80 GB", model="1.5 B", batch=256, goal="time"
):
    machine = presets.machine(cluster, device)
    return Setting(presets.MODELS[model], machine, batch, goal)


def test_what_a_device_holds():
    setting = setting_on()
    model = setting.model
    state = 16 * model.parameters
    whole = forecast.memory(setting, Layout(8))
    assert whole == pytest.approx(state + 32 * model.kept)
    again = forecast.memory(setting, Layout(8, recompute=True))
    kept = 32 * (model.layers * model.handed + model.kept / model.layers)
    assert again == pytest.approx(state + kept)
    shard = forecast.memory(setting, Layout(8, sharded=True, micro_batches=32))
    ahead = 2 * 2 * model.parameters / model.layers
    assert shard == pytest.approx(state / 8 + ahead + model.kept)
    stages = forecast.memory(setting, Layout(8, 2, 4, 256))
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
def compared() -> tuple[tuple[str, Setting, Layout | None, Layout | None], ...]:
    """Each setting of the grid, with what the rule and the search say."""
    return tuple(
        (name, setting, tree.count(setting), search.best(setting))
        for name, setting in presets.grid()
    )


def lost(setting: Setting, plan: Layout, best: Layout) -> float:
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
    assert set(others) == set(presets.APART), sorted(others.items())


def test_the_rule_agrees_where_it_was_not_made():
    found = [(s, tree.count(s), search.best(s)) for s in presets.drawn(150, seed=2026)]
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


def test_the_chooser_knows_the_title_of_each_chapter_that_the_rule_may_name():
    named = {*itertools.chain(*tree.LEAVES.values()), *tree.ALSO.values()}
    assert set(chooser.CHAPTERS) == named
    for path, title in chooser.CHAPTERS.items():
        text = (ROOT / f"book/{path}.ipynb").read_text(encoding="utf-8")
        first = "".join(json.loads(text)["cells"][0]["source"]).splitlines()[0]
        assert first == f"# {title}"


def test_lenet_has_the_book_s_shapes():
    """Read from the chapter that builds it, since the module needs TensorFlow."""
    code = (ROOT / "manygpu/scratch/start/one_device.py").read_text(encoding="utf-8")
    found = {}
    exec("\n".join(re.findall(r"^SHAPES .*$", code, re.MULTILINE)), found)
    kernels = [shape for shape in found["SHAPES"] if len(shape) > 1]
    assert kernels == [*presets.CONVOLUTIONS, *presets.DENSE]
    model = presets.MODELS["LeNet"]
    assert model.layers == len(kernels) == 4
    assert model.parameters == sum(map(math.prod, found["SHAPES"])) == 129_068


def test_a_choice_changes_nothing_and_is_the_same_twice():
    setting = REACHED["pipeline"]
    assert tree.choose(setting) == tree.choose(replace(setting))


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
        (json.dumps(GIVEN | {"how": [1]}), "how must be an object of texts"),
        (json.dumps(GIVEN | {"how": None}), "how must be an object of texts"),
        (json.dumps(GIVEN | {"how": {"rate": 1}}), "how must be an object of texts"),
        (json.dumps(GIVEN | {"missing": "rate"}), "missing must be an object of texts"),
        (json.dumps(GIVEN | {"batch": 10**400}), "--batch must be at most"),
        (json.dumps(GIVEN | {"rate": 10**400}), "--rate must be at most 1e+30"),
        (json.dumps(GIVEN | {"inside": [1, 10**400]}), "--inside must be one of"),
        (json.dumps(GIVEN | {"inside": {"1": 2, "3": 4}}), "--inside must be one of"),
        (json.dumps(GIVEN | {"layers": 1e308}), "--layers must be at most"),
        (json.dumps(GIVEN | {"flops": 1e308}), "--flops must be at most 1e+30"),
        ("[" * 10**6 + "]" * 10**6, "can't be read: nested too deep"),
        (json.dumps(GIVEN | {"batch": 10**15}), "--batch must be at most"),
        (json.dumps(GIVEN | {"gpus": 10**12}), "--gpus must be at most"),
        (json.dumps(GIVEN | {"nodes": 10**12}), "--nodes must be at most"),
        (json.dumps(GIVEN | {"gpus": 720_720}), "--gpus must be at most"),
    ],
)
def test_a_file_that_can_not_be_used_is_refused(content, said, tmp_path, capsys):
    file = tmp_path / "a.json"
    file.write_text(content, encoding="utf-8")
    assert main(["choose", "--file", str(file)]) == 2
    printed = capsys.readouterr().err
    assert said in printed and len(printed) < 1000


def test_the_largest_question_is_answered():
    """Many divisors everywhere; a billion of samples."""
    links = [LINKS["NVLink 4"]] * 2
    machine = Machine(Cluster(840, 120, *links), 80e9, 3e14, launch=5e-5)
    model = Model("any", 720, 1e12, 1e15, 1e6, 4e8)
    assert tree.choose(Setting(model, machine, 735_134_400)).plan.devices > 1


@pytest.mark.parametrize("number", [1, 2, 12, 36, 97, 720_720, 999_999_937])
def test_divisors_are_all_that_divide(number):
    found = search.divisors(number)
    assert found == sorted(set(found)) and all(number % k == 0 for k in found)
    small = [k for k in range(1, min(number, 1000) + 1) if number % k == 0]
    assert found[: len(small)] == small and found[-1] == number


def test_what_a_file_says_can_not_write_to_the_terminal_but_as_text(tmp_path, capsys):
    file = tmp_path / "bench.json"
    escape = "\x1b]0;owned\x07\ud800"
    file.write_text(json.dumps(GIVEN | {"how": {"kept": escape}}), encoding="utf-8")
    assert main(["choose", "--file", str(file)]) == 0
    out = capsys.readouterr().out
    assert "\\x1b]0;owned\\x07\\ud800" in out and "\x1b" not in out
    file.write_text(json.dumps(GIVEN | {"goal": escape}), encoding="utf-8")
    assert main(["choose", "--file", str(file)]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_help_tells_each_option_its_unit_and_default(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["choose", "--help"])
    assert ended.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Exit status: 0 a plan was found, 1 nothing fits, 2 bad arguments" in said
    for name, option in command.NUMBERS.items():
        end = "needed" if option.default is None else f"default: {option.default:g}"
        assert f"--{name} N {option.about}; {end}" in said


SCALED = {"parameters": 25.6e6, "flops": 8.2e9, "layers": 16, "sent": 4.0}
SCALED |= {"batch": 256, "each": False, "devices": 8, "rate": 125e12, "price": 2.0}
SCALED |= formulas.link_numbers("8 by NVLink 4, Ethernet 100G between")
SCALED |= {"bandwidth": 1.55e12, "launch": 50e-6, "capacity": 40e9, "kept": 90e6}
SCALED |= {"at_once": 1}


def test_pages_scale_as_the_forecast_says():
    """Inside a machine, and over several, which share a batch or bring their own."""
    setting = setting_on("4 x 8, NVLink, Ethernet", "40 GB", "ResNet-50", 256)
    for n, each in itertools.product((8, 32), (False, True)):
        rows = formulas.scaling(**SCALED | {"devices": n, "each": each})
        assert [row["devices"] for row in rows] == [2**k for k in range(len(rows))]
        row, first = rows[-1], rows[0]
        whole = replace(setting, batch=256 * n if each else 256)
        alone = replace(setting, batch=256)
        assert row["seconds"] == pytest.approx(forecast.seconds(whole, Layout(n)))
        speedup = (
            forecast.seconds(alone, Layout(1)) / row["seconds"] * (n if each else 1)
        )
        assert row["speedup"] == pytest.approx(speedup)
        assert row["efficiency"] == pytest.approx(row["speedup"] / n)
        bill = forecast.cost(whole, Layout(n)) * 1e6 / whole.batch
        assert row["dollars"] == pytest.approx(bill)
        assert first["speedup"] == 1 and first["epochs"] == 1.0
        assert rows[1]["ideal vs reality"] == 1.8
        assert row["epochs"] == (5.7 if n == 8 else None)


def test_pages_bill_whole_lots():
    """Eight rented at once: one that works is billed as eight, nine as sixteen."""
    assert [formulas.billed(n, 8) for n in (1, 7, 8, 9, 16)] == [8, 8, 8, 16, 16]
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


@pytest.mark.parametrize(
    ("capacity", "fits"), [(0.4e9, "no"), (1e9, "in micro-batches"), (40e9, "yes")]
)
def test_pages_say_whether_a_whole_replica_fits(capacity, fits):
    row = formulas.scaling(**SCALED | {"capacity": capacity})[-1]
    assert row["fits"] == fits
    assert row["held"] == pytest.approx(16 * 25.6e6 + 32 * 90e6)
    assert row["least"] == pytest.approx(16 * 25.6e6 + 90e6)


def test_pages_know_links_by_their_numbers():
    names = {"gpus", "cards", "latency", "link", "far_latency", "far_link"}
    for name, one in formulas.INTERCONNECTS.items():
        numbers = formulas.link_numbers(name)
        assert set(numbers) == names
        assert numbers["link"] == one.inside.bandwidth
        assert numbers["far_latency"] == one.across.latency


def test_pages_leave_out_devices_that_can_not_share():
    rows = formulas.scaling(**SCALED | {"devices": 6, "batch": 18})
    assert [row["devices"] for row in rows] == [1, 2, 6]


HELD = {"parameters": 7.5e9, "layers": 32, "kept": 9e9, "handed": 1.6e7}
HELD |= {"batch": 128, "devices": 64, "micro_batches": 2, "capacity": 80e9}


def test_pages_hold_what_the_zero_paper_says():
    """Its example: 7.5 billion parameters, 64 devices."""
    state = [sum(formulas.state_parts(7.5e9, 64, "mixed", zero)) for zero in range(4)]
    assert state == pytest.approx([120e9, 31.4e9, 16.6e9, 1.88e9], rel=4e-3)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("precision", formulas.PRECISIONS)
def test_pages_hold_what_the_forecast_says(precision, recompute):
    """It knows two of the stages: nothing is sharded, or all is."""
    rows = formulas.memory(**HELD, precision=precision, recompute=recompute)
    sent = formulas.PRECISIONS[precision][0]
    wide = sent / 2  # activations are given in 16 bits
    model = Model("any", 32, 7.5e9, 1.0, wide * 1.6e7, wide * 9e9, sent=sent)
    machine = Machine(Cluster(8, 8, *[LINKS["PCIe 5"]] * 2), 80e9, 1e14)
    setting = Setting(model, machine, 128)
    for zero in (0, 3):
        plan = Layout(64, micro_batches=2, sharded=zero == 3, recompute=recompute)
        assert rows[zero]["total"] == pytest.approx(forecast.memory(setting, plan))
        fits = bool(forecast.memory(setting, plan) <= machine.usable)
        assert rows[zero]["fits"] == fits == (rows[zero]["most"] >= 1)
        for samples in range(1, 12):  # at once, on each of 64 devices, twice
            more = replace(setting, batch=128 * samples)
            fits = forecast.memory(more, plan) <= machine.usable
            assert fits == (samples <= rows[zero]["most"])


@pytest.mark.parametrize("capacity", [20e9, 40e9])
def test_pages_leave_room_for_gathered_layers(capacity):
    """With samples that are small beside a layer."""
    given = HELD | {"kept": 1e8, "capacity": capacity, "precision": "mixed"}
    most = formulas.memory(**given, recompute=False)[3]["most"]
    model = Model("any", 32, 7.5e9, 1.0, 1.6e7, 1e8, sent=2)
    machine = Machine(Cluster(8, 8, *[LINKS["PCIe 5"]] * 2), capacity, 1e14)
    plan = Layout(64, sharded=True)
    held = [
        forecast.memory(Setting(model, machine, 64 * n), plan) for n in (most, most + 1)
    ]
    assert held[0] <= machine.usable < held[1]


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


def test_pages_fold_answers_and_unfold_them():
    settings_ = [s for _, s in itertools.islice(presets.grid(), 0, None, 97)]
    told = [answers.told(tree.choose(setting)) for setting in settings_]
    templates, rows = answers.folded(told)
    assert [answers.unfolded(templates, row) for row in rows] == told
    assert len(templates) < len(rows)
    for setting, text in zip(settings_, told, strict=True):
        words, seconds, memory, dollars, chapters, *reasons = text.split("\n")
        choice = tree.choose(setting)
        assert words == (choice.plan.words if choice.plan else "")
        if choice.plan:
            found = [float(number) for number in (seconds, memory, dollars)]
            numbers = [choice.seconds, choice.memory, choice.cost]
            assert found == pytest.approx(numbers, rel=1e-5)
        assert chapters.split(" ") == list(choice.chapters)
        assert [tuple(r.split("\t")) for r in reasons] == list(choice.reasons)
