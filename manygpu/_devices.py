"""The devices a notebook runs on, whatever machine it is on."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from typing import Any

from manygpu import _tensorflow as tf
from manygpu.checks import check_count, short_device_name

DEFAULT_DEVICES = 2


class StartedError(ValueError):
    """TensorFlow has started without these devices, and can't be given them now."""


_chosen: list[str] = []
_announced: set[int] = set()


def devices(n: int | None = None, quiet: bool = False) -> list[str]:
    """Return the names of `n` devices, starting TensorFlow the first time.

    Real GPUs if there are `n`; one GPU split into `n` logical GPUs if there is one;
    `n` logical CPU devices of one thread each otherwise. Says which it chose.

    TensorFlow fixes its devices when it starts. So the first call makes room for
    `max(n, default)` of them, and later calls return the first `n` of that room.

    If the chosen GPUs are of more than one kind, a second line names the kinds.

    On GPUs float32 means float32: without this TensorFlow lets newer ones round the
    factors of products and convolutions to ten bits (TF32), which is faster, and too
    coarse for the book's proofs. MANYGPU_TF32=1 allows it.

    Args:
        n: how many. None means the environment variable MANYGPU_DEVICES, else 2.
        quiet: don't print what was chosen.

    Returns:
        list[str]: names for `tf.device`, such as '/device:GPU:0'.

    Raises:
        TypeError: `n` is not a whole number.
        ValueError: `n` < 1, MANYGPU_DEVICES is not a number, or more devices are
            asked for than TensorFlow was started with; or, on GPUs, MANYGPU_TF32 is
            neither 0 nor 1.
    """
    count = default_count() if n is None else check_count("n", n)
    if not _chosen:
        _chosen.extend(_start(max(count, default_count())))
    if count > len(_chosen):
        raise StartedError(
            f"n is {count}, but TensorFlow already started with {len(_chosen)}: "
            f"restart the kernel and ask for {count} first, or set "
            f"MANYGPU_DEVICES={count}"
        )
    if not quiet and count not in _announced:
        _announced.add(count)
        print(describe(count))
        if kinds := kinds_of_gpus(count):
            print(kinds)
    return _chosen[:count]


def default_count() -> int:
    """Return MANYGPU_DEVICES, or 2 where it is not set.

    Raises:
        ValueError: MANYGPU_DEVICES is not a whole number of at least 1.
    """
    return _count_from("MANYGPU_DEVICES", DEFAULT_DEVICES)


def _count_from(variable: str, default: int) -> int:
    """The whole number in an environment variable, or `default` if it is unset."""
    text = os.environ.get(variable, "").strip()
    if not text:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(
            f"{variable} must be a whole number of at least 1, got {text!r}: "
            f"set it to 1, 2, ... or unset it"
        )
    return int(text)


def _tf32_allowed() -> bool:
    """Whether MANYGPU_TF32 lets GPUs round the factors of float32 products."""
    text = os.environ.get("MANYGPU_TF32", "").strip() or "0"
    if text not in ("0", "1"):
        raise ValueError(
            f"MANYGPU_TF32 must be 0 or 1, got {text!r}: set it or unset it"
        )
    return text == "1"


def _start(room: int) -> list[str]:
    """Configure `room` devices and start TensorFlow; return their names."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.experimental.enable_tensor_float_32_execution(_tf32_allowed())
    try:
        if len(gpus) >= room:
            for gpu in gpus:
                tf.config.experimental.set_memory_growth(gpu, True)
            kind = "GPU"
        elif len(gpus) == 1:
            _split_gpu(gpus[0], room)
            kind = "GPU"
        else:
            _split_cpu(room)
            kind = "CPU"
    except RuntimeError as started:
        raise StartedError(
            f"n asks for {room} devices, but TensorFlow has already started: restart "
            f"the kernel and call manygpu.devices before any other TensorFlow work"
        ) from started
    logical = tf.config.list_logical_devices(kind)
    return [short_device_name(d.name) for d in logical[:room]]


def _split_cpu(room: int) -> None:
    """Cut the CPU into `room` logical devices of one thread each.

    One intra-op thread: an operation runs on one core, as a device would. As many
    inter-op threads as devices: each device can have one operation under way. With
    one device that is one thread in all, so that it can't use a second core; the
    variable MANYGPU_INTER_OP overrules it, to show what the second thread does.
    """
    tf.config.threading.set_intra_op_parallelism_threads(1)
    inter_op = _count_from("MANYGPU_INTER_OP", room)
    tf.config.threading.set_inter_op_parallelism_threads(inter_op)
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * room,
    )
    _hand_over_untuned()


def untuned() -> tf.data.Options:
    """Options of a pipeline in which nothing is to be tuned.

    TensorFlow tunes each iterator in a thread, which sleeps for up to a minute. Whoever
    deletes the iterator wakes it and waits; but it is woken before it can see that it
    is to end (`Model::OptimizeLoop` asks `IsCancelled`, which `StartCancelWithStatus`
    sets after it has called), and may sleep on.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return options


def _hand_over_untuned() -> None:
    """Tune none of the iterators that hand a strategy's batches to its devices.

    They have nothing to tune, and a pipeline's own options don't reach them. On GPUs
    they have no such thread (`IteratorResource::SetIteratorFromDataset`).
    """
    from tensorflow.python.data.ops import multi_device_iterator_ops as hand_over

    made = getattr(hand_over, "_create_device_dataset", None)  # private: it may go
    if made and not hasattr(made, "__wrapped__"):
        untuned_one = functools.wraps(made)(lambda *a: made(*a).with_options(untuned()))
        hand_over._create_device_dataset = untuned_one


def _split_gpu(gpu: Any, room: int) -> None:
    """Cut one GPU into `room` logical GPUs, an equal share of memory each."""
    share = int(0.9 * _gpu_memory_mb() / room)
    tf.config.set_logical_device_configuration(
        gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=share)] * room
    )


@functools.cache
def _gpu_memory_mb() -> int:
    """Memory of the first GPU in MB, as nvidia-smi tells it; 4096 if it can't."""
    answer = _of_first_gpu("memory.free").split()
    return int(answer[0]) if answer and answer[0].isdecimal() else 4096


def gpu_name() -> str:
    """What nvidia-smi calls the first GPU; nothing without one."""
    here = tf.config.list_physical_devices("GPU")
    return _of_first_gpu("name").strip() if here else ""


def _of_first_gpu(asked: str) -> str:
    """What nvidia-smi answers; nothing where it isn't there."""
    if not shutil.which("nvidia-smi"):
        return ""
    query = ["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader", "--id=0"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout


def gpu_bytes(count: int) -> int | None:
    """Return the bytes that each of `count` devices may fill, if they are GPUs.

    0 where they are none, None where nobody tells. One GPU is split for several.
    """
    gpus = len(tf.config.list_physical_devices("GPU"))
    if not gpus or 1 < gpus < count:  # see `_start`
        return 0
    if not shutil.which("nvidia-smi"):
        return None
    free = _gpu_memory_mb()
    return 2**20 * (free if gpus >= count else int(0.9 * free / count))


def describe(count: int) -> str:
    """One line that says what `count` devices of the room are made of."""
    names = ", ".join(d.removeprefix("/device:") for d in _chosen[:count])
    if ":CPU:" in _chosen[0]:
        cores = os.cpu_count() or 1
        what = f"{count} logical CPU device{'s' if count > 1 else ''} of one thread"
        shared = f"; {cores} cores, so times say nothing" if count > cores else ""
        return f"{what}: {names}{shared}"
    physical = len(tf.config.list_physical_devices("GPU"))
    what = f"{count} of {physical} GPUs"
    if physical < len(_chosen):
        what = f"one GPU split into {len(_chosen)} logical GPUs, using {count}"
    return f"{what}: {names}; {_describe_float32()}"


def kinds_of_gpus(count: int) -> str:
    """One line that names the kinds of the first `count` GPUs; "" if all are alike.

    The names come from TensorFlow, because nvidia-smi may count GPUs in a different
    order: it goes by the bus, and CUDA puts the fastest first unless told otherwise.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) < len(_chosen):  # logical CPU devices, or parts of one GPU
        return ""
    places: dict[str, list[str]] = {}
    for device, gpu in zip(_chosen[:count], gpus, strict=False):
        kind = tf.config.experimental.get_device_details(gpu).get("device_name", "?")
        places.setdefault(kind, []).append(device.removeprefix("/device:"))
    if len(places) < 2:
        return ""
    named = "; ".join(f"{kind} ({', '.join(at)})" for kind, at in places.items())
    return (
        f"{len(places)} kinds of GPU: {named}. Where all devices wait for each "
        f"other, the slowest sets the pace."
    )


def _describe_float32() -> str:
    """What GPUs make of float32."""
    if tf.config.experimental.tensor_float_32_execution_enabled():
        return "TF32 where a GPU has it, by MANYGPU_TF32=1"
    return "float32 in full (TF32 off; MANYGPU_TF32=1 allows it)"
