"""`make chapter`, `make unit` and `make serve`: what they refuse, run and say."""

from __future__ import annotations

import pytest

from workshop import build, sizes

PAGE = "book/data-parallel/gradient-accumulation"


def test_a_chapter_that_breaks_a_rule_is_refused_before_anything_is_written(
    monkeypatch,
):
    written = []
    monkeypatch.setattr(build.notebooks, "told", lambda path: [f"{path.stem}: wrong"])
    monkeypatch.setattr(build.notebooks, "export", lambda: written.append("export"))
    with pytest.raises(SystemExit, match="gradient-accumulation: wrong"):
        build.chapter("gradient-accumulation")
    assert written == []


def test_the_pages_at_the_back_must_know_a_chapter(monkeypatch):
    """Both tests are there, a case for each chapter."""
    ran = []
    monkeypatch.setattr(build.notebooks, "export", lambda: None)
    monkeypatch.setattr(build, "python", lambda *words: ran.append(words))
    build.lint_and_export(build.ROOT / f"{PAGE}.ipynb", [])
    _, _, (*_, api, notation) = ran
    for test in (api, notation):
        file, name = test.removesuffix(f"[{PAGE}]").split("::")
        assert f'("page", reading_order())\ndef {name}(page)' in (
            build.ROOT / file
        ).read_text(encoding="utf-8")


def test_a_chapters_exercises_are_tested_with_it(monkeypatch, capsys):
    """All that must know of them is asked, and nothing of other chapters."""
    ran = []
    monkeypatch.setattr(build, "python", lambda *words: ran.append(words))
    build.exercises(PAGE)
    (words,) = ran
    assert pytest.main([*words[2:], "--collect-only", "-p", "no:cacheprovider"]) == 0
    found = capsys.readouterr().out
    for test in (
        "test_checking.py::test_right_answers_are_accepted[gradient-accumulation/mean-",
        "test_checking.py::test_each_exercise_has_answers[gradient-accumulation/mean]",
        "test_pages.py::test_an_exercise_stands_on_its_page_as_check_knows_it[gradient-",
        "test_teaching.py::test_a_session_has_the_exercises_and_bugs_of_its_pages[Four]",
        "test_agents.py::test_each_chapter_is_there_in_order_with_a_question",
    ):
        assert test in found
    assert "all-reduce/" not in found


def test_a_chapters_steps_have_its_exercises(monkeypatch):
    done = []
    monkeypatch.setattr(build, "steps", lambda title, tasks: done.extend(tasks))
    monkeypatch.setattr(build, "exercises", done.append)
    build.chapter("gradient-accumulation")
    (step,) = [task for name, task in done if "exercises" in name]
    step()
    assert done[-1] == PAGE


def test_a_chapter_outside_the_contents_is_found_and_told_so(monkeypatch, capsys):
    """Its notebook is there: a list of all other names would help nobody."""
    contents = [page for page in build.reading_order() if page != PAGE]
    monkeypatch.setattr(build.notebooks, "reading_order", lambda root: contents)
    monkeypatch.setattr(build, "reading_order", lambda: contents)
    with pytest.raises(SystemExit, match=f"not in _toc.yml: .* `- file: {PAGE}`"):
        build.chapter("gradient-accumulation")


@pytest.mark.parametrize("names", [(), ("nonsense",), ("pipeline", "network")])
def test_what_is_no_chapter_is_told_which_there_are(names):
    with pytest.raises(SystemExit, match="NAME is one of two-devices, devices, "):
        build.asked_page(*names)


def test_the_tests_of_what_uses_a_chapter_are_found():
    found = {path.relative_to(build.ROOT).as_posix() for path in build.dependents(PAGE)}
    assert {
        "tests/unit/scratch/data_parallel/test_gradient_accumulation.py",
        "tests/unit/trainings/test_one_device.py",  # it makes a strategy of it
    } <= found
    assert "tests/unit/scratch/start/test_one_device.py" not in found


@pytest.mark.parametrize(
    "left", [[], ["workshop/static/book.css"], ["book/index.html"]]
)
def test_a_build_that_was_broken_off_is_not_served(monkeypatch, tmp_path, left):
    monkeypatch.setattr(build, "BUILD", tmp_path)
    for name in left:
        (tmp_path / "html" / name).parent.mkdir(parents=True)
        (tmp_path / "html" / name).touch()
    monkeypatch.setattr(build.http.server, "ThreadingHTTPServer", None)
    with pytest.raises(SystemExit, match="no rendered book yet: run `make book` first"):
        build.serve()


def test_a_chapters_size_is_said_without_a_page_or_a_browser(capsys, tmp_path):
    assert sizes.main(str(tmp_path), PAGE) == 0
    head, row, *_ = capsys.readouterr().out.splitlines()
    assert head.split() == ["visible", "teaching", "code", "screens"]
    page, visible, teaching = row.split()
    assert page == PAGE and int(visible) > 0 and teaching.endswith("%")
