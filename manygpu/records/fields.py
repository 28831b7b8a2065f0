"""What checks of records are made of: refusals that name the place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def check_fields(place: str, value: Any, wanted: Mapping[str, type]) -> None:
    """Refuse a dictionary whose keys or types are not exactly the wanted ones.

    Raises ValueError that names the place.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{place} must be a dictionary, got {type(value).__name__}")
    if value.keys() != wanted.keys():
        raise ValueError(f"{place} must have {sorted(wanted)}, got {sorted(value)}")
    for key, kind in wanted.items():
        if type(value[key]) is not kind:
            found = type(value[key]).__name__
            raise ValueError(f"{place}.{key} must be {kind.__name__}, got {found}")


def check_range(place: str, value: float, least: float, most: float) -> None:
    """Refuse a number out of range; NaN is out of every range.

    Raises ValueError that names the place.
    """
    if not least <= value <= most:
        raise ValueError(f"{place} must lie in {least} to {most}, got {value}")


def check_choice(place: str, value: Any, known: tuple[str, ...]) -> None:
    """Refuse what is none of the known words.

    Raises ValueError that names the place.
    """
    if value not in known:
        raise ValueError(f"{place} must be one of {known}, got {value!r}")
