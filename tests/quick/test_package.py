"""What `dir(manygpu)` and `help(manygpu)` show: all rooms, and no TensorFlow for it."""

import ast
import re
import subprocess
import sys

import pytest

import manygpu
from workshop.pages import ROOT

ASKED = """
import pydoc, sys
import manygpu
print(pydoc.render_doc(manygpu, renderer=pydoc.plaintext))
print(*dir(manygpu))
print({"tensorflow", "matplotlib", "IPython", "numpy"} & {*sys.modules})
"""


def rooms() -> list[str]:
    """The rooms that a reader may import, from the top down, as pyproject.toml says."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    layers = ast.literal_eval(
        re.search(r"^layers = (\[.*?\])", project, re.M | re.S)[1]
    )
    return [room for line in layers for room in line.split(" | ") if room[0] != "_"]


def python(code: str, *options: str) -> subprocess.CompletedProcess:
    command = [sys.executable, *options, "-c", code]
    told = {"encoding": "utf-8", "check": False, "timeout": 60}
    return subprocess.run(command, cwd=ROOT, capture_output=True, **told)


def test_help_and_dir_show_each_room_and_import_nothing_heavy():
    ran = python(ASKED)
    assert ran.returncode == 0, ran.stderr
    *text, names, heavy = ran.stdout.strip().splitlines()
    text, names = "\n".join(text), names.split()
    for room in rooms():
        assert re.search(rf"^ +- `{room}`: \S.*$", text, re.M), room
        assert room in names
    assert "devices" in names and "devices(n: 'int | None' = None" in text
    assert not {"re", "Any", "TYPE_CHECKING", "annotations"} & {*names}
    assert heavy == "set()"


def test_the_rooms_stand_in_the_order_of_the_layers():
    assert rooms() == manygpu._ROOMS


def test_a_room_that_is_not_imported_yet_says_so():
    ran = python("import manygpu; manygpu.costs")
    assert "no attribute 'costs' yet: `import manygpu.costs` first" in ran.stderr
    ran = python("import manygpu.costs; print(manygpu.costs.LayerCost.__name__)")
    assert ran.stdout == "LayerCost\n", ran.stderr


def test_an_unknown_name_is_none_also_without_docstrings():
    with pytest.raises(AttributeError, match=r"has no attribute 'cost'$"):
        manygpu.cost  # noqa: B018
    ran = python("import manygpu; print('devices' in dir(manygpu))", "-OO")
    assert ran.stdout == "True\n", ran.stderr
