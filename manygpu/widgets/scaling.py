"""The scaling calculator: what more devices bring to data parallel training.

Its formula is that of `manygpu.choosing.pages.scaling`::

    scaling_calculator()
"""

from __future__ import annotations

from IPython.display import HTML, display

from manygpu.choosing import pages, settings
from manygpu.widgets.calculator import (
    SECONDS,
    Number,
    Pick,
    Shown,
    Values,
    calculator_html,
    counted,
    device_start,
    first_values,
    model_start,
    percent,
    price_start,
    scaled,
    short,
)

MODEL = settings.MODELS["ResNet-50"]
FIELDS = (
    model_start(MODEL.name, "parameters", "flops", "layers", "sent"),
    device_start("40 GB", "rate", "bandwidth"),
    price_start("A100 40 GB, AWS, 8 at once, on demand", "price"),
    Number("parameters", "Parameters", 25.6, 0.001, 1e7, "million", 1e6),
    Number("flops", "Forward pass of a sample", 8.2, 1e-6, 1e9, "GFLOP", 1e9),
    Number("layers", "Layers", MODEL.layers, 1, 10_000, whole=True),
    Number("batch", "Batch", 256, 1, 1e8, "samples", whole=True),
    Pick("each", "The batch is", {"of a step": False, "of each device": True}, False),
    Number("devices", "Devices", 8, 1, 4096, whole=True),
    Pick(
        "links", "Links", {n: n for n in pages.INTERCONNECTS}, [*pages.INTERCONNECTS][0]
    ),
    Number("rate", "A device reaches", 125, 0.001, 1e5, "TFLOP/s", 1e12),
    Number("price", "A device costs", 2.7447, 0, 1e4, "dollars an hour"),
    Pick(
        "sent", "A gradient has", {"4 bytes": 4, "2 bytes": 2, "1 byte": 1}, MODEL.sent
    ),
    Number("bandwidth", "A device's memory", 1.55, 0.001, 1e3, "TB/s", 1e12),
    Number("launch", "Starting a layer's pass", 50, 0, 1e6, "µs", 1e-6),
)
HEADERS = {
    "What more devices bring; the guide's speedups beside.": (
        "devices",
        "a step",
        "speedup",
        "efficiency",
        "dollars for a million samples",
        "the guide's epochs",
        "its ideal vs reality",
    )
}


def shown(values: Values) -> Shown:
    """The result in words.

    Raises ValueError for devices that can't share the batch.
    """
    rows = pages.scaling(**values)
    first, last = rows[0], rows[-1]
    best = max(rows, key=lambda row: row["speedup"])
    said = (
        f"{counted(last['devices'], 'device')}: {scaled(last['seconds'], SECONDS)} a "
        f"step, {short(last['speedup'])} times as fast as one, an efficiency of "
        f"{percent(last['efficiency'])}. A million samples cost "
        f"{short(last['dollars'])} dollars, on one device {short(first['dollars'])}."
    )
    if best["speedup"] > last["speedup"]:
        said += (
            f" Fewer are faster: {counted(best['devices'], 'device')}, "
            f"{short(best['speedup'])} times."
        )
    table = [
        (
            f"{row['devices']:,}",
            scaled(row["seconds"], SECONDS),
            short(row["speedup"]),
            percent(row["efficiency"]),
            short(row["dollars"]),
            *("–" if row[name] is None else short(row[name]) for name in pages.GUIDE),
        )
        for row in rows
    ]
    return Shown(said, [table], len(rows) - 1)


def scaling_html() -> str:
    """The calculator; without JavaScript, the result of its first values."""
    of_links = {
        name: [one.gpus, one.cards, *one.inside, *one.across]
        for name, one in pages.INTERCONNECTS.items()
    }
    data = {"links": of_links, "guide": pages.GUIDE}
    first = shown(first_values(FIELDS))
    label = "Scaling calculator"
    return calculator_html("scaling", label, FIELDS, HEADERS, first, data)


def scaling_calculator() -> None:
    """Show the calculator."""
    display(HTML(scaling_html()))
