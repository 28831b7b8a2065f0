"""The cost calculator: what a job costs on each number of devices.

Its formula is that of `manygpu.choosing.formulas.spending`::

    cost_calculator()
"""

from __future__ import annotations

from IPython.display import HTML, display

from manygpu.choosing import formulas
from manygpu.choosing.prices import ENERGY
from manygpu.widgets.calculator import (
    Number,
    Pick,
    Shown,
    Start,
    Values,
    calculator_html,
    counted,
    first_values,
    price_start,
    short,
)

SPEEDUPS = {
    "from the efficiency below": "own",
    "the guide's epochs": "epochs",
    "the guide's ideal vs reality": "ideal vs reality",
}
PLACE = "Iowa, industrial"
EIA = "the U.S. Energy Information Administration, April 2025, table 5.6.A"
FIELDS = (
    price_start("V100 16 GB, AWS, on demand", "price", "at_once", "watts"),
    Number("hours", "Hours on one device", 10, 1e-3, 1e6, "hours"),
    Number("waiting", "An hour of waiting costs you", 2, 0, 1e6, "dollars"),
    Start(
        "Start from the place",
        {name: {"cents": cents} for name, cents in ENERGY.items()},
        {name: f"{name}: energy by {EIA}." for name in ENERGY},
        PLACE,
    ),
    Pick("owned", "Devices are", {"rented": False, "owned": True}, False),
    Number("price", "Rented: a device costs", 3.06, 0, 1e4, "dollars an hour"),
    Number("at_once", "Rented at once", 1, 1, 4096, "devices", whole=True),
    Pick("speedups", "Speedup", SPEEDUPS, "own"),
    Number("efficiency", "Efficiency kept at each doubling", 90, 1, 100, "%", 0.01),
    Number("devices", "Devices, at most", 8, 1, 4096, whole=True),
    Number("goodput", "Share of useful time (goodput)", 100, 1, 100, "%", 0.01),
    Number("purchase", "Owned: price of a device", 10_000, 0, 1e7, "dollars"),
    Number("years", "Owned: it serves", 4, 0.01, 100, "years"),
    Number("use", "Owned: share of hours in use", 50, 1, 100, "%", 0.01),
    Number("watts", "Owned: a device draws", 300, 0, 1e5, "W"),
    Number("cents", "Owned: energy costs", ENERGY[PLACE], 0, 1e3, "cents a kWh"),
    Number("overhead", "Owned: building's overhead (PUE)", 1.5, 1, 10),
)
HEADERS = {
    "What the job costs, by number of devices.": (
        "devices",
        "together [dollars]",
        "hours",
        "billed devices",
        "rent or purchase [dollars]",
        "energy [dollars]",
        "waiting [dollars]",
    )
}


def shown(values: Values) -> Shown:
    """The result in words."""
    rows, edge = formulas.spending(**values)
    least = min(row["dollars"] for row in rows)
    near = least * (1 + formulas.NEAR)  # of those that cost the same, the fastest
    cheap = [i for i, row in enumerate(rows) if row["dollars"] <= near]
    best = min(cheap, key=lambda i: rows[i]["hours"])
    row = rows[best]
    paid = short(row["rent"] + row["energy"])
    more = f" (billed as {row['billed']:,})" * (row["billed"] != row["devices"])
    said = (
        f"Best: {counted(row['devices'], 'device')}{more}, "
        f"{short(row['hours'])} hours, {paid} dollars to pay, "
        f"{short(row['waiting'])} for waiting. {_from(edge)}"
    )
    if rows[-1]["devices"] < values["devices"]:
        said += f" The guide's table ends at {counted(rows[-1]['devices'], 'device')}."
    table = [
        (
            f"{row['devices']:,}",
            *(short(row[name]) for name in ("dollars", "hours")),
            f"{row['billed']:,}",
            *(short(row[name]) for name in ("rent", "energy", "waiting")),
        )
        for row in rows
    ]
    return Shown(said, [table], best)


def _from(edge: list[tuple[float, int]]) -> str:
    """From which price of a waiting hour on each number of devices is the best."""
    (_, n), *later = edge
    if not later:
        return f"Whatever an hour of waiting costs: {counted(n, 'device')}."
    units = [" dollars an hour on", *[""] * (len(later) - 1)]
    parts = [
        f"from {short(start)}{unit}, {devices:,}"
        for (start, devices), unit in zip(later, units, strict=True)
    ]
    return f"If waiting costs nothing: {counted(n, 'device')}; {'; '.join(parts)}."


def cost_html() -> str:
    """The calculator; without JavaScript, the result of its first values."""
    data = {
        "guide": formulas.GUIDE,
        "near": formulas.NEAR,
        "year": formulas.HOURS_A_YEAR,
    }
    first = shown(first_values(FIELDS))
    fills, label = [0, 1, "idle"], "Cost calculator"  # waiting is idle time
    return calculator_html("spending", label, FIELDS, HEADERS, first, data, fills, 3)


def cost_calculator() -> None:
    """Show the calculator."""
    display(HTML(cost_html()))
