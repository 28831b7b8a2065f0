"""What is asked and what is answered: a setting, and a layout of the work for it.

Sizes are in bytes, times in seconds, work in FLOPs, money in dollars.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from manygpu.costs import memory
from manygpu.costs.memory import ROOM
from manygpu.costs.shape import Shape
from manygpu.simulate.cluster import Cluster
from manygpu.simulate.works import positive, whole

GOALS = ("time", "money", "fits")
SIXTEEN = ("bfloat16", "float16")
# Bytes a parameter: in 16 bits, its gradient, in float32, and what each one keeps.
OPTIMIZERS = {"adam": 16.0, "momentum": 12.0, "adam-8bit": 10.0}
OPTIMIZERS |= {"adafactor": 8.0, "sgd": 8.0}
# The most that is answered in seconds.
BATCH, LAYERS, NODES, GPUS = 10**9, 10**4, 10**5, 1024
EACH = 16  # so many devices, or nodes, are tried one by one; of more, the divisors


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
        summed: bytes of a gradient when replicas sum it; None: as `sent`.
        cut: whether its layers are a chain, which stages may share; else `layers` says
            only in how many pieces gradients are summed.
        half: it computes in 16 bits, as its sizes and the device's rate say.
        shape: of a transformer, which tells what layerwise devices share, and what is
            beside its layers; None: no engine splits its layers by itself.

    Raises:
        TypeError, ValueError: `layers` is not a whole number from 1 to `LAYERS`, or a
            number is not positive, or beyond 1e30.
    """

    name: str
    layers: int
    parameters: float
    flops: float
    handed: float
    kept: float
    state: float = 16.0
    sent: float = 4.0
    cut: bool = True
    half: bool = False
    shape: Shape | None = None
    summed: float | None = None

    def __post_init__(self) -> None:
        whole("layers", self.layers, LAYERS)
        for name in ("parameters", "flops", "handed", "kept", "state", "sent"):
            positive(name, getattr(self, name))

    @property
    def gradient(self) -> float:
        """Bytes of a gradient on its way."""
        return self.summed or self.sent

    @property
    def stored(self) -> memory.Stored:
        """What it stores, for `manygpu.costs.memory`."""
        if self.shape is not None:
            found = memory.of_shape(self.shape)
            return found if self.half else memory.in_float32(found)
        each = self.parameters / self.layers, 0.0, self.kept / self.layers
        return memory.Stored(self.layers, *each, 0.0, self.handed)

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
        at_once: devices that are rented out together: whole lots are billed.
        sixteen: the 16-bit numbers that its units for products know, one of `SIXTEEN`.

    Raises:
        TypeError, ValueError: a number is not positive, or beyond 1e30; `launch` and
            `price` may be 0. More than `NODES` machines, or `GPUS` in one. Others
            than `SIXTEEN`. A cluster with a bus, or whose messages take a share of the
            devices: the closed formulas don't know it, the simulator's loop does.
    """

    cluster: Cluster
    memory: float
    rate: float
    bandwidth: float = 1e12
    launch: float = 0.0
    price: float = 1.0
    at_once: int = 1
    sixteen: str = "bfloat16"

    def __post_init__(self) -> None:
        whole("nodes", self.cluster.nodes, NODES)
        whole("gpus", self.cluster.gpus, GPUS)
        whole("at_once", self.at_once)
        for name in ("memory", "rate", "bandwidth"):
            positive(name, getattr(self, name))
        for name in ("launch", "price"):
            positive(name, getattr(self, name), or_zero=True)
        if self.sixteen not in SIXTEEN:
            raise ValueError(f"sixteen must be in {SIXTEEN}, got {self.sixteen!r}")
        if self.cluster.overlap or self.cluster.bus:
            raise ValueError("cluster must have overlap 0 and no bus: play it instead")

    @property
    def usable(self) -> float:
        """Bytes that a plan may fill."""
        return ROOM * self.memory

    def counts(self) -> tuple[int, ...]:
        """How many devices a plan may take: some of a node, or whole nodes."""
        g, n = self.cluster.gpus, self.cluster.nodes
        some, nodes = (range(1, k + 1) if k <= EACH else divisors(k) for k in (g, n))
        return *some, *(g * k for k in nodes if k > 1)

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
            devices as that takes. "fits": the fewest devices on which it runs at all,
            and the shortest step on so many.
        engines: names of those that may be used; empty for all.

    Raises:
        TypeError, ValueError: no whole number of samples up to `BATCH`, or another
            goal.
    """

    model: Model
    machine: Machine
    batch: int
    goal: str = "time"
    engines: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        whole("batch", self.batch, BATCH)
        if self.goal not in GOALS:
            raise ValueError(f"goal must be one of {list(GOALS)}, got {self.goal!r}")


def divisors(number: int) -> list[int]:
    """Whole numbers that divide a number up to 10**12, in order."""
    whole("number", number, 10**12)
    small = [k for k in range(1, math.isqrt(number) + 1) if number % k == 0]
    return sorted({*small, *(number // k for k in small)})
