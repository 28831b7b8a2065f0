"""The scaling calculator: what more devices bring to data parallel training.

Its formula is that of `manygpu.choosing.formulas.scaling`::

    scaling_calculator()
"""

from __future__ import annotations

from IPython.display import HTML

from manygpu.choosing import formulas, presets
from manygpu.costs.memory import ROOM
from manygpu.widgets import calculator
from manygpu.widgets.calculator import Number, Pick, Table, readable

MODEL = presets.MODELS["ResNet-50"]
DEVICE = "A100 40 GB, images"
LINKS = "8 by NVLink 3, 4 x Ethernet 100G"
GPU = calculator.device_numbers(*DEVICE.split(", "))
CAPACITY, RATE, BANDWIDTH = (GPU[n] for n in ("capacity", "rate", "bandwidth"))
PARAMETERS, FLOPS = readable(MODEL.parameters) / 1e6, readable(MODEL.flops) / 1e9
KEPT = readable(MODEL.kept) / 1e6
LINK = formulas.link_numbers(LINKS)
LATENCY, INSIDE = LINK["latency"] * 1e6, LINK["link"] / 1e9
FAR_LATENCY, FAR = LINK["far_latency"] * 1e6, LINK["far_link"] / 1e9
SENT = {"4 bytes": 4, "2 bytes": 2, "1 byte": 1}
FIELDS = (
    calculator.model_start(MODEL.name, "parameters", "flops", "layers", "kept", "sent"),
    Number("batch", "Batch", 256, 1, 1e8, "samples", whole=True),
    Number("devices", "Devices", 8, 1, 4096, whole=True),
    calculator.device_start(DEVICE, "capacity", "rate", "bandwidth"),
    calculator.link_start(LINKS),
    calculator.price_start("A100 40 GB, AWS, 8 at once, on demand", "price", "at_once"),
    Number("parameters", "Parameters", PARAMETERS, 0.001, 1e7, "million", 1e6),
    Number("flops", "Forward pass of a sample", FLOPS, 1e-6, 1e9, "GFLOP", 1e9),
    Number("layers", "Layers (repeated blocks)", MODEL.layers, 1, 10_000, whole=True),
    Number("kept", "Activations of a sample", KEPT, 1e-6, 1e7, "MB", 1e6),
    Pick("sent", "Size of a number in a gradient", SENT, MODEL.sent),
    Pick("each", "The batch is", {"of a step": False, "of each device": True}, False),
    Number(
        "rate", "Training speed of a device", RATE / 1e12, 1e-6, 1e5, "TFLOP/s", 1e12
    ),
    Number("capacity", "Memory of a device", CAPACITY / 1e9, 1e-3, 1e5, "GB", 1e9),
    Number("bandwidth", "Memory bandwidth", BANDWIDTH / 1e12, 1e-3, 1e3, "TB/s", 1e12),
    Number("launch", "Fixed time of a layer's pass", 50, 0, 1e6, "µs", 1e-6),
    Number("gpus", "Devices in a machine", LINK["gpus"], 1, 1024, whole=True),
    Number("latency", "Inside, latency", LATENCY, 0, 1e6, "µs", 1e-6),
    Number("link", "Inside, bandwidth", INSIDE, 1e-3, 1e5, "GB/s", 1e9),
    Number("cards", "Network cards in a machine", LINK["cards"], 1, 1024, whole=True),
    Number("far_latency", "Network, latency", FAR_LATENCY, 0, 1e6, "µs", 1e-6),
    Number("far_link", "Network, bandwidth of a card", FAR, 1e-3, 1e5, "GB/s", 1e9),
    Number("price", "Price of a device", 2.7447, 0, 1e4, "dollars an hour"),
    Number("at_once", "Rented at once", 8, 1, 4096, "devices", whole=True),
)
TABLE = Table(
    "What more devices bring.",
    (
        ("devices", "devices", "whole"),
        ("a step", "seconds", "seconds"),
        ("speedup", "speedup", "short"),
        ("efficiency", "efficiency", "percent"),
        ("fits", "fits", "text"),
        ("billed devices", "billed", "whole"),
        ("dollars for a million samples", "dollars", "short"),
    ),
)
# Of the first values, as the script says it: browser tests hold the two together.
SAID = (
    "8 devices: a step of 256 samples takes 16.4 ms, 6.76 times as many samples a "
    "second as one device, an efficiency of 84.5%. A million samples cost 0.39 "
    "dollars, on one device 2.64 dollars (billed as 8). For the cost calculator: a "
    "million samples take one device 0.12 hours; on average, a doubling keeps 94.5% "
    "of the efficiency."
)


def scaling_calculator() -> HTML:
    """The calculator; without JavaScript, the result of its first values."""
    data = {"room": ROOM, "replica": formulas.replica_terms()}
    data |= {"fits": formulas.FITS, "step": formulas.step_terms()}
    return calculator.calculator_html(
        "scaling",
        "Scaling calculator",
        FIELDS,
        SAID,
        [TABLE],
        [formulas.scaling(**calculator.first_values(FIELDS))],
        data=data,
        fills=["predicted"],
        ahead=3,
    )
