"""The memory calculator: what a device of a data parallel group holds.

What it says is what `manygpu.choosing.formulas.memory` says; the script gets numbers::

    memory_calculator()
"""

from __future__ import annotations

from IPython.display import HTML

from manygpu.choosing import formulas, presets
from manygpu.choosing.formulas import PARTS, ZERO
from manygpu.costs.memory import ROOM
from manygpu.widgets import calculator
from manygpu.widgets.calculator import Number, Pick, Table, Values, readable

MODEL = presets.MODELS["6.4 B"]
PARAMETERS = readable(MODEL.parameters) / 1e6
KEPT, HANDED = readable(MODEL.kept) / 1e6, readable(MODEL.handed) / 1e6
PRECISIONS = {"float32": "float32", "mixed, 16 bits": "mixed"}
YES = (False, True)
STAGES = {
    "0: nothing": 0,
    "1: state of the optimizer": 1,
    "2: state and gradients": 2,
    "3: parameters too": 3,
}
FIELDS = (
    calculator.model_start(MODEL.name, "parameters", "layers", "kept16", "handed16"),
    Number("batch", "Batch", 64, 1, 1e8, "samples", whole=True),
    Number("devices", "Devices", 8, 1, 100_000, whole=True),
    calculator.device_start("H100 80 GB", "capacity"),
    Number("parameters", "Parameters", PARAMETERS, 1e-3, 1e7, "million", 1e6),
    Number("layers", "Layers (repeated blocks)", MODEL.layers, 1, 10_000, whole=True),
    Number("kept16", "Activations of a sample, in 16 bits", KEPT, 1e-6, 1e7, "MB", 1e6),
    Number("handed16", "Output of a layer, in 16 bits", HANDED, 1e-6, 1e6, "MB", 1e6),
    Number("micro_batches", "Micro-batches", 1, 1, 1e6, whole=True),
    Pick("precision", "Numbers are", PRECISIONS, "mixed"),
    Pick("zero", "ZeRO stage, sharding", STAGES, 3),
    Pick("recompute", "Activations are", {"kept": False, "recomputed": True}, True),
    Number("capacity", "Memory of a device", 80, 1e-3, 1e5, "GB", 1e9),
)
TABLE = Table(
    "What a device holds, by stage of ZeRO.",
    (
        ("ZeRO", "zero", "whole"),
        ("together", "total", "bytes"),
        ("fits", "fits", "yes or no"),
        ("most samples at once", "most", "whole"),
        *((part, part, "bytes") for part in PARTS),
    ),
)
# Of the first values, as the script says it: browser tests hold the two together.
SAID = (
    "A device holds 21.1 GB of 72 GB that may be filled: it fits. It works on 8 "
    "samples at once; 69 would fit."
)


def found(values: Values) -> list[formulas.Row]:
    """`formulas.memory` for the fields, which call activations and outputs otherwise.

    Raises ValueError for a batch that can't be shared out.
    """
    given = {name: value for name, value in values.items() if name != "zero"}
    given |= {name: given.pop(f"{name}16") for name in ("kept", "handed")}
    return formulas.memory(**given)


def memory_calculator() -> HTML:
    """The calculator; without JavaScript, the result of its first values."""
    sums = {
        key: {
            again: [formulas.memory_terms(key, again, z) for z in ZERO] for again in YES
        }
        for key in formulas.PRECISIONS
    }
    data = {"sums": sums, "room": ROOM, "parts": PARTS}
    return calculator.calculator_html(
        "memory",
        "Memory calculator",
        FIELDS,
        SAID,
        [TABLE],
        [found(calculator.first_values(FIELDS))],
        data=data,
        fills=["copy" if part == "gathered" else part for part in PARTS],
        ahead=3,
    )
