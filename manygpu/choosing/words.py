"""Numbers as people write them: three digits, a unit that fits, no powers of ten."""

from __future__ import annotations

import math

SIZES = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))


def number(value: float) -> str:
    """Three digits of a number; all of them where it has more before the point."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    places = 2 - math.floor(math.log10(abs(value)))
    rounded = round(value, places)
    said = f"{rounded:,.{max(places, 0)}f}"
    return said.rstrip("0").rstrip(".") if "." in said else said


def size(value: float) -> str:
    """Bytes: "55.8 GB", "1.14 TB"."""
    unit, each = next((s for s in SIZES if value >= 0.9995 * s[1]), SIZES[-1])
    return f"{number(value / each)} {unit}"


def seconds(value: float) -> str:
    """A time: "8.8 s", "28 ms"."""
    unit, each = next((u for u in (("s", 1.0), ("ms", 1e-3)) if value >= u[1]), ("", 0))
    return f"{number(value / each)} {unit}" if each else f"{number(value * 1e6)} us"


def money(dollars: float) -> str:
    """A price: "17 dollars", "5.37 cents"."""
    if dollars >= 1:
        return f"{number(dollars)} dollars"
    return f"{number(100 * dollars)} cents"
