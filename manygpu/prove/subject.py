"""What is judged: a step, its one-device reference, and the cases it must stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

Arrays = list[np.ndarray]
SGD, MOMENTUM, ADAM = "sgd", "momentum", "adam"


class Running(Protocol):
    """A training at work on k devices; adapters make one, see `manygpu.prove`."""

    def take(self, X: np.ndarray, y: np.ndarray) -> float | None:
        """Take one step on a whole batch; return its mean loss before, if it says."""

    def copies(self) -> Sequence[Arrays]:
        """Return the whole weights as they are now, once for each copy of them."""


class Case(NamedTuple):
    """How large a trial is: devices, samples of a batch, steps, a seed for all drawn.

    The smallest case that shows a bug is the first of `LADDER` that does.
    """

    devices: int
    samples: int
    steps: int = 1
    seed: int = 0

    def __str__(self) -> str:
        counted = zip(self[:3], ("device", "sample", "step"), strict=True)
        return ", ".join(f"{n} {what}{'s' * (n != 1)}" for n, what in counted)


# The cases that tell causes apart: shares of 3, 2 and 2 samples; two steps.
TELLING = (Case(3, 7, 2), Case(2, 4, 2), Case(1, 3, 2))
# A sample a device; shares that are even, and that are not; three steps.
FULL = TELLING + tuple(
    Case(k, samples, steps)
    for k in (2, 3, 5, 8)
    for samples, steps in ((k, 1), (k + 1, 3), (2 * k - 1, 2))
)
LADDER = tuple(
    sorted(
        {
            Case(devices, samples, steps)
            for devices in (1, 2, 3, 5, 8)
            for samples in range(devices, 9)
            for steps in (1, 2, 3)
        },
        key=lambda case: (max(case.samples, case.devices), case.devices, case.steps),
    )
)


@dataclass(frozen=True)
class Subject:
    """A step to be judged.

    Attributes:
        start: makes a training, `start(weights, devices) -> Running`, from weights
            that it copies.
        gradient: `gradient(X, y, weights)`: the loss summed over these samples, and
            its gradient for each of the weights, on one device, without the step.
        draw: `draw(samples, seed) -> X, y`: a batch; each seed gives another.
        weights: where the training begins.
        lr: the rate of the optimizer.
        rule: of the optimizer: how a change of the weights is told from a gradient.
        name: in the verdict.
        names: of the weights.
        least_devices, most_devices: that the step takes.
    """

    start: Callable[[Arrays, int], Running]
    gradient: Callable[[np.ndarray, np.ndarray, Arrays], tuple[float, Arrays]]
    draw: Callable[[int, int], tuple[np.ndarray, np.ndarray]]
    weights: Arrays
    lr: float
    rule: Any = SGD
    name: str = "the step"
    names: Sequence[str] = ()
    least_devices: int = 1
    most_devices: int = 8

    def name_of(self, p: int) -> str:
        """Return what parameter p is called, and its shape."""
        shape = " x ".join(map(str, self.weights[p].shape)) or "a number"
        called = self.names[p] if self.names else f"parameter {p}"
        return f"{called} ({shape})"
