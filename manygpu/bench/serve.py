"""What a process of a comparison does: it makes a strategy, and answers questions.

A number asks for the seconds of so many steps; "facts" for what a row of a comparison
holds besides: whether its step is that of one device, memory, bytes sent; and ("look",
devices) for what must be known of the model first.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

import manygpu
from manygpu import _devices
from manygpu.bench import models
from manygpu.bench.contract import Running, Task, length_of, step_of
from manygpu.bench.keras_models import first_line
from manygpu.bench.result import UNCLEAR
from manygpu.bench.strategies import set_up
from manygpu.bench.table import Case, Strategy, UnfitError
from manygpu.measure import distance
from manygpu.scratch.splitting.recomputation import peak_bytes


def answers(
    case: Case, strategy: Strategy, safe: bool
) -> Callable[[int | str | tuple], Any]:
    """Return what makes what is to be timed, once, and answers questions.

    A `safe` one answers with a pair: a failure is None, and why in a line.
    """

    @cache
    def made() -> tuple[list[str], Running]:
        devices = manygpu.devices(quiet=True)
        task = models.load(case.model, case.batch, case.seconds)
        return devices, set_up(strategy, task, devices)

    def answer(question: int | str | tuple) -> Any:
        devices, running = made()
        if question == "facts":
            return facts_of(running, strategy, devices)
        if isinstance(question, tuple):
            return look(running.task, devices[0], question[1])
        return [_seconds(running) for _ in range(question)]

    def safely(question: int | str | tuple) -> tuple[Any, str]:
        try:
            return answer(question), ""
        except Exception as error:
            return None, reason(error)

    return safely if safe else answer


def _seconds(running: Running) -> float:
    """How long a step takes."""
    before = time.perf_counter()
    running.take(*running.task.batch)
    return time.perf_counter() - before


def facts_of(
    running: Running, strategy: Strategy, devices: list[str]
) -> dict[str, float | str]:
    """Return what a row of a comparison holds besides times.

    What is not known, such as the bytes of an engine's messages, is left out.
    """
    found: dict[str, Any] = compared(running, strategy, devices)
    gc.collect()  # other forms of the step, and their variables
    held = running.held()
    found["held"] = sum(held.values())
    found["shared"] = ":CPU:" in devices[0]
    found["hardware"] = _devices.describe(len(devices))
    if running.sent is not None:
        found["sent"] = running.sent(*running.task.batch)
    return found | _memory(running, devices, held)


def compared(
    running: Running, strategy: Strategy, devices: list[str]
) -> dict[str, float | str]:
    """Return how far the first step was from one device's.

    It is that of the first form that tells; `trained` is the distance of the step as
    it is trained, if that is another form.
    """
    found = _apart(running)
    if _equal(found):
        return found
    seen = [found]
    for remark, form in running.task.forms():
        seen.append({**_apart(set_up(strategy, form, devices)), "remark": remark})
        if _equal(seen[-1]):
            return {**seen[-1], "trained": found["distance"]}
    return next((one for one in seen if one["tolerance"] <= UNCLEAR), found)


def _apart(running: Running) -> dict[str, float]:
    """How far the next step is from one device's, and how far it may be.

    If the step, or its loss, is the model's `own`: how many times one device's it is,
    0 if it isn't.
    """
    task = running.task
    wanted = running.reference(*task.batch)  # before the step, which moves weights
    allowed, moved = tolerance_of(running, wanted), step_of(running, *task.batch)
    found = {"distance": distance(moved, wanted), "tolerance": allowed}
    if not math.isfinite(found["distance"]):
        raise UnfitError("its step is not finite, and one device's is")
    if task.own_step or task.own_loss:
        pairs = [*zip(moved, wanted, strict=True)]
        times = sum(np.vdot(a, b) for a, b in pairs) / length_of(wanted) ** 2
        off = distance(moved, [times * b for b in wanted]) if times > 0 else math.inf
        found["own"] = float(times) if off <= allowed else 0.0
    return found


def _equal(found: Mapping[str, float]) -> bool:
    return found["distance"] <= found["tolerance"] <= UNCLEAR


def tolerance_of(running: Running, wanted: Sequence) -> float:
    """Return how far a step may be from one device's, `wanted`, by rounding alone.

    That is ten times what another order of the samples does to one device's step, and
    what is left of a small step when the weights it moves are rounded to 24 bits.

    Raises:
        UnfitError: one device's step is none, or not finite.
    """
    batch = running.task.batch
    again = running.reference(*tf.nest.map_structure(lambda t: t[::-1], batch))
    length = length_of(wanted)
    if not 0 < length < float("inf"):
        raise UnfitError(f"one device's step is {length:g} long: nothing to compare")
    return (
        10 * distance(again, wanted) + 2.0**-23 * length_of(running.result()) / length
    )


def _memory(
    running: Running, devices: Sequence[str], held: Mapping[str, int]
) -> dict[str, int]:
    """Bytes that a device needs, if TensorFlow counts them; see `peak_bytes`.

    GPUs are looked at one by one, and the fullest counts. Logical CPU devices share an
    allocator, so each is said to need its share of what all need together.
    """
    shared = ":CPU:" in devices[0]
    try:
        peaks = [
            peak_bytes(lambda: running.take(*running.task.batch), device)[0]
            for device in (devices[:1] if shared else devices)
        ]
    except ValueError:  # an allocator that doesn't count
        return {}
    if shared:
        return {"memory": (sum(held.values()) + peaks[0]) // len(devices)}
    each = zip(devices, peaks, strict=True)
    return {"memory": max(held.get(device, 0) + peak for device, peak in each)}


def look(task: Task, device: str, devices: int) -> dict[str, Any]:
    """Say of a model what `models.look_at` does, and how large each of the GPUs is."""
    found = models.look_at(task, device)
    memory = _devices.gpu_bytes(devices)
    if memory is None:
        found["unknown"]["memory"] = "nvidia-smi isn't there to tell a GPU's"
    return {**found, "gpu_bytes": memory or 0, "gpu": _devices.gpu_name()}


def reason(error: Exception) -> str:
    """Return in a line why something can't run."""
    if isinstance(error, UnfitError):
        return str(error)
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return "it doesn't fit into a device's memory"
    return first_line(error)
