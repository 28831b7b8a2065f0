"""The memory calculator: what a device of a data parallel group holds.

Its formula is that of `manygpu.choosing.formulas.memory`::

    memory_calculator()
"""

from __future__ import annotations

from IPython.display import HTML, display

from manygpu.choosing import formulas, presets
from manygpu.choosing.forecast import AHEAD
from manygpu.choosing.question import ROOM
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

MODEL = presets.MODELS["6.4 B"]
PARTS = ("parameters", "gradients", "optimizer", "gathered", "activations")
PRECISIONS = {"float32": "float32", "mixed, 16 bits": "mixed"}
STAGES = {
    "0: nothing": 0,
    "1: state of the optimizer": 1,
    "2: state and gradients": 2,
    "3: parameters too": 3,
}
FIELDS = (
    model_start(MODEL.name, "parameters", "layers", "kept16", "handed16"),
    Number("batch", "Batch", 64, 1, 1e8, "samples", whole=True),
    Number("devices", "Devices", 8, 1, 100_000, whole=True),
    device_start("H100, 80 GB", "capacity"),
    Number(
        "parameters",
        "Parameters",
        readable(MODEL.parameters) / 1e6,
        1e-3,
        1e7,
        "million",
        1e6,
    ),
    Number("layers", "Layers (repeated blocks)", MODEL.layers, 1, 10_000, whole=True),
    Number(
        "kept16",
        "Activations of a sample, in 16 bits",
        readable(MODEL.kept) / 1e6,
        1e-6,
        1e7,
        "MB",
        1e6,
    ),
    Number(
        "handed16",
        "Output of a layer, in 16 bits",
        readable(MODEL.handed) / 1e6,
        1e-6,
        1e6,
        "MB",
        1e6,
    ),
    Number("micro_batches", "Micro-batches", 1, 1, 1e6, whole=True),
    Pick("precision", "Numbers are", PRECISIONS, "mixed"),
    Pick("zero", "ZeRO stage, sharding", STAGES, 3),
    Pick("recompute", "Activations are", {"kept": False, "recomputed": True}, True),
    Number("capacity", "A device has", 80, 1e-3, 1e5, "GB", 1e9),
)
HEADERS = {
    "What a device holds, by stage of ZeRO.": (
        "ZeRO",
        "together",
        "fits",
        "most samples at once",
        *PARTS,
    )
}


def found(values: Values) -> list[formulas.Row]:
    """`formulas.memory` for the fields, which call activations and outputs otherwise.

    Raises ValueError for a batch that can't be shared out.
    """
    given = {name: value for name, value in values.items() if name != "zero"}
    given |= {name: given.pop(f"{name}16") for name in ("kept", "handed")}
    return formulas.memory(**given)


def shown(values: Values) -> Shown:
    """The result in words. Raises ValueError for a batch that can't be shared out."""
    rows, zero = found(values), values["zero"]
    usable = scaled(ROOM * values["capacity"], BYTES)
    row = rows[zero]
    at_once = values["batch"] // (values["devices"] * values["micro_batches"])
    said = (
        f"A device holds {scaled(row['total'], BYTES)} of {usable} that may be filled: "
    )
    said += "it fits. " if row["fits"] else "that doesn't fit. "
    said += f"It works on {counted(at_once, 'sample')} at once; "
    said += f"{row['most']:,} would fit." if row["most"] else "not even one would fit."
    if not row["fits"]:
        said += _ways_out(rows, zero, values)
    table = [
        (
            str(row["zero"]),
            scaled(row["total"], BYTES),
            "yes" if row["fits"] else "no",
            f"{row['most']:,}",
            *(scaled(row[part], BYTES) for part in PARTS),
        )
        for row in rows
    ]
    return Shown(said, [table], zero)


def _ways_out(rows: list[formulas.Row], zero: int, values: Values) -> str:
    """More micro-batches, or another stage, where this doesn't fit."""
    each, said = values["batch"] // values["devices"], ""
    most = rows[zero]["most"]
    if most:
        parts = next(
            m for m in range(1, each + 1) if each % m == 0 and each // m <= most
        )
        said = f" With {parts:,} micro-batches it would."
    fitting = [str(row["zero"]) for row in rows if row["fits"]]
    if fitting:
        return f"{said} With ZeRO {' or '.join(fitting)} it fits as it is."
    return f"{said} As it is, no stage of ZeRO fits."


def memory_html() -> str:
    """The calculator; without JavaScript, the result of its first values."""
    data = {"precisions": formulas.PRECISIONS, "zero": [*formulas.ZERO.values()]}
    data |= {"ahead": AHEAD, "room": ROOM}
    first = shown(first_values(FIELDS))
    fills = ["copy" if part == "gathered" else part for part in PARTS]
    label = "Memory calculator"
    return calculator_html("memory", label, FIELDS, HEADERS, first, data, fills, 3)


def memory_calculator() -> None:
    """Show the calculator."""
    display(HTML(memory_html()))
