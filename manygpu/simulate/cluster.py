"""Where messages go: nodes of GPUs, the links inside, the network cards between them.

Bandwidths are in bytes a second and in one direction, as a GPU or a card has them.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from manygpu._files import data_file
from manygpu.simulate.works import Lane, Share, positive, whole


@dataclass(frozen=True)
class Link:
    """A link: a message of S bytes takes `latency + S / bandwidth` seconds.

    Raises:
        TypeError: the latency or the bandwidth is no number.
        ValueError: a negative latency, a bandwidth that is not above 0.
    """

    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        positive("latency", self.latency, or_zero=True)
        positive("bandwidth", self.bandwidth)

    def seconds(self, size: float) -> float:
        """What a message of so many bytes, or each of an array, takes in all."""
        if not np.all(np.greater_equal(size, 0) & np.less(size, np.inf)):
            raise ValueError(f"size must be finite and not negative, got {size}")
        return self.latency + size / self.bandwidth


# Bandwidths by data sheets, latencies by their order of magnitude; measure your own.
# The table says where each was read; `manygpu.choosing.tables` reads its other columns.
TABLE = data_file("simulate/data/links.csv")
with TABLE.open(encoding="utf-8", newline="") as file:
    LINKS = {
        row["name"]: Link(float(row["latency"]), float(row["bandwidth"]))
        for row in csv.DictReader(file)
    }


@dataclass(frozen=True)
class Cluster:
    """Equal nodes of equal GPUs; GPU i is on node i // gpus.

    Attributes:
        nodes: how many machines.
        gpus: in each.
        inside: a GPU's link to the others of its node.
        across: a network card's link.
        cards: network cards of a node; its GPUs share them out evenly, in order.
        bus: all GPUs of a node share one link, as on PCIe without a switch, instead
            of having one each, as on NVSwitch.
        overlap: the share of a GPU that a message takes from computing meanwhile.

    Raises:
        TypeError: a count that is not whole.
        ValueError: a count below 1, more cards than GPUs, or cards that do not divide
            them; an overlap below 0 or not below 1.
    """

    nodes: int
    gpus: int
    inside: Link
    across: Link
    cards: int = 1
    bus: bool = False
    overlap: float = 0.0

    def __post_init__(self) -> None:
        for name in ("nodes", "gpus", "cards"):
            whole(name, getattr(self, name))
        if self.gpus % self.cards:
            raise ValueError(
                f"cards must divide the {self.gpus} GPUs of a node, got {self.cards}"
            )
        if not 0 <= self.overlap < 1:
            raise ValueError(f"overlap must be from 0 to below 1, got {self.overlap}")

    @property
    def count(self) -> int:
        """How many GPUs there are."""
        return self.nodes * self.gpus

    def route(
        self, source: int, target: int, size: float
    ) -> tuple[float, float, Sequence[Share]]:
        """Return latency, seconds and shares of links of a message, for `put_messages`.

        Raises ValueError for a GPU that is not there.
        """
        if not (0 <= source < self.count and 0 <= target < self.count):
            raise ValueError(f"GPUs are 0 to {self.count - 1}, got {source}, {target}")
        a, b = source // self.gpus, target // self.gpus
        if a == b:
            ends = [("bus", a)] if self.bus else [("up", source), ("down", target)]
            link = self.inside
        else:
            ends = [("card out", self._card(source)), ("card in", self._card(target))]
            link = self.across
        shares = [(end, 1.0) for end in ends]
        shares += [*self.sending(source), *self.sending(target)]
        return link.latency, size / link.bandwidth, shares

    def _card(self, gpu: int) -> tuple[int, int]:
        """Which card of which node is a GPU's."""
        node, local = divmod(gpu, self.gpus)
        return node, local * self.cards // self.gpus

    def computing(self, gpu: Lane) -> list[Share]:
        """What a GPU's computing takes of it: all, while nothing is sent."""
        return [(("SMs", gpu), 1.0)] if self.overlap else []

    def sending(self, gpu: Lane) -> list[Share]:
        """What a message takes of a GPU that sends or receives it."""
        return [(("SMs", gpu), self.overlap)] if self.overlap else []
