"""Settings whose answers a page brings: a grid; and others, drawn at random."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from manygpu.choosing import tables
from manygpu.choosing.question import GOALS, Machine, Model, Setting
from manygpu.choosing.tables import Known
from manygpu.costs.shape import Shape
from manygpu.simulate.cluster import LINKS, Cluster, Link


def transformer(
    name: str, layers: int, hidden: int, sequence: int, heads: int
) -> Model:
    """A transformer without its embeddings; a sample is one sequence.

    A layer has 12 h^2 parameters, and keeps 34 bytes a hidden number and token
    (Korthikanti et al., arXiv:2205.05198): its attention keeps no square of the
    sequence. Parameters travel in two bytes, and gradients are summed in four, as
    Megatron-LM and FSDP do it, if they are told so as `engines` tells them.
    """
    return of_shape(
        name,
        Shape(layers, hidden, 4 * hidden, True, 0, sequence, heads, gated=False),
    )


def of_shape(name: str, shape: Shape, beside: float = 0.0) -> Model:
    """A transformer of a shape, with so many parameters that the shape doesn't know."""
    parameters = shape.parameters + beside
    kept = shape.layers * shape.sequence * sum(shape.kept[:2])
    handed = 2.0 * shape.sequence * shape.hidden
    flops = shape.flops(shape.sequence) / 3  # of the forward pass
    return Model(
        name,
        shape.layers,
        parameters,
        flops,
        handed,
        kept,
        sent=2,
        half=True,
        shape=shape,
        summed=4,
    )


def known_model(row: Known, sequence: int | None = None) -> Model:
    """A model of the table; a sample is an image, or a sequence of so many tokens."""
    if not row.transformer:
        # In 16 bits, as the table's rates were reached; gradients travel in float32.
        kept, handed = row.kept / 2, row.handed / 2
        sizes = row.layers, row.counted, row.flops, handed, kept
        return Model(row.name, *sizes, half=True)
    sizes = row.layers, row.hidden, row.inner, row.tied, row.vocabulary
    heads = row.heads, row.kv_heads, row.gated, row.head
    shape = Shape(*sizes, sequence or row.sequence, *heads)
    return of_shape(row.name, shape, row.positions * row.hidden + row.beside)


# LeNet as `manygpu.costs.layer_costs` counts it; it hands on the mean of three layers.
MODELS = {
    model.name: model
    for model in (
        Model("LeNet", 4, 129_068, 4_500_720, 5_744, 90_648),
        replace(known_model(tables.model("resnet-50")), name="ResNet-50"),
        transformer("0.3 B", 24, 1024, 512, 16),
        transformer("1.5 B", 48, 1600, 1024, 25),
        transformer("6.4 B", 32, 4096, 2048, 32),
        transformer("13 B", 40, 5120, 2048, 40),
        transformer("64 B", 80, 8192, 4096, 64),
        transformer("174 B", 96, 12288, 2048, 96),
    )
}
PCIE_3 = Link(10e-6, 12e9)
NVLINK, INFINIBAND = LINKS["NVLink 4"], LINKS["InfiniBand NDR"]
ETHERNET = LINKS["Ethernet 100G"]
CLUSTERS = {
    "1 GPU": Cluster(1, 1, PCIE_3, ETHERNET),
    "2, PCIe": Cluster(1, 2, PCIE_3, ETHERNET),
    "4, PCIe": Cluster(1, 4, PCIE_3, ETHERNET),
    "8, PCIe": Cluster(1, 8, PCIE_3, ETHERNET),
    "8, NVLink": Cluster(1, 8, NVLINK, INFINIBAND),
    "4 x 8, PCIe, Ethernet": Cluster(4, 8, PCIE_3, ETHERNET),
    "4 x 8, NVLink, Ethernet": Cluster(4, 8, NVLINK, ETHERNET),
    "4 x 8, NVLink, InfiniBand": Cluster(4, 8, NVLINK, INFINIBAND, cards=8),
    "16 x 8, NVLink, InfiniBand": Cluster(16, 8, NVLINK, INFINIBAND, cards=8),
}
GPUS = {"16 GB": "v100-16", "40 GB": "a100-40", "80 GB": "h100"}
LAUNCH = 50e-6  # a layer's pass is a handful of kernels
BATCHES = (32, 256, 1024)


def setting(
    model: str, cluster: str, device: str, batch: int, goal: str = "time"
) -> Setting:
    """A setting of the grid by the names of its parts.

    The device reaches what one of `GPUS` was seen to reach with models of this kind.
    """
    asked, gpu = MODELS[model], tables.gpu(GPUS[device])
    if asked.shape is None:
        rate, _ = gpu.image_rate(asked.flops, asked.kept)
    else:
        rate, _ = gpu.rate(transformer=True)
    numbers = gpu.memory, rate, gpu.bandwidth, LAUNCH, 2.0
    machine = Machine(CLUSTERS[cluster], *numbers, sixteen=gpu.sixteen)
    return Setting(asked, machine, batch, goal)


def grid() -> Iterator[tuple[str, Setting]]:
    """Each model on each machine with each batch for each goal, with its name."""
    axes = MODELS, CLUSTERS, GPUS, BATCHES, GOALS
    for model, cluster, device, batch, goal in itertools.product(*axes):
        name = f"{model}, batch {batch}, {cluster}, {device}, {goal}"
        yield name, setting(model, cluster, device, batch, goal)


def drawn(count: int, seed: int = 0) -> Iterator[Setting]:
    """Settings between and beside those of the grid."""
    draw = np.random.default_rng(seed)

    def about(value: float, factor: float = 2.0) -> float:
        return float(value * factor ** draw.uniform(-1, 1))

    axes = [list(names) for names in (MODELS, CLUSTERS, GPUS)]
    for _ in range(count):
        near = setting(*(str(draw.choice(names)) for names in axes), 256)
        sizes = ("parameters", "flops", "handed", "kept")
        model = near.model
        model = replace(model, **{size: about(getattr(model, size)) for size in sizes})
        cluster = near.machine.cluster
        links = [
            Link(about(link.latency), about(link.bandwidth))
            for link in (cluster.inside, cluster.across)
        ]
        cluster = replace(cluster, inside=links[0], across=links[1])
        sizes = ("memory", "rate", "bandwidth", "launch")
        numbers = {size: about(getattr(near.machine, size)) for size in sizes}
        on = replace(near.machine, cluster=cluster, **numbers)
        batch = int(draw.choice([16, 64, 96, 128, 384, 512, 2048]))
        yield Setting(model, on, batch, str(draw.choice(GOALS)))
