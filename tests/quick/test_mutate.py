"""The faults that are put in to try the tests: each is one, in code that runs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys

import pytest

from tools import mutate

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


def lines() -> list[str]:
    return [fault.shown for fault in mutate.faults_of("x.py", TEXT)]


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
    assert line in lines()


def test_docstrings_names_and_messages_are_left_alone():
    numbers = {fault.line for fault in mutate.faults_of("x.py", TEXT)}
    assert numbers == {6, 8, 10, 11, 12, 13}


SCRIPT = """\
// 1 + 1 < 2
const s = "a < b", at = `${1 + 1}`;  /* 3 > 2 */
for (let i = 0; i < n; i++) { s += i === 2 ? 1.5 : Math.min(i - 1, 7); }
each(x => x || false);
"""


def test_a_scripts_faults_are_in_its_code_and_not_in_its_strings():
    found = mutate.faults_of("x.js", SCRIPT)
    places = [(f.line, SCRIPT[f.start : f.end], f.new) for f in found]
    third = [("0", "1"), ("<", "<="), ("+=", "-="), ("===", "!=="), ("2", "3")]
    third += [("5", "6"), ("min", "max"), ("-", "+"), ("1", "2"), ("7", "8")]
    fourth = [("||", "&&"), ("false", "true")]
    wanted = [(3, *pair) for pair in third] + [(4, *pair) for pair in fourth]
    assert places == wanted
    assert "i <= n" in found[1].shown and found[1].applied(SCRIPT).count("<=") == 1


def test_a_scripts_fault_gets_into_the_pages_that_hold_it(tmp_path, monkeypatch):
    made = tmp_path / "root" / "_checked" / "_build" / "html"
    (made / "book").mkdir(parents=True)
    (made / "book" / "index.html").write_text("<script>a < b</script>")
    (made / "other.html").write_text("a > b")
    monkeypatch.setattr(mutate, "ROOT", tmp_path / "root")
    mutate._copy_pages(tmp_path / "copy", "a < b\n", "a <= b\n")
    html = tmp_path / "copy" / "_build" / "html"
    assert (html / "book" / "index.html").read_text() == "<script>a <= b</script>"
    assert (html / "other.html").read_text() == "a > b"
    assert (made / "book" / "index.html").read_text() == "<script>a < b</script>"
    with pytest.raises(FileNotFoundError, match="no page of"):
        mutate._copy_pages(tmp_path / "again", "another", "script")


def test_each_fault_changes_one_place_and_can_be_read():
    faults = mutate.faults_of("x.py", TEXT)
    assert len({fault.applied(TEXT) for fault in faults}) == len(faults)
    for fault in faults:
        changed = fault.applied(TEXT)
        assert changed != TEXT
        ast.parse(changed)
        apart = zip(TEXT.splitlines(), changed.splitlines(), strict=True)
        assert [i for i, (a, b) in enumerate(apart, 1) if a != b] == [fault.line]


def test_the_draw_is_the_same_each_time_and_of_the_whole_package():
    drawn = mutate.chosen(60, 0, "")
    assert drawn == mutate.chosen(60, 0, "") and len(drawn) == 60
    assert {"manygpu", "tools"} <= {fault.file.split("/")[0] for fault in drawn}
    some = mutate.chosen(5, 1, "manygpu/measure")
    assert {fault.file for fault in some} == {"manygpu/measure.py"}


def test_each_module_has_tests_that_exist():
    for module in mutate.modules():
        tests = mutate.tests_of(module)
        assert tests and all((mutate.ROOT / test).is_file() for test in tests)
    own = mutate.tests_of("manygpu/scratch/splitting/pipeline.py")[0]
    assert own == "tests/unit/scratch/splitting/test_pipeline.py"
    own = mutate.tests_of("manygpu/processes/workers.py")[0]
    assert own == "tests/unit/processes/test_workers.py"


def test_the_tests_that_come_through_a_line_are_those_that_run():
    fault = mutate.Fault("manygpu/measure.py", 7, 0, 0, "", "")
    files = mutate.tests_of(fault.file)
    own, shared = files[0], files[1]
    names = [f"{own}::test_a[1::2]", shared]
    assert mutate.tests_through(fault, {"manygpu/measure.py:7": names}) == [
        [own, shared],
        names,
    ]
    # A line that runs when the module is imported: all of the module's tests.
    assert mutate.tests_through(fault, {"manygpu/measure.py:8": names}) == [files, []]


TWO_TESTS = """
import threading
import pytest
import code_of

@pytest.fixture(scope="module")
def shared():
    return code_of.once()

def test_one(shared):
    assert code_of.add(1, 2) == 3

def test_two():
    thread = threading.Thread(target=code_of.apart)
    thread.start()
    thread.join()
"""
CODE = """
def add(a, b):
    return a + b
def apart():
    return 1
def once():
    return 2
"""


def test_it_is_known_through_which_lines_a_test_comes(tmp_path):
    (tmp_path / "test_x.py").write_text(TWO_TESTS, encoding="utf-8")
    (tmp_path / "code_of.py").write_text(CODE, encoding="utf-8")
    to = tmp_path / "lines.json"
    run = "import sys; from pathlib import Path; from tools import mutate; "
    run += "mutate._try(sys.argv[1], ['test_x.py'], sys.argv[3:], Path(sys.argv[2]))"
    python = [sys.executable, "-c", run, str(tmp_path), str(to)]
    for only, tests in ([], 3), (["test_x.py::test_two"], 1), (["no such test"], 3):
        done = subprocess.run([*python, *only], cwd=mutate.ROOT, check=False)
        assert done.returncode == 0
        found = json.loads(to.read_text(encoding="utf-8"))
        assert len(found) == tests
        assert "code_of.py:5" in found["test_x.py::test_two"]
    one = {line for line in found["test_x.py::test_one"] if "code_of" in line}
    assert one == {"code_of.py:3"} and "code_of.py:7" in found[""]


def test_what_runs_in_a_graph_is_left_to_the_modules_own_tests(monkeypatch):
    asked = []

    def noticed_by(fault, tests, only=()):
        asked.append((tests, only))
        return "a test" if len(asked) == 2 else ""

    monkeypatch.setattr(mutate, "noticed_by", noticed_by)
    fault = mutate.Fault("manygpu/measure.py", 7, 0, 0, "", "")
    files = mutate.tests_of(fault.file)
    through = {"manygpu/measure.py:7": [f"{files[1]}::test_b"]}
    assert mutate.tried(fault, through) == "a test"
    assert asked == [([files[1]], [f"{files[1]}::test_b"]), (files[:1], ())]


def test_what_was_tried_is_taken_up_while_the_package_is_the_same(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "x.py").write_text(TEXT, encoding="utf-8")
    faults = mutate.faults_of("x.py", TEXT)[:4]
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    monkeypatch.setattr(mutate, "chosen", lambda *asked: faults)
    monkeypatch.setattr(mutate, "tried_alone", lambda *asked: ([], {}))
    answers, asked = {faults[0]: "", faults[1]: "a test", faults[2]: ""}, []

    def tried(fault, through):
        asked.append(fault)
        return answers.get(fault, "the time-out")

    monkeypatch.setattr(mutate, "tried", tried)
    to = ["--to", str(tmp_path / "faults.json")]
    assert mutate.main(to) == 0 and sorted(asked, key=faults.index) == faults
    assert "2 of 4 noticed, 1 of them by the time-out" in capsys.readouterr().out
    assert mutate.main(to) == 0 and len(asked) == 4  # all are known
    answers[faults[2]] = "a test"
    assert mutate.main([*to, "--again"]) == 0
    assert set(asked[4:]) == {faults[0], faults[2]}
    assert "3 of 4 noticed" in capsys.readouterr().out
    (tmp_path / "x.py").write_text(f"\n{TEXT}", encoding="utf-8")
    with pytest.raises(ValueError, match="x.py has changed: begin anew"):
        mutate.main(to)
