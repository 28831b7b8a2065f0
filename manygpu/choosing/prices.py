"""What devices cost to rent, as data: each price with its day and its source.

Nothing is looked up when this is read. `data/prices.csv` holds what was found on the
day that a row names; where a catalogue says no day of its own, that is the day on
which it was read, and the address names its version.
"""

from __future__ import annotations

import csv
import datetime
import functools
from typing import NamedTuple

from manygpu._files import data_file

FILE = data_file("choosing/data/prices.csv")
# Cents a kilowatt-hour in April 2025: U.S. Energy Information Administration, Electric
# Power Monthly, table 5.6.A, two rows far apart.
ENERGY = {"Iowa, industrial": 6.04, "Connecticut, commercial": 24.46}
# What of a row is no text.
KINDS = {"devices": int, "watts": lambda said: float(said) if said else None}
KINDS |= {"dollars_an_hour": float, "date": datetime.date.fromisoformat}


class Price(NamedTuple):
    """A row of the table.

    Attributes:
        device: with its memory.
        provider, product: who rents it out, under which name.
        devices: in the product: you can't rent fewer.
        watts: of one device, at most, by its data sheet; None where none is known.
        terms: `"on demand"`, or `"spot"`: cheaper, taken away when others pay more.
        dollars_an_hour: of the product.
        date: the day of the price.
        source: where it was read.
    """

    device: str
    provider: str
    product: str
    devices: int
    watts: float | None
    terms: str
    dollars_an_hour: float
    date: datetime.date
    source: str

    @property
    def each(self) -> float:
        """Dollars an hour for one device."""
        return self.dollars_an_hour / self.devices


@functools.cache
def prices() -> tuple[Price, ...]:
    """All rows, in the order of the file."""
    with FILE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row |= {name: kind(row[name]) for name, kind in KINDS.items()}
    return tuple(Price(**row) for row in rows)
