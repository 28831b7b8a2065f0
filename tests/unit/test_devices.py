"""`manygpu.devices`: what it returns, what it sets up, what it refuses.

Most of it is tested in this process, which started with eight devices. How
TensorFlow is started is tested by replacing TensorFlow's setters with recorders, so
that machines with GPUs can be tested without one; a few facts need a fresh process.
"""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest
import tensorflow as tf

import manygpu
from manygpu import _devices

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


def test_the_variable_says_how_many_where_the_caller_does_not(monkeypatch):
    monkeypatch.setenv("MANYGPU_DEVICES", "5")
    assert len(manygpu.devices(quiet=True)) == 5


@pytest.mark.parametrize("text", ["two", "0", "-1", "2.0", "1e1", "2 3"])
def test_a_variable_that_is_no_count_is_refused_by_its_name(monkeypatch, text):
    monkeypatch.setenv("MANYGPU_DEVICES", text)
    with pytest.raises(ValueError, match="MANYGPU_DEVICES must be a whole") as error:
        manygpu.devices()
    assert repr(text) in str(error.value)
    assert "unset it" in str(error.value)


@pytest.mark.parametrize("text", [None, "", "  "])
def test_without_a_variable_the_default_is_two(monkeypatch, text):
    monkeypatch.delenv("MANYGPU_DEVICES")
    if text is not None:
        monkeypatch.setenv("MANYGPU_DEVICES", text)
    assert len(manygpu.devices(quiet=True)) == _devices.default_count() == 2


# How it starts TensorFlow, seen through recorders: no GPU needed.


class Recorder:
    """A `tf.config` of a machine with `gpus` GPUs, that writes down what is set."""

    def __init__(self, gpus: int) -> None:
        self.physical = {
            "GPU": [
                SimpleNamespace(name=f"/physical_device:GPU:{i}") for i in range(gpus)
            ],
            "CPU": [SimpleNamespace(name="/physical_device:CPU:0")],
        }
        self.splits: dict[str, list] = {}
        self.growing: list[str] = []
        self.threads: dict[str, int] = {}
        self.tf32 = True  # TensorFlow's own default
        self.experimental = SimpleNamespace(
            set_memory_growth=self._grow,
            enable_tensor_float_32_execution=lambda on: setattr(self, "tf32", on),
            tensor_float_32_execution_enabled=lambda: self.tf32,
        )
        self.threading = SimpleNamespace(
            set_intra_op_parallelism_threads=lambda n: self.threads.update(intra=n),
            set_inter_op_parallelism_threads=lambda n: self.threads.update(inter=n),
        )

    def _grow(self, device, enable: bool) -> None:
        assert enable
        self.growing.append(device.name)

    def list_physical_devices(self, kind: str) -> list:
        return self.physical[kind]

    @staticmethod
    def LogicalDeviceConfiguration(memory_limit: int | None = None):
        return SimpleNamespace(memory_limit=memory_limit)

    def set_logical_device_configuration(self, device, pieces: list) -> None:
        self.splits[device.name] = pieces

    def list_logical_devices(self, kind: str) -> list:
        names = []
        for device in self.physical[kind]:
            names += ["job:localhost"] * len(self.splits.get(device.name, [1]))
        return [
            SimpleNamespace(name=f"/job:localhost/replica:0/task:0/device:{kind}:{i}")
            for i, _ in enumerate(names)
        ]


@pytest.fixture
def machine(monkeypatch):
    """Put `devices` on a machine with so many GPUs of so much memory, not started."""

    def make(gpus: int, memory_mb: int = 10_000) -> Recorder:
        recorder = Recorder(gpus)
        monkeypatch.setattr(_devices, "_chosen", [])
        monkeypatch.setattr(_devices, "_announced", set())
        monkeypatch.setattr(_devices, "_gpu_memory_mb", lambda: memory_mb)
        monkeypatch.setattr(_devices, "tf", SimpleNamespace(config=recorder))
        monkeypatch.delenv("MANYGPU_DEVICES")
        monkeypatch.delenv("MANYGPU_TF32", raising=False)
        return recorder

    return make


def test_without_a_gpu_the_cpu_is_split(machine):
    recorder = machine(gpus=0)
    assert manygpu.devices(3, quiet=True) == [f"/device:CPU:{i}" for i in range(3)]
    assert len(recorder.splits["/physical_device:CPU:0"]) == 3
    assert recorder.threads == {"intra": 1, "inter": 3}


def test_the_list_returned_is_the_callers_own(machine):
    machine(gpus=0)
    manygpu.devices(3, quiet=True).clear()
    assert len(_devices._chosen) == 3


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
    assert recorder.threads == {"intra": 1, "inter": inter}


@pytest.mark.parametrize("text", ["many", "0"])
def test_bad_inter_op_threads_are_refused_by_name(machine, monkeypatch, text):
    machine(gpus=0)
    monkeypatch.setenv("MANYGPU_INTER_OP", text)
    with pytest.raises(ValueError, match="MANYGPU_INTER_OP must be"):
        manygpu.devices(2)


@pytest.mark.parametrize(
    "first, variable, room", [(1, None, 2), (4, None, 4), (1, "6", 6)]
)
def test_the_first_call_makes_room_for_its_number_and_the_default(
    machine, monkeypatch, first, variable, room
):
    recorder = machine(gpus=0)
    if variable:
        monkeypatch.setenv("MANYGPU_DEVICES", variable)
    assert len(manygpu.devices(first, quiet=True)) == first
    assert len(recorder.splits["/physical_device:CPU:0"]) == room
    assert len(manygpu.devices(room, quiet=True)) == room
    with pytest.raises(ValueError, match=f"already started with {room}"):
        manygpu.devices(room + 1)


def test_as_many_gpus_as_needed_are_used_as_they_are(machine, capsys):
    recorder = machine(gpus=3)
    assert manygpu.devices(2) == ["/device:GPU:0", "/device:GPU:1"]
    assert capsys.readouterr().out.startswith("2 of 3 GPUs: GPU:0, GPU:1; float32")
    assert recorder.splits == {}
    assert len(recorder.growing) == 3


def test_one_gpu_is_split_into_equal_shares_of_its_memory(machine, capsys):
    recorder = machine(gpus=1, memory_mb=10_000)
    assert manygpu.devices(4) == [f"/device:GPU:{i}" for i in range(4)]
    pieces = recorder.splits["/physical_device:GPU:0"]
    assert [p.memory_limit for p in pieces] == [2250] * 4
    assert sum(p.memory_limit for p in pieces) < 10_000
    assert "one GPU split into 4 logical GPUs" in capsys.readouterr().out


def test_one_gpu_for_one_device_is_not_split(machine, monkeypatch, capsys):
    recorder = machine(gpus=1)
    monkeypatch.setenv("MANYGPU_DEVICES", "1")
    assert manygpu.devices() == ["/device:GPU:0"]
    assert recorder.splits == {}
    assert capsys.readouterr().out.startswith("1 of 1 GPUs: GPU:0; float32")


@pytest.mark.parametrize(
    "variable, allowed, said",
    [
        (None, False, "float32 in full (TF32 off; MANYGPU_TF32=1 allows it)"),
        ("", False, "float32 in full (TF32 off; MANYGPU_TF32=1 allows it)"),
        ("0", False, "float32 in full (TF32 off; MANYGPU_TF32=1 allows it)"),
        ("1", True, "TF32 where a GPU has it, by MANYGPU_TF32=1"),
    ],
)
@pytest.mark.parametrize("gpus", [1, 2])
def test_on_gpus_float32_is_float32_unless_asked_otherwise(
    machine, monkeypatch, capsys, gpus, variable, allowed, said
):
    recorder = machine(gpus)
    if variable is not None:
        monkeypatch.setenv("MANYGPU_TF32", variable)
    manygpu.devices(2)
    assert recorder.tf32 is allowed
    assert capsys.readouterr().out.endswith(f"GPU:0, GPU:1; {said}\n")


def test_without_gpus_nothing_is_said_or_set_about_tf32(machine, monkeypatch, capsys):
    recorder = machine(gpus=0)
    monkeypatch.setenv("MANYGPU_TF32", "0")
    manygpu.devices(2)
    assert recorder.tf32 is True
    assert "32" not in capsys.readouterr().out


@pytest.mark.parametrize("text", ["yes", "2", "true"])
def test_a_tf32_that_is_neither_on_nor_off_is_refused(machine, monkeypatch, text):
    recorder = machine(gpus=1)
    monkeypatch.setenv("MANYGPU_TF32", text)
    with pytest.raises(ValueError, match=f"MANYGPU_TF32 must be 0 or 1, got '{text}'"):
        manygpu.devices(2)
    assert recorder.splits == {} and _devices._chosen == []


def test_tensorflow_has_the_switch_that_the_recorder_stands_for():
    found = tf.config.experimental.tensor_float_32_execution_enabled()
    try:
        tf.config.experimental.enable_tensor_float_32_execution(not found)
        assert tf.config.experimental.tensor_float_32_execution_enabled() is not found
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(found)


def test_too_few_gpus_leave_the_work_to_the_cpu(machine):
    recorder = machine(gpus=2)
    assert manygpu.devices(4, quiet=True)[0] == "/device:CPU:0"
    assert "/physical_device:GPU:0" not in recorder.splits


def test_a_bad_count_is_refused_before_tensorflow_starts(machine, monkeypatch):
    recorder = machine(gpus=0)
    with pytest.raises(ValueError, match="n must be at least 1"):
        manygpu.devices(0)
    monkeypatch.setenv("MANYGPU_DEVICES", "many")
    with pytest.raises(ValueError, match="MANYGPU_DEVICES"):
        manygpu.devices()
    assert recorder.threads == {}
    assert recorder.splits == {}
    assert _devices._chosen == []


@pytest.mark.parametrize(
    "answer, memory",
    [("81559 MiB\n", 81559), ("", 4096), ("No devices were found\n", 4096)],
)
def test_a_gpus_memory_is_what_nvidia_smi_says(monkeypatch, answer, memory):
    monkeypatch.setattr(_devices.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(
        _devices.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=answer)
    )
    assert _devices._gpu_memory_mb.__wrapped__() == memory


def test_without_nvidia_smi_a_small_gpu_is_assumed(monkeypatch):
    monkeypatch.setattr(_devices.shutil, "which", lambda name: None)
    assert _devices._gpu_memory_mb.__wrapped__() == 4096


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


# What it prints.


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


def test_importing_any_module_starts_no_devices(run_python):
    ran = run_python(
        "import importlib, pkgutil, manygpu\n"
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
