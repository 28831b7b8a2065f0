"""The package's rooms, as pyproject.toml has them: what may import what."""

from __future__ import annotations

import itertools
import sys

import grimp
import pytest
from importlinter import cli

from workshop.needs import ROOT, exports, graph

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def layers() -> list[list[str]]:
    """The rooms of each layer, from the top down."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    rooms, _ = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    return [layer.split(" | ") for layer in rooms["layers"]]


def test_the_package_keeps_to_its_layers_and_has_no_circle(capsys):
    assert cli.lint_imports(str(ROOT / "pyproject.toml"), no_cache=True) == 0, (
        capsys.readouterr().out
    )


@pytest.mark.parametrize("room", [*itertools.chain(*layers()[1:])])
def test_a_wrong_import_of_any_room_is_noticed(room):
    """One of a room beside it or above it; what each has by now is left out."""
    rooms = grimp.ImportGraph()
    for name in ("", *(f".{name}" for names in layers() for name in names)):
        rooms.add_module(f"p{name}")
    kept = [grimp.Layer(*names, independent=True) for names in layers()]
    level = next(i for i, names in enumerate(layers()) if room in names)
    for other in set(itertools.chain(*layers()[: level + 1])) - {room}:
        wrong = {"importer": f"p.{room}", "imported": f"p.{other}"}
        rooms.add_import(**wrong)
        assert rooms.find_illegal_dependencies_for_layers(kept, containers={"p"})
        rooms.remove_import(**wrong)
    assert not rooms.find_illegal_dependencies_for_layers(kept, containers={"p"})


def test_a_chapter_imports_chapters_before_it_only():
    order = list(exports())
    for place, module in enumerate(order):
        later = graph().find_modules_directly_imported_by(module) & {*order[place:]}
        assert not later, module
