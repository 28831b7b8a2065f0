"""What is judged: a step, its one-device reference, and the cases it must stand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from manygpu.trainings.contract import Training
from manygpu.trainings.table import SGD

Arrays = list[np.ndarray]


class Case(NamedTuple):
    """How large a trial is: devices, samples of a batch, steps, a seed for all drawn.

    The smallest case that shows a bug is the first of `LADDER` that does. Shrinking
    as hypothesis does it would find no smaller one, as there are only a hundred, and
    each is tried in its turn.
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
        start: makes a training, `start(weights, devices) -> Training`, from weights
            that it copies.
        gradient: `gradient(X, y, weights)`: the loss summed over these samples, and
            its gradient for each of the weights, on one device, without the step. None
            where there is no such reference: then nobody counts the samples, and the
            judge asks only what must not change.
        draw: `draw(samples, seed) -> X, y`: a batch; each seed gives another.
        weights: where the training begins.
        lr: the rate of the optimizer.
        rule: of the optimizer: how a change of the weights is told from a gradient.
        name: in the verdict.
        names: of the weights.
        least_devices, most_devices: that the step takes.
        least_samples: that it takes, on any number of devices.
        even: whether it takes only samples that the devices divide.
        on: `on(weights, order)` makes a training on devices in this order, such as
            [2, 0, 1]; None if it can't.
        twice: makes a training of twice the loss, as `start` does; None if it can't.
        apart: state that replicas rightly have each for itself, by name, and why.
        excused: properties that the model itself does not have, and why: what breaks
            them becomes a remark, "dropout draws by place".
        refusals: errors by which the step refuses a batch.
        guarded: whether a step whose gradient is no number must move nothing.
    """

    start: Callable[[Arrays, int], Training]
    gradient: Callable[[np.ndarray, np.ndarray, Arrays], tuple[float, Arrays]] | None
    draw: Callable[[int, int], tuple[np.ndarray, np.ndarray]]
    weights: Arrays
    lr: float
    rule: Any = SGD
    name: str = "the step"
    names: Sequence[str] = ()
    least_devices: int = 1
    most_devices: int = 8
    least_samples: int = 1
    even: bool = False
    on: Callable[[Arrays, Sequence[int]], Training] | None = None
    twice: Callable[[Arrays, int], Training] | None = None
    apart: Mapping[str, str] = field(default_factory=dict)
    excused: Mapping[str, str] = field(default_factory=dict)
    refusals: tuple[type[Exception], ...] = (ValueError, TypeError)
    guarded: bool = False

    def fits(self, case: Case) -> bool:
        """Return whether the step takes so many devices and samples."""
        return case.samples >= self.least_samples and self.is_shared(case)

    def is_shared(self, case: Case) -> bool:
        """Return whether so many devices can share so many samples, or refuse them."""
        divides = case.samples % case.devices == 0 or not self.even
        return divides and self.least_devices <= case.devices <= self.most_devices

    def uneven(self, full: bool, steps: int) -> list[Case]:
        """Return cases on several devices whose shares are uneven, if it takes such."""
        several = [k for k in (2, 3, 5, 8) if k <= (8 if full else 3)]
        fit = [k for k in several if self.least_devices <= k <= self.most_devices]
        more = 0 if self.even else 1
        return [
            Case(k, max(2 * k + more, self.least_samples), steps)
            for k in fit or [self.most_devices]
        ]

    def name_of(self, p: int) -> str:
        """Return what parameter p is called, and its shape."""
        shape = " x ".join(map(str, self.weights[p].shape)) or "a number"
        called = self.names[p] if self.names else f"parameter {p}"
        return f"{called} ({shape})"
