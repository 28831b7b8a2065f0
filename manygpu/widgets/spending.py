"""The cost calculator: what a job costs on each number of devices.

Its formula is that of `manygpu.choosing.formulas.spending`::

    cost_calculator()
"""

from __future__ import annotations

from IPython.display import HTML

from manygpu.choosing import formulas
from manygpu.choosing.prices import ENERGY
from manygpu.widgets import calculator
from manygpu.widgets.calculator import Number, Pick, Start, Table

SPEEDUPS = {
    "from the efficiency below": "own",
    "the guide's epochs": "epochs",
    "the guide's ideal vs reality": "ideal vs reality",
}
PLACE = "Iowa, industrial"
EIA = "the U.S. Energy Information Administration, April 2025, table 5.6.A"
FIELDS = (
    calculator.price_start("V100 16 GB, AWS, on demand", "price", "at_once", "watts"),
    Number("hours", "Hours on one device", 10, 1e-3, 1e6, "hours"),
    Number("waiting", "An hour of waiting costs you", 2, 0, 1e6, "dollars"),
    Start(
        "Start from the place",
        {name: {"cents": cents} for name, cents in ENERGY.items()},
        {name: f"{name}: energy by {EIA}." for name in ENERGY},
        PLACE,
    ),
    Pick("owned", "Devices are", {"rented": False, "owned": True}, False),
    Number("price", "Rented: price of a device", 3.06, 0, 1e4, "dollars an hour"),
    Number("at_once", "Rented at once", 1, 1, 4096, "devices", whole=True),
    Pick("speedups", "Speedup", SPEEDUPS, "own"),
    Number("efficiency", "Efficiency kept at each doubling", 90, 1, 100, "%", 0.01),
    Number("devices", "Devices, at most", 8, 1, 4096, whole=True),
    Number("goodput", "Share of useful time (goodput)", 100, 1, 100, "%", 0.01),
    Number("purchase", "Owned: price of a device", 10_000, 0, 1e7, "dollars"),
    Number("years", "Owned: it serves", 4, 0.01, 100, "years"),
    Number("use", "Owned: share of hours in use", 50, 1, 100, "%", 0.01),
    Number("watts", "Owned: a device draws", 300, 0, 1e5, "W"),
    Number("cents", "Owned: price of energy", ENERGY[PLACE], 0, 1e3, "cents a kWh"),
    Number("overhead", "Owned: building's overhead (PUE)", 1.5, 1, 10),
)
TABLE = Table(
    "What the job costs, by number of devices.",
    (
        ("devices", "devices", "whole"),
        ("together [dollars]", "dollars", "short"),
        ("hours", "hours", "short"),
        ("billed devices", "billed", "whole"),
        ("rent or purchase [dollars]", "rent", "short"),
        ("energy [dollars]", "energy", "short"),
        ("waiting [dollars]", "waiting", "short"),
    ),
)
# Of the first values, as the script says it: browser tests hold the two together.
SAID = (
    "Best: 4 devices, 3.09 hours, 37.8 dollars to pay, 6.17 for waiting. If waiting "
    "costs nothing: 1 device; from 0.765 dollars an hour on, 2; from 1.53, 4; from "
    "3.06, 8."
)


def cost_calculator() -> HTML:
    """The calculator; without JavaScript, the result of its first values."""
    rows, _ = formulas.spending(**calculator.first_values(FIELDS))
    data = {"guide": formulas.GUIDE, "near": formulas.NEAR}
    data["year"] = formulas.HOURS_A_YEAR
    return calculator.calculator_html(
        "spending",
        "Cost calculator",
        FIELDS,
        SAID,
        [TABLE],
        [rows],
        data=data,
        fills=[0, 1, "idle"],  # waiting is idle time
        ahead=3,
    )
