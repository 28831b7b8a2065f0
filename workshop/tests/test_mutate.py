"""The faults that are put in to try the tests: each is one, in code that runs."""

from __future__ import annotations

import ast

from workshop import mutate
from workshop.tests import small_book

TEXT = '''"""A docstring with 1 + 1."""


def f(*args: int, n: int = 3) -> list[int]:
    """Says 2 < 3."""
    if not n < 2 or n is not 7:
        raise ValueError(f"n is {n}, not 2")
    with tf.control_dependencies([n]):
        n += 1
    print("ü", n)
    return min(n, 5) if True else [k * 2 for k in args if "ü" in k]
'''
FAULTS = """def f(*args: int, n: int = 4) -> list[int]:
if not n <= 2 or n is not 7:
if not not n < 2 or n is not 7:
if not n < 2 and n is not 7:
if not n < 3 or n is not 7:
if not n < 2 or n is not 8:
with tf.control_dependencies([]):
n -= 1
n += 2
None
return max(n, 5) if True else [k * 2 for k in args if "ü" in k]
return min(n, 6) if True else [k * 2 for k in args if "ü" in k]
return min(n, 5) if False else [k * 2 for k in args if "ü" in k]
return min(n, 5) if True else [k + 2 for k in args if "ü" in k]
return min(n, 5) if True else [k * 3 for k in args if "ü" in k]"""


def test_each_fault_is_found_and_can_be_read_and_texts_are_left_alone():
    faults, lines = mutate.faults_of("x.py", TEXT), TEXT.splitlines()
    shown = {fault.shown.strip() for fault in faults}
    assert shown == {*FAULTS.splitlines()}
    for _, number, shown in faults:
        ast.parse("\n".join([*lines[: number - 1], shown, *lines[number:]]))


def test_the_draw_is_of_a_part_or_of_the_whole_whose_modules_have_tests(monkeypatch):
    some = mutate.chosen(5, 1, "manygpu/measure")
    assert {fault.file for fault in some} == {"manygpu/measure.py"} and len(some) == 5
    monkeypatch.setattr(mutate, "faults_of", lambda f, _: [mutate.Fault(f, 1, "")])
    drawn = mutate.chosen(9999, 0, "")
    assert {"manygpu", "workshop"} <= {fault.file.split("/")[0] for fault in drawn}
    for fault in drawn:
        assert mutate.tests_of(fault.file), fault.file
    own = mutate.tests_of("manygpu/scratch/splitting/pipeline.py")[0]
    assert own == "tests/unit/scratch/splitting/test_pipeline.py"


FILES = {
    "manygpu/__init__.py": "",
    "manygpu/code_of.py": "def apart():\n    return 1\n\n\ndef add(a, b):\n    "
    "return a + b\n",
    "tests/unit/test_code_of.py": "from manygpu import code_of\n\n\n"
    "def test_one():\n    assert code_of.add(1, 2) == 3\n",
}


def test_a_small_project_is_tried(tmp_path, monkeypatch, capsys):
    """A fault that a test notices, one that none does, and too little time."""
    small_book.write(tmp_path, FILES)
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    mutate.main([])
    said = capsys.readouterr().out
    assert "code_of.py:6: noticed by a test: return a - b" in said
    assert "code_of.py:2: NOT NOTICED: return 2" in said
    assert "1 of 2 noticed" in said
    monkeypatch.setattr(mutate, "WALL_S", 0.01)  # as a loop without end would take
    assert mutate.noticed_by(mutate.chosen(1, 0, "")[0]) == "the time-out"
