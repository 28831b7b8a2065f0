"""The kept experiments: what is stored is whole, plausible, and the source's."""

import json
from unittest.mock import MagicMock

import pytest
import tensorflow as tf

from experiments import source_experiment as tool
from manygpu import records
from manygpu.processes.workers import Worker
from tests.unit.helpers import EIGHT, batch

NAME = "source-experiment"
# As the source states them: train(num_gpus, batch_size=256, lr=0.2), ten epochs in
# `train`, `scale = 0.01`, all of Fashion-MNIST.
SOURCE = {"batch_size": 256, "lr": 0.2, "scale": 0.01, "epochs": 10}
SOURCE |= {"train_samples": 60_000, "test_samples": 10_000}


@pytest.fixture
def record() -> dict:
    return records.load(NAME)


@pytest.fixture
def runs(record) -> dict:
    return {(r["devices"], r["step"], r["init"]): r for r in record["runs"]}


def test_the_settings_are_the_sources(record):
    assert {key: record["experiment"][key] for key in SOURCE} == SOURCE


def test_one_and_two_devices_eager_and_compiled_and_mended(runs):
    kinds = {(k, step, "source") for k in (1, 2) for step in ("eager", "compiled")}
    assert set(runs) == kinds | {(1, "compiled", "he"), (2, "compiled", "he")}


def test_accuracies_are_plausible_and_devices_agree_in_the_end(runs):
    for (devices, step, init), run in runs.items():
        accuracy = [epoch["test_accuracy"] for epoch in run["per_epoch"]]
        loss = [epoch["training_loss"] for epoch in run["per_epoch"]]
        assert 0.80 <= accuracy[-1] <= 0.92  # the source prints 0.84
        assert loss[-1] < loss[0]
        other = runs[3 - devices, step, init]["per_epoch"][-1]["test_accuracy"]
        assert abs(accuracy[-1] - other) < 0.03
        # Ten classes: the source's weights learn nothing in the first epoch.
        assert accuracy[0] < 0.3 if init == "source" else accuracy[0] > 0.6


@pytest.mark.parametrize("name", ["nothing", f"../records/{NAME}"])
def test_load_names_what_there_is(name):
    assert NAME in records.names()
    with pytest.raises(ValueError, match=f"'{name}' is no record.*{NAME}"):
        records.load(name)


def test_load_checks_what_it_reads(record, tmp_path, monkeypatch):
    with pytest.raises(TypeError, match="name must be a string"):
        records.load(None)
    text = json.dumps({**record, "runs": []})
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    for name, content in {"b": text, "c": text[: len(text) // 2], "a": text}.items():
        (tmp_path / f"{name}.json").write_text(content, encoding="utf-8")
    assert records.names() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="record.runs is empty"):
        records.load("b")
    with pytest.raises(ValueError, match="file must be one of JSON, got .*c.json"):
        records.load("c")


EPOCH, RUN = ["runs", 0, "per_epoch", 3], records.load(NAME)["runs"][0]


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (["format"], 1, "record.format must be 2"),
        (["kind"], "timing", r"kind must be one of .*'training'.*, got 'timing'"),
        (["date"], "21 Nov", "record.date must be like 2026-11-21"),
        (["machine", "cores"], 0, "record.machine.cores must lie in 1 to"),
        (["machine", "memory_gib"], -1.0, "memory_gib must lie in 0 to"),
        (["experiment", "batch_size"], 0, "experiment.batch_size must lie in 1 to"),
        (["experiment", "early_every"], 0, "experiment.early_every must lie in 1 to"),
        (["experiment", "train_samples"], 0, "train_samples must lie in 1 to"),
        (["experiment", "lr"], float("nan"), "experiment.lr must lie in .*got nan"),
        (["experiment", "scale"], float("inf"), "experiment.scale must lie in"),
        (["experiment", "early_epochs"], -1, "early_epochs must lie in 0 to"),
        (["experiment", "lr"], "0.2", "record.experiment.lr must be float"),
        (["experiment", "epochs"], 9, r"per_epoch has 10 entries for 9"),
        (["runs", 1], RUN, "one kind of run twice"),
        (["runs"], [], "record.runs is empty"),
        (["runs", 0, "devices"], 0, r"runs\[0\].devices must lie in 1 to"),
        (["runs", 0, "devices"], True, r"runs\[0\].devices must be int"),
        (["runs", 0, "step"], "magic", r"runs\[0\].step must be one of"),
        (["runs", 0, "init"], "luck", r"runs\[0\].init must be one of"),
        ([*EPOCH, "seconds"], float("inf"), r"per_epoch\[3\].seconds must lie"),
        ([*EPOCH, "test_accuracy"], 1.5, "test_accuracy must lie"),
        ([*EPOCH, "training_loss"], float("nan"), "training_loss must lie"),
        (["runs", 0, "early", 1, "step"], 26, "a point every 25 steps"),
        (["runs", 0, "early", 1, "test_accuracy"], 1.5, r"early\[1\].test_accuracy"),
        (["more"], 1, "record must have"),
        (["machine", "hostname"], "x", "record.machine must have"),
        (["experiment", "more"], 1, "record.experiment must have"),
        (["runs", 0, "more"], 1, r"runs\[0\] must have"),
        ([*EPOCH, "more"], 1, r"per_epoch\[3\] must have"),
        (["runs", 0, "early", 1, "more"], 1, r"early\[1\] must have"),
    ],
)
def test_check_names_what_is_wrong(record, where, value, message):
    *path, last = where
    place = record
    for key in path:
        place = place[key]
    place[last] = value
    with pytest.raises(ValueError, match=message):
        records.check(record)


def test_save_writes_whole_or_not_at_all(record, tmp_path):
    path = tmp_path / "kept.json"
    records.save(record, path)
    assert json.loads(path.read_text(encoding="utf-8")) == record
    before = path.read_bytes()
    with pytest.raises(ValueError, match="record.runs is empty"):
        records.save({**record, "runs": []}, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]  # no half-written file beside it


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--out", "never.json"], "needs all 60,000"),  # not a subset
        (["--epochs", "1"], "give --out"),  # no short trials in the package
    ],
)
def test_the_tool_keeps_no_less_than_all(monkeypatch, tmp_path, capsys, words, said):
    before = (records.FOLDER / f"{NAME}.json").read_bytes()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MANYGPU_DATA", "shipped")
    monkeypatch.setattr(tool.sys, "argv", ["source_experiment.py", *words])
    with pytest.raises(SystemExit) as ended:
        tool.main()
    assert said in f"{ended.value}{capsys.readouterr().err}"
    assert ended.value.code not in (None, 0) and list(tmp_path.iterdir()) == []
    assert (records.FOLDER / f"{NAME}.json").read_bytes() == before


# The tool: a training is noted, a worker asked, a record made


@pytest.fixture
def training(monkeypatch) -> tool.Training:
    """Three steps an epoch, of 1 second; each look takes 5 and finds 0.5."""
    now = [0.0]

    def spend(seconds: float, result: object) -> object:
        now[0] += seconds  # nothing else moves this clock on
        return result

    X, y = batch(20)
    batches = tf.data.Dataset.from_tensor_slices((X, y)).batch(8)
    monkeypatch.setattr(tool, "fashion_mnist", lambda *_, **__: (batches, batches))
    monkeypatch.setattr(tool, "EARLY_EVERY", 2)
    monkeypatch.setattr(tool, "EARLY_EPOCHS", 1)
    monkeypatch.setattr(tool.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(tool.Training, "accuracy", lambda *_: spend(5, 0.5))
    made = tool.Training(EIGHT[:2], "eager", "he")
    made.step = lambda X, *_: spend(1, tf.constant(float(len(X))))
    return made


def test_an_epoch_is_timed_without_the_looks_and_its_loss_is_the_mean_of_samples(
    training,
):
    found = [training.epoch(), training.epoch()]
    assert [one["seconds"] for one in found] == [3, 3]
    right = pytest.approx((8 * 8 + 8 * 8 + 4 * 4) / 20, 1e-6)
    assert [one["training_loss"] for one in found] == [right, right]
    assert [one["test_accuracy"] for one in found] == [0.5, 0.5]
    assert training.steps == 6
    assert [point["step"] for point in training.early] == [0, 2]  # of the first epoch


def test_a_worker_trains_what_it_is_told():
    variables = {"MANYGPU_DEVICES": "2", "MANYGPU_DATA": "shipped"}
    with Worker(tool.serve, "compiled", "source", variables=variables) as worker:
        [first] = worker.ask("early")
        hardware = worker.ask("hardware")
    assert first["step"] == 0 and first["test_accuracy"] == pytest.approx(0.1, abs=0.1)
    assert "2 logical" in hardware or "2 GPUs" in hardware


@pytest.fixture
def worker(monkeypatch) -> MagicMock:
    """Stands for the class of workers, and answers what one is asked."""
    answers = {
        "epoch": {"seconds": 1.5, "test_accuracy": 0.8, "training_loss": 0.5},
        "early": [{"step": n, "test_accuracy": 0.5} for n in range(0, 236, 25)],
        "hardware": "two",
    }
    made = MagicMock()
    made().__enter__().ask.side_effect = lambda question, *_: answers[question]
    made.reset_mock()
    monkeypatch.setattr(tool, "Worker", made)
    return made


def test_a_run_asks_a_worker_epoch_by_epoch(worker, capsys):
    found = tool.run(2, "compiled", "he", 2, "debian")
    assert worker.call_args.args == (tool.serve, "compiled", "he")
    assert worker.call_args.kwargs["variables"] == {
        "MANYGPU_DEVICES": "2",
        "MANYGPU_DATA": "debian",
        "MANYGPU_INTER_OP": None,
    }
    asked = [call.args[0] for call in worker().__enter__().ask.call_args_list]
    assert asked == ["epoch", "epoch", "hardware", "early"]
    assert (found["devices"], found["step"], found["init"]) == (2, "compiled", "he")
    assert len(found["per_epoch"]) == 2
    assert "epoch 2 of 2: seconds 1.500, test_accuracy 0.800" in capsys.readouterr().out


def test_what_the_tool_makes_is_a_record(worker):
    runs = [tool.run(*kind, 1, "debian") for kind in tool.RUNS]
    records.check(tool.record(runs, 1))


def test_a_run_that_fails_is_told_and_nothing_written(monkeypatch, tmp_path):
    died = RuntimeError("2 devices, eager died; it said:\nno memory")
    target = tmp_path / "never.json"
    monkeypatch.setattr(tool, "run", MagicMock(side_effect=died))
    monkeypatch.setattr(tool, "full_data", lambda: "debian")
    monkeypatch.setattr(
        tool.sys, "argv", ["source_experiment.py", "--out", str(target)]
    )
    with pytest.raises(SystemExit, match="no memory\nThat run failed. Nothing was"):
        tool.main()
    assert not target.exists()
