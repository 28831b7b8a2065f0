"""What `manygpu.scratch` offers: each name in one list, found when it is asked for."""

import ast
import re
import subprocess
import sys

from manygpu import scratch
from workshop.needs import exports, file_of
from workshop.pages import ROOT

SOURCE = file_of("manygpu.scratch").read_text(encoding="utf-8")


def test_no_name_stands_twice():
    code = re.sub(r'^""".*?"""$', "", SOURCE, flags=re.M | re.S)
    offered = {name for names in exports().values() for name in names}
    twice = {name for name in offered if len(re.findall(rf"\b{name}\b", code)) > 1}
    assert twice == set(), "the imports are the one list: see workshop/notebooks.py"


def test_each_name_is_found_in_the_chapter_that_exports_it():
    listed = {name: module for module, names in exports().items() for name in names}
    assert listed == scratch.HOMES
    assert scratch.__all__ == [*listed]
    assert {*listed} <= {*dir(scratch)}


def test_an_editor_reads_the_same_names():
    """It takes the imports below TYPE_CHECKING, which no function may hide."""
    tree = ast.parse(SOURCE)
    (guarded,) = [node for node in tree.body if isinstance(node, ast.If)]
    assert ast.unparse(guarded.test) == "TYPE_CHECKING"
    names = [alias.name for node in guarded.body for alias in node.names]
    assert names == scratch.__all__


ASKED = """
import sys
from manygpu import scratch
scratch.gpipe
print(*sorted(m for m in sys.modules if m.startswith("manygpu.scratch.splitting.")))
"""


def test_only_the_chapter_that_is_asked_for_is_imported():
    command, told = [sys.executable, "-c", ASKED], {"encoding": "utf-8", "timeout": 60}
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, **told)
    assert ran.stdout.split() == ["manygpu.scratch.splitting.pipeline"], ran.stderr
