"""What you have guessed, solved and written in this kernel, and a file that keeps it.

For example::

    from manygpu.exercises import results

    results("mine.json")

The page "Your results" shows such a file, and writes one of what its browser keeps.
"""

from __future__ import annotations

import json
import math
import os
from numbers import Real
from pathlib import Path
from typing import Any

from manygpu.records import read_json, write_whole

FORMAT = 1
KINDS = ("guesses", "puzzles", "exercises")
HERE: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in KINDS}


def keep(kind: str, name: str, what: dict[str, Any]) -> None:
    """Remember what a page's own question or puzzle came to, until the kernel ends.

    Args:
        kind: one of `KINDS`.
        name: "page/its-own-name".
        what: texts, numbers, truth values and None, by name.

    Raises:
        ValueError: no such kind.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    HERE[kind][name] = what


def results(path: str | Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Write what this kernel has seen of you into a file, beside what the file has.

    Exercises that passed stay in it. A guess, once made, isn't replaced by none.

    Args:
        path: a JSON file; it is made if it isn't there, and replaced whole.

    Returns:
        What the file now holds: by kind, by name.

    Raises:
        ValueError: there is a file, and it isn't one of results; it is left alone.
    """
    path = Path(path)
    there = os.path.lexists(path)  # a link that leads nowhere, too
    found = read(path) if there else {kind: {} for kind in KINDS}
    for kind in KINDS:
        for name, what in HERE[kind].items():
            if _is_worth(kind, what, found[kind].get(name)):
                found[kind][name] = what
    whole = {"manygpu": "results", "format": FORMAT, **found}
    write_whole(json.dumps(whole, indent=1, allow_nan=False) + "\n", path)
    return found


def read(path: str | Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Return what a file of results holds: by kind, by name.

    Raises:
        ValueError: it isn't a file of results; says why.
    """
    needed = "path must be a file of results"
    whole = read_json(Path(path), needed)
    if wrong := _wrong(whole):
        raise ValueError(f"{needed}, got {path} ({wrong}): name another")
    return {kind: whole[kind] for kind in KINDS}


def _wrong(whole: Any) -> str:
    """Why this isn't the content of a file of results; "" if it is."""
    if not isinstance(whole, dict) or whole.get("manygpu") != "results":
        return 'it lacks "manygpu": "results"'
    if whole.get("format") != FORMAT:
        return f"its format is {whole.get('format')!r}, not {FORMAT}"
    for kind in KINDS:
        of_kind = whole.get(kind)
        if not isinstance(of_kind, dict):
            return f"it has no {kind}"
        for name, what in of_kind.items():
            if not isinstance(what, dict):
                return f"{kind}: {name!r} has no values"
            for key, value in what.items():
                if isinstance(value, Real) and not math.isfinite(value):
                    return f"{kind}: {name!r} has {key} {value!r}"
    return ""


def _is_worth(kind: str, what: dict[str, Any], before: dict[str, Any] | None) -> bool:
    """Whether what is new should take the place of what a file has."""
    if before is None:
        return True
    if kind == "guesses":
        return what.get("guess") is not None
    if kind == "puzzles":  # less is better; None is no score
        scores = [one.get("score") for one in (what, before)]
        return scores[0] is not None and (scores[1] is None or scores[0] < scores[1])
    return True
