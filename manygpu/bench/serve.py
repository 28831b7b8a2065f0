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
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import manygpu
from manygpu import _devices
from manygpu.bench.case import Case
from manygpu.bench.result import UNCLEAR
from manygpu.measure import distance
from manygpu.prove.rules import RULES
from manygpu.scratch.splitting.recomputation import peak_bytes
from manygpu.trainings import models
from manygpu.trainings.at_work import set_up
from manygpu.trainings.contract import Training
from manygpu.trainings.keras_batches import first_line
from manygpu.trainings.keras_losses import COUNTED
from manygpu.trainings.table import SGD, Strategy, UnfitError
from manygpu.trainings.task import (
    Task,
    held_by,
    length_of,
    to_be_timed,
    weights_of,
)


def answers(
    case: Case, strategy: Strategy, safe: bool
) -> Callable[[int | str | tuple], Any]:
    """Return what makes what is to be timed, once, and answers questions.

    A `safe` one answers with a pair: a failure is None, and why in a line.
    """

    @cache
    def made() -> Timed:
        devices = manygpu.devices(quiet=True)
        task = models.load(case.model, case.batch, case.seconds)
        return timed(strategy, task, devices)

    def answer(question: int | str | tuple) -> Any:
        if question == "facts":
            return facts_of(made())
        if isinstance(question, tuple):
            return look(made().task, made().devices[0], question[1])
        return [_seconds(made()) for _ in range(question)]

    def safely(question: int | str | tuple) -> tuple[Any, str]:
        try:
            return answer(question), ""
        except Exception as error:
            return None, reason(error)

    return safely if safe else answer


class Timed(NamedTuple):
    """What is timed and compared: a row at work on a task.

    `strategy` is the row, `task` what it is put to work on, `devices` are all that
    there are, and `training` is at work, ready to be timed.
    """

    strategy: Strategy
    task: Task
    devices: list[str]
    training: Training

    def reference(self, X: Any, y: Any) -> list[np.ndarray]:
        """Return by how much one device's step moves the weights, by the row's rule.

        The rule is one that has seen no step yet.
        """
        weights = weights_of(self.training)
        if self.strategy.rule == SGD:
            return self.task.moved(X, y, weights)
        rule = RULES[self.strategy.rule](self.task.lr)
        mean = self.task.mean_gradients(X, y, weights)
        return [-change for change in rule.change(mean)]

    def step(self, X: Any, y: Any) -> list[np.ndarray]:
        """Take a step; return by how much it moved the weights."""
        before = weights_of(self.training)
        self.training.take(X, y)
        pairs = zip(weights_of(self.training), before, strict=True)
        return [a - b for a, b in pairs]


def timed(strategy: Strategy, task: Task, devices: list[str]) -> Timed:
    """Put a row to work on a task; UnfitError if the task hasn't what it needs."""
    by_keras = task.own_step or "keras" in strategy.needs.split()
    task = task.for_fit() if by_keras and not strategy.limit else task
    made = to_be_timed(set_up(strategy, task, devices), strategy.eager)
    return Timed(strategy, task, devices, made)


def step_distance(made: Timed, X: Any, y: Any) -> float:
    """Take a step; return how far it was from one device's, see `measure.distance`.

    That is of the steps, for weights hardly move.
    """
    wanted = made.reference(X, y)
    return distance(made.step(X, y), wanted)


def _seconds(made: Timed) -> float:
    """How long a step takes."""
    before = time.perf_counter()
    made.training.take(*made.task.batch)
    return time.perf_counter() - before


def facts_of(made: Timed) -> dict[str, float | str]:
    """Return what a row of a comparison holds besides times.

    What is not known, such as the bytes of an engine's messages, is left out.
    """
    found: dict[str, Any] = compared(made)
    gc.collect()  # other forms of the step, and their variables
    held = held_by(made.training)
    found["held"] = sum(held.values())
    found["shared"] = ":CPU:" in made.devices[0]
    found["hardware"] = _devices.describe(len(made.devices))
    if made.training.sent is not None:
        found["sent"] = made.training.sent(*made.task.batch)
    return found | _memory(made, held)


def compared(made: Timed) -> dict[str, float | str]:
    """Return how far the first step was from one device's, and if it was, why.

    It is that of the first form that tells; `trained` is the distance of the step as
    it is trained, if that is another form.
    """
    found = _apart(made)
    if _equal(found):
        return found
    seen, other = [found], made
    for remark, form in made.task.forms():
        other = timed(made.strategy, form, made.devices)
        seen.append({**_apart(other), "remark": remark})
        if _equal(seen[-1]):
            return {**seen[-1], "trained": found["distance"]}
    if other.task.draws:  # and can't be told not to
        return {**found, "tolerance": 1.0, "why": DRAWS}
    found = next((one for one in seen if one["tolerance"] <= UNCLEAR), found)
    why = _why(made, found)
    return {**found, "why": why} if why else found


DRAWS = "this model draws random numbers, so rows can't be compared"
MOVES = (
    "in the forward pass its layers change {} by the samples that they see, and each "
    "part sees others"
)

UNEVEN = (
    "Keras averages the means of the shares, and {} samples make uneven ones for {} "
    "devices"
)


def _why(made: Timed, found: Mapping[str, Any]) -> str:
    """Why a step is another one than one device's, as far as the model tells."""
    task, by_keras = made.task, "keras" in made.strategy.needs.split()
    many = round(found.get("times", 0))
    if task.division.why or "own" in found:
        return task.division.why
    if by_keras and many == len(made.devices):
        return task.division.by_replicas
    if by_keras and task.division.kind == COUNTED:
        return task.division.by_replicas
    if by_keras and task.samples % len(made.devices):
        return UNEVEN.format(task.samples, len(made.devices))
    if task.moves:
        return MOVES.format(", ".join(task.moves))
    return found.get("why", "")


def _apart(made: Timed) -> dict[str, Any]:
    """How far the next step is from one device's, and how far it may be.

    If it is too far, `times` says how many times one device's it is, if it is, else
    `why` in which weights most of the difference is; and `own` says how many times, or
    0, if the step, or its loss, is the model's own.
    """
    task = made.task
    wanted = made.reference(*task.batch)  # before the step, which moves weights
    allowed, moved = tolerance_of(made, wanted), made.step(*task.batch)
    found = {"distance": distance(moved, wanted), "tolerance": allowed}
    if not math.isfinite(found["distance"]):
        raise UnfitError("its step is not finite, and one device's is")
    pairs = [*zip(moved, wanted, strict=True)]
    times = sum(np.vdot(a, b) for a, b in pairs) / length_of(wanted) ** 2
    off = distance(moved, [times * b for b in wanted]) if times > 0 else math.inf
    times = float(times) if off <= allowed else 0.0
    if (task.own_step and not task.assigns) or task.own_loss:
        found["own"] = times
    if found["distance"] <= allowed or "own" in found:
        return found
    if times:
        return found | {"times": times}
    return found | ({"why": _most(task.names, pairs)} if task.names else {})


def _most(names: Sequence[str], pairs: Sequence[tuple]) -> str:
    """Say in which weights most of the difference between two steps is."""
    off = [float(np.sum(np.square(a - b, dtype=np.float64))) for a, b in pairs]
    return f"most of it in {names[off.index(max(off))]}"


def _equal(found: Mapping[str, float]) -> bool:
    return found["distance"] <= found["tolerance"] <= UNCLEAR


def tolerance_of(made: Timed, wanted: Sequence) -> float:
    """Return how far a step may be from one device's, `wanted`, by rounding alone.

    That is ten times what another order of the samples does to one device's step, and
    what is left of a small step when the weights it moves are rounded to 24 bits.

    Raises:
        UnfitError: one device's step is none, or not finite.
    """
    again = made.reference(*tf.nest.map_structure(lambda t: t[::-1], made.task.batch))
    length = length_of(wanted)
    if not 0 < length < float("inf"):
        raise UnfitError(f"one device's step is {length:g} long: nothing to compare")
    weights = length_of(weights_of(made.training))
    return 10 * distance(again, wanted) + 2.0**-23 * weights / length


def _memory(made: Timed, held: Mapping[str, int]) -> dict[str, int]:
    """Bytes that a device needs, if TensorFlow counts them; see `peak_bytes`.

    GPUs are looked at one by one, and the fullest counts. Logical CPU devices share an
    allocator, so each is said to need its share of what all need together.
    """
    devices, step = made.devices, partial(made.training.take, *made.task.batch)
    shared = ":CPU:" in devices[0]
    try:
        looked_at = devices[:1] if shared else devices
        peaks = [peak_bytes(step, device)[0] for device in looked_at]
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


NEW_VARIABLES = (
    "a layer makes a variable inside the compiled step, as keras.random does on each "
    "device if it gets no seed: give it a keras.random.SeedGenerator that the layer "
    "makes in __init__"
)


def reason(error: Exception) -> str:
    """Return in a line why something can't run."""
    if isinstance(error, UnfitError):
        return str(error)
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return "it doesn't fit into a device's memory"
    if "singleton tf.Variables" in str(error):
        return NEW_VARIABLES
    return first_line(error)
