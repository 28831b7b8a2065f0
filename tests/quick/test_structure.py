"""The package's rooms, as pyproject.toml has them: what may import what."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

import pytest
from importlinter import cli

from workshop.needs import PACKAGE, ROOT, exports, graph, reads

# Files that lie in a folder of their own, and the room that this folder belongs to.
OWN_FOLDERS = {"datasets": "data"}


def levels() -> dict[str, int]:
    """Each room's line in pyproject.toml's contract: 0 is the top."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    layers = re.search(r"^layers = (\[.*?\])", project, re.M | re.S)[1]
    lines = enumerate(ast.literal_eval(layers))
    return {room: i for i, line in lines for room in line.split(" | ")}


def read_by() -> dict[str, set[str]]:
    """Each declared file of the package, and the rooms whose modules read it."""
    found = defaultdict(set)
    for module in graph().modules - {PACKAGE}:
        for file in reads(module):
            place = file.relative_to(ROOT / PACKAGE).as_posix()
            found[place].add(module.split(".")[1])
    return found


def room_of(place: str) -> str:
    """The room in which a file lies."""
    folder = place.split("/")[0]
    return OWN_FOLDERS.get(folder, folder)


def wrong_reader(place: str, room: str) -> bool:
    """Whether a file's room is neither the reader's own nor below it."""
    here, there = levels()[room], levels()[room_of(place)]
    return room != room_of(place) and there <= here


def test_the_package_keeps_to_its_layers_and_has_no_circle(capsys):
    assert cli.lint_imports(str(ROOT / "pyproject.toml"), no_cache=True) == 0, (
        capsys.readouterr().out
    )


def test_a_chapter_imports_chapters_before_it_only():
    order = list(exports())
    for place, module in enumerate(order):
        later = graph().find_modules_directly_imported_by(module) & {*order[place:]}
        assert not later, module


def test_no_room_reads_a_file_of_a_room_above_it():
    wrong = {
        (room, place)
        for place, rooms in read_by().items()
        for room in rooms
        if wrong_reader(place, room)
    }
    assert wrong == set(), "move the file into the lowest room that reads it"


def test_each_file_lies_in_a_room_that_reads_it():
    """With the test above that is the lowest one that does."""
    left = {place for place, rooms in read_by().items() if room_of(place) not in rooms}
    assert left == set(), "no module of the file's own room reads it"


@pytest.mark.parametrize(
    ("place", "room", "wrong"),
    [
        ("simulate/data/links.csv", "choosing", False),
        ("simulate/data/links.csv", "simulate", False),
        ("choosing/data/links.csv", "simulate", True),
        ("sources/claims.csv", "simulate", True),  # beside it: neither knows the other
        ("datasets/sha256.json", "data", False),
        ("datasets/sha256.json", "costs", True),
    ],
)
def test_a_file_of_a_room_above_or_beside_is_no_room_s_to_read(place, room, wrong):
    assert wrong_reader(place, room) == wrong


def test_what_is_followed_is_all_that_is_declared():
    assert {"simulate/data/links.csv", "prove/planted.csv"} <= {*read_by()}
    assert read_by()["simulate/data/links.csv"] == {"simulate"}
