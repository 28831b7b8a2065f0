"""Which pages haven't reached the goals of docs/style.md yet, and how far they are.

python -m workshop.goals     take off the list what has reached its goal since, and
                             lower the bounds of what has come nearer

The list is goals.csv. A page that isn't on it keeps each goal. One that is has a bound
for each goal that it misses, its number of the day it was written down: the number may
fall, and it may not rise. The command never adds a page, and never raises a bound.
"""

from __future__ import annotations

import csv
import functools
import math
import sys
from pathlib import Path

from workshop import prose, visible
from workshop.pages import ROOT

LIST = ROOT / "workshop" / "goals.csv"
COMMAND = "run `python -m workshop.goals`"
# Of prose, per 1,000 words; a page of few words may have some places anyway.
MOST_SUSPICIOUS, FEW_SUSPICIOUS = 5, 3
MOST_SEMICOLONS, FEW_SEMICOLONS = 3, 2
RULES = {
    "hidden names": visible.hidden_names,
    "unnamed proofs": visible.unnamed_proofs,
    "long lines": visible.long_lines,
}
COLUMNS = ("suspicious", "semicolons", *RULES)
Bounds = dict[str, dict[str, float]]  # by page and goal


@functools.cache
def bounds() -> Bounds:
    """What the list has."""
    with LIST.open(encoding="utf-8", newline="") as file:
        return {
            row.pop("page"): {k: float(v) for k, v in row.items() if v}
            for row in csv.DictReader(file)
        }


def name_of(path: Path, root: Path = ROOT) -> str:
    """A page as the list names it, such as "book/start/devices.ipynb"."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


def missed(path: Path) -> tuple[dict[str, float], dict[str, list[str]]]:
    """The goals that a page misses: its numbers; and the places, a sentence each."""
    numbers, places = {}, {}
    if not path.stem.startswith(prose.GENERATED):
        found = prose.count(path)
        for column, number, most, few in (
            ("suspicious", found.places.total(), MOST_SUSPICIOUS, FEW_SUSPICIOUS),
            ("semicolons", found.semicolons, MOST_SEMICOLONS, FEW_SEMICOLONS),
        ):
            rate = math.ceil(10 * found.per_1000(number)) / 10
            if rate > most and number > few:
                numbers[column] = rate
                places[column] = [
                    f"has {rate} {column} per 1,000 words, {most} at most: `make prose "
                    f"C={path.stem}` names them"
                ]
    if path.suffix == ".ipynb":
        page = visible.cells(path)
        for column, rule in RULES.items():
            if wrong := rule(page):
                numbers[column], places[column] = len(wrong), wrong
    return numbers, places


def wrong(path: Path, root: Path = ROOT) -> list[str]:
    """What a page misses beyond what the list allows, a sentence each."""
    allowed = bounds().get(name_of(path, root), {})
    numbers, places = missed(path)
    found = []
    for column, number in numbers.items():
        if column not in allowed:
            found += places[column]
        elif number > allowed[column]:
            found.append(
                f"has {number:g} {column}, {allowed[column]:g} at most, its number in "
                f"{LIST.name}: it may fall, and not rise"
            )
            found += places[column]
    for column in allowed:
        if column not in numbers:
            found.append(
                f"reaches the goal for {column} and is still in {LIST.name}: {COMMAND}"
            )
    return found


def lowered() -> Bounds:
    """The list, without what has been reached, each bound as low as it can be."""
    there = {}
    for name, allowed in bounds().items():
        path = ROOT / name
        numbers = missed(path)[0] if path.is_file() else {}
        kept = {c: min(allowed[c], numbers[c]) for c in allowed if c in numbers}
        if kept:
            there[name] = kept
    return there


def write(there: Bounds) -> None:
    """Write the list."""
    with LIST.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["page", *COLUMNS])
        for name, kept in sorted(there.items()):
            rows.writerow(
                [name, *(f"{kept[c]:g}" if c in kept else "" for c in COLUMNS)]
            )
    bounds.cache_clear()


def main() -> int:
    """Lower the list; say what is left."""
    before = sum(map(len, bounds().values()))
    write(lowered())
    left = sum(map(len, bounds().values()))
    print(f"{before - left} goals reached, {left} to go, on {len(bounds())} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
