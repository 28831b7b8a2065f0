"""What is judged: a step, its one-device reference, and the cases it must stand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from manygpu.measure import shares
from manygpu.trainings.contract import Training

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

    @property
    def dealt(self) -> str:
        """How many samples each device gets, in words."""
        *most, last = map(str, shares(self.samples, self.devices))
        return f"shares of {', '.join(most)} and {last} samples"


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
            for devices in (1, 2, 3, 4, 5, 8)
            for samples in range(devices, 9)
            for steps in (1, 2, 3)
        },
        key=lambda case: (max(case.samples, case.devices), case.devices, case.steps),
    )
)


def one_each(devices: int) -> int:
    """Return into how many parts a step cuts a batch that gives each device a share."""
    return devices


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
        rule: of the optimizer, such as "adam": how a change of the weights is told
            from a gradient. None: it is plain SGD, or what the judge finds in the
            step's own run on one device. A name that `RULES` doesn't have, such as
            "lamb": the devices are compared with one device only.
        hyperparameters: of the rule, such as {"betas": (0.9, 0.95), "epsilon": 1e-8}:
            the arguments of its function in `manygpu.prove.rules`. None: if the rule's
            own don't explain the step on one device, they are found there.
        optimizer_says: returns the rule and the hyperparameters that the optimizer
            object itself has, its "rates" too; or None. The judge believes it if that
            explains the step on one device. None: nobody can ask the optimizer.
        name: in the verdict.
        names: of the weights.
        least_devices, most_devices: that the step takes.
        even: whether it takes only samples that the devices divide.
        parts: `parts(devices)`: into how many parts the step cuts a batch, such as one
            per device and micro-batch. It may refuse a batch of fewer samples: such a
            case isn't judged, and a remark names it.
        cases: in which the samples are counted. A step that cuts along two axes needs
            one whose devices are cut along both.
        on: `on(weights, order)` makes a training on devices in this order, such as
            [2, 0, 1]; None if it can't.
        twice: makes a training of twice the loss, as `start` does; None if it can't.
        apart: state that replicas rightly have each for itself, by name, and why.
        excused: properties that the model itself does not have, and why: what breaks
            them becomes a remark, "dropout draws by place".
        refusals: errors by which the step refuses a batch, as a whole. All others are
            faults; an assertion of TensorFlow's counts as a ValueError.
        guarded: whether a step whose gradient is no number must move nothing.
        coarse: the unit in the last place of 1 of the narrowest dtype that the step
            computes in, such as 2**-7 for bfloat16; 0: the judge finds it out.
    """

    start: Callable[[Arrays, int], Training]
    gradient: Callable[[np.ndarray, np.ndarray, Arrays], tuple[float, Arrays]] | None
    draw: Callable[[int, int], tuple[np.ndarray, np.ndarray]]
    weights: Arrays
    lr: float
    rule: str | None = None
    hyperparameters: Mapping[str, Any] | None = None
    optimizer_says: Callable[[], tuple[str, dict[str, Any]] | None] | None = None
    name: str = "the step"
    names: Sequence[str] = ()
    least_devices: int = 1
    most_devices: int = 8
    even: bool = False
    parts: Callable[[int], int] = one_each
    cases: Sequence[Case] = TELLING
    on: Callable[[Arrays, Sequence[int]], Training] | None = None
    twice: Callable[[Arrays, int], Training] | None = None
    apart: Mapping[str, str] = field(default_factory=dict)
    excused: Mapping[str, str] = field(default_factory=dict)
    refusals: tuple[type[Exception], ...] = (ValueError, TypeError)
    guarded: bool = False
    coarse: float = 0.0

    def fits(self, case: Case) -> bool:
        """Return whether the step takes so many devices, and they share the samples."""
        divides = case.samples % case.devices == 0 or not self.even
        return divides and self.least_devices <= case.devices <= self.most_devices

    def uneven(self, full: bool, steps: int) -> list[Case]:
        """Return cases on several devices whose shares are uneven, if it takes such."""
        own = {case.devices for case in self.cases} - {1}
        most = 8 if full else max([3, *own])
        several = [k for k in sorted(own | {2, 3, 5, 8}) if k <= most]
        fit = [k for k in several if self.least_devices <= k <= self.most_devices]
        return [self.enough(k, steps) for k in fit or [self.most_devices]]

    def enough(self, devices: int, steps: int) -> Case:
        """Return a case with a sample for each part, and two or more per device."""
        shares = max(2, -(-self.parts(devices) // devices))
        return Case(devices, shares * devices + (not self.even), steps)

    def counted(self, full: bool) -> list[Case]:
        """Return the cases in which the samples are counted; one at least has enough.

        full: up to 8 devices, and a sample per device.
        """
        every = dict.fromkeys([*self.cases, *(FULL if full else ())])
        fit = [case for case in every if self.fits(case)]
        if all(self.is_small(case) for case in fit):
            fit += self.uneven(full, steps=2)
        return fit

    def is_small(self, case: Case) -> bool:
        """Return whether a batch has too few samples for all parts it is cut into."""
        return case.samples < self.parts(case.devices)

    def name_of(self, p: int) -> str:
        """Return what parameter p is called, and its shape."""
        shape = " x ".join(map(str, self.weights[p].shape)) or "a number"
        called = self.names[p] if self.names else f"parameter {p}"
        return f"{called} ({shape})"
