"""What more GPUs brought others in data parallel training, and forecasts beside it.

`manygpu/choosing/data/dataparallel.csv` has published samples a second, each with its
source and the day on which it was read.
"""

from __future__ import annotations

import csv
import functools
import math
from dataclasses import replace
from typing import NamedTuple

from manygpu._files import data_file
from manygpu.choosing import forecast, tables
from manygpu.choosing.presets import known_model
from manygpu.choosing.question import Machine, Setting
from manygpu.costs.layout import Layout
from manygpu.simulate.cluster import Cluster

FILE = data_file("choosing/data/dataparallel.csv")
SERIES = ("model", "engine", "sequence", "gpu", "machine", "batch_per_gpu", "source")
BATCH = 256  # on a GPU, where a table doesn't say: the usual one of these models


class Gain(NamedTuple):
    """Two rows of one published table: some GPUs, and the fewest of the same kind.

    Attributes:
        model, engine, gpu, machine: as the table names them.
        batch: samples on each GPU, the same on few and on many.
        few, many: GPUs.
        before, after: samples a second, of all of them.
        source: where both were read.
    """

    model: str
    engine: str
    gpu: str
    machine: str
    batch: int
    few: int
    many: int
    before: float
    after: float
    source: str

    @property
    def efficiency(self) -> float:
        """What a GPU does among many, over what it does among few."""
        return self.after / self.before / (self.many / self.few)

    @property
    def kept(self) -> float:
        """Of the efficiency, at each doubling, in the geometric mean."""
        return self.efficiency ** (1 / math.log2(self.many / self.few))


@functools.cache
def gains() -> tuple[Gain, ...]:
    """All pairs of the table: each row with more GPUs beside its series' first."""
    first: dict[tuple[str, ...], dict[str, str]] = {}
    found = []
    with FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            few = first.setdefault(tuple(row[name] for name in SERIES), row)
            if row is not few:
                names = [row[name] for name in ("model", "engine", "gpu", "machine")]
                counts = int(row["batch_per_gpu"] or BATCH), int(few["gpus"])
                taken = float(few["per_second"]), float(row["per_second"])
                found.append(
                    Gain(*names, *counts, int(row["gpus"]), *taken, row["source"])
                )
    return tuple(found)


def predicted(gain: Gain) -> float:
    """Samples a second that a forecast expects of the many, told those of one GPU.

    Only for a model that is counted, no transformer. All GPUs stand in one machine,
    joined by the link that the table of GPUs has for them; one of them reaches the rate
    with which it takes as long as it was measured to take.

    Raises:
        ValueError: a transformer, or a series that begins with several GPUs.
    """
    known, gpu = tables.model(gain.model), tables.gpu(gain.gpu)
    if known.transformer or gain.few != 1:
        raise ValueError(f"only from one GPU, and no transformer, got {gain}")
    model, link = known_model(known), tables.wire(gpu.inside).link
    cluster = Cluster(1, gain.many, link, link)
    machine = Machine(cluster, gpu.memory, gpu.peak, gpu.bandwidth)
    asked = Setting(model, machine, gain.batch * gain.many)
    computing = gain.batch / gain.before - model.layers * forecast.update_seconds(asked)
    rate = 3 * model.flops * gain.batch / computing
    asked = replace(asked, machine=replace(machine, rate=rate))
    return asked.batch / float(forecast.seconds(asked, Layout(gain.many)))
