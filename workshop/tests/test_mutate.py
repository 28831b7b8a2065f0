"""The faults that are put in to try the tests: each is one, in code that runs."""

from __future__ import annotations

import ast
import subprocess

import pytest

from workshop import mutate

TEXT = '''"""A docstring with 1 + 1."""

__all__ = ["f"]


def f(n: int = 3) -> list[int]:
    """Says 2 < 3."""
    if not n < 2 or n == 7:
        raise ValueError(f"n is {n + 1}, not {1 + 1}")
    with tf.control_dependencies([n]):
        n += 1
    print("ü", n)
    return min(n, 5) if True else [n * 2]
'''


@pytest.mark.parametrize(
    "line",
    [
        "def f(n: int = 4) -> list[int]:",
        "if not ((n) <= (2)) or n == 7:",
        "if (n < 2) or n == 7:",
        "if ((not n < 2) and (n == 7)):",
        "if not n < 2 or ((n) != (7)):",
        "if not n < 3 or n == 7:",
        "with tf.control_dependencies([]):",
        "pass",
        "return max(n, 5) if True else [n * 2]",
        "return min(n, 5) if False else [n * 2]",
        "return min(n, 5) if True else [((n) + (2))]",
    ],
)
def test_a_fault_is_found(line):
    assert line in [fault.shown.strip() for fault in mutate.faults_of("x.py", TEXT)]


def test_docstrings_names_and_messages_are_left_alone():
    numbers = {fault.line for fault in mutate.faults_of("x.py", TEXT)}
    assert numbers == {6, 8, 10, 11, 12, 13}


def test_each_fault_changes_its_line_and_can_be_read():
    faults, lines = mutate.faults_of("x.py", TEXT), TEXT.splitlines()
    assert len(set(faults)) == len(faults)
    for _, number, shown in faults:
        assert shown != lines[number - 1]
        ast.parse("\n".join([*lines[: number - 1], shown, *lines[number:]]))


def test_the_draw_is_the_same_each_time_and_of_the_whole_package():
    drawn = mutate.chosen(60, 0, "")
    assert drawn == mutate.chosen(60, 0, "") and len(drawn) == 60
    assert {"manygpu", "workshop"} <= {fault.file.split("/")[0] for fault in drawn}
    some = mutate.chosen(5, 1, "manygpu/measure")
    assert {fault.file for fault in some} == {"manygpu/measure.py"}


def test_each_module_has_tests_that_exist():
    for module in mutate.modules():
        tests = mutate.tests_of(module)
        assert tests and all((mutate.ROOT / test).is_file() for test in tests)
    own = mutate.tests_of("manygpu/scratch/splitting/pipeline.py")[0]
    assert own == "tests/unit/scratch/splitting/test_pipeline.py"
    assert (
        mutate.tests_of("manygpu/processes/workers.py")[0]
        == "tests/unit/processes/test_workers.py"
    )


FILES = {
    "manygpu/__init__.py": "",
    "manygpu/code_of.py": "def add(a, b):\n    return a + b\n\n\ndef apart():\n    "
    "return 1\n",
    "tests/unit/test_code_of.py": "from manygpu import code_of\n\n\n"
    "def test_one():\n    assert code_of.add(1, 2) == 3\n\n\n"
    "def test_two():\n    code_of.apart()\n",
}


def test_a_small_project_is_tried_and_taken_up(tmp_path, monkeypatch, capsys):
    """A fault that a test notices, one that none does, and too little time."""
    root = tmp_path / "root"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    monkeypatch.setattr(mutate, "ROOT", root)
    found = mutate.lines_of("tests/unit/test_code_of.py")
    assert found["manygpu/code_of.py:2"] == ["tests/unit/test_code_of.py::test_one"]
    faults = [f for f in mutate.chosen(99, 0, "") if f.line in (2, 6)]
    monkeypatch.setattr(mutate, "chosen", lambda *asked: faults)
    to = ["--to", str(tmp_path / "faults.json")]
    assert mutate.main(to) == 0
    said = capsys.readouterr().out
    assert "code_of.py:2: noticed by a test: return ((a) - (b))" in said
    assert "code_of.py:6: NOT NOTICED: return 2" in said
    assert "1 of 2 noticed, 0 of them by the time-out" in said
    assert mutate.main(to) == 0
    again = capsys.readouterr().out
    assert again.splitlines() == said.splitlines()[-1:]
    monkeypatch.setattr(mutate, "WALL_S", 0.01)  # as a loop without end would take
    assert mutate.noticed_by(root, mutate.tests_of(faults[0].file)) == "the time-out"


def test_tests_that_fail_as_they_are_tell_nothing(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(mutate, "lines_of", lambda test: None)
    assert mutate.main(["--count", "1", "--to", str(tmp_path / "a.json")]) == 1
    assert "fail without any fault: " in capsys.readouterr().out
