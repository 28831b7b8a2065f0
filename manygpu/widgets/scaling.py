"""The scaling calculator: what more devices bring to data parallel training.

Its formula is that of `manygpu.choosing.formulas.scaling`::

    scaling_calculator()
"""

from __future__ import annotations

import math

from IPython.display import HTML, display

from manygpu.choosing import formulas, presets
from manygpu.choosing.question import ROOM
from manygpu.widgets.calculator import (
    BYTES,
    DEVICES,
    SECONDS,
    Number,
    Pick,
    Shown,
    Values,
    calculator_html,
    counted,
    device_start,
    first_values,
    link_start,
    model_start,
    percent,
    price_start,
    scaled,
    short,
)

MODEL = presets.MODELS["ResNet-50"]
DEVICE = "A100, 40 GB"
LINKS = "8 by NVLink 3, 4 x Ethernet 100G"
CAPACITY, RATE, BANDWIDTH = DEVICES[DEVICE]
LINK = formulas.link_numbers(LINKS)
FIELDS = (
    model_start(MODEL.name, "parameters", "flops", "layers", "kept", "sent"),
    Number("batch", "Batch", 256, 1, 1e8, "samples", whole=True),
    Number("devices", "Devices", 8, 1, 4096, whole=True),
    device_start(DEVICE, "capacity", "rate", "bandwidth"),
    link_start(LINKS),
    price_start("A100 40 GB, AWS, 8 at once, on demand", "price", "at_once"),
    Number("parameters", "Parameters", 25.6, 0.001, 1e7, "million", 1e6),
    Number("flops", "Forward pass of a sample", 8.2, 1e-6, 1e9, "GFLOP", 1e9),
    Number("layers", "Layers (repeated blocks)", MODEL.layers, 1, 10_000, whole=True),
    Number("kept", "Activations of a sample", MODEL.kept / 1e6, 1e-6, 1e7, "MB", 1e6),
    Pick(
        "sent", "A gradient has", {"4 bytes": 4, "2 bytes": 2, "1 byte": 1}, MODEL.sent
    ),
    Pick("each", "The batch is", {"of a step": False, "of each device": True}, False),
    Number("rate", "A device reaches", RATE / 1e12, 1e-6, 1e5, "TFLOP/s", 1e12),
    Number("capacity", "Memory of a device", CAPACITY / 1e9, 1e-3, 1e5, "GB", 1e9),
    Number("bandwidth", "Memory bandwidth", BANDWIDTH / 1e12, 1e-3, 1e3, "TB/s", 1e12),
    Number("launch", "Fixed time of a layer's pass", 50, 0, 1e6, "µs", 1e-6),
    Number("gpus", "Devices in a machine", LINK["gpus"], 1, 1024, whole=True),
    Number("latency", "Inside, latency", LINK["latency"] * 1e6, 0, 1e6, "µs", 1e-6),
    Number("link", "Inside, bandwidth", LINK["link"] / 1e9, 1e-3, 1e5, "GB/s", 1e9),
    Number("cards", "Network cards in a machine", LINK["cards"], 1, 1024, whole=True),
    Number(
        "far_latency", "Network, latency", LINK["far_latency"] * 1e6, 0, 1e6, "µs", 1e-6
    ),
    Number(
        "far_link",
        "Network, bandwidth of a card",
        LINK["far_link"] / 1e9,
        1e-3,
        1e5,
        "GB/s",
        1e9,
    ),
    Number("price", "A device costs", 2.7447, 0, 1e4, "dollars an hour"),
    Number("at_once", "Rented at once", 8, 1, 4096, "devices", whole=True),
)
HEADERS = {
    "What more devices bring.": (
        "devices",
        "a step",
        "speedup",
        "efficiency",
        "fits",
        "billed devices",
        "dollars for a million samples",
    )
}


def shown(values: Values) -> Shown:
    """The result in words.

    Raises ValueError for devices that can't share the batch.
    """
    rows = formulas.scaling(**values)
    last = rows[-1]
    said = (
        f"{counted(last['devices'], 'device')}: a step of "
        f"{counted(last['batch'], 'sample')} takes {scaled(last['seconds'], SECONDS)}"
    )
    if last["devices"] > 1:
        said += (
            f", {short(last['speedup'])} times as many samples a second as one device, "
            f"an efficiency of {percent(last['efficiency'])}"
        )
    said += f". {_bill(rows)}{_fewer(rows)}{_fit(last, values)}{_handed(rows)}"
    table = [
        (
            f"{row['devices']:,}",
            scaled(row["seconds"], SECONDS),
            short(row["speedup"]),
            percent(row["efficiency"]),
            row["fits"],
            f"{row['billed']:,}",
            short(row["dollars"]),
        )
        for row in rows
    ]
    return Shown(said, [table], len(rows) - 1)


def _bill(rows: list[formulas.Row]) -> str:
    """What a million samples cost, and which devices are billed."""
    parts = []
    for row in (rows[-1], rows[0])[: len(rows)]:
        paid = row["billed"]
        more = f" (billed as {paid:,})" * (paid != row["devices"])
        parts.append(f"{short(row['dollars'])} dollars{more}")
    return f"A million samples cost {', on one device '.join(parts)}."


def _fewer(rows: list[formulas.Row]) -> str:
    """Which smaller number of devices is faster, if any."""
    best = max(rows, key=lambda row: row["speedup"])
    if best["speedup"] <= rows[-1]["speedup"]:
        return ""
    if best["devices"] == 1:
        return " One device is faster."
    devices = counted(best["devices"], "device")
    return f" Fewer are faster: {devices}, {short(best['speedup'])} times."


def _fit(row: formulas.Row, values: Values) -> str:
    """What doesn't fit on a device."""
    usable = scaled(ROOM * values["capacity"], BYTES)
    of = f"of the {usable} that may be filled"
    if row["fits"] == "no":
        return (
            f" It doesn't fit: a whole replica with one sample takes "
            f"{scaled(row['least'], BYTES)} {of}."
        )
    if row["fits"] != "yes":
        held = scaled(row["held"], BYTES)
        return f" It fits in micro-batches only: all at once takes {held} {of}."
    return ""


def _handed(rows: list[formulas.Row]) -> str:
    """What the cost calculator asks."""
    first, last = rows[0], rows[-1]
    hours = first["seconds"] / first["batch"] * 1e6 / 3600
    said = f" For the cost calculator: a million samples take one device {short(hours)}"
    said += " hours"
    if last["devices"] > 1:
        kept = last["efficiency"] ** (1 / math.log2(last["devices"]))
        said += f"; on average, a doubling keeps {percent(kept)} of the efficiency"
    return f"{said}."


def scaling_html() -> str:
    """The calculator; without JavaScript, the result of its first values."""
    data = {"guide": formulas.GUIDE, "room": ROOM, "state": MODEL.state}
    data |= {"fits": formulas.FITS}
    first = shown(first_values(FIELDS))
    label = "Scaling calculator"
    fills = ["predicted"]
    return calculator_html("scaling", label, FIELDS, HEADERS, first, data, fills, 3)


def scaling_calculator() -> None:
    """Show the calculator."""
    display(HTML(scaling_html()))
