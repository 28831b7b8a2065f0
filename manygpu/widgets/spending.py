"""The cost calculator: what a job costs on each number of devices.

Its formula is that of `manygpu.choosing.pages.spending`::

    cost_calculator()
"""

from __future__ import annotations

from IPython.display import HTML, display

from manygpu.choosing import pages
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
    "each doubling keeps, as below": "own",
    "the guide's epochs": "epochs",
    "the guide's ideal vs reality": "ideal vs reality",
}
PLACE = "Iowa, industrial"
FIELDS = (
    price_start("V100 16 GB, AWS, on demand", "price", "watts"),
    Start(
        "Start from the place", {k: {"cents": v} for k, v in ENERGY.items()}, {}, PLACE
    ),
    Number("price", "A device costs", 3.06, 0, 1e4, "dollars an hour"),
    Number("hours", "The job takes one device", 10, 1e-3, 1e6, "hours"),
    Pick("speedups", "More devices", SPEEDUPS, "own"),
    Number("efficiency", "A doubling keeps of the efficiency", 90, 51, 100, "%", 0.01),
    Number("devices", "Devices, at most", 8, 1, 4096, whole=True),
    Number("waiting", "An hour of waiting costs you", 2, 0, 1e6, "dollars"),
    Number("goodput", "Time that is not lost (goodput)", 100, 1, 100, "%", 0.01),
    Number("watts", "A device draws", 300, 0, 1e5, "W"),
    Number("cents", "Energy costs", ENERGY[PLACE], 0, 1e3, "cents a kWh"),
    Number("overhead", "The building draws for each watt", 1, 1, 10, "W"),
)
HEADERS = {
    "What the job costs, by number of devices.": (
        "devices",
        "hours",
        "rent [dollars]",
        "energy [dollars]",
        "waiting [dollars]",
        "together [dollars]",
    )
}


def shown(values: Values) -> Shown:
    """The result in words."""
    rows, edge = pages.spending(**values)
    least = min(row["dollars"] for row in rows)
    near = least * (1 + pages.NEAR)  # of those that cost the same, the fastest
    best = max(i for i, row in enumerate(rows) if row["dollars"] <= near)
    row = rows[best]
    paid = row["rent"] + row["energy"]
    said = (
        f"Best: {counted(row['devices'], 'device')}, {short(row['hours'])} hours, "
        f"{short(paid)} dollars to pay, {short(row['waiting'])} for waiting."
    )
    parts = (f"{counted(n, 'device')} from {short(start)}" for start, n in edge)
    said += f" Best by what an hour of waiting costs, in dollars: {', '.join(parts)}."
    table = [
        (
            f"{row['devices']:,}",
            *(short(row[k]) for k in ("hours", "rent", "energy", "waiting", "dollars")),
        )
        for row in rows
    ]
    return Shown(said, [table], best)


def cost_html() -> str:
    """The calculator; without JavaScript, the result of its first values."""
    data = {"guide": pages.GUIDE, "near": pages.NEAR}
    first = shown(first_values(FIELDS))
    return calculator_html("spending", "Cost calculator", FIELDS, HEADERS, first, data)


def cost_calculator() -> None:
    """Show the calculator."""
    display(HTML(cost_html()))
