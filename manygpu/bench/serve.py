"""What a process of a comparison does: it makes a strategy, and answers questions.

A number asks for the seconds of so many steps; "facts" for what a row of a comparison
holds besides: whether its step is that of one device, memory, bytes sent.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import manygpu
from manygpu import _devices
from manygpu.bench import models
from manygpu.bench.case import Case
from manygpu.bench.contract import Running, step_distance
from manygpu.bench.keras_models import first_line
from manygpu.bench.result import UNCLEAR
from manygpu.bench.strategies import set_up
from manygpu.bench.table import Strategy, UnfitError
from manygpu.measure import distance
from manygpu.scratch.splitting.recomputation import peak_bytes


def answers(case: Case, strategy: Strategy) -> Callable[[int | str], Any]:
    """Make what is to be timed; return what answers questions.

    Raises UnfitError for a model, or a batch, that the strategy can't train.
    """
    devices = manygpu.devices(quiet=True)
    task = models.load(case.model, case.batch, case.seconds)
    running = set_up(strategy, task, devices)

    def answer(question: int | str) -> Any:
        if question == "facts":
            return facts_of(running, strategy, devices)
        return [_seconds(running) for _ in range(question)]

    return answer


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
    """How far the next step is from one device's, and how far it may be."""
    allowed = tolerance_of(running)  # before the step, which moves weights
    found = step_distance(running, *running.task.batch)
    if not math.isfinite(found):
        raise UnfitError("its step is not finite, and one device's is")
    return {"distance": found, "tolerance": allowed}


def _equal(found: Mapping[str, float]) -> bool:
    return found["distance"] <= found["tolerance"] <= UNCLEAR


def tolerance_of(running: Running) -> float:
    """Return how far a step may be from one device's by rounding alone.

    That is ten times what another order of the samples does to one device's step, and
    what is left of a small step when the weights it moves are rounded to 24 bits.

    Raises:
        UnfitError: one device's step is none, or not finite.
    """
    batch = running.task.batch
    wanted = running.reference(*batch)
    again = running.reference(*tf.nest.map_structure(lambda t: t[::-1], batch))
    length = _length(wanted)
    if not 0 < length < float("inf"):
        raise UnfitError(f"one device's step is {length:g} long: nothing to compare")
    return 10 * distance(again, wanted) + 2.0**-23 * _length(running.result()) / length


def _length(arrays: Sequence[np.ndarray]) -> float:
    """The Euclidean norm of all numbers of all arrays."""
    return float(np.sqrt(sum(np.sum(np.square(a, dtype="float64")) for a in arrays)))


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


def look() -> Callable[[tuple[str, int, int]], dict[str, Any]]:
    """Say of a model what `models.look_at` does, and how large a GPU is."""

    def answer(question: tuple[str, int, int]) -> dict[str, Any]:
        name, batch, count = question
        (device,) = manygpu.devices(1, quiet=True)
        found = models.look_at(models.load(name, batch or None), device)
        memory = _devices.gpu_bytes(count)
        if memory is None:
            found["unknown"]["memory"] = "nvidia-smi isn't there to tell a GPU's"
        return {**found, "gpu_bytes": memory or 0}

    return answer


def safely(make: Callable, *arguments: Any) -> Callable[[Any], tuple[Any, str]]:
    """`make(*arguments)` answers, or "why not" stands beside None."""
    made: list[Callable] = []

    def answer(question: Any) -> tuple[Any, str]:
        try:
            if not made:
                made.append(make(*arguments))
            return made[0](question), ""
        except Exception as error:
            return None, reason(error)

    return answer


def reason(error: Exception) -> str:
    """Return in a line why something can't run."""
    if isinstance(error, UnfitError):
        return str(error)
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return "it doesn't fit into a device's memory"
    return first_line(error)
