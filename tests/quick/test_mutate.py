"""The faults that are put in to try the tests: each is one, in code that runs."""

from __future__ import annotations

import ast

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
    assert len({fault.file.split("/")[0] for fault in drawn}) == 2
    assert {fault.file for fault in mutate.chosen(5, 1, "measure")} == {
        "manygpu/measure.py"
    }


def test_each_module_has_tests_that_exist():
    for module in mutate.modules():
        tests = mutate.tests_of(module)
        assert tests and all((mutate.ROOT / test).is_file() for test in tests)
    own = mutate.tests_of("manygpu/scratch/splitting/pipeline.py")[0]
    assert own == "tests/unit/scratch/splitting/test_pipeline.py"
    assert mutate.tests_of("manygpu/workers.py")[0] == "tests/unit/test_workers.py"
