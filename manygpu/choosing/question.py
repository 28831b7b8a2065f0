"""What is asked and what is answered: a setting, and a layout of the work for it.

Sizes are in bytes, times in seconds, work in FLOPs, money in dollars.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from manygpu.costs import memory
from manygpu.costs.memory import ROOM
from manygpu.simulate.cluster import Cluster
from manygpu.simulate.works import positive, whole

GOALS = ("time", "money", "fits")
# The most that is answered in seconds.
BATCH, LAYERS, NODES, GPUS = 10**9, 10**4, 10**5, 1024


@dataclass(frozen=True)
class Model:
    """Equal layers, as `manygpu.simulate` knows them.

    Attributes:
        name: for people.
        layers: how many.
        parameters: of all layers.
        flops: of the forward pass of one sample; the backward pass has twice as many.
        handed: bytes a sample that one layer hands on to the next.
        kept: bytes a sample that all layers keep for the backward pass; layerwise
            devices share them out.
        state: bytes a parameter in memory: itself, its gradient, the optimizer's. With
            Adam in float32 these are 16, in mixed precision too; with plain SGD 8.
        sent: bytes a parameter when it travels, and its gradient.
        whole: bytes a sample that all layers keep besides, and layerwise devices don't
            share out.
        first, last: parameters before the layers and behind them, besides those.
        logits: bytes a sample that are there behind the last layer.

    Raises:
        TypeError, ValueError: `layers` is not a whole number from 1 to `LAYERS`, or a
            number is not positive, or beyond 1e30; the last four may be 0.
    """

    name: str
    layers: int
    parameters: float
    flops: float
    handed: float
    kept: float
    state: float = 16.0
    sent: float = 4.0
    whole: float = 0.0
    first: float = 0.0
    last: float = 0.0
    logits: float = 0.0

    def __post_init__(self) -> None:
        whole("layers", self.layers, LAYERS)
        for name in ("parameters", "flops", "handed", "kept", "state", "sent"):
            positive(name, getattr(self, name))
        for name in ("whole", "first", "last", "logits"):
            positive(name, getattr(self, name), or_zero=True)

    @property
    def stored(self) -> memory.Stored:
        """What it stores, for `manygpu.costs.memory`."""
        each = [size / self.layers for size in (self.parameters, self.whole, self.kept)]
        ends = {"first": self.first, "last": self.last, "logits": self.logits}
        return memory.Stored(self.layers, *each, 0.0, self.handed, **ends)

    @property
    def each(self) -> memory.Bytes:
        """Bytes of a parameter: it and its gradient are kept as they are sent."""
        sent = min(self.sent, self.state / 2)
        return memory.Bytes(sent, sent, self.state - 2 * sent)


@dataclass(frozen=True)
class Machine:
    """Devices, and what they cost.

    Attributes:
        cluster: the most devices that there are, and their links.
        memory: of a device.
        rate: FLOP/s that a device reaches in training, not those of its data sheet.
        bandwidth: bytes a second of a device's memory: it limits the update.
        launch: seconds that a layer's pass takes at least, however little it computes.
        price: dollars an hour for a device.

    Raises:
        TypeError, ValueError: a number is not positive, or beyond 1e30; `launch` and
            `price` may be 0. More than `NODES` machines, or `GPUS` in one. A cluster
            with a bus, or whose messages take a share of the devices: the closed
            formulas don't know it, the simulator's loop does.
    """

    cluster: Cluster
    memory: float
    rate: float
    bandwidth: float = 1e12
    launch: float = 0.0
    price: float = 1.0

    def __post_init__(self) -> None:
        whole("nodes", self.cluster.nodes, NODES)
        whole("gpus", self.cluster.gpus, GPUS)
        for name in ("memory", "rate", "bandwidth"):
            positive(name, getattr(self, name))
        for name in ("launch", "price"):
            positive(name, getattr(self, name), or_zero=True)
        if self.cluster.overlap or self.cluster.bus:
            raise ValueError("cluster must have overlap 0 and no bus: play it instead")

    @property
    def usable(self) -> float:
        """Bytes that a plan may fill."""
        return ROOM * self.memory

    def counts(self) -> tuple[int, ...]:
        """How many devices a plan may take: shares of a node, or whole nodes."""
        g, n = self.cluster.gpus, self.cluster.nodes
        return *divisors(g), *(g * k for k in divisors(n)[1:])

    def part(self, devices: int) -> Cluster:
        """The first so many devices, as a cluster of their own."""
        whole = self.cluster
        if devices <= whole.gpus:
            return replace(whole, nodes=1, gpus=devices, cards=1)
        return replace(whole, nodes=devices // whole.gpus)


@dataclass(frozen=True)
class Setting:
    """A question: which plan for this model and batch, on this machine, to this end?

    Attributes:
        model, machine: see there.
        batch: samples of a step, over all devices.
        goal: "time": the shortest step. "money": the cheapest step, on as few of the
            devices as that takes. "fits": the fewest devices on which it runs at all.

    Raises:
        TypeError, ValueError: no whole number of samples up to `BATCH`, or another
            goal.
    """

    model: Model
    machine: Machine
    batch: int
    goal: str = "time"

    def __post_init__(self) -> None:
        whole("batch", self.batch, BATCH)
        if self.goal not in GOALS:
            raise ValueError(f"goal must be one of {list(GOALS)}, got {self.goal!r}")


class Layout(NamedTuple):
    """A plan as people speak of it: who does what.

    Each field is a number, or an array of them for many layouts at once. (A pipeline's
    `Plan` is another thing: which operation a device does next.)

    Attributes:
        devices: at work.
        layerwise: devices that share each layer.
        stages: of the pipeline.
        micro_batches: one after the other in a step, on each replica.
        sharded: parameters, gradients and state are sharded over all devices (ZeRO 3).
        recompute: activations are computed again for the backward pass.
    """

    devices: int | np.ndarray
    layerwise: int | np.ndarray = 1
    stages: int | np.ndarray = 1
    micro_batches: int | np.ndarray = 1
    sharded: bool | np.ndarray = False
    recompute: bool | np.ndarray = False

    @property
    def data(self) -> int | np.ndarray:
        """Replicas that share the batch."""
        return self.devices // (self.layerwise * self.stages)

    @property
    def words(self) -> str:
        """What people call it: "8 devices: data 4 x layerwise 2, 4 micro-batches"."""
        axes = {"data": self.data, "layerwise": self.layerwise}
        axes["pipeline"] = self.stages
        cut = [f"{axis} {n}" for axis, n in axes.items() if n > 1]
        said = " x ".join(cut) or "one replica"
        if self.sharded:
            said += ", sharded state"
        if self.micro_batches > 1:
            said += f", {self.micro_batches} micro-batches"
        if self.recompute:
            said += ", recomputing"
        device = "device" if self.devices == 1 else "devices"
        return f"{self.devices} {device}: {said}"


def divisors(number: int) -> list[int]:
    """Whole numbers that divide it, in order."""
    small = [k for k in range(1, math.isqrt(number) + 1) if number % k == 0]
    return sorted({*small, *(number // k for k in small)})
