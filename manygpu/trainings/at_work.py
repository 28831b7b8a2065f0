"""A row of the table, put to work on a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from manygpu.trainings import copies, engines, meetings, parts
from manygpu.trainings.contract import Training
from manygpu.trainings.keras_batches import own_function
from manygpu.trainings.table import Strategy, UnfitError, unfit
from manygpu.trainings.task import Task

# By the names that rows have for them. Pages that run alone carry what is imported.
ROOMS = {"copies": copies, "engines": engines, "meetings": meetings, "parts": parts}


def maker(address: str) -> Callable[..., Training]:
    """Return the function that a row names, `module:function`.

    Raises:
        UnfitError: there is no such function.
    """
    room, _, name = address.partition(":")
    return getattr(ROOMS[room], name) if room in ROOMS else own_function(address)


def set_up(
    strategy: Strategy,
    task: Task,
    devices: list[str],
    options: Mapping[str, Any] | None = None,
) -> Training:
    """Return a strategy at work on a task.

    options: of the row's function.

    Raises:
        UnfitError: the task hasn't what the strategy needs.
    """
    why = unfit(strategy, task.about, len(devices)) if task.batch else ""
    if why:
        raise UnfitError(why)
    own = devices[:1] if strategy.alone else devices
    made = maker(strategy.make)(task, own, **(options or {}))
    by_keras = task.own_step or "keras" in strategy.needs.split()
    return made if by_keras else constrained(made, task.constraints)


def constrained(training: Training, constraints: Sequence) -> Training:
    """Return a training that keeps to constraints of weights, functions or None.

    As Keras does: after each update.
    """
    if not any(constraints):
        return training

    def take(X: Any, y: Any) -> Any:
        loss = training.take(X, y)
        for own in training.copies():
            for p, keep in zip(own, constraints, strict=True):
                if keep:
                    with tf.device(p.device):
                        p.assign(keep(p))
        return loss

    return training._replace(take=take)
