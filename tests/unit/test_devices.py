"""`manygpu.devices`: what it returns, what it sets up, what it refuses.

Most of it is tested in this process, which started with eight devices. How
TensorFlow is started is tested by replacing TensorFlow's setters with recorders, so
that machines with GPUs can be tested without one; a few facts need a fresh process.
"""

import re
import subprocess
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import tensorflow as tf
from tensorflow.python.data.ops import multi_device_iterator_ops as hand_over

import manygpu
from manygpu import _devices
from workshop.pages import ROOT

STARTED = "from tensorflow.python.eager.context import context as c; "
STARTED += "print('started', c()._initialized)"


def last_line(ran: subprocess.CompletedProcess) -> str:
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()[-1]


# In this process, with room for eight devices.


@pytest.mark.parametrize("n", range(1, 9))
def test_n_devices_are_the_first_n_names_and_work_runs_there(n):
    names = manygpu.devices(n, quiet=True)
    assert len(set(names)) == n and names == manygpu.devices(8, quiet=True)[:n]
    assert set(names) <= {d.name for d in tf.config.list_logical_devices()}
    with tf.device(names[-1]):
        assert tf.add(1, 1).device.endswith(names[-1])


@pytest.mark.parametrize(("text", "count"), [("5", 5), ("", 2), ("  ", 2)])
def test_the_variable_says_how_many_where_the_caller_does_not(monkeypatch, text, count):
    monkeypatch.setenv("MANYGPU_DEVICES", text)
    assert len(manygpu.devices(quiet=True)) == _devices.default_count() == count


def test_what_hands_batches_to_devices_is_not_tuned(monkeypatch):
    """Who tunes may sleep a minute on while all wait for an iterator to end."""
    made, create = [], hand_over._create_device_dataset

    def seen(*given):
        made.append(create(*given))
        return made[-1]

    monkeypatch.setattr(hand_over, "_create_device_dataset", seen)
    strategy = tf.distribute.MirroredStrategy(manygpu.devices(2, quiet=True))
    rows = tf.data.Dataset.range(4).batch(4)
    (handed,) = strategy.experimental_distribute_dataset(rows)
    parts = strategy.experimental_local_results(handed)
    assert [part.numpy().tolist() for part in parts] == [[0, 1], [2, 3]]
    assert [d.options().autotune.enabled for d in made] == [False, False]


def test_a_tensorflow_without_that_private_function_is_left_as_it_is(monkeypatch):
    monkeypatch.delattr(hand_over, "_create_device_dataset")
    _devices._hand_over_untuned()
    assert not hasattr(hand_over, "_create_device_dataset")


# How it starts TensorFlow, seen through recorders: no GPU needed.


def recorder_of(gpus: int, kinds: tuple[str, ...] = ()) -> MagicMock:
    """A `tf.config` of a machine with `gpus` GPUs, that notes what is set.

    `kinds` are the GPUs' names. Without them, TensorFlow doesn't know the names.
    """
    config, physical = MagicMock(), {"GPU": gpus, "CPU": 1}
    config.LogicalDeviceConfiguration = SimpleNamespace
    config.splits, config.tf32 = {}, True  # TensorFlow's own default

    def devices(kind: str, many: int, start: str = "") -> list:
        return [SimpleNamespace(name=f"{start}{kind}:{i}") for i in range(many)]

    def logical(kind: str) -> list:
        there = [device.name for device in devices(kind, physical[kind])]
        many = sum(len(config.splits.get(name, "1")) for name in there)
        return devices(kind, many, "/job:localhost/replica:0/task:0/device:")

    def allow(on: bool) -> None:
        config.tf32 = on

    config.list_physical_devices = lambda kind: devices(kind, physical[kind])
    config.list_logical_devices = logical
    config.set_logical_device_configuration = lambda device, pieces: (
        config.splits.update({device.name: pieces})
    )
    config.experimental.enable_tensor_float_32_execution = allow
    config.experimental.tensor_float_32_execution_enabled = lambda: config.tf32
    named = dict(zip([f"GPU:{i}" for i in range(gpus)], kinds, strict=False))
    config.experimental.get_device_details = lambda gpu: (
        {"device_name": named[gpu.name]} if gpu.name in named else {}
    )
    return config


@pytest.fixture
def machine(monkeypatch):
    """Put `devices` on a machine with so many GPUs of so much memory, not started."""

    def make(
        gpus: int, memory_mb: int = 10_000, kinds: tuple[str, ...] = ()
    ) -> MagicMock:
        recorder = recorder_of(gpus, kinds)
        monkeypatch.setattr(_devices, "_chosen", [])
        monkeypatch.setattr(_devices, "_announced", set())
        monkeypatch.setattr(_devices, "_gpu_memory_mb", lambda: memory_mb)
        monkeypatch.setattr(_devices, "tf", SimpleNamespace(config=recorder))
        monkeypatch.delenv("MANYGPU_DEVICES")
        monkeypatch.delenv("MANYGPU_TF32", raising=False)
        return recorder

    return make


@pytest.mark.parametrize(
    ("gpus", "count", "kind", "said"),
    [
        (0, 3, "CPU", "3 logical CPU devices of one thread: CPU:0"),
        (2, 4, "CPU", "4 logical CPU devices of one thread: CPU:0"),  # too few GPUs
        (3, 2, "GPU", "2 of 3 GPUs: GPU:0"),
        (1, 1, "GPU", "1 of 1 GPUs: GPU:0"),
        (1, 4, "GPU", "one GPU split into 4 logical GPUs"),
    ],
)
def test_enough_gpus_are_used_as_they_are_one_is_split_and_else_the_cpu(
    machine, monkeypatch, capsys, gpus, count, kind, said
):
    recorder = machine(gpus, memory_mb=10_000)
    monkeypatch.setenv("MANYGPU_DEVICES", "1")
    found = manygpu.devices(count)
    assert found == [f"/device:{kind}:{i}" for i in range(count)]
    assert said in capsys.readouterr().out
    found.clear()  # the list is the caller's own
    assert len(manygpu.devices(count, quiet=True)) == count
    pieces = {name: len(own) for name, own in recorder.splits.items()}
    if gpus >= count:
        grown = recorder.experimental.set_memory_growth.call_args_list
        assert pieces == {} and [call.args[1] for call in grown] == [True] * gpus
    else:
        assert pieces == {f"{kind}:0": count}
    if kind == "GPU":  # equal shares of the memory, and some of it is left
        limits = [p.memory_limit for p in recorder.splits.get("GPU:0", [])]
        assert limits == ([2250] * 4 if count == 4 else [])


@pytest.mark.parametrize(
    "count, given, inter", [("1", None, 1), ("2", None, 2), ("2", "4", 4)]
)
def test_devices_get_a_thread_each_unless_overruled(
    machine, monkeypatch, count, given, inter
):
    recorder = machine(gpus=0)
    monkeypatch.setenv("MANYGPU_DEVICES", count)
    if given:
        monkeypatch.setenv("MANYGPU_INTER_OP", given)
    manygpu.devices(quiet=True)
    threads = recorder.threading
    threads.set_intra_op_parallelism_threads.assert_called_once_with(1)
    threads.set_inter_op_parallelism_threads.assert_called_once_with(inter)


@pytest.mark.parametrize(
    "first, variable, room", [(1, None, 2), (4, None, 4), (1, "6", 6)]
)
def test_the_first_call_makes_room_for_its_number_and_the_default(
    machine, monkeypatch, first, variable, room
):
    machine(gpus=0)
    if variable:
        monkeypatch.setenv("MANYGPU_DEVICES", variable)
    assert len(manygpu.devices(first, quiet=True)) == first
    assert len(manygpu.devices(room, quiet=True)) == room
    with pytest.raises(ValueError, match=f"already started with {room}"):
        manygpu.devices(room + 1)


OFF, ON = "float32 in full (TF32 off; MANYGPU_TF32=1 allows it)", "TF32 where a GPU has"


@pytest.mark.parametrize(
    "gpus, variable, allowed, said",
    [
        (1, None, False, OFF),
        (2, "", False, OFF),
        (2, "0", False, OFF),
        (1, "1", True, ON),
        (0, "0", True, "CPU:0, CPU:1\n"),  # nothing is said or set without a GPU
    ],
)
def test_on_gpus_float32_is_float32_unless_asked_otherwise(
    machine, monkeypatch, capsys, gpus, variable, allowed, said
):
    recorder = machine(gpus)
    if variable is not None:
        monkeypatch.setenv("MANYGPU_TF32", variable)
    manygpu.devices(2)
    assert recorder.tf32 is allowed
    ahead = "GPU:0, GPU:1; " if gpus else ""
    assert f"{ahead}{said}" in capsys.readouterr().out


CARDS = (ROOT / "book/back/your-cards.md").read_text(encoding="utf-8")
FAST, SLOW = "NVIDIA GeForce RTX 3090", "NVIDIA GeForce GTX 1080 Ti"
PACE = "Where all devices wait for each other, the slowest sets the pace."


@pytest.mark.parametrize(
    ("kinds", "count", "said"),
    [
        ((FAST, SLOW), 2, f"2 kinds of GPU: {FAST} (GPU:0); {SLOW} (GPU:1). {PACE}"),
        ((SLOW, FAST, SLOW), 3, f"{SLOW} (GPU:0, GPU:2); {FAST} (GPU:1). {PACE}"),
        ((FAST, SLOW), 1, ""),  # only one of them is used
        ((FAST, FAST, SLOW), 2, ""),
        ((FAST, FAST), 2, ""),
        ((), 2, ""),  # TensorFlow doesn't know
        ((FAST, SLOW), 4, ""),  # too few: logical CPU devices
        ((FAST,), 2, ""),  # one GPU is split
    ],
)
def test_two_kinds_of_gpus_are_named_in_a_second_line(
    machine, monkeypatch, capsys, kinds, count, said
):
    machine(len(kinds) or 2, kinds=kinds)
    monkeypatch.setenv("MANYGPU_DEVICES", "1")
    manygpu.devices(count)
    _, *second = capsys.readouterr().out.splitlines()
    assert len(second) == bool(said)
    assert not said or second[0].endswith(said)


@pytest.mark.parametrize("kinds", [(FAST, SLOW), (FAST, FAST)])
def test_the_page_about_cards_quotes_what_is_printed(machine, capsys, kinds):
    """Also where one GPU is full: nothing more is said than for two empty ones."""
    machine(2, memory_mb=300, kinds=kinds)
    manygpu.devices(2)
    quoted = re.findall(r"```text\n(.*?)\n```", CARDS, flags=re.S)
    assert capsys.readouterr().out.strip() in quoted


def test_tensorflow_tells_a_devices_name_where_the_recorder_does():
    for cpu in tf.config.list_physical_devices("CPU"):
        assert tf.config.experimental.get_device_details(cpu) == {}


def test_tensorflow_has_the_switch_that_the_recorder_stands_for():
    found = tf.config.experimental.tensor_float_32_execution_enabled()
    try:
        tf.config.experimental.enable_tensor_float_32_execution(not found)
        assert tf.config.experimental.tensor_float_32_execution_enabled() is not found
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(found)


COUNT = "MANYGPU_DEVICES must be a whole .*{!r}.*unset it"


@pytest.mark.parametrize(
    "name, text, said",
    [
        *(("MANYGPU_DEVICES", text, COUNT) for text in ("many", "0", "2.0", "2 3")),
        ("MANYGPU_INTER_OP", "0", "MANYGPU_INTER_OP must be"),
        ("MANYGPU_TF32", "true", "MANYGPU_TF32 must be 0 or 1, got 'true'"),
    ],
)
def test_a_bad_variable_is_refused_before_tensorflow_starts(
    machine, monkeypatch, name, text, said
):
    recorder = machine(gpus=name == "MANYGPU_TF32")
    monkeypatch.setenv(name, text)
    with pytest.raises(ValueError, match=said.format(text)):
        manygpu.devices()
    assert recorder.splits == {}
    assert not recorder.threading.set_inter_op_parallelism_threads.called
    assert _devices._chosen == []


@pytest.mark.parametrize(
    "tool, answer, memory",
    [
        ("nvidia-smi", "81559 MiB\n", 81559),
        ("nvidia-smi", "No devices were found\n", 4096),
        (None, "81559 MiB\n", 4096),
    ],
)
def test_a_gpus_memory_is_what_nvidia_smi_says(monkeypatch, tool, answer, memory):
    ran = SimpleNamespace(stdout=answer)
    monkeypatch.setattr(_devices.shutil, "which", lambda name: tool)
    monkeypatch.setattr(_devices.subprocess, "run", lambda *_, **__: ran)
    assert _devices._gpu_memory_mb.__wrapped__() == memory
    assert _devices.gpu_name() == ""  # none is here
    monkeypatch.setattr(_devices.tf.config, "list_physical_devices", lambda _: [1])
    assert _devices.gpu_name() == (answer.strip() if tool else "")


@pytest.mark.parametrize(
    ("gpus", "count", "tool", "found"),
    [
        (0, 2, True, 0),
        (4, 2, True, 1000 * 2**20),
        (1, 2, True, 450 * 2**20),
        (2, 4, True, 0),  # then logical CPU devices are taken
        (2, 2, False, None),
    ],
)
def test_what_a_device_may_fill(monkeypatch, gpus, count, tool, found):
    there = ["gpu"] * gpus
    monkeypatch.setattr(_devices.tf.config, "list_physical_devices", lambda _: there)
    monkeypatch.setattr(_devices.shutil, "which", lambda name: name if tool else None)
    monkeypatch.setattr(_devices, "_gpu_memory_mb", lambda: 1000)
    assert _devices.gpu_bytes(count) == found


def test_it_says_once_for_each_number_what_it_chose_unless_quiet(machine, capsys):
    machine(gpus=0)
    manygpu.devices(2, quiet=True)
    assert capsys.readouterr().out == ""
    for number in (1, 2, 2):
        manygpu.devices(number)
    one, two = capsys.readouterr().out.splitlines()
    assert one.startswith("1 logical CPU device of one thread: CPU:0")
    assert two.startswith("2 logical CPU devices of one thread: CPU:0, CPU:1")


def test_it_warns_where_there_are_more_devices_than_cores(machine, capsys, monkeypatch):
    machine(gpus=0)
    monkeypatch.setenv("MANYGPU_DEVICES", "3")
    monkeypatch.setattr(_devices.os, "cpu_count", lambda: 2)
    manygpu.devices(2)
    assert "times say nothing" not in capsys.readouterr().out
    manygpu.devices(3)
    assert "2 cores, so times say nothing" in capsys.readouterr().out


# What only a fresh process can tell.


def test_importing_any_module_starts_no_devices_and_needs_no_d2l(run_python):
    ran = run_python(
        "import importlib, pkgutil, sys\n"
        "for name in [n for n in sys.modules if n.startswith(('manygpu', 'd2l'))]:\n"
        "    del sys.modules[name]  # so that each is imported anew\n"
        "sys.modules['d2l'] = None  # as if it were not installed\n"
        "import manygpu\n"
        "found = pkgutil.walk_packages(manygpu.__path__, 'manygpu.')\n"
        "names = [m.name for m in found]\n"
        "for name in names:\n"
        "    importlib.import_module(name)\n"
        "assert 'manygpu.data' in names\n"
        "assert 'manygpu.scratch.start.one_device' in names\n"
        f"{STARTED}",
        MANYGPU_DEVICES=None,
    )
    assert last_line(ran) == "started False"


def test_by_default_two_devices_start_of_one_thread_each(run_python):
    ran = run_python(
        "import manygpu, tensorflow as tf\n"
        "one = manygpu.devices(1)\n"
        "t = tf.config.threading\n"
        "threads = t.get_intra_op_parallelism_threads(), "
        "t.get_inter_op_parallelism_threads()\n"
        "print(one, manygpu.devices(2, quiet=True), threads)",
        MANYGPU_DEVICES=None,
        CUDA_VISIBLE_DEVICES="",
    )
    cpus = "['/device:CPU:0'] ['/device:CPU:0', '/device:CPU:1']"
    assert last_line(ran) == f"{cpus} (1, 2)"


def test_tensorflow_already_started_is_refused_with_what_to_do(run_python):
    ran = run_python(
        "import tensorflow as tf, manygpu\n"
        "tf.constant(1)\n"
        "for again in range(2):\n"
        "    try:\n"
        "        manygpu.devices(2)\n"
        "    except ValueError as error:\n"
        "        print(error)",
        MANYGPU_DEVICES=None,
        CUDA_VISIBLE_DEVICES="",
    )
    said = ran.stdout.splitlines()
    assert ran.returncode == 0, ran.stderr
    assert len(said) == 2
    for line in said:
        assert line.startswith("n asks for 2 devices, but TensorFlow has already start")
        assert "restart the kernel" in line
