"""Whole projects: broken, half mended and mended scripts, and what is said of them."""

from __future__ import annotations

import itertools

import pytest

from manygpu.exercises.checking import RUNS
from manygpu.exercises.projects import PROJECTS, THERE, functions_of, project
from tests.quick.exercises.mends import MENDS, mended

PLAIN = [name for name in MENDS if name != "odd-batch"]  # that one needs TensorFlow
HALVES = [
    (name, way, left)
    for name in PLAIN
    for ways, left in MENDS[name]
    for way in ways
]  # fmt: skip
WHOLE = [
    (name, pair)
    for name in PLAIN
    for pair in zip(*(ways for ways, _ in MENDS[name]), strict=True)
]
FIRST = {name: MENDS[name][1][1] for name in PLAIN}  # what the broken one breaks


def written(folder, name, *ways):
    """A file with a project's script, mended in these ways."""
    file = folder / "mine.py"
    file.write_text(mended(project(name).code, *ways), encoding="utf-8")
    return file


def test_there_are_five_of_a_learners_length():
    assert list(PROJECTS) == list(MENDS)
    for each in PROJECTS.values():
        lines = [line for line in each.code.splitlines() if line.strip()]
        assert 40 <= len(lines) <= 70, each.name


@pytest.mark.parametrize("name", PLAIN)
def test_a_broken_one_is_refused(tmp_path, name):
    found = project(name).check(project(name).write(tmp_path / "mine.py"))
    assert found.broken == FIRST[name], found


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("name", "way", "left"), HALVES)
def test_one_bug_mended_leaves_the_other(tmp_path, monkeypatch, name, way, left, seed):
    monkeypatch.setattr("manygpu.exercises.projects.judges.PATIENCE", 1.0)
    found = project(name).check(written(tmp_path, name, way), seed)
    assert found.broken == left, found
    assert found.said


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("name", "ways"), WHOLE)
def test_both_bugs_mended_are_accepted(tmp_path, name, ways, seed):
    found = project(name).check(written(tmp_path, name, *ways), seed)
    assert found, found
    assert "cases pass" in str(found)


@pytest.mark.parametrize("name", PLAIN)
def test_a_symptom_is_seen(capsys, name):
    project(name).symptom()
    assert capsys.readouterr().out


def test_functions_of_a_notebook_will_do(tmp_path):
    ways = [ways[0] for ways, _ in MENDS["sharded"]]
    given = functions_of(written(tmp_path, "sharded", *ways))
    assert project("sharded").check({"train": given["train"]})
    assert project("sharded").check({}).broken == THERE


def test_another_mistake_is_named(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def train(*given, **more): return 1 / 0", encoding="utf-8")
    found = project("sharded").check(file)
    assert found.broken == RUNS
    assert "ZeroDivisionError" in found.said
    file.write_text("import nothing.of.this.name", encoding="utf-8")
    assert project("sharded").check(file).broken == RUNS


def test_a_trainer_that_does_nothing_is_refused(tmp_path):
    """Not even by a training that is the same with and without a stop."""
    same = [("    while steps:", "    while 0:")]
    found = project("resume").check(written(tmp_path, "resume", same))
    assert found.broken == "without a stop it trains as before"


def test_an_order_that_keeps_too_much_is_refused(tmp_path):
    all_first = [("min(1, micros)", "micros")]
    ways = [all_first, MENDS["pipeline"][1][0][0]]
    found = project("pipeline").check(written(tmp_path, "pipeline", *ways))
    assert found.broken == "no stage keeps more than it needs"


def test_an_order_that_is_a_little_too_long_is_refused(tmp_path):
    once = [("min(1, micros)", "1 if micros == 2 else min(stages - stage, micros)")]
    ways = [once, MENDS["pipeline"][1][0][0]]
    found = project("pipeline").check(written(tmp_path, "pipeline", *ways))
    assert found.broken == "stages work at the same time"
    assert "with 2 stages and 2 micro-batches a step takes 8 passes, not 6" in str(
        found
    )


def test_bad_calls_are_refused(tmp_path):
    with pytest.raises(ValueError, match="name must be one of odd-batch, .*, got 'x'"):
        project("x")
    with pytest.raises(FileNotFoundError, match="mine must be a file"):
        project("resume").check(tmp_path / "none.py")
    file = project("resume").write(tmp_path / "mine.py")
    with pytest.raises(FileExistsError, match="file must be a new one"):
        project("resume").write(file)


def test_mends_leave_nothing_of_both():
    for name, bugs in MENDS.items():
        for ways in itertools.product(*(ways for ways, _ in bugs)):
            assert mended(project(name).code, *ways) != project(name).code
