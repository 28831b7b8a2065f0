"""The grader: each mishap loses its own notebook's points only."""

from __future__ import annotations

import csv
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from manygpu import __main__ as command
from manygpu.exercises import one_notebook, wire
from manygpu.exercises.gradebook import Book
from manygpu.exercises.grading import exercises_of, grade_all
from manygpu.exercises.handed_in import handed_in

NAMES = ["pipeline/bubble", "mesh-layout/groups"]
BUBBLE = "def my_bubble(p, m):\n    return (p - 1) / (m + p - 1)"
GROUPS = """import numpy as np
def my_groups(data, model):
    ranks = np.arange(data * model).reshape(data, model)
    return ranks.T.tolist(), ranks.tolist()"""
LOST = """from pathlib import Path
import os, subprocess
for harm in (
    lambda: Path("FOLDER/right.ipynb").write_text("x"),
    lambda: open("FOLDER/right.ipynb").read(),
    lambda: os.remove("FOLDER/right.ipynb"),
    lambda: os.rename("FOLDER/right.ipynb", "mine"),
    lambda: subprocess.run(["rm", "FOLDER/right.ipynb"]),
    lambda: os.kill(os.getppid(), 9),
    lambda: os.fork(),
):
    try:
        harm()
    except PermissionError:
        continue
    del my_bubble"""
PATCHED = """import manygpu.exercises as e, manygpu.exercises.checking as c
e.check = c.tried = c._broken = lambda *given: True
e.KNOWN.clear()
def my_bubble(p, m):
    return 0.5"""
CALLED = "def my_bubble(p, m):"
KILLS, EATS = "import os\nos._exit(0)", "x = bytearray(10**11)"
# By name: its cells, the points it gets, and a word of its remarks.
MISHAPS = {
    "right": ([BUBBLE, GROUPS], 2, ""),
    "half": ([BUBBLE], 1, ""),
    "nothing": ([], 0, ""),
    "raises": ([BUBBLE, "1 / 0", GROUPS], 2, '"1 / 0": ZeroDivisionError'),
    "is no Python": ([BUBBLE, "def (", GROUPS], 2, 'cell "def (": SyntaxError'),
    "loops": ([BUBBLE, "while True: pass", GROUPS], 2, '"while True: pass": TooLong'),
    "kills": ([BUBBLE, KILLS, GROUPS], 2, 'cell "import os": its process'),
    "eats": ([BUBBLE, EATS, GROUPS], 2, 'cell "x = bytearray(10**11)": MemoryError'),
    "prints": ([BUBBLE, "for _ in range(1000): print('x' * 10**6)", GROUPS], 2, ""),
    "hangs when called": ([f"{CALLED}\n    while True: pass", GROUPS], 1, ""),
    "dies when called": ([f"{CALLED}\n    __import__('os')._exit(1)", GROUPS], 1, ""),
    "patches": ([PATCHED, GROUPS], 1, ""),
    "neighbours": ([BUBBLE, LOST, GROUPS], 2, ""),
    "magic": (["%matplotlib inline\n" + BUBBLE, GROUPS], 2, ""),
    "what can't be sent": (["def my_bubble(p, m): return object()", GROUPS], 1, ""),
    "too much": (["def my_bubble(p, m): return list(range(10**7))", GROUPS], 1, ""),
}  # fmt: skip


def write(folder: Path, name: str, cells: list[str]) -> None:
    """A notebook of these code cells."""
    made = [
        {"cell_type": "code", "source": cell.replace("FOLDER", str(folder))}
        for cell in cells
    ]
    (folder / f"{name}.ipynb").write_text(json.dumps({"cells": made}))


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """Grades by name, rows of the table as they were after each, and what changed."""
    folder = tmp_path_factory.mktemp("learners")
    for name, (cells, _, _) in MISHAPS.items():
        write(folder, name, cells)
    (folder / "no notebook.ipynb").write_text("{")
    before = {file: file.read_bytes() for file in folder.iterdir()}
    book = Book(tmp_path_factory.mktemp("grades"), NAMES)
    grades, rows = {}, []
    for grade in grade_all(handed_in(folder), NAMES, 3, folder, seconds=4):
        book.keep(grade)
        grades[Path(grade.notebook).stem] = grade
        with book.part.open(newline="") as file:
            rows.append(list(csv.DictReader(file)))
    same = before == {file: file.read_bytes() for file in folder.iterdir()}
    return grades, rows, same, book.folder


@pytest.mark.parametrize("name", MISHAPS)
def test_a_mishap_loses_its_own_points_only(graded, name):
    _, points, remark = MISHAPS[name]
    grade = graded[0][name]
    assert grade.points == points, grade
    assert remark in "; ".join(grade.remarks)


def test_what_is_no_notebook_gets_a_row(graded):
    grade = graded[0]["no notebook"]
    assert grade.points == 0
    assert "the file is no notebook" in grade.remarks[0]


def test_each_row_is_written_at_once(graded):
    _, rows, _, _ = graded
    assert [len(each) for each in rows] == list(range(1, len(MISHAPS) + 2))


def test_nothing_of_a_neighbour_changes(graded):
    assert graded[2]


def test_each_learner_has_a_page(graded):
    grades, _, _, folder = graded
    assert len(list(folder.glob("*.html"))) == len(grades)
    page = (folder / "patches.html").read_text(encoding="utf-8")
    assert "1 of 2 exercises hold" in page
    assert "my_bubble(1, 1): it is 0.5" in page
    assert "<script" not in page


def test_the_command_grades_a_folder(tmp_path, capsys):
    write(tmp_path, "one", [BUBBLE])
    words = ["grade", str(tmp_path), "--chapter", "pipeline", "--seed", "5"]
    assert command.main(words) == 0
    assert f"1 of {len(exercises_of('pipeline'))}  one.ipynb" in capsys.readouterr().out
    assert (tmp_path / "grades" / "one.html").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--chapter", "nothing"], "chapter must be one of all-reduce"),
        (["--chapter", "pipeline"], "folder must hold notebooks"),
    ],
)
def test_bad_arguments_are_refused(tmp_path, capsys, words, said):
    assert command.main(["grade", str(tmp_path), *words]) == 2
    assert said in capsys.readouterr().err


def test_the_public_seed_is_refused(tmp_path, capsys):
    write(tmp_path, "one", [BUBBLE])
    words = ["grade", str(tmp_path), "--chapter", "pipeline", "--seed", "0"]
    assert command.main(words) == 2
    assert "--seed must not be 0" in capsys.readouterr().err


def test_a_chapter_has_its_exercises():
    assert "mesh-layout/groups" in exercises_of("mesh-layout")
    assert "step-hangs/verdict" not in exercises_of("step-hangs")  # it has bugs only


VALUES = [
    None,
    True,
    3,
    2.5,
    float("inf"),
    "x",
    [1, (2, [3.0])],
    {0: 3, "a": (1,)},
    np.arange(6.0).reshape(2, 3),
    np.float32(1.5),
    np.zeros((0, 2), np.int64),
    [b"\x00\xff"],
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_what_is_sent_arrives(value):
    found = wire.from_line(wire.to_line(value))
    assert type(found) is type(value)
    np.testing.assert_equal(found, value)
    if isinstance(value, np.ndarray | np.generic):
        assert found.dtype == value.dtype


def test_arrays_that_are_one_array_stay_one():
    """Else a grader couldn't see that two devices share their parameters."""
    one, other = np.ones(3), np.ones(3)
    found = wire.from_line(wire.result_to_line([one, other, one, one[:2]]))
    assert found[0] is found[2] and found[0] is not found[1]
    assert not np.shares_memory(found[0], found[3])


def test_a_fraction_arrives_as_a_number():
    assert wire.from_line(wire.to_line(Fraction(1, 4))) == 0.25


def test_a_range_arrives_as_a_list():
    assert wire.from_line(wire.to_line(range(3))) == [0, 1, 2]


def test_what_can_not_be_sent_is_refused():
    with pytest.raises(TypeError, match="result must be numbers"):
        wire.to_line(object())
    with pytest.raises(TypeError, match="result must be numbers"):
        wire.to_line(np.array([object()]))
    with pytest.raises(ValueError, match="must fit a line"):
        wire.to_line("x" * wire.LONG)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        '{"same": 3}',
        '{"array": ["O", [1], ""]}',
        '{"array": 1}',
        '{"a": 1}',
        "[[{}]]",
    ],
)
def test_lines_that_mean_nothing_are_refused(line):
    with pytest.raises(ValueError):
        wire.from_line(line)


def test_a_process_that_says_nothing_is_gone(monkeypatch):
    monkeypatch.setattr(one_notebook, "SLACK", 0)
    cells = [(1, "import signal\nsignal.pause()")]
    pupil = one_notebook.Pupil(cells, 1e12, "/x", 1)
    monkeypatch.setattr(pupil, "cell", 0)
    with pytest.raises(one_notebook.GoneError, match="it takes too long"):
        pupil.prepare()
    pupil.close()
    assert not Path(pupil.folder.name).exists()
