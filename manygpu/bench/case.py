"""The case that one process times: a strategy, devices, threads, a model, a batch."""

from __future__ import annotations

from dataclasses import dataclass

from manygpu.simulate.works import whole
from manygpu.trainings.table import LENET, SAMPLES, known


@dataclass(frozen=True)
class Case:
    """What one process times.

    Attributes:
        strategy: a key of `STRATEGIES`.
        devices: how many.
        inter_op: inter-op threads, to show what an unfair baseline does; None for
            as many as devices, see `manygpu.devices`.
        batch: samples in a batch; None for as many as the model usually has.
        model: "lenet", or another that `models.load` finds.
        seconds: what each layer of such a model takes; so it is cut evenly.

    Raises:
        TypeError: a count that is no whole number.
        ValueError: no such strategy, or a count below 1.
    """

    strategy: str
    devices: int
    inter_op: int | None = None
    batch: int | None = None
    model: str = LENET
    seconds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.strategy not in known():
            raise ValueError(
                f"strategy must be one of {known()}, got {self.strategy!r}"
            )
        whole("devices", self.devices)
        for name in ("inter_op", "batch"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))

    @property
    def samples(self) -> int | None:
        """How many samples its batch has; None where only its model knows."""
        return SAMPLES.get(self.model) if self.batch is None else self.batch
