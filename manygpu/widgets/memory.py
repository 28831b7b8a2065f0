"""The memory calculator: what a device of a data parallel group holds.

Its formula is that of `manygpu.choosing.pages.memory`::

    memory_calculator()
"""

from __future__ import annotations

from IPython.display import HTML, display

from manygpu.choosing import pages, settings
from manygpu.choosing.forecast import AHEAD
from manygpu.choosing.setting import ROOM
from manygpu.widgets.calculator import (
    BYTES,
    Number,
    Pick,
    Shown,
    Values,
    calculator_html,
    counted,
    device_start,
    first_values,
    model_start,
    readable,
    scaled,
)

MODEL = settings.MODELS["6.4 B"]
PARTS = ("parameters", "gradients", "optimizer", "gathered", "activations")
PRECISIONS = {"float32": "float32", "mixed, 16 bits": "mixed"}
STAGES = {
    "0: nothing": 0,
    "1: optimizer's state": 1,
    "2: and gradients": 2,
    "3: and parameters": 3,
}
FIELDS = (
    model_start(MODEL.name, "parameters", "layers", "kept", "handed"),
    device_start("80 GB", "capacity"),
    Number(
        "parameters",
        "Parameters",
        readable(MODEL.parameters) / 1e6,
        1e-3,
        1e7,
        "million",
        1e6,
    ),
    Number("layers", "Layers", MODEL.layers, 1, 10_000, whole=True),
    Number(
        "kept",
        "All layers keep of a sample",
        readable(MODEL.kept) / 1e6,
        1e-6,
        1e7,
        "MB",
        1e6,
    ),
    Number(
        "handed", "A layer hands on", readable(MODEL.handed) / 1e6, 1e-6, 1e6, "MB", 1e6
    ),
    Number("batch", "Batch", 64, 1, 1e8, "samples", whole=True),
    Number("devices", "Devices", 8, 1, 100_000, whole=True),
    Number("micro_batches", "Micro-batches", 1, 1, 1e6, whole=True),
    Pick("precision", "Numbers are", PRECISIONS, "mixed"),
    Pick("zero", "ZeRO shards, by stage", STAGES, 3),
    Pick("recompute", "Activations are", {"kept": False, "recomputed": True}, True),
    Number("capacity", "A device has", 80, 1e-3, 1e5, "GB", 1e9),
)
HEADERS = {
    "What a device holds, by stage of ZeRO.": (
        "ZeRO",
        *PARTS,
        "together",
        "fits",
        "samples at once, at most",
    )
}


def shown(values: Values) -> Shown:
    """The result in words. Raises ValueError for a batch that can't be shared out."""
    zero = values["zero"]
    rows = pages.memory(**{k: v for k, v in values.items() if k != "zero"})
    usable = scaled(ROOM * values["capacity"], BYTES)
    row = rows[zero]
    said = (
        f"A device holds {scaled(row['total'], BYTES)} of {usable} that may be filled"
    )
    said += ": it fits" if row["fits"] else ": that doesn't fit"
    if row["most"]:
        said += f". Up to {counted(row['most'], 'sample')} at once would fit."
    else:
        said += ". Not even one sample at a time would fit."
    fitting = [str(other["zero"]) for other in rows if other["fits"]]
    if not row["fits"]:
        said += f" With ZeRO {' or '.join(fitting)} it fits." * bool(fitting)
        said += " No stage of ZeRO fits." * (not fitting)
    table = [
        (
            str(row["zero"]),
            *(scaled(row[part], BYTES) for part in (*PARTS, "total")),
            "yes" if row["fits"] else "no",
            f"{row['most']:,}",
        )
        for row in rows
    ]
    return Shown(said, [table], zero)


def memory_html() -> str:
    """The calculator; without JavaScript, the result of its first values."""
    data = {"precisions": pages.PRECISIONS, "zero": [*pages.ZERO.values()]}
    data |= {"ahead": AHEAD, "room": ROOM}
    first = shown(first_values(FIELDS))
    return calculator_html("memory", "Memory calculator", FIELDS, HEADERS, first, data)


def memory_calculator() -> None:
    """Show the calculator."""
    display(HTML(memory_html()))
