"""What bench hands to choose: derived from its numbers, and said where it can't be."""

import json
from pathlib import Path

import pytest

from manygpu.__main__ import main
from manygpu.bench import result as compared
from manygpu.bench.result import Comparison
from manygpu.choosing import asking, forecast, measured
from manygpu.costs.layout import Layout
from manygpu.simulate.cluster import LINKS
from tests.quick.test_result import filled

ASKED = {"layers": 4, "flops": 5e6, "kept": 60e3, "handed": 8e3}
ABOUT = {"samples": 256, "bytes": 520_000, "parameters": 130_000, "layers": []}
ABOUT |= {"uncut": "", "asked": ASKED, "unknown": {}, "gpu_bytes": 0}


def measured_on(k: int, one: float, many: float, **about) -> Comparison:
    """A comparison on a machine of 8 cores and 16 GiB, with these milliseconds."""
    made = filled(devices=k)
    made.machine = {**made.machine, "cores": 8, "memory_gib": 16.0}
    made.experiment["about"] = ABOUT | about
    for name, time in {"one": one, "data": many, "engine": many}.items():
        made.rows[name].times = [time, 2 * time, time]
    return made


@pytest.mark.parametrize("k", [2, 4, 8])
@pytest.mark.parametrize("extra", [0.2, 3.0, 40.0])
def test_the_forecast_of_what_was_measured_is_what_was_measured(k, extra):
    made = measured_on(k, 16.0, 16.0 / k + extra)
    setting = asking.setting_of(measured.question(made))
    update = 4 * forecast.update_seconds(setting)
    assert forecast.seconds(setting, Layout(1)) == pytest.approx(16e-3 + update)
    many = forecast.seconds(setting, Layout(k))
    assert many == pytest.approx((16.0 / k + extra) / 1e3, abs=2 * update)


def test_memory_is_a_share_of_the_machines_or_a_gpus():
    made = measured_on(4, 16.0, 8.0)
    assert measured.question(made)["memory"] == 4 * 2**30
    made = measured_on(4, 16.0, 8.0, gpu_bytes=24 * 2**30)
    found = measured.question(made)
    assert found["memory"] == 24 * 2**30 and "nvidia-smi" in found["how"]["memory"]


@pytest.mark.parametrize(
    ("k", "many", "gpu", "said"),
    [
        (1, 16.0, 0, "one device sends nothing"),
        (2, 8.0, 0, "took no more than 1/2 of one device"),
        (16, 99.0, 0, "16 devices share 8 cores"),
        (2, 9.0, 0, None),
        (16, 99.0, 2**33, None),
    ],
)
def test_a_link_is_measured_where_it_can_be_seen_and_else_assumed(k, many, gpu, said):
    found = measured.question(measured_on(k, 16.0, many, gpu_bytes=gpu))
    how = found["how"]["inside"]
    if said is None:
        latency, bandwidth = found["inside"]
        assert latency == LINKS[measured.LINK].latency and bandwidth > 0
        assert "took" in how and "the latency is assumed" in how
    else:
        assert found["inside"] == measured.LINK and said in how


@pytest.mark.parametrize(
    ("about", "machine", "name", "why"),
    [
        ({"unknown": {"memory": "no tool"}}, {}, "memory", "no tool"),
        ({}, {"memory_gib": 0.0}, "memory", "the system doesn't tell"),
        ({}, {}, "rate", "no round of one device"),
    ],
)
def test_what_is_missing_is_said_by_name_and_why(about, machine, name, why):
    made = measured_on(2, 16.0, 9.0, **about)
    made.machine |= machine
    if name == "rate":
        made.rows["one"].times.clear()
    found = measured.question(made)
    assert why in found["missing"][name]
    found.pop(name, None)
    with pytest.raises(ValueError, match=rf"missing: .*{name} \({why}.*--{name}"):
        asking.setting_of(found)


UNCOUNTED = {"asked": {}, "unknown": {"flops": "While", "kept": "While"}}


def test_what_nobody_counts_is_replaced_by_what_was_measured():
    """No cut, no FLOPs, nothing kept by shapes: and still nothing is missing."""
    made = measured_on(2, 16.0, 9.0, **UNCOUNTED, uncut="it is no chain")
    found = measured.question(made)
    assert found["cut"] is False and "it is no chain" in found["how"]["cut"]
    assert found["layers"] == 1 and "handed" not in found
    assert found["missing"] == {}
    step = 3 * found["flops"] * found["batch"] / found["rate"]
    assert step == pytest.approx(16e-3)
    assert found["kept"] == (5_000_000 - 2 * 520_000) / 256
    assert all("(While)" in found["how"][name] for name in ("flops", "kept"))
    setting = asking.setting_of(found | {"handed": 1.0})
    update = forecast.update_seconds(setting)
    assert forecast.seconds(setting, Layout(1)) == pytest.approx(16e-3 + update)
    many = forecast.seconds(setting, Layout(2))
    assert many == pytest.approx(9e-3, abs=2 * update)
    # Without a round, the reason stays.
    made.rows["one"].times.clear()
    assert measured.question(made)["missing"]["flops"] == "While"


def test_a_chain_whose_step_is_its_own_is_not_cut():
    found = measured.question(measured_on(2, 16.0, 9.0, own_step=True))
    assert found["cut"] is False and found["layers"] == 4
    assert "train_step" in found["how"]["cut"]
    assert measured.question(measured_on(2, 16.0, 9.0))["cut"] is True


def test_the_link_may_be_seen_by_what_an_engine_took():
    made = measured_on(2, 16.0, 9.0)
    made.rows["data"].cannot = "its step is its own"
    found = measured.question(made)
    assert "MirroredStrategy took 0.001 s more" in found["how"]["inside"]
    assert found["inside"] == measured.question(measured_on(2, 16.0, 9.0))["inside"]


def test_before_anything_is_known_all_is_missing():
    with pytest.raises(ValueError, match="missing: batch, flops, handed"):
        asking.setting_of(measured.question(filled()))


def test_the_file_of_one_command_answers_the_other(tmp_path: Path, capsys):
    file = tmp_path / "r.json"
    compared.keep(measured_on(2, 16.0, 9.0), file)
    assert json.loads(file.read_text(encoding="utf-8"))["choose"]["gpus"] == 2
    assert main(["choose", str(file)]) == 0
    out = capsys.readouterr().out
    assert "1. " in out and "rate: the FLOPs of one device's step over its" in out
    assert main(["choose", str(file), "--memory", "1e6"]) == 1
    assert compared.read(file).rounds == 3
