"""A comparison: its rows, its table, its file, and what a second start goes on with."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from manygpu import records
from manygpu.bench import report
from manygpu.bench import result as compared
from manygpu.bench.result import ALIKE, QUIET, WIDE, Comparison, Row, ratio
from manygpu.tables import to_text

ASKED = {"model": "lenet", "source": "", "devices": 2, "batch": 0, "steps": 1}
ASKED |= {"kernels": "0", "strategies": ["one", "data", "engine"]}
FACTS = {"distance": 1e-7, "tolerance": 1e-5, "held": 8_000_000, "sent": 4_000_000}
FACTS |= {"memory": 5_000_000, "shared": True, "hardware": "2 devices"}


def filled(**asked) -> Comparison:
    """Two rounds of three strategies; "data" takes half of the time."""
    made = compared.begin({**ASKED, **asked})
    for i, row in enumerate(made.rows.values()):
        row.facts = dict(FACTS)
        row.times = [8.0, 10.0] if i == 0 else [4.0, 5.0]
    return made


def lines(made: Comparison) -> dict[str, str]:
    """The table's rows as a terminal shows them, by how they begin."""
    shown = to_text(compared.columns(made)).splitlines()
    return {" ".join(line.split()[:3]): line for line in shown}


# Rows


def test_one_device_has_one_and_what_can_not_be_is_not_tried():
    asked = {**ASKED, "devices": 4, "strategies": ["one", "data", "layerwise"]}
    made = compared.begin({**asked, "model": "mine:make"})
    assert [row.devices for row in made.rows.values()] == [1, 4, 4]
    assert "its own LeNet and chain only" in made.rows["layerwise"].cannot
    assert [*made.running] == ["one", "data"]
    assert len(compared.begin(asked).running) == 3


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, "not compared"),
        ({"distance": 1e-5, "tolerance": 1e-5}, "yes"),
        ({"distance": 1.1e-5, "tolerance": 1e-5}, "no: its step is 0.0011% off"),
        ({"distance": 0.0, "tolerance": 0.1}, "can't tell: rounding hides it"),
        (
            {"distance": 0.0, "tolerance": 1e-5, "remark": QUIET},
            "yes, random layers off",
        ),
        (
            {"distance": 0.2, "tolerance": 1e-5, "remark": QUIET},
            "no: its step is 20% off",
        ),
        (
            {"distance": 512.0, "tolerance": 1e-5, "why": "most of it in dense/bias"},
            "no: its step is 51,200% off (most of it in dense/bias)",
        ),
        (
            {"distance": 1.0, "tolerance": 1e-5, "times": 2.0, "why": "not divided"},
            "no: its step is 2 times as long (not divided)",
        ),
        (
            {"distance": 0.0, "tolerance": 1.0, "why": "it draws"},
            "can't tell: it draws",
        ),
        ({"distance": 0.0, "tolerance": 1e-5, "own": 1.0}, "yes"),
        ({"distance": 1.0, "tolerance": 1e-5, "own": 2.0}, "its own: 2 times as long"),
        (
            {"distance": 2047.3, "tolerance": 1e-5, "own": 2048.3},
            "its own: 2050 times as long",
        ),
        ({"distance": 1.0, "tolerance": 1e-5, "own": 0.0}, "its own"),
    ],
)
def test_a_verdict_needs_a_distance_within_what_rounding_does(facts, words):
    assert Row("one", 1, facts=facts).verdict == words


def test_a_limit_is_called_that():
    facts = {"distance": 1.0, "tolerance": 1e-5, "own": 2.0}
    assert Row("apart", 2, facts=facts).verdict == "no: it is a limit"
    assert Row("apart", 1, facts={**facts, "distance": 0.0}).verdict == "yes"


def test_a_round_counts_when_all_that_run_have_had_it():
    made = filled()
    made.rows["data"].times.append(5.0)
    assert made.rounds == 2
    made.rows["engine"].times.clear()
    assert made.rounds == 0
    made.rows["engine"].cannot = "it died"
    assert made.rounds == 2
    assert made.times["data"] == [4.0, 5.0]
    assert list(made.running) == ["one", "data"]


# The table


def test_speedup_is_within_rounds_and_efficiency_is_over_the_devices():
    made = filled()
    made.rows["data"].times = [8.0, 2.5]  # 1 and 4 times as fast
    header, row = (
        lines(made)[name] for name in ("strategy devices time", "data, by hand")
    )
    assert "speedup" in header
    assert "2.00 (1.00–4.00)" in row and " 100 " in row
    assert row.split()[-3:] == ["5", "4", "yes"]  # MB of memory, MB sent
    assert "1.00 (1.00–1.00)" in lines(made)["one device 1"]


def test_one_device_with_help_has_no_efficiency_and_what_is_no_strategy_is_marked():
    made = filled(strategies=["one", "threads", "apart"])
    shown = lines(made)
    assert "2.00 (2.00–2.00) – " in " ".join(shown["one device, more"].split())
    assert " 100 " in shown["one device 1"]
    assert " 100 " in shown["data, never communicate"]
    (ax,) = report.figure(made).axes
    names = [label.get_text() for label in ax.get_yticklabels()]
    marked = ["(one device, more threads)", "(data, never communicate)"]
    assert names == ["one device", *marked]
    assert [bar.get_alpha() < 1 for bar in ax.patches] == [False, True, True]


def test_a_step_that_is_another_one_is_never_the_best():
    made = filled()
    made.rows["engine"].times = [1.0, 1.0]
    assert [name for name, line in lines(made).items() if "★ 1.0" in line]
    made.rows["engine"].facts["distance"] = 1.0
    marked = [name for name, line in lines(made).items() if "★ 4.5" in line]
    assert marked == ["data, by hand"]
    assert "★" not in lines(made)["data, MirroredStrategy 2"]


def test_what_is_not_known_is_left_out_and_not_made_up():
    made = filled()
    for row in made.rows.values():
        row.times, row.facts = [], {}
    assert lines(made)["data, by hand"].split()[3:] == ["2", *["–"] * 6]


def test_without_one_device_there_are_times_and_no_speedup():
    made = filled()
    made.rows["one"].cannot = "it doesn't fit into a device's memory"
    shown = lines(made)
    assert "one device 1" not in shown
    assert "4.5 (4.0–5.0)" in shown["data, by hand"]
    assert "–  " in shown["data, by hand"]


ALL = ["one", "threads", "data", "fit"]


@pytest.mark.parametrize(
    ("words", "there", "not_there"),
    [
        ("fullest device", {"shared": False}, {"shared": True}),
        ("over their number", {"shared": True}, {"shared": False}),
        ("BatchNorm", {"remark": f"{QUIET}, {ALIKE}"}, {"remark": QUIET}),
        ("each share would draw its own", {"remark": QUIET}, {}),
        ("hide their messages (data, Keras fit)", {}, {"strategies": ["one", "data"]}),
        ("logical CPU devices share 2 cores", {"devices": 64}, {"devices": 2}),
        (
            "as many threads as there are devices, 2",
            {},
            {"strategies": ["one", "data"]},
        ),
        ("7 samples make uneven", {"samples": 7}, {"samples": 8}),
        ("7 samples", {"samples": 7}, {"samples": 7, "strategies": ["one", "data"]}),
        ("first step, of plain SGD, against", {}, {"own_step": True}),
        ("the model's own train_step", {"own_step": True}, {}),
        ("fit takes the first batch", {"said": ["fit takes the first batch"]}, {}),
        ("never communicate: no strategy", {"strategies": ["one", "apart"]}, {}),
        ("isn't divided by their number", {"distance": 1.0, "own": 2.0}, {"own": 1.0}),
        ("those of 16 bits", {"remark": WIDE}, {"remark": QUIET}),
        ("as Keras takes it", {"assigns": "spectral"}, {}),
        ("so many % off", {"distance": 1.0}, {}),
    ],
)
def test_notes_say_what_these_rows_need(words, there, not_there):
    for change, said in ((there, True), (not_there, False)):
        change = {"strategies": ALL, **change}
        made = filled(**{k: v for k, v in change.items() if k in ASKED})
        made.machine = {**made.machine, "cores": 2}
        about = ("samples", "own_step", "said", "assigns")
        made.experiment["about"] = {k: v for k, v in change.items() if k in about}
        for row in made.rows.values():
            facts = (*FACTS, "remark", "own")
            row.facts |= {k: v for k, v in change.items() if k in facts}
        assert (words in " ".join(compared.notes(made))) is said


def test_a_page_has_the_whole_table_in_two_halves(monkeypatch):
    halves = []
    monkeypatch.setattr(report, "show", lambda made, *_: halves.append(made))
    report.table(filled())
    (about, *first), (again, *second) = halves
    assert about == again and [about, *first, *second] == compared.columns(filled())
    assert first[-1].header.startswith("efficiency")


# The file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mine.json"


def test_what_is_kept_is_read_again_and_gone_on_with(file):
    made = filled()
    made.rows["engine"].times.pop()  # broken off in the second round
    made.date = "2001-01-01"
    compared.keep(made, file)
    assert compared.read(file) == made
    again = compared.resume(file, ASKED)
    assert again.rounds == 1 and again.date == "2001-01-01"
    assert [len(times) for times in again.times.values()] == [1, 1, 1]
    assert again.rows["data"].facts == FACTS


def test_without_a_file_it_begins_and_another_kind_of_record_is_no_comparison(file):
    assert compared.resume(file, ASKED) == compared.begin(ASKED)
    assert not file.exists()
    with pytest.raises(ValueError, match="of the kind 'training'"):
        compared.resume(records.FOLDER / f"{records.names()[0]}.json", ASKED)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", "transformer"),
        ("source", "abc"),
        ("devices", 3),
        ("batch", 64),
        ("steps", 2),
        ("kernels", "1"),
        ("strategies", ["one"]),
        ("cores", 4096),
    ],
)
def test_another_comparisons_file_is_refused_by_name(file, name, value):
    made = filled()
    asked = {**ASKED, name: value}
    if name in made.machine:
        made.machine, asked = {**made.machine, name: value}, ASKED
    compared.keep(made, file)
    before = file.read_bytes()
    said = "model's file has changed" if name == "source" else f"{name} is"
    with pytest.raises(ValueError, match=f"belongs to another comparison.*{said}"):
        compared.resume(file, asked)
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda r: r["runs"][0]["times"].append(0.0), r"runs\[0\].times\[2\]"),
        (lambda r: r["runs"][0]["times"].append(1), "must be float"),
        (lambda r: r["runs"].pop(), "runs must be of"),
        (lambda r: r["runs"][1]["facts"].update(speed=1), "'speed'"),
        (lambda r: r["runs"][1]["facts"].update(sent=-1), "facts.sent"),
        (lambda r: r["runs"][1]["facts"].update(sent="much"), "must be a number"),
        (lambda r: r["runs"][1]["facts"].update(remark=1), "facts.remark"),
        (lambda r: r["experiment"].update(devices=0), "experiment.devices"),
        (lambda r: r["experiment"].pop("kernels"), "record.experiment must have"),
        (lambda r: r["experiment"].update(about={"samples": "4"}), "about.samples"),
        (lambda r: r["experiment"].update(about={"bytes": None}), "about.bytes"),
        (lambda r: r["experiment"].update(about={"speed": 1}), "about.speed"),
        (lambda r: r["experiment"].update(about={"said": [1]}), "must hold texts"),
        (lambda r: r["experiment"].update(about={"layers": [["a", -1.0]]}), "layers"),
        (lambda r: r["experiment"].update(about={"layers": [["a"]]}), r"layers\[0\]"),
        (lambda r: r["experiment"].update(about={"asked": {"a": -1}}), "asked.a"),
        (lambda r: r["choose"].update(rate=float("nan")), "choose.rate must lie"),
        (lambda r: r["runs"][2].update(strategy="magic"), "runs must be of"),
        (
            lambda r: (
                r["experiment"].update(strategies=["one", "data", "magic"]),
                r["runs"][2].update(strategy="magic"),
            ),
            "not known here.*magic",
        ),
        (lambda r: r["machine"].pop("cpu"), "record.machine must have"),
    ],
)
def test_a_file_with_what_nobody_measured_is_refused(file, spoil, message):
    compared.keep(filled(), file)
    record = json.loads(file.read_text(encoding="utf-8"))
    spoil(record)
    file.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        compared.read(file)


def test_it_names_nobody_and_no_path(file):
    compared.keep(filled(), file)
    text = file.read_text(encoding="utf-8")
    assert str(Path.home()) not in text and str(file.parent) not in text


# Ratios


def test_a_ratio_is_that_of_the_same_round():
    times = {"a": [1.0, 20.0, 3.0], "b": [2.0, 10.0, 3.0]}
    assert ratio(times, "a", "b") == ratio(times, "b", "a") == (1.0, 0.5, 2.0)
    assert ratio(times, "a", "a") == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ({"a": [1.0], "b": [1.0, 2.0]}, "shorter|longer"),
        ({"a": [1.0]}, r"'b' was not timed: choose from \['a'\]"),
        ({"a": [], "b": []}, "'b' must have times above 0, got"),
        ({"a": [1.0], "b": [0.0]}, "'b' must have times above 0, got"),
    ],
)
def test_times_without_a_ratio_are_refused(times, message):
    with pytest.raises(ValueError, match=message):
        ratio(times, "a", "b")


@pytest.mark.parametrize("rounds", [2, 3, 10])
def test_the_table_s_speedup_is_one_over_the_figure_s_time(rounds):
    """Of two middle rounds, too: the mean of ratios isn't one over that of times."""
    draw = random.Random(rounds)
    times = {name: [draw.uniform(1, 9) for _ in range(rounds)] for name in "ab"}
    middle, least, most = ratio(times, "a", "b")
    assert ratio(times, "b", "a") == pytest.approx((1 / middle, 1 / most, 1 / least))
    made = filled()
    for row, name in zip(made.rows.values(), "aba", strict=True):
        row.times = times[name]
    assert f"data, by hand {1 / ratio(times, 'a', 'b')[0]:.2f}" in report.alt(made)
    assert f" {middle:.2f} (" in lines(made)["data, by hand"]
